/* See drill_all.h: one run as a process that others run beside. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "drill_all.h"

enum { RUN_MS = 120000, REPLAY_MS = 120000, GRACE_MS = 5000, FIRST_STEP = 5, HEALTHY_AFTER = 2 };

/* The model is as small as the faults allow: a run is over in less than a second where nothing else runs. */
#define SHAPE "--layers 3 --channels 32 --heads 2 --block 16 --batch 4 --log-every 1"

/* ---- what it is -------------------------------------------------------------------------------------------------------------- */

/* Step, rank and layer go with the seed, so that no answer is right by habit. */
void drill_one_plan(drill_one *one, int32_t ranks)
{
    static const int32_t layers[] = {1, 2, 0};
    const drill_fault *fault = one->fault;
    drill_truth *truth = &one->truth;
    int32_t turn = (one->seed - 1) % 3;
    char rank[24] = "";
    truth->fault = fault;
    truth->ranks = ranks;
    truth->begins = FIRST_STEP + turn;
    truth->rank = one->seed % 2 ? ranks - 1 : 0;
    truth->layer = layers[turn];
    if (one->healthy) {
        one->steps = truth->begins + HEALTHY_AFTER;
        if (one->healthy->fault)
            (void)snprintf(one->spec, sizeof one->spec, "%s@step=%" PRId64 "%s", one->healthy->fault, truth->begins,
                           one->healthy->idle ? ",steps=0" : "");
        return;
    }
    if (fault->compared) truth->begins = DRILL_COMPARED_EVERY - 3 + turn;
    truth->step = fault->compared ? DRILL_COMPARED_EVERY : truth->begins + fault->late;
    one->steps = truth->step + 1;
    if (truth->layer < fault->layer_first) truth->layer = fault->layer_first;
    if (fault->every_rank) truth->rank = -1;
    else (void)snprintf(rank, sizeof rank, ",rank=%d", truth->rank);
    (void)snprintf(one->spec, sizeof one->spec, "%s@step=%" PRId64 ",layer=%d%s", fault->id, truth->begins, truth->layer, rank);
}

static const char *id_of(const drill_one *one)
{
    return one->fault ? one->fault->id : one->healthy->id;
}

static int make_command(drill_slot *slot, const drill_settings *settings)
{
    const drill_one *one = slot->one;
    const char *arguments = one->fault ? one->fault->arguments : one->healthy->arguments;
    drill_words *words = &slot->words;
    char numbers[96], ranks[32];
    memset(words, 0, sizeof *words);
    (void)snprintf(ranks, sizeof ranks, "-n %d", settings->ranks);
    (void)snprintf(numbers, sizeof numbers, "--seed %d --steps %" PRId64, one->seed, one->steps);
    return drill_add_words(words, settings->oversubscribe ? "mpirun --oversubscribe" : "mpirun") && drill_add_words(words, ranks) &&
           drill_add_path(words, settings->trainer) && drill_add_words(words, SHAPE) && drill_add_words(words, numbers) &&
           drill_add_words(words, arguments ? arguments : "") &&
           (!one->spec[0] || (drill_add_words(words, "--fault") && drill_add_path(words, one->spec)));
}

/* ---- start ------------------------------------------------------------------------------------------------------------------- */

