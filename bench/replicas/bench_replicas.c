/*
 * What it costs to compare replicas. Two ranks of a run live in this process, own F32 parameters and make healthy steps; a step
 * that compares digests the parameters in fb_step_begin and votes as ever. Shows, by size of the model: the time that a comparing
 * step takes longer than one that does not, as a rate, and spread over a period of 100 steps; beside it the one pass over the
 * reduced gradients (fb_step_unscale), which every step makes. Target: spread over 100 steps, at most 5 % of that pass, which
 * itself is below 1 % of a training step. Figures are medians over rounds. Run it with bench/replicas/run.sh.
 */
#include <firstbad/firstbad.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 9, STEPS = 6, RANKS = 2, PERIOD = 2 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void must(fb_status status, const fb_error *err)
{
    if (status == FB_OK) return;
    fprintf(stderr, "bench_replicas: %s: %s\n", fb_status_name(status), err->message);
    exit(1);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, ascending);
    return values[n / 2];
}

typedef struct rank {
    fb_run *run;
    float *param, *grad;
    uint32_t grad_site;
} rank;

static void open_rank(rank *r, int number, size_t count, const char *dir)
{
    fb_run_config config = FB_RUN_CONFIG_INIT;
    fb_view param = FB_VIEW_INIT(NULL, 0, FB_F32, 0);
    fb_view grad = param;
    fb_error err;
    r->param = malloc(count * sizeof *r->param);
    r->grad = malloc(count * sizeof *r->grad);
    if (!r->param || !r->grad) exit(1);
    for (size_t i = 0; i < count; i++) r->param[i] = r->grad[i] = (float)i * 1e-6f;
    config.rank = number;
    config.world = RANKS;
    config.run_id = "bench";
    config.dir = dir;
    config.replicated = 1;
    config.replica_period = PERIOD;
    must(fb_run_open(&r->run, &config, &err), &err);
    must(fb_run_name_view(r->run, FB_ROLE_PARAMETER, "model", "w", &param, &err), &err);
    must(fb_run_name_view(r->run, FB_ROLE_GRADIENT, "model", "w", &grad, &err), &err);
    param.data = r->param;
    param.count = count;
    r->grad_site = grad.site;
    must(fb_run_own(r->run, &param, 1, &err), &err);
}

static void vote(rank *ranks)
{
    int64_t words[RANKS][4], least[4];
    fb_error err;
    for (int i = 0; i < RANKS; i++) must(fb_step_ballot(ranks[i].run, words[i], &err), &err);
    for (int w = 0; w < 4; w++) least[w] = words[0][w] < words[1][w] ? words[0][w] : words[1][w];
    for (int i = 0; i < RANKS; i++) {
        fb_verdict verdict = FB_VERDICT_INIT;
        must(fb_step_settle(ranks[i].run, least, &verdict, &err), &err);
        if (verdict.action != FB_PROCEED || verdict.unanimous != 1) exit(2);
    }
}

/* One step of both; microseconds of begin and of unscale, each of one rank. */
static void step(rank *ranks, int64_t number, size_t count, double *begin_us, double *unscale_us)
{
    fb_step begin = FB_STEP_INIT;
    fb_step_result result = FB_STEP_RESULT_INIT;
    fb_error err;
    double from = now(), sum;
    begin.step = number;
    for (int i = 0; i < RANKS; i++) must(fb_step_begin(ranks[i].run, &begin, &err), &err);
    *begin_us = (now() - from) / RANKS;
    vote(ranks);
    from = now();
    for (int i = 0; i < RANKS; i++) {
        fb_view grad = FB_VIEW_INIT(ranks[i].grad, count, FB_F32, ranks[i].grad_site);
        must(fb_step_unscale(ranks[i].run, &grad, 1, 1.0, &sum, &err), &err);
    }
    *unscale_us = (now() - from) / RANKS;
    vote(ranks);
    for (int i = 0; i < RANKS; i++) {
        must(fb_step_apply(ranks[i].run, &err), &err);
        must(fb_step_end(ranks[i].run, &result, &err), &err);
    }
}

static int size(size_t count, const char *dir)
{
    rank ranks[RANKS];
    double with[ROUNDS], without[ROUNDS], pass[ROUNDS], extra, spread, unscale;
    char folder[256];
    int64_t number = 0;
    snprintf(folder, sizeof folder, "%s/%zu", dir, count);
    for (int i = 0; i < RANKS; i++) open_rank(&ranks[i], i, count, folder);
    for (int round = 0; round < ROUNDS; round++) {
        double sums[PERIOD] = {0, 0}, passes = 0, begin, unscale_us;
        for (int i = 0; i < STEPS; i++, number++) {
            step(ranks, number, count, &begin, &unscale_us);
            sums[number % PERIOD] += begin;
            passes += unscale_us;
        }
        with[round] = sums[0] / (STEPS / 2.0);
        without[round] = sums[1] / (STEPS / 2.0);
        pass[round] = passes / STEPS;
    }
    extra = median(with, ROUNDS) - median(without, ROUNDS);
    spread = extra / 100;
    unscale = median(pass, ROUNDS);
    printf("%10.1f MB %12.1f %8.1f %12.2f %12.1f %10.2f %%  %s\n", (double)count * 4e-6, extra, (double)count * 4e-3 / extra,
           spread, unscale, 100 * spread / unscale, spread <= 0.05 * unscale ? "ok" : "MISS");
    for (int i = 0; i < RANKS; i++) {
        fb_run_close(ranks[i].run);
        free(ranks[i].param);
        free(ranks[i].grad);
    }
    return spread <= 0.05 * unscale;
}

int main(int argc, char **argv)
{
    const size_t counts[] = {230000, 2500000, 25000000};
    if (argc != 2) return 2;
    printf("%13s %12s %8s %12s %12s %12s\n", "parameters", "us a compare", "GB/s", "us at N=100", "unscale us", "of that pass");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) (void)size(counts[i], argv[1]);
    return 0;
}
