/*
 * Random sequences of the public calls on one to four ranks, right and wrong, against a small model of the promises. The model
 * knows what was handed over and what was bad in it, orders places by its own comparison, and never looks at how the guard decides.
 */
#include "support/world.h"

#include "evidence/records.h"
#include "log/log.h"

enum { WORLDS = 120, STEPS = 8, SITES = 8, ACKED_MAX = 4096, LAST_BOUNDARY = FB_CHECKPOINT };

typedef struct place {
    int32_t micro, boundary, rank;
    int64_t position;
} place;

typedef struct acked {
    int64_t step;
    int32_t rank, boundary, micro;
    uint32_t site;
} acked;

typedef struct model_rank {
    int open, ballot_out, votes, withheld, unscaled, applied, proposed, unsettled, micro, micro_steps;
    int has, late, ungated, not_clean;
    int64_t step;
    place first, late_place;
    int handed[LAST_BOUNDARY + 1][SITES]; /* in this step */
    int grad_now[SITES];                  /* local gradients handed over in the micro-step that is running */
    int bad[LAST_BOUNDARY + 1][SITES];
    int local_full, reduced_full, local_checks;
    uint64_t found;
    acked fresh[64];
    int fresh_count;
} model_rank;

static struct {
    uint64_t random;
    world w;
    model_rank rank[WORLD_MAX_RANKS];
    int halted, row, scaled, max_skips;
    acked acked[ACKED_MAX];
    int acked_count;
} m;

static fb_error err;

static uint64_t draw(uint64_t below)
{
    m.random ^= m.random << 13;
    m.random ^= m.random >> 7;
    m.random ^= m.random << 17;
    return m.random % below;
}

static int chance(uint64_t percent)
{
    return draw(100) < percent;
}

static float bad_value(void)
{
    static const uint32_t bits[] = {0x7fc00000u, 0x7f800000u, 0xff800000u, 0x7fa00001u, 0xffffffffu};
    return world_bits(bits[draw(sizeof bits / sizeof *bits)]);
}

/* ---- the model's own order --------------------------------------------------------------------------------------------------- */

static int earlier(const place *a, const place *b)
{
    int backward = a->boundary == FB_LOCAL_GRAD || a->boundary == FB_REDUCED_GRAD;
    if (a->micro != b->micro) return a->micro < b->micro;
    if (a->boundary != b->boundary) return a->boundary < b->boundary;
    if (a->position != b->position) return backward ? a->position > b->position : a->position < b->position;
    return a->rank < b->rank;
}

static int64_t position_of(const world_rank *r, uint32_t site)
{
    for (int t = 0; t < WORLD_TENSORS; t++) {
        if (site == r->param_site[t] || site == r->moment_site[t] || site == r->grad_site[t]) return 10 * (t + 1);
    }
    return site == r->loss_site ? 30 : 0;
}

static void found(int i, int32_t boundary, uint32_t site, int32_t micro)
{
    model_rank *r = &m.rank[i];
    place here = {micro, boundary, i, position_of(&m.w.rank[i], site)};
    r->found++;
    r->unsettled = 1;
    if (!r->has || earlier(&here, &r->first)) r->first = here;
    r->has = 1;
    if (r->bad[boundary][site]++ && boundary != FB_INPUT) return;
    assert_in_range(r->fresh_count, 0, 63);
    r->fresh[r->fresh_count].step = r->step;
    r->fresh[r->fresh_count].rank = i;
    r->fresh[r->fresh_count].boundary = boundary;
    r->fresh[r->fresh_count].micro = micro;
    r->fresh[r->fresh_count++].site = site;
}

/* From here on nobody may lose them. */
static void acknowledge(model_rank *r)
{
    for (int k = 0; k < r->fresh_count; k++) {
        assert_in_range(m.acked_count, 0, ACKED_MAX - 1);
        m.acked[m.acked_count++] = r->fresh[k];
    }
    r->fresh_count = 0;
}

/* ---- right calls ------------------------------------------------------------------------------------------------------------- */

