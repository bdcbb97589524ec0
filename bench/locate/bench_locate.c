/*
 * What locating costs. Shows, for a trainer of a few hundred operators on one rank: one step, and a whole fb_locate_run (3 of 3,
 * search, witness) by sweep and by bisect, in milliseconds and as multiples of a step. What is above one step a replay is the tape:
 * comparing the row, hashing the entries, reading what is looked at. A step that is not replayed has no tape and calls nothing of
 * this, so a healthy step pays nothing. Figures are medians over rounds, ratios medians of each round's ratio.
 * Run it with bench/locate/run.sh [OPERATORS [ELEMENTS]].
 */
#include <firstbad/locate.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 7, SERIES = 3 };

typedef struct bench {
    uint32_t operators, fault; /* the operator that makes a NaN */
    size_t elements;
    float *values; /* two buffers that take turns, as memory of a trainer does */
    uint32_t replays;
} bench;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* About what an elementwise operator of a transformer costs. */
static void run_operator(const bench *b, uint32_t k)
{
    const float *from = b->values + (k & 1) * b->elements;
    float *to = b->values + (~k & 1) * b->elements;
    for (size_t i = 0; i < b->elements; i++) to[i] = tanhf(from[i]) + 0.25f;
    if (k == b->fault) to[b->elements / 2] = NAN;
}

static fb_status tell(const bench *b, fb_tape *tape, uint32_t k, uint32_t *id, fb_error *err)
{
    fb_tape_value value = FB_TAPE_VALUE_INIT;
    fb_tape_op op = FB_TAPE_OP_INIT;
    char module[16];
    snprintf(module, sizeof module, "h.%u", k / 16);
    value.name = k + 1 == b->operators ? "last" : "y";
    value.data = b->values + (~k & 1) * b->elements;
    value.count = b->elements;
    value.dtype = value.format = FB_F32;
    op.op = "tanh";
    op.module = module;
    op.token = k;
    op.input_count = 1;
    op.inputs = id;
    op.output_count = 1;
    op.outputs = &value;
    op.output_ids = id;
    return fb_tape_op_ran(tape, &op, err);
}

static fb_status step(const bench *b, fb_tape *tape, fb_error *err)
{
    fb_tape_value value = FB_TAPE_VALUE_INIT;
    fb_status status = FB_OK;
    uint32_t id = 0;
    for (size_t i = 0; i < b->elements; i++) b->values[i] = (float)(i % 100) * 0.01f;
    value.name = "x";
    value.flags = FB_TAPE_BATCH;
    value.data = b->values;
    value.count = b->elements;
    value.dtype = value.format = FB_F32;
    if (tape) status = fb_tape_entry(tape, &value, &id, err);
    for (uint32_t k = 0; k < b->operators && status == FB_OK; k++) {
        run_operator(b, k);
        if (tape) status = tell(b, tape, k, &id, err);
    }
    return status;
}

static fb_status replay(void *ctx, fb_tape *tape, const fb_replay_request *request, fb_error *err)
{
    bench *b = ctx;
    b->replays++;
    return request->purpose == FB_REPLAY_AGAIN ? step(b, tape, err) : FB_E_UNSUPPORTED;
}

static double locate(bench *b, int32_t strategy, uint32_t probes, uint32_t *replays)
{
    fb_locate_config config = FB_LOCATE_CONFIG_INIT;
    fb_locate_result result = FB_LOCATE_RESULT_INIT;
    fb_error err;
    double begun = now_ms();
    config.parts = FB_LOCATE_SEARCH | FB_LOCATE_REPLAY;
    config.finding_boundary = FB_FORWARD;
    config.finding_tensor = "last";
    config.precision = "fp32";
    config.strategy = strategy;
    config.probes_max = probes;
    config.ctx = b;
    config.replay = replay;
    if (fb_locate_run(&config, &result, &err) != FB_OK || result.found != FB_LOCATED_OPERATOR) {
        fprintf(stderr, "bench_locate: found %d: %s\n", result.found, result.sentence);
        exit(1);
    }
    *replays = result.replays;
    fb_locate_release(&result);
    return now_ms() - begun;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, ascending);
    return values[ROUNDS / 2];
}

int main(int argc, char **argv)
{
    static const char *const names[SERIES] = {"sweep", "bisect", "bisect, 64 tensors a replay"};
    double alone[ROUNDS], took[SERIES][ROUNDS], ratio[SERIES][ROUNDS];
    uint32_t replays[SERIES] = {0};
    bench b = {0};
    fb_error err;
    b.operators = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 400;
    b.elements = argc > 2 ? (size_t)strtoull(argv[2], NULL, 10) : 65536;
    b.fault = b.operators / 3;
    b.values = malloc(2 * b.elements * sizeof *b.values);
    if (!b.values || b.operators < 2 || b.elements < 2) return 2;
    for (int round = 0; round < ROUNDS; round++) {
        double begun = now_ms();
        if (step(&b, NULL, &err) != FB_OK) return 1;
        alone[round] = now_ms() - begun;
        took[0][round] = locate(&b, FB_LOCATE_SWEEP, 0, &replays[0]);
        took[1][round] = locate(&b, FB_LOCATE_BISECT, 0, &replays[1]);
        took[2][round] = locate(&b, FB_LOCATE_BISECT, 64, &replays[2]);
        for (int i = 0; i < SERIES; i++) ratio[i][round] = took[i][round] / alone[round];
    }
    printf("%u operators of %zu floats\n%-28s %9.2f ms    1.00 steps\n", b.operators, b.elements, "one step, no tape",
           median(alone));
    for (int i = 0; i < SERIES; i++)
        printf("%-28s %9.2f ms  %6.2f steps, %u replays\n", names[i], median(took[i]), median(ratio[i]), replays[i]);
    free(b.values);
    return 0;
}
