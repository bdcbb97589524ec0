/*
 * Random trainers on one to three ranks: operators over four floats each, with the arithmetic of real ones, so that values arise,
 * are passed on and are swallowed by themselves; and brute force over them. Shares no code with src/locate or src/search.
 */
#ifndef FB_TESTS_LOCATE_WORLD_H
#define FB_TESTS_LOCATE_WORLD_H

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "firstbad/locate.h"

enum { RANKS = 3, NODES = 40, ENTRIES = 6, OUTPUTS = 2, INPUTS = 3, ELEMENTS = 4, MODULES = 3 };
enum { TENSORS = ENTRIES + NODES * OUTPUTS };

typedef enum kind {
    K_ADD,
    K_MUL,
    K_DIV,
    K_EXP,
    K_LOG,
    K_SQRT,
    K_COPY,
    K_SPLIT,  /* two outputs: a, -a */
    K_REPAIR, /* NaN and Inf become 0 */
    K_WHERE,  /* (c, a, b): c < 0 ? a : b */
    K_MAX,    /* of two; loses NaN */
    K_SUM,    /* all elements become their sum */
    K_MASK,   /* some elements become -Inf, as declared */
    K_SOFTMAX,
    K_ALL_REDUCE,
    KINDS
} kind;

static const char *const kind_names[KINDS] = {"add", "mul",   "div", "exp", "log",         "sqrt",    "copy",      "split",
                                              "fix", "where", "max", "sum", "masked_fill", "softmax", "all_reduce"};

typedef struct operation {
    kind kind;
    uint32_t in[INPUTS], in_count, out[OUTPUTS], out_count, module;
    uint8_t hidden_mask; /* elements that K_MASK sets */
    struct {
        uint8_t on;      /* writes `value` into element 0 of output 0, on this rank, by itself */
        uint8_t percent; /* in so many replays of a hundred; 0: always */
        float value;
    } fails[RANKS];
} operation;

/* Three values of a tensor. */
enum { IS_FINITE = 0, IS_EITHER = 1, IS_BAD = 2 };

typedef struct world {
    int ranks;
    uint32_t nodes, tensors, entries;
    operation op[NODES];
    uint32_t producer[TENSORS]; /* UINT32_MAX: an entry */
    uint32_t flags[TENSORS];    /* FB_TAPE_* */
    float start[RANKS][ENTRIES][ELEMENTS];
    int finding_rank;
    uint32_t finding;
    char finding_name[16];
    int flaky;
    uint32_t fail_replay; /* in this replay one rank has no memory; 0: none */
    uint64_t random;
    /* Of the replay at hand. */
    uint32_t number;
    float value[RANKS][TENSORS][ELEMENTS];
    uint8_t is[RANKS][TENSORS];
    uint8_t leads[RANKS][TENSORS];                              /* a chain of bad ones leads on */
    uint8_t may[RANKS][TENSORS];                                /* or one of bad ones and of those that may be */
    uint8_t origin_on[RANKS][NODES], possible_on[RANKS][NODES]; /* whatever comes before */
    uint8_t late[RANKS][NODES];                                 /* comes after something that is bad for certain and leads on */
    uint8_t origin[NODES], possible[NODES], later[NODES];       /* on any rank, and not late there; late everywhere */
    int origin_rank[NODES];
    int either, orders_differ;
    int state_bad, entry_origin, entry_possible;
    uint32_t origins, possibles, laters;
    uint32_t times_origin[NODES]; /* replays in which it was one */
    /* The ranks' meeting. */
    pthread_mutex_t lock;
    pthread_cond_t met;
    int arrived, uneven;
    unsigned generation;
    size_t meeting_count;
    int32_t meeting[2][1 << 12];
} world;

typedef struct rank_of {
    world *w;
    int rank;
    fb_locate_config config;
    fb_locate_result result;
    fb_status status;
    fb_error err;
} rank_of;

static inline uint64_t draw(world *w, uint64_t below)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return (w->random >> 11) % below;
}