static void must(fb_status status)
{
    if (status != FB_OK) fail_msg("%s", err.message);
}

static void begin(int i, int64_t number, int32_t micro_steps)
{
    model_rank *r = &m.rank[i];
    model_rank fresh = {0};
    fb_step step = FB_STEP_INIT;
    step.step = number;
    step.micro_steps = micro_steps;
    must(fb_step_begin(m.w.rank[i].run, &step, &err));
    fresh.late = r->late;
    fresh.late_place = r->late_place;
    fresh.ungated = r->ungated;
    *r = fresh;
    r->open = 1;
    r->step = number;
    r->micro_steps = micro_steps;
    if (!r->late) return;
    r->late = 0;
    r->has = 1;
    r->found = 1;
    r->unsettled = 1;
    r->first = r->late_place;
}

static void check_tensor(int i, int32_t boundary, float *data, uint32_t site, uint64_t count, int is_bad)
{
    model_rank *r = &m.rank[i];
    fb_view view = world_view(data, site);
    view.count = count;
    if (is_bad) data[draw(count)] = bad_value();
    must(fb_step_check(m.w.rank[i].run, boundary, &view, 1, &err));
    r->handed[boundary][site] = 1;
    if (boundary == FB_LOCAL_GRAD) r->grad_now[site] = 1;
    if (boundary != FB_UPDATE || !r->applied) r->unsettled = 1;
    if (boundary == FB_UPDATE && !r->applied) r->proposed = 1;
    if (is_bad) found(i, boundary, site, boundary == FB_ENTRY ? 0 : r->micro);
}

static void check_batch(int i, int is_bad)
{
    world_rank *r = &m.w.rank[i];
    fb_tokens batch = world_batch(r);
    if (is_bad) r->tokens[draw(WORLD_ROWS * WORLD_COLS)] = 256 + (int32_t)draw(1000);
    must(fb_step_check_tokens(r->run, &batch, &err));
    m.rank[i].handed[FB_INPUT][r->token_site] = 1;
    m.rank[i].unsettled = 1;
    if (is_bad) found(i, FB_INPUT, r->token_site, m.rank[i].micro);
}

static void report(int i)
{
    world_rank *r = &m.w.rank[i];
    fb_finding finding;
    int t = (int)draw(WORLD_TENSORS);
    memset(&finding, 0, sizeof finding);
    finding.size = (uint32_t)sizeof finding;
    finding.stats.size = (uint32_t)sizeof finding.stats;
    finding.site = r->grad_site[t];
    finding.boundary = FB_LOCAL_GRAD;
    finding.micro_step = m.rank[i].micro;
    finding.kind = FB_KIND_NAN;
    finding.count = 1;
    must(fb_step_report(r->run, &finding, 1, &err));
    found(i, FB_LOCAL_GRAD, r->grad_site[t], finding.micro_step);
}

static void check_something(int i, uint64_t percent)
{
    world_rank *r = &m.w.rank[i];
    int t = (int)draw(WORLD_TENSORS);
    world_backward(r);
    switch (draw(6)) {
    case 0: check_batch(i, chance(percent)); break;
    case 1: check_tensor(i, FB_LOSS, &r->loss, r->loss_site, 1, chance(percent)); break;
    case 2: check_tensor(i, FB_ENTRY, r->moment[t], r->moment_site[t], WORLD_ELEMENTS, 0); break;
    case 3:
        if (chance(percent)) report(i);
        break;
    default: check_tensor(i, FB_LOCAL_GRAD, r->grad[t], r->grad_site[t], WORLD_ELEMENTS, chance(percent)); break;
    }
}

static void check_all_gradients(int i, uint64_t percent)
{
    world_rank *r = &m.w.rank[i];
    for (int t = 0; t < WORLD_TENSORS; t++) {
        check_tensor(i, FB_LOCAL_GRAD, r->grad[t], r->grad_site[t], WORLD_ELEMENTS, chance(percent));
    }
}

