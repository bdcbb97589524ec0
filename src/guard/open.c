/*
 * Opening and closing a run on one rank: configuration and environment, folders, ledger, memory, self-test.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/json_write.h"
#include "base/status.h"
#include "firstbad/scan.h"
#include "guard/run.h"
#include "scan/scan_fpenv.h"

enum { WORLD_MAX = 1 << 20, META_MAX = 48, META_TEXT_MAX = 8192 };

/* The configuration after the environment had its say. Text points into the caller's, the environment's or `text`. */
struct effective {
    fb_run_config config;
    fb_pair meta[META_MAX];
    char text[META_TEXT_MAX]; /* copy of FIRSTBAD_SET, cut into pairs */
    uint64_t dropped;         /* pairs beyond META_MAX */
};

static const char *env(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static fb_status env_number(const char *name, int32_t low, int32_t *value, fb_error *err)
{
    const char *text = env(name);
    char *end;
    long number;
    if (!text) return FB_OK;
    number = strtol(text, &end, 10);
    if (*end || number < low || number > INT32_MAX) {
        return fb_fail(err, FB_E_USAGE, "open run: %s must be a whole number from %d on, found '%.40s'", name, low, text);
    }
    *value = (int32_t)number;
    return FB_OK;
}

static fb_status env_policy(int32_t *on_bad, fb_error *err)
{
    const char *text = env("FIRSTBAD_ON_BAD");
    if (!text) return FB_OK;
    if (strcmp(text, "skip") == 0) *on_bad = FB_ON_BAD_SKIP;
    else if (strcmp(text, "halt") == 0) *on_bad = FB_ON_BAD_HALT;
    else if (strcmp(text, "observe") == 0) *on_bad = FB_ON_BAD_OBSERVE;
    else return fb_fail(err, FB_E_USAGE, "open run: FIRSTBAD_ON_BAD must be skip, halt or observe, found '%.40s'", text);
    return FB_OK;
}

static void add_meta(struct effective *effective, const char *key, const char *value)
{
    uint64_t n = effective->config.meta_count;
    for (uint64_t i = 0; i < n; i++) {
        if (strcmp(effective->meta[i].key, key) == 0) {
            effective->meta[i].value = value; /* a later one wins */
            return;
        }
    }
    if (n == META_MAX) {
        effective->dropped++;
        return;
    }
    effective->meta[n].key = key;
    effective->meta[n].value = value;
    effective->config.meta_count = n + 1;
}

static fb_status env_meta(struct effective *effective, fb_error *err)
{
    const char *text = env("FIRSTBAD_SET");
    char *save = NULL;
    if (!text) return FB_OK;
    if (strlen(text) >= sizeof effective->text) {
        return fb_fail(err, FB_E_LIMIT, "open run: FIRSTBAD_SET may have %d bytes, found %zu", META_TEXT_MAX - 1, strlen(text));
    }
    memcpy(effective->text, text, strlen(text) + 1);
    for (char *line = strtok_r(effective->text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *equals = strchr(line, '=');
        if (!equals || equals == line)
            return fb_fail(err, FB_E_USAGE, "open run: expected key=value in FIRSTBAD_SET, found '%.60s'", line);
        *equals = '\0';
        add_meta(effective, line, equals + 1);
    }
    return FB_OK;
}

static fb_status read_config(struct effective *effective, const fb_run_config *given, fb_error *err)
{
    fb_run_config *config = &effective->config;
    fb_status status;
    fb_run_config defaults = FB_RUN_CONFIG_INIT;
    memset(effective, 0, sizeof *effective);
    if (given->size < offsetof(fb_run_config, dir) || given->size > 1u << 16) {
        return fb_fail(err, FB_E_USAGE, "open run: config.size is %u; start from FB_RUN_CONFIG_INIT", given->size);
    }
    *config = defaults;
    memcpy(config, given, given->size < sizeof *config ? given->size : sizeof *config);
    config->meta = effective->meta;
    config->meta_count = 0;
    if (given->meta_count && !given->meta) return fb_fail(err, FB_E_USAGE, "open run: meta is NULL and meta_count is not 0");
    for (uint64_t i = 0; i < given->meta_count; i++) {
        if (!given->meta[i].key) return fb_fail(err, FB_E_USAGE, "open run: meta[%llu].key is NULL", (unsigned long long)i);
        add_meta(effective, given->meta[i].key, given->meta[i].value);
    }
    if (env("FIRSTBAD_DIR")) config->dir = env("FIRSTBAD_DIR");
    if (env("FIRSTBAD_RUN_ID")) config->run_id = env("FIRSTBAD_RUN_ID");
    if (env("FIRSTBAD_INJECT")) config->inject = env("FIRSTBAD_INJECT");
    if ((status = env_number("FIRSTBAD_ATTEMPT", 1, &config->attempt, err)) != FB_OK) return status;
    if ((status = env_number("FIRSTBAD_MAX_SKIPS", 0, &config->max_skips, err)) != FB_OK) return status;
    if ((status = env_policy(&config->on_bad, err)) != FB_OK) return status;
    return env_meta(effective, err);
}

static int is_run_id(const char *text)
{
    size_t n = strlen(text);
    if (n == 0 || n >= FB_RUN_ID_BYTES || text[0] == '.' || text[0] == '-') return 0; /* '-' would read as an option */
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        int letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && c != '.' && c != '_' && c != '-') return 0;
    }
    return 1;
}

