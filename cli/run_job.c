/* See run_job.h. */
#include "run_job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json_write.h"
#include "base/status.h"
#include "guard/inject.h"
#include "leave_out.h"
#include "run_end.h"

enum { GIT_MS = 5000, PEER_MS = 30000, VARIABLES_MAX = 11 };

#define LEFT_OUT_NAME "left-out.txt"

fb_status run_job_append(char text[RUN_JOB_TEXT], const char *value, char part, fb_error *err)
{
    size_t used = strlen(text), more = strlen(value);
    if (used + more + 2 > RUN_JOB_TEXT)
        return fb_fail(err, FB_E_LIMIT, "take '%.40s': more than %d bytes of it", value, RUN_JOB_TEXT - 2);
    if (used) text[used++] = part;
    memcpy(text + used, value, more + 1);
    return FB_OK;
}

static const char *env(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* ---- which run --------------------------------------------------------------------------------------------------------------- */

static int is_run_id(const char *text)
{
    size_t n = strlen(text);
    return n > 0 && n < 64 && text[0] != '.' && text[0] != '-' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

/* A name that the person gave must be right; one that a launcher gave is taken when it is. torchrun's own default is "none". */
static fb_status choose_id(run_job *job, fb_error *err)
{
    static const char *const launchers[] = {"SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"};
    const char *given = job->options->run_id ? job->options->run_id : env("FIRSTBAD_RUN_ID");
    if (given && !is_run_id(given)) {
        return fb_fail(err, FB_E_USAGE,
                       "name the run '%.80s': expected 1 to 63 of letters, digits, '.', '_' and '-', not beginning with '.' or '-'",
                       given);
    }
    for (size_t i = 0; !given && i < sizeof launchers / sizeof *launchers; i++) {
        const char *value = env(launchers[i]);
        if (value && is_run_id(value) && strcmp(value, "none") != 0) given = value;
    }
    if (!given) return fb_run_new_id(job->run_id);
    (void)snprintf(job->run_id, sizeof job->run_id, "%s", given);
    return FB_OK;
}

static int is_token(const char *text)
{
    return *text && text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] == '\0';
}

/*
 * Where a launcher starts us several times for one job, once on each node for example, all of us must name the same attempt. What
 * tells one launch from the next is the launcher's; "" where we are alone.
 */
static void name_launch(char out[RUN_JOB_TOKEN])
{
    const char *tasks = env("SLURM_STEP_NUM_TASKS"), *world = env("WORLD_SIZE"), *elastic = env("TORCHELASTIC_RUN_ID");
    char text[RUN_JOB_TOKEN] = "";
    if (tasks && strcmp(tasks, "1") != 0 && env("SLURM_JOB_ID") && env("SLURM_STEP_ID")) {
        (void)snprintf(text, sizeof text, "slurm-%s.%s.%s", env("SLURM_JOB_ID"), env("SLURM_STEP_ID"),
                       env("SLURM_RESTART_COUNT") ? env("SLURM_RESTART_COUNT") : "0");
    } else if (world && strcmp(world, "1") != 0 && elastic && env("TORCHELASTIC_RESTART_COUNT")) {
        (void)snprintf(text, sizeof text, "elastic-%s.%s", elastic, env("TORCHELASTIC_RESTART_COUNT"));
    }
    (void)snprintf(out, RUN_JOB_TOKEN, "%s", is_token(text) ? text : "");
}

/* The attempt that a claim names, or 0. */
static int32_t read_claim(const fb_os *os, const char *ledgers, const char *name)
{
    char path[FB_OS_PATH_MAX], *data = NULL;
    size_t bytes = 0;
    long number = 0;
    if (fb_os_join(path, sizeof path, ledgers, name, NULL) != FB_OK) return 0;
    if (fb_os_read_file(os, path, 64, &data, &bytes, NULL) == FB_OK) number = strtol(data, NULL, 10);
    fb_free(data);
    return number > 0 && number <= INT32_MAX ? (int32_t)number : 0;
}

/* A peer won the election: wait for the number that it takes. */
static fb_status join_peer(run_job *job, const fb_os *os, const char *ledgers, const char *name, fb_error *err)
{
    int64_t until = process_now_ms() + PEER_MS;
    job->joined = 1;
    while ((job->attempt = read_claim(os, ledgers, name)) == 0 && process_now_ms() < until) process_sleep_ms(20);
    if (job->attempt) return FB_OK;
    return fb_fail(err, FB_E_NOTFOUND, "join the launch: a peer announced itself in %s/%s.owner, and named no attempt within %d s",
                   ledgers, name, PEER_MS / 1000);
}

/* Take the next attempt, or the one that a peer of the same launch takes. Whoever puts the owner file in place first is the one. */
static fb_status choose_attempt(run_job *job, const fb_os *os, fb_error *err)
{
    char token[RUN_JOB_TOKEN], name[RUN_JOB_TOKEN + 16], owner[RUN_JOB_TOKEN + 32], text[16], ledgers[FB_OS_PATH_MAX];
    fb_status status;
    int n;
    name_launch(token);
    if (!token[0]) return fb_run_next_attempt(job->dir, job->run_id, &job->attempt, err);
    if ((status = fb_os_join(ledgers, sizeof ledgers, job->folder, "ledger", err)) != FB_OK) return status;
    if ((status = fb_os_mkdirs(os, ledgers, err)) != FB_OK) return status;
    (void)snprintf(name, sizeof name, "claim-%s", token);
    (void)snprintf(owner, sizeof owner, "%s.owner", name);
    status = fb_os_put_new(os, ledgers, owner, "", 0, err);
    if (status == FB_E_EXISTS) return join_peer(job, os, ledgers, name, err);
    if (status != FB_OK || (status = fb_run_next_attempt(job->dir, job->run_id, &job->attempt, err)) != FB_OK) return status;
    n = snprintf(text, sizeof text, "%d\n", job->attempt);
    return fb_os_put_new(os, ledgers, name, text, (size_t)n, err);
}

static fb_status choose_folder(run_job *job, const fb_os *os, fb_error *err)
{
    const char *dir = job->options->dir ? job->options->dir : env("FIRSTBAD_DIR") ? env("FIRSTBAD_DIR") : "firstbad-runs";
    char name[48];
    int64_t got;
    fb_status status = fb_os_mkdirs(os, dir, err);
    if (status != FB_OK) return status;
    got = os->realpath(os->ctx, dir, job->dir, sizeof job->dir);
    if (got < 0) return fb_fail_os(err, (int)-got, "find folder %s", dir);
    if ((status = fb_os_join(job->folder, sizeof job->folder, job->dir, job->run_id, err)) != FB_OK) return status;
    if ((status = choose_attempt(job, os, err)) != FB_OK) return status;
    (void)snprintf(name, sizeof name, "ledger/a%d", job->attempt);
    if ((status = fb_os_join(job->ledger, sizeof job->ledger, job->folder, name, err)) != FB_OK) return status;
    return fb_os_mkdirs(os, job->ledger, err);
}

/* ---- run.json, launch.json, exit.json ---------------------------------------------------------------------------------------- */

static fb_status put(const fb_os *os, const char *folder, const char *name, fb_json *json, fb_error *err)
{
    fb_status status = fb_json_finish(json, err);
    if (status == FB_OK) status = fb_os_put_new(os, folder, name, fb_json_text(json), json->used, err);
    fb_json_release(json);
    return status;
}

static void write_command(fb_json *json, char *const *command)
{
    char cwd[FB_OS_PATH_MAX];
    fb_json_key(json, "command");
    fb_json_array_begin(json);
    for (; *command; command++) fb_json_string(json, *command);
    fb_json_array_end(json);
    fb_json_key_string(json, "cwd", getcwd(cwd, sizeof cwd) ? cwd : NULL);
}

/* The code is what git says about the folder we stand in. Where there is no git, or no repository, it is unknown. */
static void write_code(fb_json *json)
{
    char git[] = "git", quiet[] = "--no-optional-locks", parse[] = "rev-parse", verify[] = "--verify", head[] = "HEAD",
         state[] = "status", porcelain[] = "--porcelain", tracked[] = "--untracked-files=no";
    char *const ask_commit[] = {git, quiet, parse, verify, head, NULL};
    char *const ask_state[] = {git, quiet, state, porcelain, tracked, NULL};
    char commit[128] = "", changes[1 << 16] = "";
    int known = process_capture(ask_commit, commit, sizeof commit, GIT_MS) == 0;
    int state_known = known && process_capture(ask_state, changes, sizeof changes, GIT_MS) == 0;
    fb_json_key(json, "code");
    fb_json_object_begin(json);
    fb_json_key_string(json, "commit", known ? commit : NULL);
    if (state_known) fb_json_key_bool(json, "dirty", changes[0] != '\0');
    else fb_json_key_null(json, "dirty");
    fb_json_object_end(json);
}

static void write_environment(fb_json *json)
{
    static const char *const names[] = {"SLURM_JOB_ID",
                                        "SLURM_JOB_NUM_NODES",
                                        "SLURM_NTASKS",
                                        "CUDA_VISIBLE_DEVICES",
                                        "CUDA_LAUNCH_BLOCKING",
                                        "OMP_NUM_THREADS",
                                        "NCCL_ALGO",
                                        "NCCL_PROTO",
                                        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
                                        "PYTORCH_CUDA_ALLOC_CONF",
                                        "CUBLAS_WORKSPACE_CONFIG",
                                        "NVIDIA_TF32_OVERRIDE",
                                        "FIRSTBAD_KERNEL"};
    struct utsname system;
    fb_json_key(json, "environment");
    fb_json_object_begin(json);
    fb_json_key_string(json, "firstbad", fb_version());
    if (uname(&system) == 0) {
        char text[512];
        (void)snprintf(text, sizeof text, "%s %s %s", system.sysname, system.release, system.machine);
        fb_json_key_string(json, "system", text);
    }
    fb_json_key_int(json, "processors", sysconf(_SC_NPROCESSORS_ONLN));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (env(names[i])) fb_json_key_string(json, names[i], env(names[i]));
    }
    fb_json_object_end(json);
}