static void unscale(int i, int some, uint64_t percent)
{
    world_rank *r = &m.w.rank[i];
    model_rank *model = &m.rank[i];
    fb_view views[WORLD_TENSORS];
    size_t n = 0;
    double sum_sq = -1.0;
    int spoiled[WORLD_TENSORS] = {0};
    world_backward(r);
    for (int t = 0; t < WORLD_TENSORS; t++) {
        if (some && chance(50)) continue;
        spoiled[t] = chance(percent);
        if (spoiled[t]) r->grad[t][draw(WORLD_ELEMENTS)] = bad_value();
        views[n++] = world_view(r->grad[t], r->grad_site[t]);
        model->handed[FB_REDUCED_GRAD][r->grad_site[t]] = 1;
    }
    must(fb_step_unscale(r->run, views, n, 0.5, &sum_sq, &err));
    assert_true(sum_sq >= 0.0);
    model->unscaled = model->unsettled = 1;
    model->reduced_full = n == WORLD_TENSORS;
    for (int t = 0; t < WORLD_TENSORS; t++) {
        if (spoiled[t]) found(i, FB_REDUCED_GRAD, r->grad_site[t], model->micro_steps - 1);
    }
}

/* ---- wrong calls ------------------------------------------------------------------------------------------------------------- */

typedef struct snapshot {
    fb_step_state step;
    fb_gate gate;
    fb_scaler_state scaler;
    uint64_t findings, sites, owned;
    int64_t last_step;
    int ungated, late, broken, proof;
} snapshot;

static void take(const fb_run *run, snapshot *s)
{
    memset(s, 0, sizeof *s);
    memcpy(&s->step, &run->step, sizeof s->step);
    s->step.rec.guard_ns = 0;
    memcpy(&s->gate, &run->gate, sizeof s->gate);
    s->scaler = run->scaler;
    s->findings = run->findings_count;
    s->sites = run->sites.count;
    s->owned = run->owned_count;
    s->last_step = run->last_step;
    s->ungated = run->ungated;
    s->late = run->late_pending;
    s->broken = run->skip_broken;
    s->proof = run->proof_pending;
}

/* A call that the model calls wrong now. FB_OK where the one that was drawn would be right. */
static fb_status wrong_call(int i)
{
    world_rank *w = &m.w.rank[i];
    const model_rank *r = &m.rank[i];
    fb_run *run = w->run;
    fb_step step = FB_STEP_INIT;
    fb_step_result result = FB_STEP_RESULT_INIT;
    fb_verdict verdict = FB_VERDICT_INIT;
    fb_site site = FB_SITE_INIT;
    fb_scaler_state scaler = {1.0, 0, 1};
    fb_view view = world_view(w->grad[0], w->grad_site[0]);
    int64_t words[4] = {0, 0, 0, 0};
    double sum_sq;
    uint32_t id;
    switch (draw(16)) {
    case 0: return r->open ? fb_step_begin(run, &step, &err) : FB_OK;
    case 1: return fb_step_micro(run, r->micro + 2, &err);
    case 2: return r->votes || !r->open ? fb_step_micro(run, r->micro + 1, &err) : FB_OK;
    case 3:
        return r->ballot_out || r->unscaled || r->proposed || r->applied || !r->open
                   ? fb_step_check(run, FB_LOCAL_GRAD, &view, 1, &err)
                   : FB_OK;
    case 4:
        if (r->open && !r->ballot_out && (r->applied || (r->votes && !r->withheld && (!r->unsettled || r->proposed)))) return FB_OK;
        return fb_step_check(run, FB_UPDATE, &view, 1, &err);
    case 5:
        if (r->open && r->votes && !r->unsettled && !r->withheld && !r->unscaled && !r->proposed && !r->applied && !r->ballot_out) {
            return fb_step_unscale(run, &view, 1, -1.0, &sum_sq, &err);
        }
        return fb_step_unscale(run, &view, 1, 0.5, &sum_sq, &err);
    case 6: return r->ballot_out || r->withheld || !r->open ? fb_step_ballot(run, words, &err) : FB_OK;
    case 7: return !r->ballot_out ? fb_step_settle(run, words, &verdict, &err) : FB_OK;
    case 8:
        if (r->open && r->votes && !r->ballot_out && !r->unsettled && !r->withheld && !r->applied) return FB_OK;
        return fb_step_apply(run, &err);
    case 9:
        return !r->open || r->ballot_out || !r->votes || (!r->withheld && !r->applied) ? fb_step_end(run, &result, &err) : FB_OK;
    case 10: return r->open ? fb_run_add_site(run, &site, &id, &err) : fb_run_add_site(run, NULL, &id, &err);
    case 11: return r->open ? fb_run_own(run, &view, 1, &err) : fb_run_own(run, NULL, 1, &err);
    case 12: return r->open ? fb_run_scaler_set(run, &scaler, &err) : fb_run_scaler_set(run, NULL, &err);
    case 13: view.flags = 4; return fb_step_check(run, FB_LOCAL_GRAD, &view, 1, &err);
    case 14: view.site = 99; return fb_step_check(run, FB_LOSS, &view, 1, &err);
    default: return fb_step_report(run, NULL, 1, &err);
    }
}