static inline int chance(world *w, uint64_t per_mille)
{
    return draw(w, 1000) < per_mille;
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------------------- */

static inline float one_element(const operation *op, float a, float b, float c, int i)
{
    switch (op->kind) {
    case K_ADD: return a + b;
    case K_MUL: return a * b;
    case K_DIV: return a / b;
    case K_EXP: return expf(a);
    case K_LOG: return logf(a);
    case K_SQRT: return sqrtf(a);
    case K_REPAIR: return isfinite(a) ? a : 0.0f;
    case K_WHERE: return a < 0 ? b : c;
    case K_MAX: return fmaxf(a, b);
    case K_MASK: return op->hidden_mask >> i & 1 ? -INFINITY : a;
    default: return a;
    }
}

static inline void run_softmax(const float *a, float *out)
{
    float largest = a[0], sum = 0;
    for (int i = 1; i < ELEMENTS; i++) largest = a[i] > largest ? a[i] : largest;
    for (int i = 0; i < ELEMENTS; i++) sum += out[i] = expf(a[i] - largest);
    for (int i = 0; i < ELEMENTS; i++) out[i] /= sum;
}

static inline void run_operator(world *w, int rank, const operation *op)
{
    float *out = w->value[rank][op->out[0]];
    const float *a = w->value[rank][op->in[0]];
    const float *b = op->in_count > 1 ? w->value[rank][op->in[1]] : a, *c = op->in_count > 2 ? w->value[rank][op->in[2]] : a;
    float sum = 0;
    for (int i = 0; i < ELEMENTS; i++) out[i] = one_element(op, a[i], b[i], c[i], i);
    if (op->kind == K_SOFTMAX) run_softmax(a, out);
    for (int i = 0; i < ELEMENTS; i++) sum += a[i];
    for (int i = 0; i < ELEMENTS && op->kind == K_SUM; i++) out[i] = sum;
    for (int i = 0; i < ELEMENTS && op->out_count > 1; i++) w->value[rank][op->out[1]][i] = -out[i];
    if (op->kind != K_ALL_REDUCE) return;
    for (int i = 0; i < ELEMENTS; i++) {
        out[i] = 0;
        for (int r = 0; r < w->ranks; r++) out[i] += w->value[r][op->in[0]][i];
    }
}

/* ---- brute force ------------------------------------------------------------------------------------------------------------- */

/* What the guard says of the finding, by the first bad element; FB_KIND_NONE where it is finite. */
static inline int32_t kind_of_finding(const world *w)
{
    const float *x = w->value[w->finding_rank][w->finding];
    for (int i = 0; i < ELEMENTS; i++) {
        if (isnan(x[i])) return FB_KIND_NAN;
        if (isinf(x[i])) return x[i] > 0 ? FB_KIND_POS_INF : FB_KIND_NEG_INF;
    }
    return FB_KIND_NONE;
}

static inline uint8_t what_is(const world *w, int rank, uint32_t t)
{
    const float *x = w->value[rank][t];
    int bad = 0, negative = 0;
    for (int i = 0; i < ELEMENTS; i++) {
        if (isnan(x[i]) || (isinf(x[i]) && x[i] > 0)) bad = 1;
        if (isinf(x[i]) && x[i] < 0) negative = 1;
    }
    if (bad) return IS_BAD;
    if (!negative) return IS_FINITE;
    if (!(w->flags[t] & FB_TAPE_MASK) || (t == w->finding && rank == w->finding_rank)) return IS_BAD;
    if (w->producer[t] != UINT32_MAX) {
        const operation *op = &w->op[w->producer[t]];
        for (uint32_t i = 0; i < op->in_count; i++) {
            for (int r = 0; r < w->ranks; r++) {
                if ((r == rank || op->kind == K_ALL_REDUCE) && w->is[r][op->in[i]] != IS_FINITE) return IS_EITHER;
            }
        }
    }
    return IS_FINITE;
}

/* From which tensors do values of at least `least` lead to the finding? Repeats until nothing changes, in no clever order. */
static inline void lead(const world *w, uint8_t least, uint8_t leads[RANKS][TENSORS])
{
    int changed = w->is[w->finding_rank][w->finding] >= least;
    memset(leads, 0, sizeof(uint8_t[RANKS][TENSORS]));
    leads[w->finding_rank][w->finding] = (uint8_t)changed;
    while (changed) {
        changed = 0;
        for (uint32_t k = 0; k < w->nodes; k++) {
            const operation *op = &w->op[k];
            for (int to = 0; to < w->ranks; to++) {
                int on = leads[to][op->out[0]] || (op->out_count > 1 && leads[to][op->out[1]]);
                for (int from = 0; on && from < w->ranks; from++) {
                    if (from != to && op->kind != K_ALL_REDUCE) continue;
                    for (uint32_t i = 0; i < op->in_count; i++) {
                        uint8_t *before = &leads[from][op->in[i]];
                        if (*before || w->is[from][op->in[i]] < least) continue;
                        *before = 1;
                        changed = 1;
                    }
                }
            }
        }
    }
}

static inline int reads_at_least(const world *w, const operation *op, int rank, uint8_t least)
{
    for (uint32_t i = 0; i < op->in_count; i++) {
        for (int r = 0; r < w->ranks; r++) {
            if ((r == rank || op->kind == K_ALL_REDUCE) && w->is[r][op->in[i]] >= least) return 1;
        }
    }
    return 0;
}

/* Is there a way from the state to the finding at all, whatever it holds? */
static inline int state_is_bad(const world *w)
{
    world all;
    memcpy(&all, w, sizeof all);
    memset(all.is, IS_BAD, sizeof all.is);
    lead(&all, IS_BAD, all.leads);
    for (int r = 0; r < w->ranks; r++) {
        for (uint32_t t = 0; t < w->entries; t++) {
            int bad = 0;
            for (int i = 0; i < ELEMENTS; i++) bad |= isnan(w->value[r][t][i]) || w->value[r][t][i] == INFINITY;
            if (all.leads[r][t] && bad && (w->flags[t] & FB_TAPE_STATE)) return 1;
        }
    }
    return 0;
}

static inline int makes_leading(const world *w, uint8_t leads[RANKS][TENSORS], int rank, uint32_t k)
{
    const operation *op = &w->op[k];
    return leads[rank][op->out[0]] || (op->out_count > 1 && leads[rank][op->out[1]]);
}

/* Does operator k of a rank read something that comes after a beginning? Entries that lead on are beginnings, and those operators
   that `begins` names. An all-reduce is one event of all ranks. */
static inline int reads_behind(const world *w, uint8_t begins[RANKS][NODES], uint8_t after[RANKS][NODES], int rank, uint32_t k)
{
    const operation *op = &w->op[k];
    for (int from = 0; from < w->ranks; from++) {
        if (from != rank && op->kind != K_ALL_REDUCE) continue;
        for (uint32_t i = 0; i < op->in_count; i++) {
            uint32_t t = op->in[i], by = w->producer[t];
            if (by == UINT32_MAX && w->leads[from][t]) return 1;
            for (int r = 0; by != UINT32_MAX && r < w->ranks; r++) {
                if ((r == from || w->op[by].kind == K_ALL_REDUCE) && (begins[r][by] || after[r][by])) return 1;
            }
        }
    }
    return 0;
}

static inline void follow(const world *w, uint8_t begins[RANKS][NODES], uint8_t after[RANKS][NODES])
{
    int changed = 1;
    memset(after, 0, sizeof(uint8_t[RANKS][NODES]));
    while (changed) {
        changed = 0;
        for (uint32_t k = w->nodes; k-- > 0;) {
            for (int r = 0; r < w->ranks; r++) {
                if (after[r][k] || !reads_behind(w, begins, after, r, k)) continue;
                after[r][k] = 1;
                changed = 1;
            }
        }
    }
}

/* First is what comes after no other origin. Where a mask may be either, origins are not certain; what leads on for certain is, and
   has one before it. Where there is no such mask the two are the same, which the test asserts. */
static inline void find_late(world *w)
{
    uint8_t begins[RANKS][NODES], by_origins[RANKS][NODES];
    follow(w, w->origin_on, by_origins);
    for (int r = 0; r < w->ranks; r++) {
        for (uint32_t k = 0; k < w->nodes; k++) begins[r][k] = (uint8_t)makes_leading(w, w->leads, r, k);
    }
    follow(w, begins, w->late);
    w->orders_differ = 0;
    for (int r = 0; r < w->ranks && !w->either; r++) {
        for (uint32_t k = 0; k < w->nodes; k++) w->orders_differ |= w->origin_on[r][k] && by_origins[r][k] != w->late[r][k];
    }
}

static inline void find_firsts(world *w)
{
    w->origins = w->possibles = w->laters = 0;
    for (uint32_t k = 0; k < w->nodes; k++) {
        int any = 0;
        w->origin[k] = w->possible[k] = w->later[k] = 0;
        for (int r = w->ranks; r-- > 0;) {
            any |= w->origin_on[r][k];
            w->later[k] |= w->possible_on[r][k] && w->late[r][k];
            w->possible[k] |= w->possible_on[r][k] && !w->late[r][k];
            if (!w->origin_on[r][k] || w->late[r][k]) continue;
            w->origin[k] = 1;
            w->origin_rank[k] = r;
        }
        w->later[k] &= !w->possible[k];
        w->origins += w->origin[k];
        w->possibles += w->possible[k];
        w->laters += w->later[k];
        w->times_origin[k] += any != 0;
    }
}

static inline void find_truth(world *w)
{
    w->either = 0;
    for (uint32_t t = 0; t < w->tensors; t++) {
        for (int r = 0; r < w->ranks; r++) w->is[r][t] = what_is(w, r, t);
        for (int r = 0; r < w->ranks; r++) w->either |= w->is[r][t] == IS_EITHER;
    }
    lead(w, IS_BAD, w->leads);
    lead(w, IS_EITHER, w->may);
    w->entry_origin = w->entry_possible = 0;
    for (uint32_t k = 0; k < w->nodes; k++) {
        for (int r = 0; r < w->ranks; r++) {
            w->possible_on[r][k] = makes_leading(w, w->may, r, k) && !reads_at_least(w, &w->op[k], r, IS_BAD);
            w->origin_on[r][k] = makes_leading(w, w->leads, r, k) && !reads_at_least(w, &w->op[k], r, IS_EITHER);
        }
    }
    find_late(w);
    find_firsts(w);
    for (uint32_t t = 0; t < w->entries; t++) {
        for (int r = 0; r < w->ranks; r++) {
            w->entry_origin |= w->leads[r][t];
            w->entry_possible |= w->may[r][t];
        }
    }
    w->state_bad = state_is_bad(w);
}

/* ---- one replay -------------------------------------------------------------------------------------------------------------- */

static inline void compute(world *w, uint32_t number)
{
    w->number = number;
    for (int r = 0; r < w->ranks; r++) memcpy(w->value[r], w->start[r], w->entries * sizeof w->start[r][0]);
    for (uint32_t k = 0; k < w->nodes; k++) {
        for (int r = 0; r < w->ranks; r++) {
            const operation *op = &w->op[k];
            int fails = op->fails[r].on && (!op->fails[r].percent || draw(w, 100) < op->fails[r].percent);
            run_operator(w, r, op);
            if (fails) w->value[r][op->out[0]][0] = op->fails[r].value;
        }
    }
    find_truth(w);
}

static inline fb_tape_value value_of(world *w, int rank, uint32_t t, char name[16])
{
    fb_tape_value value = FB_TAPE_VALUE_INIT;
    snprintf(name, 16, "t%u", t);
    value.name = name;
    value.flags = w->flags[t];
    value.data = w->value[rank][t];
    value.count = ELEMENTS;
    value.dtype = value.format = FB_F32;
    return value;
}

static inline fb_status tell(world *w, int rank, fb_tape *tape, fb_error *err)
{
    fb_status status = FB_OK;
    char name[OUTPUTS][16], module[16];
    uint32_t id;
    for (uint32_t t = 0; t < w->entries && status == FB_OK; t++) {
        fb_tape_value value = value_of(w, rank, t, name[0]);
        status = fb_tape_entry(tape, &value, &id, err);
    }
    for (uint32_t k = 0; k < w->nodes && status == FB_OK; k++) {
        const operation *of = &w->op[k];
        fb_tape_op op = FB_TAPE_OP_INIT;
        fb_tape_value outputs[OUTPUTS];
        for (uint32_t i = 0; i < of->out_count; i++) outputs[i] = value_of(w, rank, of->out[i], name[i]);
        snprintf(module, sizeof module, "m%u", of->module);
        op.op = kind_names[of->kind];
        op.module = module;
        op.flags = of->kind == K_ALL_REDUCE ? FB_TAPE_COLLECTIVE : 0;
        op.token = k;
        op.inputs = of->in;
        op.input_count = of->in_count;
        op.outputs = outputs;
        op.output_count = of->out_count;
        status = fb_tape_op_ran(tape, &op, err);
    }
    return status;
}

static inline fb_status replay(void *ctx, fb_tape *tape, const fb_replay_request *request, fb_error *err)
{
    rank_of *me = ctx;
    world *w = me->w;
    if (request->purpose != FB_REPLAY_AGAIN) return FB_E_UNSUPPORTED;
    pthread_mutex_lock(&w->lock);
    if (w->number != request->number) compute(w, request->number);
    pthread_mutex_unlock(&w->lock);
    if (request->number == w->fail_replay && me->rank == w->ranks - 1) return FB_E_NOMEM;
    return tell(w, me->rank, tape, err);
}

/* ---- several ranks ----------------------------------------------------------------------------------------------------------- */

static inline fb_status largest(void *ctx, int32_t *values, size_t count, fb_error *err)
{
    world *w = ((rank_of *)ctx)->w;
    unsigned generation;
    (void)err;
    pthread_mutex_lock(&w->lock);
    generation = w->generation;
    if (w->arrived == 0) w->meeting_count = count;
    if (count != w->meeting_count || count > 1 << 12) w->uneven = 1;
    for (size_t i = 0; i < count && !w->uneven; i++) {
        int32_t *kept = &w->meeting[generation & 1][i];
        if (w->arrived == 0 || values[i] > *kept) *kept = values[i];
    }
    if (++w->arrived == w->ranks) {
        w->arrived = 0;
        w->generation++;
        pthread_cond_broadcast(&w->met);
    }
    while (w->generation == generation) pthread_cond_wait(&w->met, &w->lock);
    if (!w->uneven) memcpy(values, w->meeting[generation & 1], count * sizeof *values);
    pthread_mutex_unlock(&w->lock);
    return FB_OK;
}

static inline void *locate_on(void *arg)
{
    rank_of *me = arg;
    me->status = fb_locate_run(&me->config, &me->result, &me->err);
    return NULL;
}

/* Everything but the manner of searching is that of the world. */
static inline void locate_all(world *w, rank_of *ranks, const fb_locate_config *manner)
{
    static const fb_locate_result empty = FB_LOCATE_RESULT_INIT;
    pthread_t threads[RANKS];
    snprintf(w->finding_name, sizeof w->finding_name, "t%u", w->finding);
    w->number = 0;
    memset(w->times_origin, 0, sizeof w->times_origin);
    for (int r = 0; r < w->ranks; r++) {
        memset(&ranks[r], 0, sizeof ranks[r]);
        ranks[r].w = w;
        ranks[r].rank = r;
        ranks[r].result = empty;
        ranks[r].config = *manner;
        ranks[r].config.rank = r;
        ranks[r].config.world = w->ranks;
        ranks[r].config.finding_rank = w->finding_rank;
        ranks[r].config.finding_boundary = w->finding < w->entries ? FB_ENTRY : FB_FORWARD;
        ranks[r].config.finding_kind = kind_of_finding(w);
        ranks[r].config.finding_tensor = w->finding_name;
        ranks[r].config.ctx = &ranks[r];
        ranks[r].config.replay = replay;
        ranks[r].config.max = largest;
    }
    if (w->ranks == 1) {
        (void)locate_on(&ranks[0]);
        return;
    }
    for (int r = 0; r < w->ranks; r++) {
        if (pthread_create(&threads[r], NULL, locate_on, &ranks[r]) != 0) abort();
    }
    for (int r = 0; r < w->ranks; r++) pthread_join(threads[r], NULL);
}

/* ---- a random world ---------------------------------------------------------------------------------------------------------- */

static inline float some_number(world *w)
{
    static const float numbers[] = {0.0f, 1.0f, -1.0f, 0.5f, 2.0f, -3.0f, 60.0f, 1e-30f, 1e30f};
    return numbers[draw(w, sizeof numbers / sizeof numbers[0])];
}

static inline float some_bad(world *w)
{
    uint64_t what = draw(w, 4);
    return what < 2 ? NAN : what == 2 ? INFINITY : -INFINITY;
}

static inline uint32_t arity(kind k)
{
    if (k == K_WHERE) return 3;
    return k == K_ADD || k == K_MUL || k == K_DIV || k == K_MAX ? 2 : 1;
}

static inline void make_operator(world *w, uint32_t k, int calm)
{
    operation *op = &w->op[k];
    /* Calm worlds have operators that cannot fail by themselves, so that a fault stands alone. */
    static const kind quiet[] = {K_ADD, K_COPY, K_SPLIT, K_REPAIR, K_WHERE, K_MAX, K_MASK, K_SOFTMAX, K_ALL_REDUCE, K_ADD, K_COPY};
    memset(op, 0, sizeof *op);
    op->kind = calm ? quiet[draw(w, sizeof quiet / sizeof quiet[0])] : (kind)draw(w, KINDS);
    op->in_count = arity(op->kind);
    for (uint32_t i = 0; i < op->in_count; i++) {
        /* Mostly what was made last: chains, with branches. */
        uint32_t back = (uint32_t)draw(w, chance(w, 700) ? 3 : w->tensors);
        op->in[i] = w->tensors - 1 - (back < w->tensors ? back : 0);
    }
    op->out_count = op->kind == K_SPLIT ? 2 : 1;
    op->module = (uint32_t)draw(w, MODULES);
    op->hidden_mask = chance(w, 100) ? 15 : (uint8_t)draw(w, 15);
    for (uint32_t i = 0; i < op->out_count; i++) {
        op->out[i] = w->tensors;
        w->flags[w->tensors] = op->kind == K_MASK ? FB_TAPE_MASK : 0;
        w->producer[w->tensors++] = k;
    }
}

static inline void make_world(world *w, uint64_t seed)
{
    static const int shares[] = {1, 1, 1, 2, 3};
    int calm, faults;
    memset(w, 0, sizeof *w);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->met, NULL);
    w->random = seed * UINT64_C(0x9e3779b97f4a7c15) + 88172645463325252u;
    for (int i = 0; i < 4; i++) (void)draw(w, 2);
    w->ranks = shares[draw(w, 5)];
    w->entries = 1 + (uint32_t)draw(w, ENTRIES);
    w->tensors = w->entries;
    calm = chance(w, 600);
    for (uint32_t t = 0; t < w->entries; t++) {
        w->producer[t] = UINT32_MAX;
        w->flags[t] = chance(w, 500) ? FB_TAPE_STATE : chance(w, 500) ? FB_TAPE_BATCH : 0;
        for (int r = 0; r < w->ranks; r++) {
            for (int i = 0; i < ELEMENTS; i++) w->start[r][t][i] = some_number(w);
            if (chance(w, 15)) w->start[r][t][0] = some_bad(w);
        }
    }
    w->nodes = 1 + (uint32_t)draw(w, NODES);
    for (uint32_t k = 0; k < w->nodes; k++) make_operator(w, k, calm);
    faults = (int)draw(w, 5);
    w->flaky = chance(w, 150);
    for (int i = 0; i < faults; i++) {
        uint32_t k = (uint32_t)draw(w, w->nodes);
        int r = (int)draw(w, (uint64_t)w->ranks);
        w->op[k].fails[r].on = 1;
        w->op[k].fails[r].value = some_bad(w);
        w->op[k].fails[r].percent = w->flaky ? (uint8_t)(20 + draw(w, 80)) : 0;
    }
    if (chance(w, 60)) w->fail_replay = 1 + (uint32_t)draw(w, 5);
    /* The finding: late, and bad on some rank if anything is. */
    compute(w, 0);
    w->finding = w->tensors - 1;
    w->finding_rank = (int)draw(w, (uint64_t)w->ranks);
    for (uint32_t t = w->tensors; t-- > 0;) {
        int r = (int)draw(w, (uint64_t)w->ranks);
        if (w->is[r][t] != IS_BAD || chance(w, 200)) continue;
        w->finding = t;
        w->finding_rank = r;
        break;
    }
}

static inline void end_world(world *w)
{
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->met);
}

#endif