static void write_policy(fb_json *json, const run_job_options *options)
{
    fb_json_key(json, "policy");
    fb_json_object_begin(json);
    fb_json_key_string(json, "on_bad", options->on_bad);
    if (options->max_skips) fb_json_key_int(json, "max_skips", strtol(options->max_skips, NULL, 10));
    fb_json_object_end(json);
}

static void write_meta(fb_json *json, const char *set)
{
    char copy[RUN_JOB_TEXT], *save = NULL;
    (void)snprintf(copy, sizeof copy, "%s", set);
    fb_json_key(json, "meta");
    fb_json_object_begin(json);
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *equals = strchr(line, '=');
        if (!equals) continue;
        *equals = '\0';
        fb_json_key_string(json, line, equals + 1);
    }
    fb_json_object_end(json);
}

static void begin(fb_json *json, const char *schema, const run_job *job, const fb_os *os, const char *when)
{
    fb_json_init(json, 1);
    fb_json_object_begin(json);
    fb_json_key_string(json, "schema", schema);
    fb_json_key_string(json, "run_id", job->run_id);
    fb_json_key_int(json, when, os->realtime_ns(os->ctx) / 1000000000);
}

static fb_status write_run(const run_job *job, const fb_os *os, fb_error *err)
{
    char host[256];
    fb_json json;
    fb_status status;
    begin(&json, "firstbad.run/1", job, os, "created_unix");
    write_command(&json, job->options->command);
    write_code(&json);
    fb_json_key_string(&json, "host", os->hostname(os->ctx, host, sizeof host) < 0 ? NULL : host);
    write_environment(&json);
    write_policy(&json, job->options);
    write_meta(&json, job->options->set);
    fb_json_object_end(&json);
    status = put(os, job->folder, "run.json", &json, err);
    return status == FB_E_EXISTS ? FB_OK : status; /* an earlier attempt's, which stays */
}