static void maybe_misuse(int i)
{
    snapshot before, after;
    const fb_run *run = m.w.rank[i].run;
    if (!chance(40)) return;
    take(run, &before);
    if (wrong_call(i) == FB_OK) return; /* the one drawn would have been right, and was not made */
    take(run, &after);
    assert_memory_equal(&before, &after, sizeof before);
}

/* ---- vote -------------------------------------------------------------------------------------------------------------------- */

enum { FAIL_NOT, FAIL_NULL, FAIL_WORD };

static int all_local(int i)
{
    int all = 1;
    for (int t = 0; t < WORLD_TENSORS; t++) all &= m.rank[i].grad_now[m.w.rank[i].grad_site[t]];
    return all;
}

static void ballots(int64_t folded[4])
{
    for (int i = 0; i < m.w.ranks; i++) {
        model_rank *r = &m.rank[i];
        int64_t words[4];
        maybe_misuse(i);
        must(fb_step_ballot(m.w.rank[i].run, words, &err));
        r->ballot_out = 1;
        acknowledge(r);
        r->local_full = all_local(i);
        if (i == 0) memcpy(folded, words, sizeof words);
        else fb_vote_fold(folded, words);
    }
}

static void same_everywhere(void)
{
    const fb_verdict *a = &m.w.rank[0].verdict;
    for (int i = 1; i < m.w.ranks; i++) {
        const fb_verdict *b = &m.w.rank[i].verdict;
        assert_int_equal(a->action, b->action);
        assert_int_equal(a->unanimous, b->unanimous);
        assert_int_equal(a->clean, b->clean);
        assert_int_equal(a->fault, b->fault);
        assert_int_equal(a->first_rank, b->first_rank);
        assert_int_equal(a->first_position, b->first_position);
        assert_int_equal(a->consecutive_skips, b->consecutive_skips);
        assert_string_equal(a->case_id, b->case_id);
    }
}

static void expect_action(const fb_verdict *verdict, int bad, int failed, const place *first, int counted)
{
    if (m.w.config.on_bad == FB_ON_BAD_OBSERVE || (!bad && !failed)) {
        assert_int_equal(verdict->action, FB_PROCEED);
    } else if (failed) {
        assert_int_equal(verdict->action, FB_HALT);
    } else if (!m.scaled) {
        int row = m.row + (counted ? 0 : 1);
        assert_int_equal(verdict->action, m.w.config.on_bad == FB_ON_BAD_HALT || row > m.max_skips ? FB_HALT : FB_SKIP);
    } else {
        assert_true(verdict->action > FB_PROCEED);
        if (first->boundary != FB_LOCAL_GRAD && first->boundary != FB_REDUCED_GRAD) assert_true(verdict->action > FB_SKIP);
    }
}

