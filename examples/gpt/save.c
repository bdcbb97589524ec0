/* save.c: checkpoints of the program: written under the save gate, chosen and loaded under the load gate; and dumps of a step. */
#include "trainer.h"

#include <firstbad/ckpt.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Where the state may be had again, for a bundle that has no room for it. */
static void remember(trainer *t, const char *path)
{
    char *absolute = realpath(path, NULL);
    if (!absolute) return; /* it was withheld */
    snprintf(t->saved.path, sizeof t->saved.path, "%s", absolute);
    t->saved.step = t->state.step;
    t->saved.updates = t->state.updates;
    free(absolute);
}

static void save_path(const trainer *t, int64_t step, char *out, size_t bytes)
{
    if (t->options.save_name) snprintf(out, bytes, "%s/%s", t->options.out, t->options.save_name);
    else checkpoint_path(out, bytes, t->options.out, step);
}

/*
 * What firstbad found while training went on. A checkpoint that is merely suspect has its reasons in the registry; one that is bad,
 * or that nobody could judge, is worth a line.
 */
void tell_verdicts(const trainer *t)
{
    fb_checkpoint_result result = FB_CHECKPOINT_RESULT_INIT;
    while (t->guard.run && fb_run_checkpoint_poll(t->guard.run, &result, NULL) == FB_OK) {
        if (result.state == FB_CKPT_QUARANTINED)
            fprintf(stderr, "firstbad-gpt: checkpoint %s is quarantined: %s\n", result.path, result.reason);
        else if (result.status != FB_OK) fprintf(stderr, "firstbad-gpt: checkpoint %s: %s\n", result.path, result.reason);
    }
}

/* Before a byte is written: keep the older one safe, and look at what is in memory. 0: do not write. */
static int may_save(const trainer *t, const char *path, int64_t step)
{
    fb_error refused = {0};
    fb_status status;
    if (!t->guard.run) return 1;
    status = fb_run_save_gate(t->guard.run, step, t->guard.state, 3 * t->guard.n, NULL, &refused);
    if (status == FB_E_WITHHELD) {
        complain(t, 0, refused.message);
        return 0;
    }
    must(t, status, &refused);
    /* A register that cannot be written is no reason to stop training; the file is then one that nobody vouches for. */
    if (fb_run_checkpoint_begin(t->guard.run, path, step, &refused) != FB_OK) complain(t, 0, refused.message);
    return 1;
}

static int write_checkpoint(trainer *t, const char *path, int64_t step)
{
    file_error err = {""};
    fb_error refused = {0};
    int failed = 0;
    if (mkdir(t->options.out, 0777) != 0 && errno != EEXIST) {
        snprintf(err.message, sizeof err.message, "create folder %s: %s", t->options.out, strerror(errno));
        return complain(t, EXIT_FAILED, err.message);
    }
    if (!may_save(t, path, step)) return 0;
    failed = t->options.save_name ? checkpoint_save_over(path, t->model, &t->optimizer, &t->state, &err)
                                  : checkpoint_save(path, t->model, &t->optimizer, &t->state, &err);
    if (failed) return complain(t, EXIT_FAILED, err.message);
    if (t->guard.run && fb_run_checkpoint_verify(t->guard.run, path, step, &refused) != FB_OK) complain(t, 0, refused.message);
    if (t->options.keep) checkpoint_rotate(t->options.out, t->options.keep);
    return 0;
}

/* Rank 0 writes; the others wait for that, and nobody waits for firstbad to read it back. */
int save(trainer *t, int64_t step)
{
    char path[4096];
    int status = 0;
    save_path(t, step, path, sizeof path);
    t->state.step = step;
    t->state.updates = t->optimizer.updates;
    if (t->guard.run) {
        fb_scaler_state scaler;
        fb_error refused = {0};
        must(t, fb_run_scaler_get(t->guard.run, &scaler, &refused), &refused);
        t->state.scale = scaler.scale;
        t->state.growth_tracker = scaler.growth_tracker;
        t->state.hysteresis_left = scaler.hysteresis_left;
    }
    if (t->rank == 0) status = write_checkpoint(t, path, step);
    status = agree(t, status);
    if (!status) remember(t, path);
    return status;
}

/* Which file to continue from, and whether it may be loaded: asked once, since an answer may take a read of the file. */
static int choose_checkpoint(const trainer *t, char path[4096])
{
    fb_error refused = {0};
    size_t bytes = 4096;
    int32_t state = 0;
    fb_status status = FB_OK;
    if (strcmp(t->options.resume, "latest") == 0) status = fb_ckpt_latest(t->options.out, path, &bytes, &refused);
    else snprintf(path, bytes, "%s", t->options.resume);
    if (status == FB_OK && t->guard.run) status = fb_ckpt_may_load(path, t->options.dir, FB_CKPT_CHECK_BYTES, &state, &refused);
    if (status != FB_OK) {
        fprintf(stderr, "firstbad-gpt: checkpoint %s is refused: %s\n", t->options.resume, refused.message);
        return EXIT_FAILED;
    }
    if (t->guard.run && state == FB_CKPT_SUSPECT)
        fprintf(stderr, "firstbad-gpt: checkpoint %s is finite, and no run vouches for the updates that made it\n", path);
    if (t->options.log_every) printf("resume from %s\n", path);
    return 0;
}

int resume(trainer *t)
{
    file_error err = {""};
    char path[4096] = "";
    int status = agree(t, t->rank == 0 ? choose_checkpoint(t, path) : 0);
    if (status) return status;
    MPI_Bcast(path, sizeof path, MPI_CHAR, 0, t->comm);
    status = checkpoint_load(path, t->model, &t->optimizer, &t->state, &err) == 0 ? 0 : EXIT_FAILED;
    if (status) fprintf(stderr, "firstbad-gpt: rank %d: %s\n", t->rank, err.message);
    t->optimizer.updates = t->state.updates;
    t->options.model.seed = t->model->config.seed = t->state.seed;
    t->parent = t->state.step;
    if (!status) remember(t, path);
    if (!status && t->guard.run) {
        fb_scaler_state scaler = {t->state.scale, t->state.growth_tracker, t->state.hysteresis_left};
        fb_error refused = {0};
        must(t, fb_run_scaler_set(t->guard.run, &scaler, &refused), &refused);
    }
    return agree(t, status);
}

/* Every rank dumps its own batch, logits and loss; the gradients are the mean over ranks, unscaled, before the clip. */
int dump(trainer *t, int64_t step)
{
    file_error err = {""};
    char path[4096], suffix[16] = "";
    int status = 0;
    if (t->rank > 0) snprintf(suffix, sizeof suffix, "-r%d", t->rank);
    snprintf(path, sizeof path, "%s-%06lld%s.safetensors", t->options.dump, (long long)step, suffix);
    if (dump_step(path, t->model, &t->batch, t->model->gradients, &err) != 0) {
        fprintf(stderr, "firstbad-gpt: rank %d: %s\n", t->rank, err.message);
        status = EXIT_FAILED;
    }
    return agree(t, status);
}
