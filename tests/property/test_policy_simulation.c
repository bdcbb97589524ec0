/*
 * How often does each rule of the gate fire on healthy training, and how many updates does it need to see a true fault?
 *
 * Healthy training is 10^6 updates under dynamic loss scaling. The gradient maxima of four ranks are drawn in blocks from a
 * recorded run (tests/golden/scaler/gradient-maxima.txt), around a level that drifts, with tails made heavier and with spikes that
 * last for some steps. A rank overflows where scale times maximum leaves FP16. No rule may fire. The tables that this test prints
 * are the ones in docs/design/policy.md; run it with FB_SEED=n for other draws.
 */
#include "policy/gate.h"
#include "policy/scaler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 4, RECORDED_MAX = 4096, UPDATES = 1000000, REASONS = FB_REASON_WITHHELD + 1 };

/* ---- random numbers, the same on every machine ------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15); /* SplitMix64 */
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static double uniform(uint64_t *state)
{
    return (double)(next_random(state) >> 11) * 0x1p-53;
}

/* Sum of four uniforms, scaled to variance 1: near enough to a normal for a drift. */
static double bell(uint64_t *state)
{
    return (uniform(state) + uniform(state) + uniform(state) + uniform(state) - 2.0) * 1.7320508075688772;
}

static uint64_t test_seed(void)
{
    const char *wish = getenv("FB_SEED");
    uint64_t seed = wish ? strtoull(wish, NULL, 10) : 1;
    print_message("seed %llu (FB_SEED replays it)\n", (unsigned long long)seed);
    return seed;
}

/* ---- recorded maxima --------------------------------------------------------------------------------------------------------- */

/* log2 of the maximum of each rank relative to the running median of its neighbourhood, and where the maximum was. */
static double recorded[RECORDED_MAX][RANKS];
static int recorded_position[RECORDED_MAX][RANKS];
static int recorded_count;