static void vote(void)
{
    int fail = chance(3) ? FAIL_NULL : chance(3) ? FAIL_WORD : FAIL_NOT;
    int64_t folded[4];
    place first = {0, 0, 0, 0};
    int bad = 0, counted = m.rank[0].not_clean;
    const fb_verdict *verdict = &m.w.rank[0].verdict;
    ballots(folded);
    for (int i = 0; i < m.w.ranks; i++) {
        const model_rank *r = &m.rank[i];
        if (r->has && (!bad || earlier(&r->first, &first))) first = r->first;
        bad |= r->has;
    }
    if (fail == FAIL_WORD)
        folded[1 + draw(2)] ^= (int64_t)(UINT64_C(1) << draw(63)); /* as if one rank had voted on something else */
    for (int i = 0; i < m.w.ranks; i++) {
        fb_verdict fresh = FB_VERDICT_INIT;
        maybe_misuse(i);
        m.w.rank[i].verdict = fresh;
        must(fb_step_settle(m.w.rank[i].run, fail == FAIL_NULL ? NULL : folded, &m.w.rank[i].verdict, &err));
    }
    same_everywhere();
    if (fail != FAIL_NOT) {
        assert_int_equal(verdict->unanimous, fail == FAIL_NULL ? -1 : 0);
        assert_int_equal(verdict->clean, 0);
    } else {
        assert_int_equal(verdict->unanimous, 1);
        assert_int_equal(verdict->clean, !bad);
        if (bad) {
            assert_int_equal(verdict->first_rank, first.rank);
            assert_int_equal(verdict->first_boundary, first.boundary);
            assert_int_equal(verdict->first_micro_step, first.micro);
            assert_int_equal(verdict->first_position, first.position);
        }
    }
    expect_action(verdict, bad, fail != FAIL_NOT, &first, counted);
    for (int i = 0; i < m.w.ranks; i++) {
        model_rank *r = &m.rank[i];
        r->ballot_out = r->unsettled = 0;
        r->votes++;
        if (bad || fail != FAIL_NOT) r->not_clean = 1;
        if (r->not_clean && r->applied) r->ungated = 1;
        if (verdict->action != FB_PROCEED && !r->applied) r->withheld = 1;
    }
    if (bad && !counted && m.w.config.on_bad != FB_ON_BAD_OBSERVE) m.row++;
    if (verdict->action == FB_HALT) m.halted = 1;
}

/* ---- one update -------------------------------------------------------------------------------------------------------------- */

static void apply_all(void)
{
    for (int i = 0; i < m.w.ranks; i++) {
        model_rank *r = &m.rank[i];
        int may = r->votes && !r->withheld && !r->unsettled && !r->applied;
        int gated = !r->not_clean && !r->has && (m.w.ranks == 1 ? r->local_full || r->reduced_full : r->reduced_full);
        int spoilt = 0;
        fb_status status;
        maybe_misuse(i);
        status = fb_step_apply(m.w.rank[i].run, &err);
        assert_int_equal(status == FB_OK, may);
        if (!may) continue;
        r->applied = 1;
        if (r->has) assert_int_equal(m.w.config.on_bad, FB_ON_BAD_OBSERVE);
        assert_int_equal((m.w.rank[i].run->step.rec.flags & FB_STEP_GATED) != 0, gated);
        if (!gated) r->ungated = 1;
        assert_int_equal(m.w.rank[i].run->ungated, r->ungated);
        /* What was proposed is no state until it is applied, and a bad one is applied by who only observes. */
        for (int t = 0; t < WORLD_TENSORS; t++) spoilt |= r->bad[FB_UPDATE][m.w.rank[i].param_site[t]];
        if (spoilt) assert_int_equal(m.w.rank[i].run->state_bad, 1);
    }
}

/* The work of the optimizer is looked at beside the state: on some ranks more of it than on others,
 * and on all of them something. */
