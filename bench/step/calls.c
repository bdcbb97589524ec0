/*
 * Linked into firstbad-gpt in front of the library (ld --wrap): how long each call of a step takes, and the whole step. At the end
 * rank 0 writes the median over the steps after the first ten to the file that BENCH_CALLS names, one "name nanoseconds" a line.
 * "own" is the sum of all calls of a step, "step" the time from the begin of fb_step_begin to the end of fb_step_end; "own_cpu" and
 * "step_cpu" are the same in processor time of the thread, which other programs on the machine do not stretch. Reading that clock
 * is a system call: what a reading costs is measured first and taken off.
 */
#include <firstbad/firstbad.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    BEGIN,
    TOKENS,
    LOSS,
    LOCAL,
    ENTRY,
    UPDATE,
    INPUT,
    BALLOT,
    SETTLE,
    UNSCALE,
    APPLY,
    END,
    OWN,
    STEP,
    OWN_CPU,
    STEP_CPU,
    SERIES
};
enum { STEPS_MAX = 4096, WARM = 10 };

static const char *const names[SERIES] = {"begin",       "check_tokens", "check_loss",  "check_local_grad",
                                          "check_entry", "check_update", "check_input", "ballot",
                                          "settle",      "unscale",      "apply",       "end",
                                          "own",         "step",         "own_cpu",     "step_cpu"};
static double row[SERIES], rows[SERIES][STEPS_MAX];
static double begun, begun_cpu, cpu_cost;
static int steps;

static double read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

static double now_cpu(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Processor time that two readings and nothing between them seem to take: the median of many. */
static double cost_of_reading(void)
{
    double spent[501];
    for (int i = 0; i < 501; i++) {
        double cpu = now_cpu();
        (void)now();
        (void)now();
        spent[i] = now_cpu() - cpu;
    }
    qsort(spent, 501, sizeof *spent, ascending);
    return spent[250];
}

#define TIMED(series, call)                          \
    do {                                             \
        double cpu = now_cpu(), from = now(), spent; \
        fb_status status = (call);                   \
        spent = now() - from;                        \
        row[series] += spent;                        \
        row[OWN] += spent;                           \
        row[OWN_CPU] += now_cpu() - cpu - cpu_cost;  \
        return status;                               \
    } while (0)

fb_status __real_fb_step_begin(fb_run *run, const fb_step *step, fb_error *err);
fb_status __real_fb_step_check(fb_run *run, int32_t boundary, const fb_view *views, size_t n, fb_error *err);
fb_status __real_fb_step_check_sampled(fb_run *run, int32_t boundary, const fb_view *views, size_t n, int32_t period,
                                       fb_error *err);
fb_status __real_fb_step_check_tokens(fb_run *run, fb_tokens *tokens, fb_error *err);
fb_status __real_fb_step_ballot(fb_run *run, int64_t words[4], fb_error *err);
fb_status __real_fb_step_settle(fb_run *run, const int64_t words[4], fb_verdict *verdict, fb_error *err);
fb_status __real_fb_step_unscale(fb_run *run, const fb_view *views, size_t n, double inv_scale, double *sum_sq, fb_error *err);
fb_status __real_fb_step_apply(fb_run *run, fb_error *err);
fb_status __real_fb_step_end(fb_run *run, const fb_step_result *result, fb_error *err);
void __real_fb_run_close(fb_run *run);

static int series_of(int32_t boundary)
{
    return boundary == FB_LOSS         ? LOSS
           : boundary == FB_LOCAL_GRAD ? LOCAL
           : boundary == FB_ENTRY      ? ENTRY
           : boundary == FB_UPDATE     ? UPDATE
                                       : INPUT;
}

fb_status __wrap_fb_step_begin(fb_run *run, const fb_step *step, fb_error *err)
{
    for (int s = 0; s < SERIES; s++) row[s] = 0.0;
    if (steps == 0) cpu_cost = cost_of_reading();
    begun_cpu = now_cpu();
    begun = now();
    TIMED(BEGIN, __real_fb_step_begin(run, step, err));
}

fb_status __wrap_fb_step_check(fb_run *run, int32_t boundary, const fb_view *views, size_t n, fb_error *err)
{
    TIMED(series_of(boundary), __real_fb_step_check(run, boundary, views, n, err));
}

fb_status __wrap_fb_step_check_sampled(fb_run *run, int32_t boundary, const fb_view *views, size_t n, int32_t period, fb_error *err)
{
    TIMED(series_of(boundary), __real_fb_step_check_sampled(run, boundary, views, n, period, err));
}

fb_status __wrap_fb_step_check_tokens(fb_run *run, fb_tokens *tokens, fb_error *err)
{
    TIMED(TOKENS, __real_fb_step_check_tokens(run, tokens, err));
}

fb_status __wrap_fb_step_ballot(fb_run *run, int64_t words[4], fb_error *err)
{
    TIMED(BALLOT, __real_fb_step_ballot(run, words, err));
}

fb_status __wrap_fb_step_settle(fb_run *run, const int64_t words[4], fb_verdict *verdict, fb_error *err)
{
    TIMED(SETTLE, __real_fb_step_settle(run, words, verdict, err));
}

fb_status __wrap_fb_step_unscale(fb_run *run, const fb_view *views, size_t n, double inv_scale, double *sum_sq, fb_error *err)
{
    TIMED(UNSCALE, __real_fb_step_unscale(run, views, n, inv_scale, sum_sq, err));
}

fb_status __wrap_fb_step_apply(fb_run *run, fb_error *err)
{
    TIMED(APPLY, __real_fb_step_apply(run, err));
}

fb_status __wrap_fb_step_end(fb_run *run, const fb_step_result *result, fb_error *err)
{
    double cpu = now_cpu(), from = now(), until;
    fb_status status = __real_fb_step_end(run, result, err);
    until = now();
    row[END] += until - from;
    row[OWN] += until - from;
    row[STEP] = until - begun;
    until = now_cpu();
    row[OWN_CPU] += until - cpu - cpu_cost;
    row[STEP_CPU] = until - begun_cpu;
    if (steps < STEPS_MAX) {
        for (int s = 0; s < SERIES; s++) rows[s][steps] = row[s];
        steps++;
    }
    return status;
}

void __wrap_fb_run_close(fb_run *run)
{
    const char *path = getenv("BENCH_CALLS"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    FILE *out = path && run && steps > WARM && (!rank || rank[0] == '0') ? fopen(path, "w") : NULL;
    __real_fb_run_close(run);
    if (!out) return;
    for (int s = 0; s < SERIES; s++) {
        qsort(rows[s] + WARM, (size_t)(steps - WARM), sizeof(double), ascending);
        fprintf(out, "%s %.0f\n", names[s], rows[s][WARM + (steps - WARM) / 2]);
    }
    fclose(out);
}