static fb_status check_config(const fb_run_config *config, fb_error *err)
{
    if (config->world < 1 || config->world > WORLD_MAX || config->rank < 0 || config->rank >= config->world) {
        return fb_fail(err, FB_E_USAGE, "open run: expected 0 <= rank < world <= %d, found rank %d of %d", WORLD_MAX, config->rank,
                       config->world);
    }
    if (!config->run_id || !is_run_id(config->run_id)) {
        return fb_fail(
            err, FB_E_USAGE,
            "open run: run_id must be 1 to 63 of letters, digits, '.', '_', '-', not beginning with '.' or '-'; found '%.80s'",
            config->run_id ? config->run_id : "NULL");
    }
    if (config->attempt < 1) return fb_fail(err, FB_E_USAGE, "open run: attempt must be 1 or more, found %d", config->attempt);
    if (config->agreement < FB_AGREE_NONE || config->agreement > FB_AGREE_VOTE) {
        return fb_fail(err, FB_E_USAGE, "open run: agreement must be one of FB_AGREE_*, found %d", config->agreement);
    }
    if ((config->replicated != 0 && config->replicated != 1) || config->replica_period < 0) {
        return fb_fail(err, FB_E_USAGE, "open run: replicated must be 0 or 1 and replica_period 0 or more, found %d and %d",
                       config->replicated, config->replica_period);
    }
    if (config->on_bad < FB_ON_BAD_SKIP || config->on_bad > FB_ON_BAD_OBSERVE) {
        return fb_fail(err, FB_E_USAGE, "open run: on_bad must be one of FB_ON_BAD_*, found %d", config->on_bad);
    }
    return FB_OK;
}

static void copy_text(char *to, size_t room, const char *text)
{
    (void)snprintf(to, room, "%s", text ? text : "");
}

static void fill_identity(struct fb_run *run, const fb_run_config *config)
{
    run->rank = config->rank;
    run->world = config->world;
    run->attempt = config->attempt;
    run->on_bad = config->on_bad;
    run->agreement = config->agreement;
    run->threads = config->threads;
    run->last_step = -1;
    run->parent = -1;
    run->step_verified = run->step_saved = run->replicas_equal = -1;
    run->replica_period = config->replicated ? config->replica_period : 0;
    run->replicas_due = run->replica_period > 0; /* ranks that begin from different weights are told before they train */
    run->pid = run->os->getpid(run->os->ctx);
    copy_text(run->run_id, sizeof run->run_id, config->run_id);
    copy_text(run->precision, sizeof run->precision, config->precision);
    if (config->host) copy_text(run->host, sizeof run->host, config->host);
    else if (run->os->hostname(run->os->ctx, run->host, sizeof run->host) < 0) copy_text(run->host, sizeof run->host, "");
    run->run_hash = fb_hash64(run->run_id, strlen(run->run_id), 0);
}

