/* incident.c: see incident.h. */
#include "incident.h"
#include "capture.h"
#include "finding.h"
#include "located.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- nothing may change ----------------------------------------------------------------------------------------------------- */

/* A digest of all that a replay could spoil. */
static uint64_t living_state(const trainer *t)
{
    const gpt_model *m = t->model;
    const batch *b = &t->batch;
    fb_scaler_state scaler = {0};
    size_t windows = b->micro_steps * b->rows * b->columns;
    uint64_t hash =
        capture_digest(m->parameters, t->optimizer.exp_avg, t->optimizer.exp_avg_sq, m->parameter_count, t->optimizer.updates);
    (void)fb_run_scaler_get(t->guard.run, &scaler, NULL);
    hash = capture_mix(hash, m->weights, m->parameter_count * sizeof *m->weights);
    hash = capture_mix(hash, m->gradients, m->parameter_count * sizeof *m->gradients);
    if (t->gradients.half) hash = capture_mix(hash, t->gradients.half, m->parameter_count * sizeof *t->gradients.half);
    hash = capture_mix(hash, &scaler.scale, sizeof scaler.scale);
    hash = capture_mix(hash, &scaler.growth_tracker, sizeof scaler.growth_tracker);
    hash = capture_mix(hash, &scaler.hysteresis_left, sizeof scaler.hysteresis_left);
    hash = capture_mix(hash, b->tokens, windows * sizeof *b->tokens);
    hash = capture_mix(hash, b->targets, windows * sizeof *b->targets);
    return capture_mix(hash, b->weights, windows * sizeof *b->weights);
}

static void must_be_as_before(const trainer *t, uint64_t before)
{
    if (!agree(t, living_state(t) != before)) return;
    fprintf(stderr,
            "firstbad-gpt: rank %d: a replay changed the state of the training; that must never be, and the job ends here\n",
            t->rank);
    MPI_Abort(t->comm, EXIT_FAILED);
}

/* ---- what a replay starts from ---------------------------------------------------------------------------------------------- */

static replay_start start_of(const trainer *t, int64_t step, const finding *f, double scale, double learning_rate)
{
    return (replay_start){.options = &t->options,
                          .optimizer = &t->optimizer,
                          .finding = *f,
                          .step = step,
                          .rank = t->rank,
                          .world = t->world,
                          .scale = scale,
                          .learning_rate = learning_rate,
                          .parameters = t->model->parameters,
                          .exp_avg = t->optimizer.exp_avg,
                          .exp_avg_sq = t->optimizer.exp_avg_sq,
                          .updates = t->optimizer.updates,
                          .batch = &t->batch};
}

static void case_folder(const trainer *t, const fb_verdict *verdict, char out[GPT_PATH_MAX])
{
    snprintf(out, GPT_PATH_MAX, "%s/cases/%s", fb_run_folder(t->guard.run), verdict->case_id);
}

static const char *run_id_of(const trainer *t)
{
    const char *folder = fb_run_folder(t->guard.run), *slash = strrchr(folder, '/');
    return slash ? slash + 1 : folder;
}

static void write_bundle(const trainer *t, const replay_start *start, const minimal_batch *minimal, const fb_verdict *verdict)
{
    char folder[GPT_PATH_MAX], path[GPT_PATH_MAX + 16];
    fb_error err = {0};
    case_folder(t, verdict, folder);
    snprintf(path, sizeof path, "%s/%s", folder, minimal ? "bundle-min" : "bundle");
    if (capture_write(t, start, minimal, path, verdict->case_id, run_id_of(t), &err) != 0 && err.message[0])
        fprintf(stderr, "firstbad-gpt: rank %d: no bundle was kept: %s\n", t->rank, err.message);
}

/* ---- words ------------------------------------------------------------------------------------------------------------------ */