static int compare_doubles(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median_around(double (*levels)[RANKS], int count, int at)
{
    double near[101 * RANKS];
    int i, r, n = 0;
    for (i = at - 50; i <= at + 50; i++)
        for (r = 0; r < RANKS; r++)
            if (i >= 0 && i < count) near[n++] = levels[i][r];
    qsort(near, (size_t)n, sizeof near[0], compare_doubles);
    return near[n / 2];
}

static int load_recorded(void **unused)
{
    static double levels[RECORDED_MAX][RANKS];
    FILE *file = fopen("tests/golden/scaler/gradient-maxima.txt", "r");
    char line[256];
    int i, r;
    (void)unused;
    if (!file) return -1;
    recorded_count = 0;
    while (recorded_count < RECORDED_MAX && fgets(line, sizeof line, file)) {
        int m[RANKS], *p = recorded_position[recorded_count];
        if (line[0] == '#') continue;
        if (sscanf(line, "%d@%d %d@%d %d@%d %d@%d", &m[0], &p[0], &m[1], &p[1], &m[2], &p[2], &m[3], &p[3]) != 8) break;
        for (r = 0; r < RANKS; r++) levels[recorded_count][r] = m[r] / 64.0;
        recorded_count++;
    }
    (void)fclose(file);
    for (i = 0; i < recorded_count; i++)
        for (r = 0; r < RANKS; r++) recorded[i][r] = levels[i][r] - median_around(levels, recorded_count, i);
    return recorded_count >= 1000 ? 0 : -1;
}

/* ---- training ---------------------------------------------------------------------------------------------------------------- */

typedef struct conditions {
    const char *name;
    double init_scale;
    int32_t interval, hysteresis;
    double floor;
    double tail;        /* factor on the recorded deviations, in log2 */
    double drift_sd;    /* of the level, in log2 */
    double drift_steps; /* its correlation time */
    double spike_rate;  /* a step */
    double spike_alpha; /* P(spike is x times the level) = x^-alpha */
    double spike_fade;  /* factor on the spike's log2 from step to step */
} conditions;

typedef struct training {
    const conditions *under;
    fb_scaler_config scaler_config;
    fb_scaler_state scaler;
    fb_gate gate;
    uint64_t random;
    double level, drift, spike;
    int block_at, block_left, spike_rank; /* spike_rank -1: all ranks */
    /* a fault to add */
    double growth; /* log2 that the level gains a step */
    /* what happened */
    int64_t updates, overflows, fired[REASONS];
    int32_t most_in_row, most_in_window, most_falls, most_same;
} training;

static void open_training(training *t, const conditions *under, uint64_t seed)
{
    fb_gate_config config = {FB_ON_BAD_SKIP, 3, FB_AGREE_VOTE, RANKS, FB_SCALER_CONFIG_INIT};
    memset(t, 0, sizeof *t);
    config.scaler.enabled = 1;
    config.scaler.init_scale = under->init_scale;
    config.scaler.growth_interval = under->interval;
    config.scaler.hysteresis = under->hysteresis;
    config.scaler.scale_min = under->floor;
    t->under = under;
    t->scaler_config = config.scaler;
    t->random = seed;
    assert_int_equal(fb_scaler_init(&t->scaler_config, &t->scaler, NULL), FB_OK);
    assert_int_equal(fb_gate_init(&t->gate, &config, NULL), FB_OK);
}

static void move_level(training *t)
{
    const conditions *c = t->under;
    double pull = 1.0 / c->drift_steps;
    t->drift += -pull * t->drift + c->drift_sd * sqrt(2.0 * pull) * bell(&t->random);
    t->level += t->growth;
    t->spike *= c->spike_fade;
    if (uniform(&t->random) < c->spike_rate) {
        double height = -log2(1.0 - uniform(&t->random)) / c->spike_alpha;
        if (height > t->spike) t->spike = height;
        t->spike_rank = (int)(next_random(&t->random) % (2 * RANKS)) - RANKS;
        if (t->spike_rank < 0) t->spike_rank = -1;
    }
    if (t->block_left-- <= 0) {
        t->block_at = (int)(next_random(&t->random) % (uint64_t)(recorded_count - 64));
        t->block_left = 63;
    } else {
        t->block_at++;
    }
}

/* The reduced vote of a step: which ranks overflow at this scale, and who speaks. log2 of the level 0 is a maximum of 2^-3. */
static void vote_on_gradients(const training *t, fb_vote_outcome *out)
{
    const fb_vote_outcome clean = {FB_VOTE_EQUAL, 0, 1, FB_PROCEED, -1, 0, -1, 0, -1};
    double limit = 65504.0 / t->scaler.scale;
    int r;
    *out = clean;
    for (r = 0; r < RANKS; r++) {
        double log2_max = -3.0 + t->level + t->drift + t->under->tail * recorded[t->block_at][r];
        if (t->spike_rank < 0 || t->spike_rank == r) log2_max += t->spike;
        if (exp2(log2_max) <= limit) continue;
        if (!out->clean && recorded_position[t->block_at][r] <= out->position) continue;
        out->clean = 0;
        out->wish = FB_SKIP;
        out->micro_step = 0;
        out->boundary = FB_LOCAL_GRAD;
        out->rank = r;
        out->position = recorded_position[t->block_at][r];
    }
}

static void remember_extremes(training *t)
{
    int32_t in_window = 1, i;
    for (i = 0; i < FB_GATE_WINDOW / 64; i++) in_window += (int32_t)__builtin_popcountll(t->gate.window[i]);
    t->overflows++;
    if (t->gate.start_up) return;
    if (t->gate.bad_in_row > t->most_in_row) t->most_in_row = t->gate.bad_in_row;
    if (in_window > t->most_in_window) t->most_in_window = in_window;
    if (t->gate.falls > t->most_falls) t->most_falls = t->gate.falls;
    if (t->gate.same_count > t->most_same) t->most_same = t->gate.same_count;
}

/* One update. A fault of the test's own takes the place of the vote where it is not NULL. */
static fb_gate_decision one_update(training *t, const fb_vote_outcome *fault)
{
    fb_vote_outcome outcome;
    fb_gate_decision decision;
    move_level(t);
    vote_on_gradients(t, &outcome);
    if (fault) outcome = *fault;
    fb_gate_begin(&t->gate, t->scaler.scale, 1);
    fb_gate_decide(&t->gate, &outcome, &decision);
    if (!outcome.clean) remember_extremes(t);
    if (decision.fault) t->fired[decision.reason]++;
    fb_scaler_update(&t->scaler_config, &t->scaler, outcome.clean ? FB_SCALER_CLEAN : FB_SCALER_OVERFLOW);
    fb_gate_end(&t->gate);
    t->updates++;
    return decision;
}

/* ---- healthy ----------------------------------------------------------------------------------------------------------------- */

static const conditions healthy[] = {
    /*                         scale  every hyst floor tail drift over    spikes  alpha fade */
    {"as recorded", 65536.0, 2000, 1, 0.0, 1.0, 1.0, 50000.0, 0.0, 1.0, 0.0},
    {"spikes", 65536.0, 2000, 1, 0.0, 1.5, 1.5, 20000.0, 1.0e-3, 1.5, 0.5},
    {"heavy tails, drift", 65536.0, 2000, 1, 0.0, 2.5, 2.0, 20000.0, 2.0e-3, 1.0, 0.5},
    {"spikes that last", 65536.0, 2000, 1, 0.0, 1.5, 1.5, 20000.0, 5.0e-4, 1.0, 0.8},
    {"interval 100", 65536.0, 100, 1, 0.0, 2.0, 2.0, 20000.0, 1.0e-3, 1.5, 0.5},
    {"DeepSpeed's defaults", 65536.0, 1000, 2, 1.0, 2.0, 2.0, 20000.0, 1.0e-3, 1.5, 0.5},
    {"Megatron's defaults", 4294967296.0, 1000, 2, 1.0, 2.0, 2.0, 20000.0, 1.0e-3, 1.5, 0.5},
};

static void test_policy__no_rule_fires_in_a_million_healthy_updates(void **unused)
{
    uint64_t seed = test_seed();
    size_t i, r;
    (void)unused;
    print_message("%-22s %9s %7s %8s %7s %7s   %s\n", "healthy training", "overflows", "in row", "window", "falls", "same",
                  "faults");
    for (i = 0; i < sizeof healthy / sizeof healthy[0]; i++) {
        static training t;
        int64_t faults = 0;
        int step;
        open_training(&t, &healthy[i], seed + 1000 * i);
        for (step = 0; step < UPDATES; step++) (void)one_update(&t, NULL);
        for (r = 0; r < REASONS; r++) faults += t.fired[r];
        print_message("%-22s %9lld %3d/%-3d %4d/%-3d %3d/%-3d %3d/%-3d %5lld", healthy[i].name, (long long)t.overflows,
                      (int)t.most_in_row, (int)t.gate.limit_consecutive, (int)t.most_in_window, (int)t.gate.limit_ratio,
                      (int)t.most_falls, (int)FB_GATE_FALLS, (int)t.most_same, (int)t.gate.limit_same_site, (long long)faults);
        for (r = 0; r < REASONS; r++)
            if (t.fired[r]) print_message(" %s %lld", fb_gate_reason_name((int32_t)r), (long long)t.fired[r]);
        print_message("\n");
        assert_true(t.overflows >= 100); /* a simulation in which the scale never probes would show nothing */
        assert_int_equal(faults, 0);
        assert_int_equal(t.gate.halted, 0);
    }
}

/* ---- true faults ------------------------------------------------------------------------------------------------------------- */

/* Bad updates that are not the scale's doing, or a level that leaves the format for good. */
typedef struct true_fault {
    const char *name;
    double share;        /* of the updates that hold a NaN from the fault's beginning on */
    int one_site;        /* 1: always position 17 of rank 2; 0: anywhere */
    int32_t boundary;    /* where it is found */
    double jump, growth; /* log2 that the level gains at once, and at each update */
    double floor;        /* of the scaler, in the place of none */
    int at_start;        /* 1: from the first update of a run; 0: from the middle of one */
    int dynamic;         /* 0: no loss scale */
    /* what must hold in every trial */
    int bad_max, updates_max;
} true_fault;

static const true_fault true_faults[] = {
    /*                                    share site boundary        jump  growth  floor  start dyn  bad  updates */
    {"no scale, NaN gradient", 1.0, 1, FB_LOCAL_GRAD, 0.0, 0.0, 0.0, 0, 0, 1, 1},
    {"NaN in the batch", 1.0, 1, FB_INPUT, 0.0, 0.0, 0.0, 0, 1, 1, 1},
    {"NaN in the forward pass", 1.0, 1, FB_FORWARD, 0.0, 0.0, 0.0, 0, 1, 1, 1},
    {"NaN in a moment", 1.0, 1, FB_UPDATE, 0.0, 0.0, 0.0, 0, 1, 1, 1},
    {"Inf gradient every step", 1.0, 0, FB_LOCAL_GRAD, 0.0, 0.0, 0.0, 0, 1, 6, 6},
    {"Inf gradient from step 0", 1.0, 0, FB_LOCAL_GRAD, 0.0, 0.0, 0.0, 1, 1, 14, 14},
    {"one shard, every step", 1.0, 1, FB_LOCAL_GRAD, 0.0, 0.0, 0.0, 0, 1, 6, 6},
    {"one shard, 1 step in 10", 0.1, 1, FB_LOCAL_GRAD, 0.0, 0.0, 0.0, 0, 1, 9, 400},
    {"one shard, 1 step in 100", 0.01, 1, FB_LOCAL_GRAD, 0.0, 0.0, 0.0, 0, 1, 9, 3000},
    {"one shard, 1 step in 500", 0.002, 1, FB_LOCAL_GRAD, 0.0, 0.0, 0.0, 0, 1, 25, 40000},
    {"20 % of the steps, anywhere", 0.2, 0, FB_LOCAL_GRAD, 0.0, 0.0, 0.0, 0, 1, 9, 150},
    {"5 % of the steps, anywhere", 0.05, 0, FB_LOCAL_GRAD, 0.0, 0.0, 0.0, 0, 1, 9, 600},
    {"gradients 2^20 times larger", 0.0, 0, 0, 20.0, 0.0, 0.0, 0, 1, 10, 100},
    {"gradients 2^20 times, floor 2048", 0.0, 0, 0, 20.0, 0.0, 2048.0, 0, 1, 10, 100},
    {"scale falls: x 2 every 20 steps", 0.0, 0, 0, 0.0, 0.05, 0.0, 0, 1, 12, 500},
    {"scale falls: x 2 every 500 steps", 0.0, 0, 0, 0.0, 0.002, 0.0, 0, 1, 12, 9000},
};

static void make_fault(const true_fault *fault, uint64_t *random, fb_vote_outcome *out)
{
    const fb_vote_outcome bad = {FB_VOTE_EQUAL, 0, 0, FB_SKIP, 0, 0, 2, 0, 17};
    *out = bad;
    out->boundary = fault->boundary;
    /* What fb_gate_wish says of a finding that no scale explains. */
    if (fault->dynamic && fault->boundary != FB_LOCAL_GRAD) out->wish = FB_SKIP_FREEZE;
    if (fault->one_site) return;
    out->rank = (int32_t)(next_random(random) % RANKS);
    out->position = (int64_t)(next_random(random) % 60);
}

typedef struct detection {
    int bad, updates; /* counted from the first bad update, it included */
    int32_t reason;
} detection;

/* Run a copy of the training with the fault until the gate says fault. */
static detection detect(training t, const true_fault *fault, uint64_t seed)
{
    detection d = {0, 0, FB_REASON_CLEAN};
    uint64_t random = seed;
    t.level += fault->jump;
    t.growth = fault->growth;
    while (d.updates < 50000) {
        fb_vote_outcome outcome;
        fb_gate_decision decision;
        int planned = fault->share > 0.0 && (d.updates == 0 || uniform(&random) < fault->share);
        if (planned) make_fault(fault, &random, &outcome);
        if (fault->dynamic) {
            decision = one_update(&t, planned ? &outcome : NULL);
        } else {
            fb_gate_begin(&t.gate, 1.0, 0);
            fb_gate_decide(&t.gate, &outcome, &decision);
            fb_gate_end(&t.gate);
        }
        if (decision.action != FB_PROCEED) d.bad++;
        if (d.bad > 0) d.updates++;
        d.reason = decision.reason;
        if (decision.fault) return d;
    }
    d.reason = FB_REASON_CLEAN;
    return d;
}

enum { TRIALS = 200 };

static int compare_ints(const void *a, const void *b)
{
    const int *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void run_trials(const true_fault *fault, const training *starts)
{
    int bad[TRIALS], updates[TRIALS], i;
    int by_reason[REASONS] = {0};
    int32_t r;
    for (i = 0; i < TRIALS; i++) {
        training start = starts[i];
        detection d;
        if (fault->at_start) open_training(&start, starts[i].under, (uint64_t)i);
        if (fault->floor > 0.0) {
            start.scaler_config.scale_min = fault->floor;
            start.gate.floor = fault->floor;
        }
        d = detect(start, fault, start.random + 1);
        bad[i] = d.bad;
        updates[i] = d.updates;
        by_reason[d.reason]++;
    }
    qsort(bad, TRIALS, sizeof bad[0], compare_ints);
    qsort(updates, TRIALS, sizeof updates[0], compare_ints);
    print_message("%-34s %5d %5d %9d %7d  ", fault->name, bad[TRIALS / 2], bad[TRIALS - 1], updates[TRIALS / 2],
                  updates[TRIALS - 1]);
    for (r = 0; r < REASONS; r++)
        if (by_reason[r]) print_message(" %s %d %%", fb_gate_reason_name(r), by_reason[r] * 100 / TRIALS);
    print_message("\n");
    assert_int_equal(by_reason[FB_REASON_CLEAN], 0);
    assert_true(bad[TRIALS - 1] <= fault->bad_max);
    assert_true(updates[TRIALS - 1] <= fault->updates_max);
}

static void test_policy__every_true_fault_is_seen_within_its_stated_number_of_updates(void **unused)
{
    static training starts[TRIALS], base;
    uint64_t seed = test_seed();
    size_t f;
    int i, step;
    (void)unused;
    open_training(&base, &healthy[1], seed);
    for (step = 0; step < 5000; step++) (void)one_update(&base, NULL);
    for (i = 0; i < TRIALS; i++) {
        for (step = 0; step < 1511; step++) (void)one_update(&base, NULL);
        starts[i] = base;
    }
    print_message("%-34s %11s %17s\n", "", "bad updates", "updates");
    print_message("%-34s %5s %5s %9s %7s   %s\n", "true fault, 200 trials", "med.", "most", "med.", "most", "seen by");
    for (f = 0; f < sizeof true_faults / sizeof true_faults[0]; f++) run_trials(&true_faults[f], starts);
}

/*
 * Ranks that carry the whole machine, digest included, through a run with overflows and faults stay equal; a rank that misses one
 * bad update is exposed by its digest at the very next vote.
 */
static void test_policy__a_rank_with_another_history_is_exposed_at_the_next_vote(void **unused)
{
    static training ours, theirs;
    uint64_t random = test_seed();
    int trial, step;
    (void)unused;
    for (trial = 0; trial < 50; trial++) {
        const fb_vote_outcome clean = {FB_VOTE_EQUAL, 0, 1, FB_PROCEED, -1, 0, -1, 0, -1};
        fb_vote_outcome bad;
        int missed = 200 + (int)(next_random(&random) % 2000);
        open_training(&ours, &healthy[2], random);
        open_training(&theirs, &healthy[2], random);
        for (step = 0; step < missed; step++) {
            make_fault(&true_faults[5], &random, &bad);
            /* A fault now and then, alike on both. */
            (void)one_update(&ours, step % 97 == 5 ? &bad : NULL);
            (void)one_update(&theirs, step % 97 == 5 ? &bad : NULL);
            if (step % 16 == 0) assert_true(fb_gate_digest(&ours.gate) == fb_gate_digest(&theirs.gate));
        }
        assert_true(fb_gate_digest(&ours.gate) == fb_gate_digest(&theirs.gate));
        if (ours.gate.halted) continue;
        (void)one_update(&ours, &bad);
        (void)one_update(&theirs, &clean);
        assert_true(fb_gate_digest(&ours.gate) != fb_gate_digest(&theirs.gate));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policy__no_rule_fires_in_a_million_healthy_updates),
        cmocka_unit_test(test_policy__every_true_fault_is_seen_within_its_stated_number_of_updates),
        cmocka_unit_test(test_policy__a_rank_with_another_history_is_exposed_at_the_next_vote),
    };
    return cmocka_run_group_tests(tests, load_recorded, NULL);
}
