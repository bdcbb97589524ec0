/*
 * Several ranks in one process, each with a run of its own, and a reduction between them: a training job small enough to test every
 * rule of the guard. Header-only, for the cmocka programs.
 *
 * Each rank has two parameters "h.0.mlp.w" (position 10) and "h.1.mlp.w" (position 20) of four F32 elements with their gradients
 * and moments, a loss, and a batch of 2 x 4 tokens. world_step does one update as a trainer does it.
 */
#ifndef TESTS_SUPPORT_WORLD_H
#define TESTS_SUPPORT_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "firstbad/firstbad.h"
#include "guard/run.h"
#include "policy/vote.h"

enum { WORLD_MAX_RANKS = 8, WORLD_TENSORS = 2, WORLD_ELEMENTS = 4, WORLD_ROWS = 2, WORLD_COLS = 4 };

typedef struct world_rank {
    fb_run *run;
    float param[WORLD_TENSORS][WORLD_ELEMENTS], moment[WORLD_TENSORS][WORLD_ELEMENTS], grad[WORLD_TENSORS][WORLD_ELEMENTS];
    float loss;
    int32_t tokens[WORLD_ROWS * WORLD_COLS], labels[WORLD_ROWS * WORLD_COLS];
    uint32_t param_site[WORLD_TENSORS], moment_site[WORLD_TENSORS], grad_site[WORLD_TENSORS], loss_site, token_site;
    fb_verdict verdict;
    fb_status applied;
} world_rank;

typedef struct world {
    int ranks;
    world_rank rank[WORLD_MAX_RANKS];
    char dir[64];
    fb_run_config config;
    const fb_os *os;
    int micro_steps;
    int64_t overflow_at; /* step in which rank 1's optimizer writes an Inf into h.0.mlp.w, found right after; 0: never */
    int64_t entry_at;    /* step in which the trainer reads its whole state on entry; -1: in none */
    int skip_reduced;    /* do not unscale: the trainer checks local gradients only */
} world;

static inline fb_view world_view(void *data, uint32_t site)
{
    fb_view view;
    memset(&view, 0, sizeof view);
    view.data = data;
    view.count = WORLD_ELEMENTS;
    view.dtype = FB_F32;
    view.site = site;
    view.device = -1;
    return view;
}

static inline void world_sites(world_rank *r)
{
    static const char *const modules[WORLD_TENSORS] = {"h.0.mlp", "h.1.mlp"};
    fb_view owned[2 * WORLD_TENSORS];
    fb_site site = FB_SITE_INIT;
    fb_error err;
    site.role = FB_ROLE_INPUT;
    site.tensor = "tokens";
    site.position = 0;
    assert_int_equal(fb_run_add_site(r->run, &site, &r->token_site, &err), FB_OK);
    for (int i = 0; i < WORLD_TENSORS; i++) {
        site.module = modules[i];
        site.tensor = "w";
        site.position = 10 * (i + 1);
        site.ndim = 2;
        site.shape[0] = site.shape[1] = 2;
        site.role = FB_ROLE_PARAMETER;
        assert_int_equal(fb_run_add_site(r->run, &site, &r->param_site[i], &err), FB_OK);
        site.role = FB_ROLE_MOMENT;
        site.tensor = "w.exp_avg";
        assert_int_equal(fb_run_add_site(r->run, &site, &r->moment_site[i], &err), FB_OK);
        site.role = FB_ROLE_GRADIENT;
        site.tensor = "w";
        assert_int_equal(fb_run_add_site(r->run, &site, &r->grad_site[i], &err), FB_OK);
        owned[2 * i] = world_view(r->param[i], r->param_site[i]);
        owned[2 * i + 1] = world_view(r->moment[i], r->moment_site[i]);
    }
    site.role = FB_ROLE_LOSS;
    site.module = "";
    site.tensor = "loss";
    site.position = 30;
    site.ndim = 0;
    assert_int_equal(fb_run_add_site(r->run, &site, &r->loss_site, &err), FB_OK);
    assert_int_equal(fb_run_own(r->run, owned, 2 * WORLD_TENSORS, &err), FB_OK);
}

/* Folders that a test has not closed yet: one that opens its runs by itself, or fails in the middle, leaves nothing behind. */
static char world_folders[64][64];
static pid_t world_owner;