static void words_of(const trainer *t, const fb_verdict *v, const replay_start *s, char headline[256], char next[128],
                     char line[512])
{
    static const char *const found[] = {[FB_ENTRY] = "a state that is not finite", [FB_INPUT] = "a bad batch",
                                        [FB_FORWARD] = "a non-finite activation",  [FB_LOSS] = "a non-finite loss",
                                        [FB_LOCAL_GRAD] = "a non-finite gradient", [FB_REDUCED_GRAD] = "a non-finite gradient",
                                        [FB_UPDATE] = "a non-finite update",       [FB_CHECKPOINT] = "a state that is not finite"};
    const char *why = v->first_boundary >= FB_ENTRY && v->first_boundary <= FB_CHECKPOINT ? found[v->first_boundary] : "a fault";
    if (finding_is_norm(&s->finding)) why = "a norm overflow (every gradient element is finite)";
    const char *limit = getenv("FIRSTBAD_MAX_SKIPS"); /* it wins over the option; NULL in both: the library's 3 */
    long most = limit && *limit ? strtol(limit, NULL, 10) : t->options.max_skips > 0 ? (long)t->options.max_skips : 3;
    if (v->action == FB_PROCEED)
        snprintf(headline, 256, "step %lld is applied although it is bad, as was asked for: %s on rank %d", (long long)v->step, why,
                 s->finding.rank);
    else
        snprintf(headline, 256, "step %lld was not applied on any of %d rank%s: %s on rank %d", (long long)v->step, t->world,
                 t->world == 1 ? "" : "s", why, s->finding.rank);
    if (v->action == FB_HALT) snprintf(next, 128, "the run halts here");
    else if (v->action == FB_PROCEED) snprintf(next, 128, "training goes on, unguarded (observe)");
    else snprintf(next, 128, "skipped; training goes on, and halts when more than %ld in a row are bad", most);
    snprintf(line, 512, "%.300s/cases/%s\nfirstbad why %s", fb_run_folder(t->guard.run), v->case_id, v->case_id);
}

static const char *spread_of(const fb_verdict *v, const finding *f)
{
    if (v->action == FB_PROCEED && v->first_boundary >= FB_REDUCED_GRAD) return "parameters: the update is applied";
    if (v->action == FB_PROCEED) return "collective: it goes there next\nparameters: the update is applied";
    if (v->first_boundary == FB_UPDATE) return "parameters: no, held back beside them\noptimizer state: no";
    if (finding_is_norm(f)) return "collective: no, made after it\nparameters: no\noptimizer state: no";
    if (v->first_boundary == FB_REDUCED_GRAD) return "collective: it came out of it\nparameters: no\noptimizer state: no";
    if (v->first_boundary == FB_ENTRY || v->first_boundary == FB_CHECKPOINT)
        return "collective: no\nparameters or optimizer state: yes, before the step";
    return "collective: no, gated before it\nparameters: no\noptimizer state: no";
}

/* One rank speaks: that on which the first bad number was made, or found. */
static int speaks(const trainer *t, const fb_locate_result *q, const finding *f)
{
    return t->rank == (q->owner >= 0 && q->owner < t->world ? q->owner : f->rank);
}

/* ---- locate ----------------------------------------------------------------------------------------------------------------- */

static int32_t first_step(const trainer *t, int64_t step)
{
    return step != t->first ? 0 : t->parent >= 0 ? 2 : 1;
}

static void locate_from(trainer *t, const replay_start *start, const fb_verdict *verdict, double since)
{
    char folder[GPT_PATH_MAX], headline[256], next[128], line[512];
    fb_locate_result result = FB_LOCATE_RESULT_INIT;
    fb_locate_config config;
    fb_error err = {0};
    fb_status status;
    replay r;
    case_folder(t, verdict, folder);
    if (replay_open(&r, start, t->comm) != 0) {
        complain(t, 0, "the bad step cannot be replayed: no memory for a second model");
        return;
    }
    config = located_config(t, &r, folder);
    config.sample_ids = start->batch->offsets + (size_t)start->finding.micro_step * start->batch->rows;
    config.first_step_of_attempt = first_step(t, start->step);
    config.finding_injected = located_planted(t, folder);
    config.run_id = run_id_of(t);
    config.case_id = verdict->case_id;
    status = fb_locate_run(&config, &result, &err);
    if (err.message[0]) fprintf(stderr, "firstbad-gpt: rank %d: locate: %s\n", t->rank, err.message);
    if (status == FB_OK && result.rows_needed && result.rows && t->options.locate & LOCATE_BUNDLE) {
        minimal_batch minimal = {result.rows, result.rows_needed, result.keep, result.rows_rank};
        write_bundle(t, start, &minimal, verdict);
    }
    words_of(t, verdict, start, headline, next, line);
    if (status == FB_OK && speaks(t, &result, &start->finding)) {
        fb_locate_words words = FB_LOCATE_WORDS_INIT;
        words.rank = t->rank;
        words.headline = headline;
        words.spread = spread_of(verdict, &start->finding);
        words.next = next;
        words.case_line = line;
        words.seconds = MPI_Wtime() - since;
        located_print(&config, &result, &words);
        /* The folder of the case may be lost; what was found is then still in the ledger. */
        if (fb_run_note_located(t->guard.run, verdict->case_id, result.sentence, &err) != FB_OK)
            fprintf(stderr, "firstbad-gpt: rank %d: %s\n", t->rank, err.message);
    }
    fb_locate_release(&result);
    replay_close(&r);
}