static fb_status write_launch(const run_job *job, const fb_os *os, fb_error *err)
{
    char host[256];
    fb_json json;
    begin(&json, "firstbad.launch/1", job, os, "started_unix");
    fb_json_key_int(&json, "attempt", job->attempt);
    write_command(&json, job->options->command);
    fb_json_key_string(&json, "host", os->hostname(os->ctx, host, sizeof host) < 0 ? NULL : host);
    fb_json_key_int(&json, "pid", os->getpid(os->ctx));
    write_policy(&json, job->options);
    fb_json_key_string(&json, "inject", job->options->inject[0] ? job->options->inject : NULL);
    fb_json_key_string(&json, "locate", job->options->locate);
    fb_json_key_string(&json, "strategy", job->options->strategy);
    fb_json_key_uint(&json, "left_out", job->options->leave_out ? job->options->leave_out->count : 0);
    fb_json_object_end(&json);
    return put(os, job->ledger, "launch.json", &json, err);
}

static fb_status write_exit(const run_job *job, const fb_os *os, fb_error *err)
{
    fb_json json;
    begin(&json, "firstbad.exit/1", job, os, "ended_unix");
    fb_json_key_int(&json, "attempt", job->attempt);
    fb_json_key(&json, "command");
    fb_json_array_begin(&json);
    for (char *const *word = job->options->command; *word; word++) fb_json_string(&json, *word);
    fb_json_array_end(&json);
    fb_json_key_int(&json, "code", job->code);
    if (job->signal) fb_json_key_int(&json, "signal", job->signal);
    else fb_json_key_null(&json, "signal");
    fb_json_key_bool(&json, "halted", job->halted);
    fb_json_object_end(&json);
    return put(os, job->ledger, "exit.json", &json, err);
}