static fb_status open_policy(struct fb_run *run, const fb_run_config *config, fb_error *err)
{
    const fb_scaler_config unscaled = FB_SCALER_CONFIG_INIT;
    fb_gate_config gate;
    fb_status status;
    run->scaler_config = config->scaler;
    /* Zeroed by a caller who scales nothing: the gate takes its limits from the usual constants. */
    if (!config->scaler.enabled && !(config->scaler.init_scale > 0.0)) run->scaler_config = unscaled;
    if ((status = fb_scaler_init(&run->scaler_config, &run->scaler, err)) != FB_OK) return status;
    memset(&gate, 0, sizeof gate);
    gate.on_bad = config->on_bad;
    gate.max_skips = config->max_skips;
    gate.agreement = config->agreement;
    gate.world = config->world;
    gate.scaler = run->scaler_config;
    fb_risk_init(&run->risk);
    if ((status = fb_inject_parse(&run->inject, config->inject, err)) != FB_OK) return status;
    return fb_gate_init(&run->gate, &gate, err);
}

static fb_status take_memory(struct fb_run *run, const fb_run_config *config, fb_error *err)
{
    run->findings_max = config->findings_max ? config->findings_max : FB_FINDINGS_MAX_DEFAULT;
    if (run->findings_max > 1u << 20) return fb_fail(err, FB_E_USAGE, "open run: findings_max may be 2^20 at most");
    fb_sites_init(&run->sites, config->sites_max);
    run->findings = fb_calloc((size_t)run->findings_max, sizeof *run->findings);
    if (!run->findings)
        return fb_fail(err, FB_E_NOMEM, "open run: no memory for %llu findings", (unsigned long long)run->findings_max);
    return FB_OK;
}

/* A trainer may change its working folder while it runs, and its cases and the registry belong where its ledger is. */
static fb_status hold_home(struct fb_run *run, fb_error *err)
{
    char here[FB_OS_PATH_MAX];
    if (run->folder[0] != '/' && run->os->realpath(run->os->ctx, ".", here, sizeof here) >= 0)
        return fb_os_join(run->home, sizeof run->home, here, run->folder, err);
    (void)snprintf(run->home, sizeof run->home, "%s", run->folder); /* a working folder that is gone has no name */
    return FB_OK;
}

/* Names of the run's folder and of the cases below it; FB_E_LIMIT when too long. */
static fb_status name_folders(struct fb_run *run, const fb_run_config *config, fb_error *err)
{
    fb_status status = fb_os_join(run->folder, sizeof run->folder, config->dir ? config->dir : "firstbad-runs", run->run_id, err);
    if (status == FB_OK) status = hold_home(run, err);
    if (status != FB_OK) return status;
    return fb_os_join(run->cases, sizeof run->cases, run->home, "cases", err);
}

static fb_status create_log(struct fb_run *run, fb_error *err)
{
    char folder[FB_OS_PATH_MAX], name[64], path[FB_OS_PATH_MAX];
    uint64_t unique[4];
    fb_status status;
    (void)snprintf(name, sizeof name, "ledger/a%d", run->attempt);
    if ((status = fb_os_join(folder, sizeof folder, run->folder, name, err)) != FB_OK) return status;
    if ((status = fb_os_mkdirs(run->os, folder, err)) != FB_OK) return status;
    (void)snprintf(name, sizeof name, "r%05d.log", run->rank);
    if ((status = fb_os_join(path, sizeof path, folder, name, err)) != FB_OK) return status;
    unique[0] = run->run_hash;
    unique[1] = ((uint64_t)(uint32_t)run->attempt << 32) | (uint32_t)run->rank;
    unique[2] = (uint64_t)run->os->realtime_ns(run->os->ctx);
    unique[3] = (uint64_t)run->pid ^ ((uint64_t)run->os->monotonic_ns(run->os->ctx) << 20);
    return fb_log_create(&run->log, run->os, path, fb_hash64(unique, sizeof unique, 0), err);
}

