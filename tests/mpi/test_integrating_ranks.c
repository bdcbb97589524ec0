/*
 * test_integrating_ranks: the update of tests/integration/several.c on four ranks that really are processes. A case passes when it
 * holds on every rank; rank 0 counts.
 */
#define OMPI_SKIP_MPICXX
#include "integration/several.c" /* NOLINT(bugprone-suspicious-include): the example itself is under test */

#include <float.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 4 };

static int rank, passed, failed;
static float w[N], d_w[N];
static replica mine = {NULL, FB_VIEW_INIT(NULL, N, FB_F32, 0), d_w, w, N};
static fb_error err;

static void judge(const char *name, int ok)
{
    int everywhere = 0;
    MPI_Allreduce(&ok, &everywhere, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (everywhere) passed++;
    else failed++;
    if (rank == 0 && !everywhere) printf("FAIL %s\n", name);
}

static void gradients(float healthy)
{
    for (int i = 0; i < N; i++) d_w[i] = healthy * (float)(rank + 1);
}

/* The action as expected, and the parameters moved exactly when they were allowed to. */
static int did(int32_t action, int32_t expected, const float before[N])
{
    return action == expected && (memcmp(before, w, sizeof w) == 0) == (expected != FB_PROCEED);
}

static int collective_of_mine(void *context, int64_t *words, int count)
{
    (void)context;
    return MPI_Allreduce(MPI_IN_PLACE, words, count, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD) != MPI_SUCCESS;
}

static int collective_that_fails(void *context, int64_t *words, int count)
{
    (void)context, (void)words, (void)count;
    return 1;
}

static int vote_of_my_own(all_reduce_min *reduce, int64_t number, int32_t expected)
{
    fb_step step = FB_STEP_INIT;
    fb_step_result result = FB_STEP_RESULT_INIT;
    fb_verdict verdict = FB_VERDICT_INIT;
    step.step = number;
    must(fb_step_begin(mine.run, &step, &err), &err);
    must(fb_step_check(mine.run, FB_LOCAL_GRAD, &mine.grad, 1, &err), &err);
    must(vote_over(mine.run, reduce, NULL, &verdict, &err), &err);
    if (verdict.action == FB_PROCEED) must(fb_step_apply(mine.run, &err), &err);
    must(fb_step_end(mine.run, &result, &err), &err);
    return verdict.action == expected;
}

int main(int argc, char **argv)
{
    char folder[64] = "/tmp/firstbad-ranks-XXXXXX", command[96];
    float before[N];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0 && !mkdtemp(folder)) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Bcast(folder, sizeof folder, MPI_BYTE, 0, MPI_COMM_WORLD);
    setenv("FIRSTBAD_DIR", folder, 1);
    must(open_over_mpi(&mine.run, MPI_COMM_WORLD, &err), &err);
    mine.grad.data = d_w;
    must(fb_run_name_view(mine.run, FB_ROLE_GRADIENT, "table", "w", &mine.grad, &err), &err);

    gradients(0.5f);
    memcpy(before, w, sizeof w);
    judge("healthy gradients are applied by all", did(update(&mine, MPI_COMM_WORLD, 1), FB_PROCEED, before));

    gradients(0.5f);
    if (rank == 2) memset(&d_w[1], 0xff, sizeof d_w[1]);
    memcpy(before, w, sizeof w);
    judge("a NaN on one rank is withheld by all", did(update(&mine, MPI_COMM_WORLD, 2), FB_SKIP, before));

    gradients(FLT_MAX / 4); /* 1 + 2 + 3 + 4 quarters of the largest float */
    memcpy(before, w, sizeof w);
    judge("finite parts with an infinite sum are withheld by all", did(update(&mine, MPI_COMM_WORLD, 3), FB_SKIP, before));

    gradients(0.5f);
    judge("a collective of its own carries a clean vote", vote_of_my_own(collective_of_mine, 4, FB_PROCEED));
    if (rank == 1) memset(&d_w[0], 0xff, sizeof d_w[0]);
    judge("a collective of its own carries a finding", vote_of_my_own(collective_of_mine, 5, FB_SKIP));
    gradients(0.5f);
    judge("a collective that fails is no quorum and halts", vote_of_my_own(collective_that_fails, 6, FB_HALT));

    fb_run_close(mine.run);
    MPI_Barrier(MPI_COMM_WORLD);
    (void)snprintf(command, sizeof command, "rm -rf %s", folder);
    if (rank == 0 && system(command) != 0) failed++;
    if (rank == 0) printf("%d passed, %d failed\n", passed, failed);
    MPI_Finalize();
    return failed ? 1 : 0;
}