void drill_slot_start(drill_slot *slot, drill_one *one, const drill_settings *settings)
{
    char name[80];
    fb_error err;
    int why;
    memset(slot, 0, sizeof *slot);
    drill_score_begin(&one->score);
    slot->one = one;
    slot->begun = process_now_ms();
    slot->until = slot->begun + RUN_MS;
    (void)snprintf(name, sizeof name, "%.60s-%d", id_of(one), one->seed);
    (void)snprintf(slot->log, sizeof slot->log, "%.*s/%s.log", (int)sizeof slot->log - 100, settings->dir, name);
    slot->fd = fb_os_open(fb_os_posix(), slot->log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    slot->options.dir = settings->dir;
    slot->options.run_id = name;
    slot->options.on_bad = "skip";
    slot->options.locate = "all";
    slot->options.command = slot->words.at;
    slot->options.output = (int)slot->fd;
    if (slot->fd < 0) {
        drill_note(&one->score, "create %.200s: %s", slot->log, strerror((int)-slot->fd));
    } else if (!make_command(slot, settings)) {
        drill_note(&one->score, "the command is too long");
    } else if (run_job_open(&slot->job, &slot->options, &err) != FB_OK) {
        drill_note(&one->score, "%.200s", err.message);
    } else {
        (void)snprintf(one->folder, sizeof one->folder, "%s", slot->job.folder);
        if ((why = run_job_start(&slot->job)) != 0) drill_note(&one->score, "start %.80s: %s", slot->words.at[0], strerror(why));
    }
    slot->options.run_id = NULL;
}

/* ---- judge ------------------------------------------------------------------------------------------------------------------- */

static int count_cases(const char *run)
{
    char path[FB_OS_PATH_MAX];
    int count = 0;
    DIR *folder = NULL;
    if (fb_os_join(path, sizeof path, run, "cases", NULL) == FB_OK) folder = opendir(path);
    for (struct dirent *entry = folder ? readdir(folder) : NULL; entry; entry = readdir(folder)) count += entry->d_name[0] != '.';
    if (folder) (void)closedir(folder);
    return count;
}

static int case_folder(const drill_one *one, char out[FB_OS_PATH_MAX])
{
    char name[48];
    (void)snprintf(name, sizeof name, "cases/a1-%06" PRId64, one->truth.step);
    return fb_os_join(out, FB_OS_PATH_MAX, one->folder, name, NULL) == FB_OK;
}

static void judge_fault(drill_one *one, const drill_world *world)
{
    char folder[FB_OS_PATH_MAX];
    fb_locate_file file;
    fb_error err;
    fb_status status = FB_E_NOTFOUND;
    memset(&file, 0, sizeof file);
    if (case_folder(one, folder)) status = fb_locate_read(&file, fb_os_posix(), folder, &err);
    if (status != FB_OK && status != FB_E_NOTFOUND) drill_note(&one->score, "%.200s", err.message);
    drill_score_fault(&one->score, &one->truth, world, status == FB_OK ? &file : NULL, one->exit_code);
    if (status == FB_OK) fb_locate_file_release(&file);
}

static void judge(drill_slot *slot, const drill_settings *settings)
{
    drill_one *one = slot->one;
    drill_world world;
    fb_error err;
    memset(&world, 0, sizeof world);
    if (slot->job.ledger[0] && drill_world_read(&world, slot->job.ledger, settings->ranks, &err) != FB_OK)
        drill_note(&one->score, "%.200s", err.message);
    if (one->fault) judge_fault(one, &world);
    else drill_score_healthy(&one->score, one->healthy, &world, one->steps, count_cases(one->folder), one->exit_code);
    drill_world_release(&world);
}

/* ---- again, in a fresh process ----------------------------------------------------------------------------------------------- */

/* 1: it runs. The first seed speaks for the others. */
static int start_replay(drill_slot *slot)
{
    static char replay[] = "replay", batch[] = "--batch", minimal[] = "minimal", times[] = "--times", once[] = "1";
    char self[FB_OS_PATH_MAX], folder[FB_OS_PATH_MAX];
    const drill_one *one = slot->one;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *argv[] = {self, replay, folder, batch, minimal, times, once, NULL};
    fb_pair env[] = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
    if (!one->fault || !one->fault->samples || one->seed != 1 || n <= 0 || !case_folder(one, folder)) return 0;
    self[n] = '\0';
    slot->until = process_now_ms() + REPLAY_MS;
    return process_start(&slot->again, argv, env, geteuid() == 0 ? 2 : 0, (int)slot->fd) == 0;
}

/* ---- look, and end ----------------------------------------------------------------------------------------------------------- */

static void release(drill_slot *slot)
{
    const fb_os *os = fb_os_posix();
    if (slot->fd >= 0) (void)os->close(os->ctx, (int)slot->fd);
    run_job_release(&slot->job);
    slot->one->ms = process_now_ms() - slot->begun;
    slot->one->done = 1;
    slot->one = NULL;
}

/* 1: it ended, or had to be ended. */
static int is_over(drill_slot *slot, process *child, const char *what)
{
    if (!child->pid || process_wait_ms(child, 0)) return 1;
    if (process_now_ms() < slot->until) return 0;
    drill_note(&slot->one->score, "%s did not end in time", what);
    process_end(child, GRACE_MS);
    return 1;
}

int drill_slot_poll(drill_slot *slot, const drill_settings *settings)
{
    if (!slot->replays) {
        if (!is_over(slot, &slot->job.child, "the training")) return 0;
        if (slot->job.child.pid) run_job_close(&slot->job);
        slot->one->exit_code = slot->job.child.pid ? slot->job.exit_code : -1;
        judge(slot, settings);
        slot->replays = start_replay(slot);
        if (slot->replays) return 0;
    }
    if (!is_over(slot, &slot->again, "the replay")) return 0;
    if (slot->replays) drill_score_again(&slot->one->score, process_exit_code(&slot->again));
    release(slot);
    return 1;
}

void drill_slot_stop(drill_slot *slot)
{
    if (slot->job.child.pid && !slot->job.child.ended) process_end(&slot->job.child, GRACE_MS);
    if (slot->again.pid && !slot->again.ended) process_end(&slot->again, GRACE_MS);
    release(slot);
    slot->one = NULL;
}
