/*
 * One scenario, from its command to what its ledgers say. Every run goes the way of `firstbad run`.
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "drill.h"

enum { SCENARIO_MS = 90000, KILL_MS = 45000, SETTLE_MS = 150, GRACE_MS = 5000, KILL_FROM_STEP = 10 };

void drill_differs(drill_result *result, const char *format, ...)
{
    va_list args;
    int at = result->difference_count++;
    if (at >= DRILL_DIFFERENCES) return;
    va_start(args, format);
    (void)vsnprintf(result->differences[at], DRILL_TEXT, format, args);
    va_end(args);
}

/* ---- the command ------------------------------------------------------------------------------------------------------------- */

void drill_saves_folder(const drill_result *result, char out[FB_OS_PATH_MAX])
{
    (void)snprintf(out, FB_OS_PATH_MAX, "%.*s-checkpoints", (int)(strlen(result->log) - strlen(".log")), result->log);
}

/* Later options of the trainer win over earlier ones, so that a scenario can have its own shape. */
int drill_command(drill_result *result, const drill_settings *settings, const char *more)
{
    const drill_scenario *scenario = result->scenario;
    char ranks[32], steps[48], saving[48], precision[32] = "", real[96] = "", saves[FB_OS_PATH_MAX];
    drill_words *words = &result->words;
    (void)snprintf(saving, sizeof saving, "--save-every %d --out",
                   scenario->how == DRILL_SAVED ? DRILL_SAVE_OFTEN : DRILL_SAVE_EVERY);
    drill_saves_folder(result, saves);
    (void)snprintf(ranks, sizeof ranks, "-n %d", settings->ranks);
    (void)snprintf(steps, sizeof steps, "--steps %" PRId64, scenario->steps);
    if (settings->precision && !scenario->any_precision)
        (void)snprintf(precision, sizeof precision, "--precision %s", settings->precision);
    if (scenario->real)
        (void)snprintf(real, sizeof real, "--fault %s@step=%" PRId64 ",rank=%d", scenario->real, scenario->step,
                       result->truth_rank);
    memset(words, 0, sizeof *words);
    return drill_add_words(words, settings->oversubscribe ? "mpirun --oversubscribe" : "mpirun") && drill_add_words(words, ranks) &&
           drill_add_path(words, settings->trainer) &&
           drill_add_words(words, "--layers 4 --channels 32 --heads 4 --block 32 --batch 1 --log-every 1") &&
           drill_add_words(words, steps) && drill_add_words(words, precision) &&
           drill_add_words(words, scenario->arguments ? scenario->arguments : "") && drill_add_words(words, real) &&
           drill_add_words(words, more) && (!scenario->saves || (drill_add_words(words, saving) && drill_add_path(words, saves)));
}

static void make_plant(drill_result *result)
{
    const drill_scenario *scenario = result->scenario;
    char index[48] = "", rank[16] = "all", last[32] = "";
    if (!scenario->plant) return;
    if (scenario->updates > 1) (void)snprintf(last, sizeof last, "-%" PRId64, scenario->step + scenario->updates - 1);
    if (result->truth_rank >= 0) (void)snprintf(rank, sizeof rank, "%d", result->truth_rank);
    if (scenario->index != DRILL_ANY_INDEX && scenario->kind != FB_KIND_ALL_IGNORED) {
        (void)snprintf(index, sizeof index, ",index=%" PRIu64, scenario->index);
    }
    (void)snprintf(result->options.inject, sizeof result->options.inject, "%s@step=%" PRId64 "%s,rank=%s,micro=%d,site=%s%s",
                   scenario->plant, scenario->step, last, rank, scenario->micro_step, scenario->site, index);
}

/* ---- the unguarded twin ------------------------------------------------------------------------------------------------------ */

/* The first step whose loss the trainer printed as no number, or -1. */
static int64_t first_bad_loss(const char *path)
{
    char line[512];
    int64_t found = -1;
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    while (found < 0 && fgets(line, sizeof line, file)) {
        char *rest, *loss;
        int64_t step = strncmp(line, "step ", 5) == 0 ? strtoll(line + 5, &rest, 10) : -1;
        if (step < 0 || strncmp(rest, " loss ", 6) != 0) continue;
        loss = rest + 6;
        loss[strcspn(loss, " \n")] = '\0';
        if (!isdigit((unsigned char)loss[0]) || strstr(loss, "inf")) found = step;
    }
    (void)fclose(file);
    return found;
}