/* What the run is, for people and for `why`. `firstbad run` may have written a fuller one before: then that stays. */
static void write_run_json(struct fb_run *run, const fb_run_config *config)
{
    fb_json json;
    fb_error why;
    fb_status status;
    fb_json_init(&json, 1);
    fb_json_object_begin(&json);
    fb_json_key_string(&json, "schema", "firstbad.run/1");
    fb_json_key_string(&json, "run_id", run->run_id);
    fb_json_key_int(&json, "created_unix", run->os->realtime_ns(run->os->ctx) / 1000000000);
    fb_json_key_string(&json, "host", run->host);
    fb_json_key_int(&json, "world", run->world);
    fb_json_key_string(&json, "precision", run->precision[0] ? run->precision : NULL);
    fb_json_key(&json, "policy");
    fb_json_object_begin(&json);
    fb_json_key_string(&json, "on_bad",
                       run->on_bad == FB_ON_BAD_SKIP   ? "skip"
                       : run->on_bad == FB_ON_BAD_HALT ? "halt"
                                                       : "observe");
    fb_json_key_int(&json, "max_skips", config->max_skips);
    fb_json_key_string(&json, "agreement", fb_agreement_name(run->agreement));
    fb_json_object_end(&json);
    fb_json_key(&json, "meta");
    fb_json_object_begin(&json);
    for (uint64_t i = 0; i < config->meta_count; i++) fb_json_key_string(&json, config->meta[i].key, config->meta[i].value);
    fb_json_object_end(&json);
    fb_json_object_end(&json);
    status = fb_json_finish(&json, &why);
    if (status == FB_OK) status = fb_os_put_new(run->os, run->folder, "run.json", fb_json_text(&json), json.used, &why);
    if (status != FB_OK && status != FB_E_EXISTS) fb_record_lost(run, &why);
    fb_json_release(&json);
}

/* A second writer is an error; a folder that cannot be written is not: the run is guarded in memory. */
static fb_status open_files(struct fb_run *run, const fb_run_config *config, uint64_t dropped, fb_error *err)
{
    fb_error why;
    fb_status status = create_log(run, &why);
    if (status == FB_E_EXISTS) {
        if (err) *err = why;
        return status;
    }
    if (status != FB_OK) fb_record_lost(run, &why);
    fb_record_run(run, config, dropped);
    fb_leave_out_record(run);
    if (run->rank == 0) write_run_json(run, config);
    return FB_OK;
}

/* The checks of this build find what they must: proven once in a process for each kernel, since code does not change. */
static fb_status self_test(fb_error *err)
{
    static _Atomic(const char *) proven;
    const char *kernel = fb_scan_kernel();
    fb_status status;
    if (kernel && atomic_load(&proven) == kernel) return FB_OK;
    if ((status = fb_scan_selftest(err)) == FB_OK) atomic_store(&proven, kernel);
    return status;
}