/* Does a replay of this show the finding? One replay, nothing written. */
static int shows(const trainer *t, const replay_start *start)
{
    fb_locate_result result = FB_LOCATE_RESULT_INIT;
    fb_locate_config config;
    replay r;
    int seen = 0;
    if (replay_open(&r, start, t->comm) != 0) return 0;
    config = located_config(t, &r, NULL);
    config.parts = FB_LOCATE_REPLAY;
    config.times = 1;
    if (fb_locate_run(&config, &result, NULL) == FB_OK) seen = result.reproduced > 0;
    fb_locate_release(&result);
    replay_close(&r);
    return seen;
}

/*
 * Integers and masks hold nothing that is not finite, so that a replay cannot see them: what it can see is the loss that comes of
 * them. Where the loss stays finite the batch alone was found, and nothing went wrong after it; else *f becomes the loss.
 */
static void follow_input(const trainer *t, int64_t step, finding *f, const outcome *out)
{
    finding loss = *f;
    replay_start start;
    if (f->boundary != FB_INPUT || (f->kind != FB_KIND_OUT_OF_RANGE && f->kind != FB_KIND_ALL_IGNORED)) return;
    loss.boundary = FB_LOSS;
    snprintf(loss.tensor, sizeof loss.tensor, "loss.cross_entropy");
    start = start_of(t, step, &loss, out->scale, out->learning_rate);
    if (shows(t, &start)) *f = loss;
}

static void locate(trainer *t, int64_t step, const fb_verdict *verdict, const outcome *out)
{
    double since = MPI_Wtime();
    uint64_t before = living_state(t);
    finding f;
    replay_start start;
    if (finding_of(t, verdict, &f) != 0) {
        complain(t, 0,
                 verdict->unanimous == 1 ? "no tensor was found bad: there is nothing to replay"
                                         : "the ranks do not agree with each other: there is no one update to replay");
        return;
    }
    follow_input(t, step, &f, out);
    start = start_of(t, step, &f, out->scale, out->learning_rate);
    if (t->options.locate & LOCATE_BUNDLE) write_bundle(t, &start, NULL, verdict);
    if (t->options.locate & LOCATE_ALL & ~LOCATE_BUNDLE) locate_from(t, &start, verdict, since);
    must_be_as_before(t, before);
}

/* ---- probing ---------------------------------------------------------------------------------------------------------------- */

/* Two skips in a row that look like probing: the same batch in FP32 tells an overflow of the scale from a fault. */
static void probe(trainer *t, int64_t step, const fb_verdict *verdict, const outcome *out)
{
    uint64_t before = living_state(t);
    fb_locate_result result = FB_LOCATE_RESULT_INIT;
    fb_locate_config config;
    fb_error err = {0};
    finding f;
    replay_start start;
    replay r;
    if (finding_of(t, verdict, &f) != 0) return;
    start = start_of(t, step, &f, out->scale, out->learning_rate);
    if (replay_open(&r, &start, t->comm) != 0) return;
    config = located_config(t, &r, NULL);
    config.parts = FB_LOCATE_REPLAY;
    config.times = 1;
    if (fb_locate_run(&config, &result, NULL) == FB_OK && result.persists >= 0)
        must(t, fb_run_note_replay(t->guard.run, result.persists, &err), &err);
    fb_locate_release(&result);
    replay_close(&r);
    must_be_as_before(t, before);
}

void incident(trainer *t, int64_t step, const fb_verdict *verdict, const outcome *out)
{
    enum { PROBED_AFTER = 2 };
    int first = verdict->case_id[0] && strcmp(t->located, verdict->case_id) != 0;
    if (verdict->fault && first) {
        snprintf(t->located, sizeof t->located, "%s", verdict->case_id);
        if (t->options.locate) locate(t, step, verdict, out);
    } else if (!verdict->fault && verdict->consecutive_skips == PROBED_AFTER && t->options.locate & LOCATE_REPLAY) {
        probe(t, step, verdict, out);
    }
}