int drill_run_plain(drill_result *result, const char *path)
{
    process child = {0, 0, 0};
    const fb_os *os = fb_os_posix();
    int64_t fd = fb_os_open(os, path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    fb_pair env[] = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
    int why = fd < 0 ? (int)-fd : process_start(&child, result->words.at, env, geteuid() == 0 ? 2 : 0, (int)fd);
    if (fd >= 0) (void)os->close(os->ctx, (int)fd);
    if (why) {
        drill_differs(result, "a training without firstbad could not be started: %s", strerror(why));
        return 0;
    }
    if (!process_wait_ms(&child, SCENARIO_MS)) process_end(&child, GRACE_MS);
    return process_exit_code(&child) == 0;
}

/* The same training without firstbad: when its loss stops being a number, the guard must have spoken, and not a step later. */
static void run_twin(drill_result *result, const drill_settings *settings)
{
    char path[FB_OS_PATH_MAX + 8];
    (void)snprintf(path, sizeof path, "%s.twin", result->log);
    if (!drill_command(result, settings, "--no-guard")) {
        drill_differs(result, "the unguarded twin could not be prepared");
        return;
    }
    (void)drill_run_plain(result, path); /* it may well end badly: what it printed is the truth */
    result->truth_step = first_bad_loss(path);
    if (result->truth_step < 0) drill_differs(result, "the unguarded twin never printed a loss that is no number");
}

/* ---- killing a rank ---------------------------------------------------------------------------------------------------------- */

/* Whether every rank but `victim` has given out a ballot for one and the same step, which it returns; -1 otherwise. */
static int64_t all_wait_in(const char *ledger, int32_t ranks, int32_t victim)
{
    int64_t step = -1;
    for (int32_t i = 0; i < ranks; i++) {
        drill_rank peek;
        if (i == victim) continue;
        if (!drill_rank_peek(ledger, i, &peek) || peek.pulse.phase != FB_PULSE_BALLOT) return -1;
        if (step >= 0 && peek.pulse.step != step) return -1;
        step = peek.pulse.step;
    }
    return step;
}

/*
 * Stop the victim, wait until all others stand in a vote that it has not voted in, then kill it. A victim that was stopped between
 * its ballot and the collective goes on, and the attempt is made again: what is wanted is a rank that died before its vote.
 */
static int kill_before_vote(drill_result *result, const drill_settings *settings)
{
    int32_t victim = result->truth_rank;
    const char *ledger = result->job.ledger;
    int64_t until = process_now_ms() + KILL_MS;
    while (process_now_ms() < until && !process_wait_ms(&result->job.child, 5) && !process_interrupted()) {
        drill_rank peek;
        int64_t step, settled_at = process_now_ms() + SETTLE_MS;
        if (!drill_rank_peek(ledger, victim, &peek) || peek.pulse.step < KILL_FROM_STEP) continue;
        if (kill((pid_t)peek.pid, SIGSTOP) != 0) return 0;
        while (process_now_ms() < settled_at) process_sleep_ms(10);
        step = all_wait_in(ledger, settings->ranks, victim);
        if (step >= 0 && drill_rank_peek(ledger, victim, &peek) && peek.pulse.step < step) {
            result->truth_step = step;
            return kill((pid_t)peek.pid, SIGKILL) == 0;
        }
        (void)kill((pid_t)peek.pid, SIGCONT);
        process_sleep_ms(7);
    }
    return 0;
}

/* ---- run and read ------------------------------------------------------------------------------------------------------------ */

static void wait_for_end(drill_result *result, const drill_settings *settings)
{
    process *child = &result->job.child;
    if (result->scenario->how == DRILL_KILLED && !kill_before_vote(result, settings)) {
        drill_differs(result, "no rank could be killed before its vote within %d s", KILL_MS / 1000);
        process_kill_group(child, SIGTERM);
    }
    if (process_wait_ms(child, SCENARIO_MS)) return;
    drill_differs(result, "the training was still running after %d s", SCENARIO_MS / 1000);
    process_end(child, GRACE_MS);
}

static void start_and_wait(drill_result *result, const drill_settings *settings)
{
    const fb_os *os = fb_os_posix();
    fb_error err;
    int64_t fd = fb_os_open(os, result->log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0) {
        drill_differs(result, "create %s: %s", result->log, strerror((int)-fd));
        return;
    }
    result->options.output = (int)fd;
    if (run_job_open(&result->job, &result->options, &err) != FB_OK) {
        drill_differs(result, "%.200s", err.message);
    } else {
        int why = run_job_start(&result->job);
        if (why) drill_differs(result, "start %s: %s", result->words.at[0], strerror(why));
        else wait_for_end(result, settings);
        run_job_close(&result->job);
        if (drill_world_read(&result->world, result->job.ledger, settings->ranks, &err) != FB_OK)
            drill_differs(result, "%.200s", err.message);
    }
    (void)os->close(os->ctx, (int)fd);
}

void drill_run(drill_result *result, const drill_settings *settings)
{
    const drill_scenario *scenario = result->scenario;
    char name[80];
    int64_t begun = process_now_ms();
    (void)snprintf(name, sizeof name, "%02d-%s", result->number, scenario->id);
    (void)snprintf(result->log, sizeof result->log, "%.*s/%s.log", (int)sizeof result->log - 100, settings->dir, name);
    result->truth_step = scenario->step;
    result->truth_rank = scenario->rank < settings->ranks ? scenario->rank : settings->ranks - 1;
    if (scenario->how == DRILL_BY_ITSELF) run_twin(result, settings);
    result->options.dir = settings->dir;
    result->options.run_id = name;
    result->options.on_bad = scenario->on_bad ? scenario->on_bad : "skip";
    result->options.max_skips = scenario->max_skips;
    /* What was injected is in no replay: looking for it would only take time. */
    result->options.locate = scenario->real ? "all" : "none";
    result->options.command = result->words.at;
    make_plant(result);
    if (drill_command(result, settings, "")) start_and_wait(result, settings);
    else drill_differs(result, "the command is too long");
    if (scenario->how == DRILL_SAVED) drill_saved(result, settings);
    result->options.run_id = NULL;
    result->ms = process_now_ms() - begun;
}

void drill_release(drill_result *result)
{
    run_job_release(&result->job);
    drill_world_release(&result->world);
}