static void propose_all(uint64_t percent)
{
    for (int i = 0; i < m.w.ranks; i++) {
        world_rank *r = &m.w.rank[i];
        int state_bad = r->run->state_bad;
        for (uint64_t k = 1 + draw(2); k > 0; k--) {
            int t = (int)draw(WORLD_TENSORS);
            float beside[WORLD_ELEMENTS];
            memcpy(beside, r->param[t], sizeof beside);
            maybe_misuse(i);
            check_tensor(i, FB_UPDATE, beside, r->param_site[t], WORLD_ELEMENTS, chance(percent));
        }
        assert_int_equal(r->run->state_bad, state_bad);
    }
    vote();
}

static void check_after_update(uint64_t percent)
{
    int tell = chance(50), any = 0;
    for (int i = 0; i < m.w.ranks; i++) {
        world_rank *r = &m.w.rank[i];
        int t = (int)draw(WORLD_TENSORS), bad = chance(percent);
        float kept[WORLD_ELEMENTS];
        memcpy(kept, r->param[t], sizeof kept);
        check_tensor(i, FB_UPDATE, r->param[t], r->param_site[t], WORLD_ELEMENTS, bad);
        memcpy(r->param[t], kept, sizeof kept); /* a trainer that loads the state anew */
        any |= bad;
        if (!bad || tell) continue;
        m.rank[i].late = m.rank[i].ungated = 1;
        m.rank[i].late_place = m.rank[i].first; /* what was first in that step is what the next one is told of */
        m.rank[i].late_place.boundary = FB_ENTRY;
        m.rank[i].late_place.micro = 0;
    }
    if (tell && any) vote();
}

static void end_all(void)
{
    fb_step_result result = FB_STEP_RESULT_INIT;
    for (int i = 0; i < m.w.ranks; i++) {
        model_rank *r = &m.rank[i];
        const fb_run *run = m.w.rank[i].run;
        const fb_cover *cover = &run->step.rec.cover;
        maybe_misuse(i);
        assert_int_equal(fb_step_findings(run), r->found);
        must(fb_step_end(m.w.rank[i].run, &result, &err));
        acknowledge(r);
        r->open = 0;
        for (int32_t b = FB_INPUT; b <= LAST_BOUNDARY; b++) { /* entry apart: the guard reads owned state by itself */
            uint32_t handed = 0;
            for (int s = 0; s < SITES; s++) handed += r->handed[b][s] != 0;
            assert_int_equal(cover->tensors[b], handed);
            if (handed == 0) assert_int_equal(cover->level[b], FB_COVER_NONE);
        }
        if (cover->level[FB_LOCAL_GRAD] == FB_COVER_FULL) assert_true(all_local(i));
        if (cover->level[FB_REDUCED_GRAD] == FB_COVER_FULL) assert_true(r->reduced_full);
        assert_int_equal(run->ungated, r->ungated);
        assert_true(fb_run_loss_scale(run) >= fb_run_loss_scale(m.w.rank[0].run) &&
                    fb_run_loss_scale(run) <= fb_run_loss_scale(m.w.rank[0].run));
    }
    if (!m.rank[0].not_clean) m.row = 0;
}

static void one_update(int64_t number)
{
    uint64_t percent = chance(40) ? draw(12) : 0;
    int32_t micro_steps = 1 + (int32_t)draw(3);
    int reduce = chance(75), some = chance(25);
    for (int i = 0; i < m.w.ranks; i++) begin(i, number, micro_steps);
    for (int32_t micro = 0; micro < micro_steps; micro++) {
        for (int i = 0; i < m.w.ranks; i++) {
            if (micro) {
                must(fb_step_micro(m.w.rank[i].run, micro, &err));
                m.rank[i].micro = micro;
                memset(m.rank[i].grad_now, 0, sizeof m.rank[i].grad_now);
            }
            maybe_misuse(i);
            world_backward(&m.w.rank[i]);
            for (uint64_t k = draw(4); k > 0; k--) check_something(i, percent);
            world_backward(&m.w.rank[i]);
            if (chance(85)) check_all_gradients(i, percent);
        }
    }
    vote();
    if (m.rank[0].withheld && chance(50))
        check_something((int)draw((uint64_t)m.w.ranks), 50); /* late flags: more of the same evidence */
    if (!m.rank[0].withheld && reduce) {
        for (int i = 0; i < m.w.ranks; i++) unscale(i, some, percent);
        vote();
    }
    if (!m.rank[0].withheld && chance(30)) propose_all(percent ? 30 : 0);
    apply_all();
    if (m.rank[0].applied && chance(30)) check_after_update(percent ? 30 : 0);
    end_all();
}