static fb_status open_run(struct fb_run **out, const fb_run_config *config, const fb_os *os, fb_error *err)
{
    fb_status status = FB_OK;
    struct fb_run *run = NULL;
    struct effective *effective = NULL;
    if (!out) return fb_fail(err, FB_E_USAGE, "open run: out is NULL");
    *out = NULL;
    if (!config) return fb_fail(err, FB_E_USAGE, "open run: config is NULL");
    effective = fb_calloc(1, sizeof *effective);
    run = fb_calloc(1, sizeof *run);
    if (!effective || !run) {
        status = fb_fail(err, FB_E_NOMEM, "open run: no memory for %zu bytes", sizeof *run + sizeof *effective);
        goto done;
    }
    run->os = os;
    atomic_flag_clear(&run->lock);
    if ((status = read_config(effective, config, err)) != FB_OK) goto done;
    if ((status = check_config(&effective->config, err)) != FB_OK) goto done;
    fill_identity(run, &effective->config);
    if ((status = self_test(err)) != FB_OK) goto done;
    if ((status = open_policy(run, &effective->config, err)) != FB_OK) goto done;
    if ((status = take_memory(run, &effective->config, err)) != FB_OK) goto done;
    if ((status = fb_leave_out_read(run, env("FIRSTBAD_LEAVE_OUT"), err)) != FB_OK) goto done;
    if ((status = name_folders(run, &effective->config, err)) != FB_OK) goto done;
    if ((status = open_files(run, &effective->config, effective->dropped, err)) != FB_OK) goto done;
    *out = run; /* the caller owns it from here */
    run = NULL;
done:
    fb_run_close(run);
    fb_free(effective);
    return status;
}

fb_status fb_run_open_with(struct fb_run **out, const fb_run_config *config, const fb_os *os, fb_error *err)
{
    fb_fpenv modes = fb_fpenv_enter(); /* the configuration may hold a NaN, and the host may trap where one is compared */
    fb_status status = open_run(out, config, os, err);
    fb_fpenv_leave(modes);
    return status;
}

fb_status fb_run_open(fb_run **out, const fb_run_config *config, fb_error *err)
{
    return fb_run_open_with(out, config, fb_os_posix(), err);
}

void fb_run_close(struct fb_run *run)
{
    int ours;
    if (!run) return;
    ours = run->os && run->os->getpid(run->os->ctx) == run->pid; /* no table yet: it was opened by half */
    if (run->log && ours) fb_proof_compare(run); /* after a halt there is no next begin; owned memory is valid until here */
    fb_checkpoint_close(run, !ours);
    if (run->log && ours) {
        if (run->step.open) fb_findings_record(run); /* found, and the trainer gave up before it voted */
        if (run->lost) fb_record_event(run, FB_EVENT_EVIDENCE_LOST, (int64_t)run->lost, 0, run->lost_why.message, 0);
        fb_record_append(run, FB_REC_CLOSE, fb_rec_run_encode(run->scratch, sizeof run->scratch, NULL, 0), 0);
    }
    fb_log_close(run->log); /* in a forked child it touches no file */
    fb_sites_release(&run->sites);
    fb_free(run->seen);
    fb_free(run->read);
    fb_free(run->bad);
    fb_free(run->owned);
    fb_free(run->findings);
    fb_free(run->left_out);
    fb_free(run);
}

uint64_t fb_run_evidence_lost(const struct fb_run *run, fb_error *why)
{
    fb_error_clear(why);
    if (!run) return 0;
    if (why && run->lost) *why = run->lost_why;
    return run->lost;
}

const char *fb_run_folder(const struct fb_run *run)
{
    return run ? run->folder : "";
}

void fb_run_lock(struct fb_run *run)
{
    while (atomic_flag_test_and_set_explicit(&run->lock, memory_order_acquire)) {
        /* Held for a few hundred instructions at most. */
    }
}

void fb_run_unlock(struct fb_run *run)
{
    atomic_flag_clear_explicit(&run->lock, memory_order_release);
}

int64_t fb_run_now(const struct fb_run *run)
{
    return run ? run->os->monotonic_ns(run->os->ctx) : 0;
}

void fb_run_spent(struct fb_run *run, int64_t begun_ns)
{
    int64_t now = run->os->monotonic_ns(run->os->ctx);
    fb_run_lock(run);
    run->step.rec.guard_ns += (uint64_t)(now - begun_ns);
    fb_run_unlock(run);
}