/* Peers of the same launch have the same cases, and one of them writes the file. */
static fb_status write_left_out(run_job *job, const fb_os *os, fb_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    fb_status status;
    if (!job->options->leave_out || job->options->leave_out->count == 0) return FB_OK;
    if ((status = leave_out_text(job->options->leave_out, &text, &bytes, err)) == FB_OK)
        status = fb_os_put_new(os, job->ledger, LEFT_OUT_NAME, text, bytes, err);
    if (status == FB_E_EXISTS && job->joined) status = FB_OK;
    fb_free(text);
    job->left_out[0] = '@';
    return status == FB_OK ? fb_os_join(job->left_out + 1, sizeof job->left_out - 1, job->ledger, LEFT_OUT_NAME, err) : status;
}

/* ---- the launch -------------------------------------------------------------------------------------------------------------- */

/* "all", "none", or words with commas between them. */
static fb_status check_locate(const char *text, fb_error *err)
{
    static const char *const words[] = {"replay", "search", "cause", "other", "minimise", "evidence", "bundle"};
    if (!text || strcmp(text, "all") == 0 || strcmp(text, "none") == 0) return FB_OK;
    for (;;) {
        size_t bytes = strcspn(text, ","), i = 0;
        while (i < sizeof words / sizeof *words && !(strlen(words[i]) == bytes && strncmp(words[i], text, bytes) == 0)) i++;
        if (i == sizeof words / sizeof *words)
            return fb_fail(
                err, FB_E_USAGE,
                "read --locate: expected all, none, or some of replay,search,cause,other,minimise,evidence,bundle, found '%.*s'",
                bytes < 40 ? (int)bytes : 40, text);
        if (!text[bytes]) return FB_OK;
        text += bytes + 1;
    }
}

static fb_status check_words(const run_job_options *options, fb_error *err)
{
    fb_inject inject;
    fb_status status = fb_inject_parse(&inject, options->inject, err);
    char *end;
    if (status != FB_OK) return status;
    if (options->on_bad && strcmp(options->on_bad, "skip") != 0 && strcmp(options->on_bad, "halt") != 0 &&
        strcmp(options->on_bad, "observe") != 0) {
        return fb_fail(err, FB_E_USAGE, "read --on-bad: expected skip, halt or observe, found '%.40s'", options->on_bad);
    }
    if ((status = check_locate(options->locate, err)) != FB_OK) return status;
    if (options->strategy && strcmp(options->strategy, "sweep") != 0 && strcmp(options->strategy, "bisect") != 0)
        return fb_fail(err, FB_E_USAGE, "read --strategy: expected sweep or bisect, found '%.40s'", options->strategy);
    if (options->max_skips) {
        errno = 0;
        long number = strtol(options->max_skips, &end, 10);
        if (end == options->max_skips || *end || errno || number < 0 || number > INT32_MAX) {
            return fb_fail(err, FB_E_USAGE, "read --max-skips: expected a whole number from 0 on, found '%.40s'",
                           options->max_skips);
        }
    }
    return FB_OK;
}

