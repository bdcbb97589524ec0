/*
 * test_mpi_adapter: firstbad/mpi.h on four ranks that really are processes. A case passes when it holds on every rank; rank 0
 * counts.
 * Every rank goes through every collective of a case whatever it found, so that a fault shows as FAIL and not as a hang.
 */
#define OMPI_SKIP_MPICXX
#include <firstbad/mpi.h>

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, world;
static char folder[] = "/tmp/firstbad-mpi-XXXXXX";
static int passed, failed;

/* Says where a rank saw something else than it should. Gives `ok` back. */
static int expect(int ok, const char *what)
{
    if (!ok) fprintf(stderr, "rank %d: not so: %s\n", rank, what);
    return ok;
}
#define EXPECT(condition) expect(!!(condition), #condition)

static void judge(const char *name, int ok)
{
    int everywhere = 0;
    MPI_Allreduce(&ok, &everywhere, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (everywhere) passed++;
    else failed++;
    if (rank == 0 && !everywhere) printf("FAIL %s\n", name);
}

static fb_run *open_run(const char *id)
{
    fb_run_config config = FB_RUN_CONFIG_INIT;
    fb_run *run = NULL;
    fb_error err;
    fb_status status;
    config.dir = folder;
    config.run_id = id;
    config.sites_max = 8;
    status = fb_mpi_run_open(&run, &config, MPI_COMM_WORLD, &err);
    if (status != FB_OK) fprintf(stderr, "rank %d: %s\n", rank, err.message);
    return run;
}

static float numbers[4] = {1.0f, 2.0f, 3.0f, 4.0f};

static fb_view add_gradient(fb_run *run)
{
    fb_site site = FB_SITE_INIT;
    fb_view view;
    memset(&view, 0, sizeof view);
    site.role = FB_ROLE_GRADIENT;
    site.module = "h.0";
    site.tensor = "weight";
    if (run) (void)fb_run_add_site(run, &site, &view.site, NULL);
    view.data = numbers;
    view.count = 4;
    view.dtype = FB_F32;
    view.device = -1;
    return view;
}

/* One step up to its first vote. bad_rank -1: none has a NaN. */
static fb_status vote(fb_run *run, int64_t number, int bad_rank, fb_verdict *verdict)
{
    const uint32_t nan_bits = 0x7fc00000u, one_bits = 0x3f800000u;
    fb_step step = FB_STEP_INIT;
    fb_view view = add_gradient(run);
    fb_error err;
    fb_status status;
    memcpy(&numbers[1], rank == bad_rank ? &nan_bits : &one_bits, sizeof numbers[1]);
    step.step = number;
    if (number >= 0) {
        (void)fb_step_begin(run, &step, NULL);
        (void)fb_step_check(run, FB_LOCAL_GRAD, &view, 1, NULL);
    }
    status = fb_mpi_step_vote(run, MPI_COMM_WORLD, verdict, &err);
    return status;
}

/* Is a number the same on every rank? */
static int same_everywhere(int64_t number)
{
    int64_t ends[2] = {number, -number}, least[2];
    MPI_Allreduce(ends, least, 2, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD);
    return least[0] == -least[1];
}

static void ranks_open_one_run_together(void)
{
    fb_run *run = open_run(NULL);
    char first[PATH_MAX] = "";
    const char *mine = run ? fb_run_folder(run) : "";
    int ok = EXPECT(run != NULL);
    if (rank == 0) snprintf(first, sizeof first, "%s", mine);
    MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
    ok &= EXPECT(strcmp(first, mine) == 0);
    fb_run_close(run);
    judge(__func__, ok);
}

static void clean_step_proceeds_on_every_rank(void)
{
    fb_run *run = open_run("clean");
    fb_verdict verdict = FB_VERDICT_INIT;
    int ok = EXPECT(vote(run, 7, -1, &verdict) == FB_OK);
    ok &= EXPECT(verdict.action == FB_PROCEED) & EXPECT(verdict.clean == 1) & EXPECT(verdict.unanimous == 1);
    ok &= EXPECT(verdict.agreement == FB_AGREE_VOTE) & EXPECT(verdict.first_rank == -1);
    fb_run_close(run);
    judge(__func__, ok);
}

static void finding_on_one_rank_withholds_the_update_on_all(void)
{
    for (int bad = 0; bad < world; bad++) {
        char id[32];
        fb_run *run;
        fb_verdict verdict = FB_VERDICT_INIT;
        int ok;
        snprintf(id, sizeof id, "bad-on-%d", bad);
        run = open_run(id);
        ok = EXPECT(vote(run, 7, bad, &verdict) == FB_OK);
        ok &= EXPECT(verdict.action != FB_PROCEED) & EXPECT(verdict.clean == 0) & EXPECT(verdict.unanimous == 1);
        ok &= EXPECT(verdict.first_rank == bad) & EXPECT(verdict.first_boundary == FB_LOCAL_GRAD);
        ok &= EXPECT(verdict.local_findings == (rank == bad ? 1u : 0u));
        ok &= EXPECT(same_everywhere(verdict.action));
        ok &= EXPECT(fb_step_apply(run, NULL) == FB_E_WITHHELD);
        fb_run_close(run);
        judge(__func__, ok);
    }
}

static void rank_at_another_step_is_found_by_all(void)
{
    fb_run *run = open_run("steps");
    fb_verdict verdict = FB_VERDICT_INIT;
    int ok = EXPECT(vote(run, rank == 3 ? 8 : 7, -1, &verdict) == FB_OK);
    ok &= EXPECT(verdict.unanimous == 0) & EXPECT(verdict.action != FB_PROCEED) & EXPECT(same_everywhere(verdict.action));
    ok &= EXPECT(fb_step_apply(run, NULL) != FB_OK);
    fb_run_close(run);
    judge(__func__, ok);
}

static void rank_whose_ballot_fails_still_takes_part(void)
{
    fb_run *run = open_run("ballot");
    fb_verdict verdict = FB_VERDICT_INIT;
    /* Rank 1 begins no step: its ballot is out of order. The others must learn of it, and none may wait. */
    fb_status status = vote(run, rank == 1 ? -1 : 7, -1, &verdict);
    int ok = rank == 1 ? EXPECT(status == FB_E_ORDER) : EXPECT(status == FB_OK) & EXPECT(verdict.unanimous != 1);
    ok &= EXPECT(verdict.action != FB_PROCEED);
    ok &= EXPECT(fb_step_apply(run, NULL) != FB_OK);
    fb_run_close(run);
    judge(__func__, ok);
}

static void where_one_rank_cannot_open_none_does(void)
{
    fb_run_config config = FB_RUN_CONFIG_INIT;
    fb_run *run = NULL;
    fb_error err;
    fb_status status;
    int ok;
    memset(&err, 0, sizeof err);
    config.dir = folder;
    config.run_id = "refused";
    if (rank == 2) config.max_skips = -1;
    status = fb_mpi_run_open(&run, &config, MPI_COMM_WORLD, &err);
    ok = EXPECT(status == FB_E_USAGE) & EXPECT(run == NULL) & EXPECT(err.code == status);
    ok &= rank == 2 ? EXPECT(strstr(err.message, "max_skips") != NULL) : EXPECT(strstr(err.message, "another rank") != NULL);
    fb_run_close(run);
    judge(__func__, ok);
}

static void second_launch_is_the_next_attempt(void)
{
    int ok = 1;
    for (int attempt = 1; attempt <= 3; attempt++) {
        fb_run *run = open_run("again");
        char path[PATH_MAX];
        ok &= EXPECT(run != NULL);
        MPI_Barrier(MPI_COMM_WORLD);
        snprintf(path, sizeof path, "%s/again/ledger/a%d/r%05d.log", folder, attempt, rank);
        ok &= EXPECT(access(path, R_OK) == 0);
        fb_run_close(run);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    judge(__func__, ok);
}

static void error_handler_is_put_back(void)
{
    MPI_Errhandler before, after;
    int64_t words[4] = {1, 2, 3, 4};
    int ok;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    ok = EXPECT(fb_mpi_vote(MPI_COMM_WORLD, words) == MPI_SUCCESS);
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &after);
    ok &= EXPECT(before == after) & EXPECT(words[0] == 1 && words[3] == 4);
    MPI_Errhandler_free(&before);
    MPI_Errhandler_free(&after);
    judge(__func__, ok);
}

static void vote_takes_the_least_of_signed_words(void)
{
    int64_t words[4] = {rank, -rank, INT64_MAX - rank, rank == 2 ? INT64_MIN : 0};
    int ok = EXPECT(fb_mpi_vote(MPI_COMM_WORLD, words) == MPI_SUCCESS);
    ok &= EXPECT(words[0] == 0) & EXPECT(words[1] == 1 - world) & EXPECT(words[2] == INT64_MAX - (world - 1)) &
          EXPECT(words[3] == INT64_MIN);
    judge(__func__, ok);
}

static void failed_collective_is_no_quorum_and_no_abort(void)
{
    fb_run *run = open_run("no-quorum");
    fb_step step = FB_STEP_INIT;
    fb_verdict verdict = FB_VERDICT_INIT;
    int ok = EXPECT(fb_step_begin(run, &step, NULL) == FB_OK);
    /* A null communicator makes every collective fail; what matters is that the process lives and the gate is shut. */
    ok &= EXPECT(fb_mpi_step_vote(run, MPI_COMM_NULL, &verdict, NULL) == FB_OK);
    ok &= EXPECT(verdict.unanimous == -1) & EXPECT(verdict.action != FB_PROCEED) & EXPECT(fb_step_apply(run, NULL) != FB_OK);
    fb_run_close(run);
    judge(__func__, ok);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    /* The variables of `firstbad run` would win over the configurations below. */
    unsetenv("FIRSTBAD_DIR");
    unsetenv("FIRSTBAD_RUN_ID");
    unsetenv("FIRSTBAD_ATTEMPT");
    if (rank == 0 && !mkdtemp(folder)) return 1;
    MPI_Bcast(folder, sizeof folder, MPI_CHAR, 0, MPI_COMM_WORLD);

    ranks_open_one_run_together();
    clean_step_proceeds_on_every_rank();
    finding_on_one_rank_withholds_the_update_on_all();
    rank_at_another_step_is_found_by_all();
    rank_whose_ballot_fails_still_takes_part();
    where_one_rank_cannot_open_none_does();
    second_launch_is_the_next_attempt();
    error_handler_is_put_back();
    vote_takes_the_least_of_signed_words();
    /* Last: errors on a null communicator are raised on MPI_COMM_WORLD, whose handler would end the program. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    failed_collective_is_no_quorum_and_no_abort();

    if (rank == 0) {
        char command[128];
        snprintf(command, sizeof command, "rm -rf '%s'", folder);
        if (system(command) != 0) fprintf(stderr, "%s was left behind\n", folder);
        printf("%d passed, %d failed\n", passed, failed);
    }
    MPI_Finalize();
    return failed != 0;
}
