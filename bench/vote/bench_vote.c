/*
 * What the vote costs. Shows: one all-reduce of the four words (fb_mpi_vote) against a bare MPI_Allreduce of one 64-bit integer,
 * which is the least that any agreement between ranks can cost; and the whole vote, ballot and verdict with their records included
 * (fb_mpi_step_vote), against the same. Target: fb_mpi_vote <= 1.3 times the bare one. Peers take turns in blocks, a barrier before
 * each, so that all meet the same machine; figures are medians over rounds of the mean of a block, ratios medians of each round's
 * ratio. Run it with bench/vote/run.sh [RANKS ...].
 */
#include <firstbad/firstbad.h>
#include <firstbad/mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 15, BLOCKS = 20, CALLS = 100 };
enum { ONE_WORD, FOUR_WORDS, VOTE, WHOLE, SERIES };

static const char *const names[SERIES] = {"MPI_Allreduce, 1 word", "MPI_Allreduce, 4 words", "fb_mpi_vote", "fb_mpi_step_vote"};

static void must(fb_status status, const fb_error *err)
{
    if (status == FB_OK) return;
    fprintf(stderr, "bench_vote: %s: %s\n", fb_status_name(status), err->message);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void call(int series, fb_run *run)
{
    int64_t words[4] = {INT64_MAX, 7, -7, 0}, out[4];
    fb_verdict verdict = FB_VERDICT_INIT;
    fb_error err;
    switch (series) {
    case ONE_WORD: MPI_Allreduce(words, out, 1, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD); break;
    case FOUR_WORDS: MPI_Allreduce(words, out, 4, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD); break;
    case VOTE:
        if (fb_mpi_vote(MPI_COMM_WORLD, words) != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);
        break;
    default:
        must(fb_mpi_step_vote(run, MPI_COMM_WORLD, &verdict, &err), &err);
        if (verdict.action != FB_PROCEED || verdict.unanimous != 1) MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

/* Microseconds a call, of the rank that took longest. */
static double block(int series, fb_run *run)
{
    double from, mine, longest;
    MPI_Barrier(MPI_COMM_WORLD);
    from = MPI_Wtime();
    for (int i = 0; i < CALLS; i++) call(series, run);
    mine = (MPI_Wtime() - from) * 1e6 / CALLS;
    MPI_Allreduce(&mine, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return longest;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, ascending);
    return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

/* A round takes the median of its blocks: a block in which a rank lost its processor is not the cost of a call. */
static void measure(fb_run *run, double us[SERIES][ROUNDS])
{
    double blocks[SERIES][BLOCKS];
    for (int round = -1; round < ROUNDS; round++) { /* the first one warms up */
        for (int b = 0; b < BLOCKS; b++) {
            for (int s = 0; s < SERIES; s++) blocks[(s + b) % SERIES][b] = block((s + b) % SERIES, run);
        }
        for (int s = 0; s < SERIES && round >= 0; s++) us[s][round] = median(blocks[s], BLOCKS);
    }
}

static void report(int ranks, double us[SERIES][ROUNDS])
{
    double ratio[SERIES][ROUNDS];
    for (int s = 0; s < SERIES; s++) {
        for (int r = 0; r < ROUNDS; r++) ratio[s][r] = us[s][r] / us[ONE_WORD][r];
    }
    printf("%d ranks on %ld processors, median of %d rounds of %d calls\n", ranks, sysconf(_SC_NPROCESSORS_ONLN), ROUNDS,
           BLOCKS * CALLS);
    for (int s = 0; s < SERIES; s++) {
        double factor = median(ratio[s], ROUNDS);
        printf("  %-24s %8.2f us  x %5.2f%s\n", names[s], median(us[s], ROUNDS), factor,
               s != VOTE       ? ""
               : factor <= 1.3 ? "   reach <= 1.30 ok"
                               : "   reach <= 1.30 MISS");
    }
}

int main(int argc, char **argv)
{
    static double us[SERIES][ROUNDS];
    fb_run_config config = FB_RUN_CONFIG_INIT;
    fb_step step = FB_STEP_INIT;
    fb_step_result result = FB_STEP_RESULT_INIT;
    fb_run *run;
    fb_error err;
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    config.dir = argc > 1 ? argv[1] : NULL;
    must(fb_mpi_run_open(&run, &config, MPI_COMM_WORLD, &err), &err);
    must(fb_step_begin(run, &step, &err), &err);
    measure(run, us);
    must(fb_step_apply(run, &err), &err);
    must(fb_step_end(run, &result, &err), &err);
    fb_run_close(run);
    /* A miss is a figure, not a failure of the program. */
    if (rank == 0) report(ranks, us);
    MPI_Finalize();
    return 0;
}