/* Those that fb_run_open reads. They point into the job. */
static size_t variables(run_job *job, fb_pair pairs[VARIABLES_MAX])
{
    const run_job_options *options = job->options;
    size_t n = 0;
    (void)snprintf(job->number, sizeof job->number, "%d", job->attempt);
    pairs[n++] = (fb_pair){"FIRSTBAD_DIR", job->dir};
    pairs[n++] = (fb_pair){"FIRSTBAD_RUN_ID", job->run_id};
    pairs[n++] = (fb_pair){"FIRSTBAD_ATTEMPT", job->number};
    if (options->on_bad) pairs[n++] = (fb_pair){"FIRSTBAD_ON_BAD", options->on_bad};
    if (options->max_skips) pairs[n++] = (fb_pair){"FIRSTBAD_MAX_SKIPS", options->max_skips};
    if (options->locate) pairs[n++] = (fb_pair){"FIRSTBAD_LOCATE", options->locate};
    if (options->strategy) pairs[n++] = (fb_pair){"FIRSTBAD_STRATEGY", options->strategy};
    if (job->left_out[0]) pairs[n++] = (fb_pair){"FIRSTBAD_LEAVE_OUT", job->left_out};
    if (options->inject[0]) pairs[n++] = (fb_pair){"FIRSTBAD_INJECT", options->inject};
    if (options->set[0]) pairs[n++] = (fb_pair){"FIRSTBAD_SET", options->set};
    if (job->restarts[0]) pairs[n++] = (fb_pair){"FIRSTBAD_RESTARTS", job->restarts};
    return n;
}

/* Below torchrun, each restart is a launch of ours with an attempt of its own; restarts below us are counted from there. */
static void attach_python(run_job *job, const fb_os *os)
{
    const char *restarts = env("TORCHELASTIC_RESTART_COUNT");
    fb_pair pairs[VARIABLES_MAX];
    size_t n;
    if (!job->options->python) return;
    if (restarts && strlen(restarts) < sizeof job->restarts) (void)snprintf(job->restarts, sizeof job->restarts, "%s", restarts);
    n = variables(job, pairs);
    attach_find(&job->attached, os);
    attach_write(&job->attached, os, job->ledger, pairs, n);
}

fb_status run_job_open(run_job *job, const run_job_options *options, fb_error *err)
{
    const fb_os *os = fb_os_posix();
    fb_status status;
    memset(job, 0, sizeof *job);
    job->options = options;
    if ((status = check_words(options, err)) != FB_OK) return status;
    if ((status = choose_id(job, err)) != FB_OK) return status;
    if ((status = choose_folder(job, os, err)) != FB_OK) return status;
    if ((status = write_run(job, os, err)) != FB_OK) return status;
    if ((status = write_left_out(job, os, err)) != FB_OK) return status;
    if (!job->joined && (status = write_launch(job, os, err)) != FB_OK) return status;
    attach_python(job, os);
    return FB_OK;
}

int run_job_start(run_job *job)
{
    fb_pair pairs[VARIABLES_MAX + 3];
    size_t n = variables(job, pairs);
    if (job->attached.path) pairs[n++] = (fb_pair){"PYTHONPATH", job->attached.path};
    /* Open MPI refuses to run as root unless told twice; in a container everybody is root. */
    if (geteuid() == 0 && !env("OMPI_ALLOW_RUN_AS_ROOT")) pairs[n++] = (fb_pair){"OMPI_ALLOW_RUN_AS_ROOT", "1"};
    if (geteuid() == 0 && !env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")) pairs[n++] = (fb_pair){"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"};
    job->start_errno = process_start(&job->child, job->options->command, pairs, n, job->options->output);
    return job->start_errno;
}

/* ---- the end ----------------------------------------------------------------------------------------------------------------- */

void run_job_close(run_job *job)
{
    const fb_os *os = fb_os_posix();
    fb_error why;
    if (job->start_errno) {
        job->code = job->start_errno == ENOENT ? RUN_JOB_NOT_FOUND : RUN_JOB_NOT_EXECUTABLE;
    } else {
        job->code = process_exit_code(&job->child);
        job->signal = process_exit_signal(&job->child);
    }
    run_end_read(job, os);
    job->exit_code = job->halted ? RUN_JOB_HALTED : job->code;
    if (job->joined) return; /* the peer that took the attempt writes its end */
    if (write_exit(job, os, &why) != FB_OK && job->why.code == FB_OK) job->why = why;
}

void run_job_release(run_job *job)
{
    fb_report_free(job->report);
    job->report = NULL;
    attach_release(&job->attached);
}