/* ---- afterwards -------------------------------------------------------------------------------------------------------------- */

static int same_finding(const acked *a, const fb_rec_finding *f)
{
    return a->step == f->step && a->rank == f->rank && a->boundary == f->boundary && a->site == f->site &&
           a->micro == f->micro_step;
}

/* Every finding that was acknowledged is in its rank's ledger. */
static void read_ledgers(void)
{
    int seen[ACKED_MAX] = {0};
    for (int i = 0; i < m.w.ranks; i++) {
        char path[160];
        fb_log_reader *reader;
        fb_log_record record;
        (void)snprintf(path, sizeof path, "%s/test/ledger/a1/r%05d.log", m.w.dir, i);
        must(fb_log_reader_open(&reader, m.w.os, path, &err));
        while (fb_log_reader_next(reader, &record, &err) == FB_OK) {
            fb_rec_finding finding;
            if (record.type != FB_REC_FINDING) continue;
            must(fb_rec_finding_decode(record.payload, record.bytes, &finding, &err));
            for (int k = 0; k < m.acked_count; k++) seen[k] |= same_finding(&m.acked[k], &finding);
        }
        fb_log_reader_close(reader);
    }
    for (int k = 0; k < m.acked_count; k++) {
        if (!seen[k])
            fail_msg("lost: step %lld rank %d boundary %d site %u micro %d", (long long)m.acked[k].step, m.acked[k].rank,
                     m.acked[k].boundary, m.acked[k].site, m.acked[k].micro);
    }
}

static void one_world(void)
{
    int64_t number = (int64_t)draw(1000);
    int ranks = 1 + (int)draw(4);
    memset(&m.rank, 0, sizeof m.rank);
    m.halted = m.row = m.acked_count = 0;
    world_init(&m.w, ranks);
    m.scaled = (int)draw(2);
    m.max_skips = (int)draw(4);
    m.w.config.on_bad = (int32_t)draw(3);
    m.w.config.max_skips = m.max_skips;
    m.w.config.scaler.enabled = m.scaled;
    m.w.config.scaler.init_scale = 16.0;
    world_open(&m.w);
    for (int k = 0; k < STEPS && !m.halted; k++) {
        one_update(number);
        number += chance(90) ? 1 : -(int64_t)draw(3); /* a trainer that goes back */
        if (number < 0) number = 0;
        if (chance(20)) maybe_misuse(0);
    }
    if (m.halted) {
        fb_step step = FB_STEP_INIT;
        step.step = number + 1;
        for (int i = 0; i < ranks; i++) assert_int_equal(fb_step_begin(m.w.rank[i].run, &step, &err), FB_E_HALTED);
    }
    for (int i = 0; i < ranks; i++) {
        assert_int_equal(fb_run_evidence_lost(m.w.rank[i].run, NULL), 0);
        fb_run_close(m.w.rank[i].run);
        m.w.rank[i].run = NULL;
    }
    read_ledgers();
    world_close(&m.w);
}

static void test_guard__random_calls_keep_the_promises(void **state)
{
    const char *wish = getenv("FB_SEED");
    uint64_t seed = wish ? strtoull(wish, NULL, 10) : 20;
    (void)state;
    print_message("seed %llu (FB_SEED replays it)\n", (unsigned long long)seed);
    m.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (int k = 0; k < WORLDS; k++) one_world();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guard__random_calls_keep_the_promises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