fb_status fb_run_usable(const struct fb_run *run, const char *what, fb_error *err)
{
    if (!run) return fb_fail(err, FB_E_USAGE, "%s: run is NULL", what);
    if (run->os->getpid(run->os->ctx) != run->pid) {
        return fb_fail(err, FB_E_FORKED,
                       "%s: the run belongs to process %lld, and this is a child made by fork; nothing was touched", what,
                       (long long)run->pid);
    }
    return FB_OK;
}

fb_status fb_run_in_step(const struct fb_run *run, const char *what, fb_error *err)
{
    fb_status status = fb_run_usable(run, what, err);
    if (status != FB_OK) return status;
    if (!run->step.open) return fb_fail(err, FB_E_ORDER, "%s: no step is open; call fb_step_begin first", what);
    return FB_OK;
}

fb_status fb_run_misuse(struct fb_run *run, fb_status status, const fb_error *err)
{
    if (status == FB_OK || !run || status == FB_E_FORKED) return status;
    fb_run_lock(run);
    fb_record_event(run, FB_EVENT_MISUSE, status, 0, err ? err->message : fb_status_name(status), 0);
    fb_run_unlock(run);
    return status;
}

/* ---- run ids and attempts ---------------------------------------------------------------------------------------------------- */

fb_status fb_run_new_id(char id[64])
{
    const fb_os *os = fb_os_posix();
    int64_t seconds = os->realtime_ns(os->ctx) / 1000000000;
    int64_t days = seconds / 86400, second = seconds % 86400;
    int64_t era, day_of_era, year_of_era, day_of_year, month;
    if (!id) return FB_E_USAGE;
    /* Civil date from days since 1970 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms"); no time zone, no locale. */
    days += 719468;
    era = days / 146097;
    day_of_era = days - era * 146097;
    year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    month = (5 * day_of_year + 2) / 153;
    (void)snprintf(id, 64, "%04d-%02d-%02dT%02d-%02d-%02d-%lld", (int)(year_of_era + era * 400 + (month >= 10)),
                   (int)(month < 10 ? month + 3 : month - 9), (int)(day_of_year - (153 * month + 2) / 5 + 1), (int)(second / 3600),
                   (int)(second / 60 % 60), (int)(second % 60), (long long)os->getpid(os->ctx));
    return FB_OK;
}

fb_status fb_run_next_attempt(const char *dir, const char *run_id, int32_t *attempt, fb_error *err)
{
    const fb_os *os = fb_os_posix();
    char folder[FB_OS_PATH_MAX], ledger[FB_OS_PATH_MAX], path[FB_OS_PATH_MAX], name[32];
    fb_status status;
    if (!run_id || !attempt || !is_run_id(run_id))
        return fb_fail(err, FB_E_USAGE, "take the next attempt: run_id or attempt is missing");
    if ((status = fb_os_join(folder, sizeof folder, dir ? dir : "firstbad-runs", run_id, err)) != FB_OK) return status;
    if ((status = fb_os_join(ledger, sizeof ledger, folder, "ledger", err)) != FB_OK) return status;
    if ((status = fb_os_mkdirs(os, ledger, err)) != FB_OK) return status;
    for (int32_t number = 1; number < INT32_MAX; number++) {
        int64_t made;
        (void)snprintf(name, sizeof name, "a%d", number);
        if ((status = fb_os_join(path, sizeof path, ledger, name, err)) != FB_OK) return status;
        made = os->mkdir(os->ctx, path, 0777); /* the one who makes the folder owns the number */
        if (made == 0) {
            *attempt = number;
            return FB_OK;
        }
        if (made != -EEXIST) return fb_fail_os(err, (int)-made, "make folder %s", path);
    }
    return fb_fail(err, FB_E_LIMIT, "take the next attempt of run %s: none is left", run_id);
}