static inline void world_remove(char *folder)
{
    char command[128];
    if (rmdir(folder) != 0) {
        (void)snprintf(command, sizeof command, "rm -rf %s", folder);
        assert_int_equal(system(command), 0);
    }
    folder[0] = '\0';
}

static inline void world_remove_left(void)
{
    for (size_t i = 0; world_owner == getpid() && i < sizeof world_folders / sizeof *world_folders; i++) {
        if (world_folders[i][0]) world_remove(world_folders[i]);
    }
}

static inline void world_keep(const char *folder)
{
    if (world_owner != getpid()) {
        world_owner = getpid();
        assert_int_equal(atexit(world_remove_left), 0);
    }
    for (size_t i = 0; i < sizeof world_folders / sizeof *world_folders; i++) {
        if (world_folders[i][0]) continue;
        memcpy(world_folders[i], folder, strlen(folder) + 1);
        return;
    }
    fail_msg("more than 64 worlds at once");
}

static inline void world_init(world *w, int ranks)
{
    fb_run_config config = FB_RUN_CONFIG_INIT;
    memset(w, 0, sizeof *w);
    w->ranks = ranks;
    w->os = fb_os_posix();
    w->micro_steps = 1;
    w->entry_at = -1;
    w->config = config;
    w->config.world = ranks;
    w->config.run_id = "test";
    w->config.host = "host";
    /* Memory, where there is some: the hundreds of synced files of a test then cost nothing. */
    (void)snprintf(w->dir, sizeof w->dir, "%s/fb-world-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(w->dir));
    world_keep(w->dir);
    w->config.dir = w->dir;
}

static inline void world_open(world *w)
{
    for (int i = 0; i < w->ranks; i++) {
        world_rank *r = &w->rank[i];
        fb_error err;
        w->config.rank = i;
        if (fb_run_open_with(&r->run, &w->config, w->os, &err) != FB_OK) fail_msg("%s", err.message);
        for (int t = 0; t < WORLD_TENSORS; t++) {
            for (int e = 0; e < WORLD_ELEMENTS; e++) r->param[t][e] = (float)(t + 1) * 0.5f + (float)e;
        }
        world_sites(r);
    }
}

static inline void world_close(world *w)
{
    for (int i = 0; i < w->ranks; i++) fb_run_close(w->rank[i].run);
    for (size_t i = 0; i < sizeof world_folders / sizeof *world_folders; i++) {
        if (strcmp(world_folders[i], w->dir) == 0) world_remove(world_folders[i]);
    }
}

/* Healthy gradients for the coming update. Tests spoil them through `spoil`. */
static inline void world_backward(world_rank *r)
{
    for (int t = 0; t < WORLD_TENSORS; t++) {
        for (int e = 0; e < WORLD_ELEMENTS; e++) r->grad[t][e] = 0.25f * (float)(e + 1);
    }
    r->loss = 2.5f;
    for (int i = 0; i < WORLD_ROWS * WORLD_COLS; i++) {
        r->tokens[i] = i;
        r->labels[i] = i + 1;
    }
}

typedef void (*world_spoil)(world *w, int rank, int micro, void *ctx);

static inline void world_vote(world *w)
{
    int64_t words[WORLD_MAX_RANKS][4], folded[4];
    fb_verdict fresh = FB_VERDICT_INIT;
    for (int i = 0; i < w->ranks; i++) {
        fb_error err;
        if (fb_step_ballot(w->rank[i].run, words[i], &err) != FB_OK) fail_msg("%s", err.message);
    }
    memcpy(folded, words[0], sizeof folded);
    for (int i = 1; i < w->ranks; i++) fb_vote_fold(folded, words[i]);
    for (int i = 0; i < w->ranks; i++) {
        fb_error err;
        w->rank[i].verdict = fresh;
        if (fb_step_settle(w->rank[i].run, folded, &w->rank[i].verdict, &err) != FB_OK) fail_msg("%s", err.message);
    }
}

static inline fb_tokens world_batch(world_rank *r)
{
    fb_tokens batch = FB_TOKENS_INIT;
    batch.site = r->token_site;
    batch.rows = WORLD_ROWS;
    batch.cols = WORLD_COLS;
    batch.tokens = r->tokens;
    batch.labels = r->labels;
    batch.vocab = batch.classes = 256;
    return batch;
}

static inline void world_local(world *w, int i, int64_t step, world_spoil spoil, void *ctx)
{
    world_rank *r = &w->rank[i];
    fb_step begin = FB_STEP_INIT;
    fb_error err;
    begin.step = step;
    begin.micro_steps = w->micro_steps;
    if (fb_step_begin(r->run, &begin, &err) != FB_OK) fail_msg("%s", err.message);
    if (step == w->entry_at) {
        for (int t = 0; t < WORLD_TENSORS; t++) {
            fb_view state[2] = {world_view(r->param[t], r->param_site[t]), world_view(r->moment[t], r->moment_site[t])};
            assert_int_equal(fb_step_check(r->run, FB_ENTRY, state, 2, &err), FB_OK);
        }
    }
    for (int micro = 0; micro < w->micro_steps; micro++) {
        fb_tokens batch;
        fb_view loss = world_view(&r->loss, r->loss_site), grads[WORLD_TENSORS];
        world_backward(r);
        if (spoil) spoil(w, i, micro, ctx);
        assert_int_equal(fb_step_micro(r->run, micro, &err), FB_OK);
        batch = world_batch(r);
        assert_int_equal(fb_step_check_tokens(r->run, &batch, &err), FB_OK);
        loss.count = 1;
        assert_int_equal(fb_step_check(r->run, FB_LOSS, &loss, 1, &err), FB_OK);
        for (int t = 0; t < WORLD_TENSORS; t++) grads[t] = world_view(r->grad[t], r->grad_site[t]);
        assert_int_equal(fb_step_check(r->run, FB_LOCAL_GRAD, grads, WORLD_TENSORS, &err), FB_OK);
    }
}

static inline void world_reduce(world *w)
{
    for (int t = 0; t < WORLD_TENSORS; t++) {
        for (int e = 0; e < WORLD_ELEMENTS; e++) {
            float sum = 0.0f;
            for (int i = 0; i < w->ranks; i++) sum += w->rank[i].grad[t][e];
            for (int i = 0; i < w->ranks; i++) w->rank[i].grad[t][e] = sum;
        }
    }
}

static inline void world_unscale(world *w)
{
    for (int i = 0; i < w->ranks; i++) {
        world_rank *r = &w->rank[i];
        fb_view grads[WORLD_TENSORS];
        double sum_sq;
        fb_error err;
        for (int t = 0; t < WORLD_TENSORS; t++) grads[t] = world_view(r->grad[t], r->grad_site[t]);
        if (fb_step_unscale(r->run, grads, WORLD_TENSORS, 1.0 / w->ranks, &sum_sq, &err) != FB_OK) fail_msg("%s", err.message);
    }
}

/* One update on all ranks, as a trainer does it. Returns the action, which must be equal on all ranks. */
static inline int32_t world_step(world *w, int64_t step, world_spoil spoil, void *ctx)
{
    fb_step_result result = FB_STEP_RESULT_INIT;
    int32_t action;
    for (int i = 0; i < w->ranks; i++) world_local(w, i, step, spoil, ctx);
    world_vote(w);
    if (w->rank[0].verdict.action == FB_PROCEED && !w->skip_reduced) {
        world_reduce(w);
        world_unscale(w);
        world_vote(w);
    }
    action = w->rank[0].verdict.action;
    for (int i = 0; i < w->ranks; i++) {
        world_rank *r = &w->rank[i];
        fb_error err;
        assert_int_equal(r->verdict.action, action);
        r->applied = fb_step_apply(r->run, &err);
        if (r->applied == FB_OK) {
            for (int t = 0; t < WORLD_TENSORS; t++) {
                for (int e = 0; e < WORLD_ELEMENTS; e++) {
                    r->moment[t][e] = 0.9f * r->moment[t][e] + r->grad[t][e];
                    r->param[t][e] -= 0.01f * r->moment[t][e];
                }
            }
        }
        if (r->applied == FB_OK && i == 1 && step == w->overflow_at && step > 0) {
            fb_view param = world_view(r->param[0], r->param_site[0]);
            uint32_t inf = 0x7f800000u;
            memcpy(&r->param[0][1], &inf, sizeof inf);
            assert_int_equal(fb_step_check(r->run, FB_UPDATE, &param, 1, &err), FB_OK);
        }
        result.known = FB_KNOWN_LOSS;
        result.loss = (double)r->loss;
        if (fb_step_end(r->run, &result, &err) != FB_OK) fail_msg("%s", err.message);
    }
    return action;
}

static inline float world_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
