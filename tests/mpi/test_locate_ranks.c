/*
 * test_locate_ranks: fb_locate_run on four ranks that really are processes, over fb_mpi_reduce_max. Every rank has a batch of its
 * own: div y = 1 / x, all_reduce g = sum of y over the ranks, mul u = g * 2. A case passes when it holds on every rank; rank 0
 * counts.
 */
#define OMPI_SKIP_MPICXX
#include <firstbad/locate.h>
#include <firstbad/mpi.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 4, BAD_RANK = 2, TOKEN_DIV = 0, TOKEN_REDUCE = 1, TOKEN_MUL = 2 };

static int rank, world;
static MPI_Comm comm = MPI_COMM_WORLD;
static int passed, failed;
static char folder[] = "/tmp/firstbad-locate-XXXXXX";

/* What is wrong in the case at hand. */
static float batch[ROWS];
static int broken_machine;   /* this rank's division gives NaN, whatever it reads */
static uint32_t fails_in;    /* in this replay rank 1 has no memory */
static int other_operators;  /* rank 3 runs one operator more */
static int collective_rerun; /* reruns of the all-reduce on this rank */
static int64_t samples[ROWS];

/* ---- the trainer ------------------------------------------------------------------------------------------------------------- */

static fb_status tell(fb_tape *tape, uint32_t token, const char *op_name, const char *name, int32_t boundary, uint32_t input,
                      const float *data, uint64_t count, uint32_t *id, fb_error *err)
{
    fb_tape_value value = FB_TAPE_VALUE_INIT;
    fb_tape_op op = FB_TAPE_OP_INIT;
    value.name = name;
    value.data = data;
    value.count = count;
    value.dtype = value.format = FB_F32;
    op.op = op_name;
    op.module = "h.0";
    op.boundary = boundary;
    op.token = token;
    op.flags = token == TOKEN_REDUCE ? FB_TAPE_COLLECTIVE : 0;
    op.input_count = 1;
    op.inputs = &input;
    op.output_count = 1;
    op.outputs = &value;
    op.output_ids = id;
    return fb_tape_op_ran(tape, &op, err);
}

static fb_status replay(void *ctx, fb_tape *tape, const fb_replay_request *request, fb_error *err)
{
    float x[ROWS], y[ROWS], g[ROWS] = {0}, u[ROWS];
    fb_tape_value value = FB_TAPE_VALUE_INIT;
    uint64_t count = ROWS;
    uint32_t x_id = 0, y_id = 0, g_id = 0;
    fb_status status;
    (void)ctx;
    if (request->purpose == FB_REPLAY_PRECISION) return FB_E_UNSUPPORTED;
    memcpy(x, batch, sizeof x);
    if (request->as_rank >= 0) MPI_Bcast(x, ROWS, MPI_FLOAT, request->as_rank, comm);
    if (request->purpose == FB_REPLAY_SMALLER && request->keep) return FB_E_UNSUPPORTED;
    if (request->purpose == FB_REPLAY_SMALLER && rank == request->rows_rank) {
        count = request->row_count;
        for (uint32_t i = 0; i < request->row_count; i++) x[i] = batch[request->rows[i]];
    }
    for (uint64_t i = 0; i < count; i++) y[i] = broken_machine && i == 1 ? NAN : 1.0f / x[i];
    for (uint64_t i = count; i < ROWS; i++) y[i] = 0;
    MPI_Allreduce(y, g, ROWS, MPI_FLOAT, MPI_SUM, comm);
    for (int i = 0; i < ROWS; i++) u[i] = g[i] * 2.0f;
    if (request->number == fails_in && rank == 1) return FB_E_NOMEM;
    value.name = "x";
    value.flags = FB_TAPE_BATCH;
    value.data = x;
    value.count = count;
    value.dtype = value.format = FB_F32;
    status = fb_tape_entry(tape, &value, &x_id, err);
    if (status == FB_OK) status = tell(tape, TOKEN_DIV, "div", "y", FB_LOCAL_GRAD, x_id, y, count, &y_id, err);
    if (status == FB_OK && other_operators && rank == 3)
        status = tell(tape, 9, "copy", "z", FB_LOCAL_GRAD, y_id, y, count, NULL, err);
    if (status == FB_OK) status = tell(tape, TOKEN_REDUCE, "all_reduce", "g", FB_REDUCED_GRAD, y_id, g, ROWS, &g_id, err);
    return status == FB_OK ? tell(tape, TOKEN_MUL, "mul", "u", FB_UPDATE, g_id, u, ROWS, NULL, err) : status;
}

static fb_status rerun(void *ctx, fb_rerun *again, fb_error *err)
{
    (void)ctx;
    (void)err;
    if (again->token == TOKEN_REDUCE) {
        collective_rerun++;
        MPI_Allreduce(again->inputs[0], again->outputs[0], ROWS, MPI_DOUBLE, MPI_SUM, comm);
        return FB_OK;
    }
    for (uint64_t i = 0; i < again->output_counts[0]; i++) again->outputs[0][i] = 1.0 / again->inputs[0][i];
    return again->token == TOKEN_DIV ? FB_OK : FB_E_UNSUPPORTED;
}

/* ---- one run ----------------------------------------------------------------------------------------------------------------- */

static void quiet(void)
{
    for (int i = 0; i < ROWS; i++) {
        batch[i] = (float)(1 + i + rank);
        samples[i] = INT64_C(10000000000) * (rank + 1) + i;
    }
    broken_machine = other_operators = collective_rerun = 0;
    fails_in = 0;
}

static fb_locate_config config_of(const char *tensor, int32_t boundary, int32_t finding_rank)
{
    fb_locate_config config = FB_LOCATE_CONFIG_INIT;
    config.rank = rank;
    config.world = world;
    config.finding_rank = finding_rank;
    config.finding_boundary = boundary;
    config.finding_module = "h.0";
    config.finding_tensor = tensor;
    config.precision = "fp32";
    config.rows = ROWS;
    config.columns = 1;
    config.sample_ids = samples;
    config.ctx = &comm;
    config.replay = replay;
    config.rerun = rerun;
    config.max = fb_mpi_reduce_max;
    return config;
}

static int expect(int ok, const char *what)
{
    if (!ok) fprintf(stderr, "rank %d: not so: %s\n", rank, what);
    return ok;
}
#define EXPECT(condition) expect(!!(condition), #condition)

static void judge(const char *name, int ok)
{
    int everywhere = 0;
    MPI_Allreduce(&ok, &everywhere, 1, MPI_INT, MPI_MIN, comm);
    if (everywhere) passed++;
    else failed++;
    if (rank == 0 && !everywhere) printf("FAIL %s\n", name);
}

static int run(const fb_locate_config *config, fb_locate_result *result)
{
    static const fb_locate_result empty = FB_LOCATE_RESULT_INIT;
    fb_error err;
    *result = empty;
    memset(&err, 0, sizeof err);
    if (fb_locate_run(config, result, &err) == FB_OK) return 1;
    fprintf(stderr, "rank %d: %s\n", rank, err.message);
    return 0;
}

static int names(const fb_locate_result *result, const char *op, int32_t owner)
{
    return EXPECT(result->found == FB_LOCATED_OPERATOR) & EXPECT(strcmp(result->op, op) == 0) & EXPECT(result->owner == owner) &
           EXPECT(result->reproduced == 3 && result->tried == 3) & EXPECT(result->faithful == 1);
}

/* ---- cases ------------------------------------------------------------------------------------------------------------------- */

static void the_rank_before_the_collective_is_the_owner(void)
{
    fb_locate_result result;
    fb_locate_config config = config_of("u", FB_UPDATE, 0);
    int ok;
    quiet();
    if (rank == BAD_RANK) batch[1] = 0;
    ok = run(&config, &result) && names(&result, "div", BAD_RANK);
    /* Its rows are made few, and not those of rank 0, which was asked about the finding. */
    ok = ok && EXPECT(result.rows_rank == BAD_RANK) & EXPECT(result.rows_needed == 1) && EXPECT(result.rows[0] == 1);
    /* The batch does it on every rank: data, and not a machine. */
    ok = ok && EXPECT(result.other_ranks_tried == 3 && result.other_ranks_bad == 3);
    judge("the rank that was bad before the collective is the owner", ok);
    fb_locate_release(&result);
}

static void a_broken_machine_is_alone(void)
{
    fb_locate_result result;
    fb_locate_config config = config_of("y", FB_LOCAL_GRAD, BAD_RANK);
    int ok;
    quiet();
    broken_machine = rank == BAD_RANK;
    ok = run(&config, &result) && names(&result, "div", BAD_RANK);
    ok = ok && EXPECT(result.other_ranks_tried == 3 && result.other_ranks_bad == 0);
    judge("the batch of a broken machine is fine on all others", ok);
    fb_locate_release(&result);
}

static void a_sum_that_overflows_is_the_collective(void)
{
    fb_locate_result result;
    fb_locate_config config = config_of("u", FB_UPDATE, 1);
    int ok;
    quiet();
    batch[3] = 5e-39f; /* 2e38 on each rank: finite, and 8e38 together is not */
    ok = run(&config, &result) && names(&result, "all_reduce", 1);
    ok = ok && EXPECT(result.rule == FB_RULE_RANGE) & EXPECT(collective_rerun == 1) & EXPECT(result.other_ranks_tried == 0);
    judge("a sum of finite parts that overflows is the collective's, and is run again on all ranks", ok);
    fb_locate_release(&result);
}

static void the_others_faults_are_not_the_findings(void)
{
    fb_locate_result result;
    fb_locate_config config = config_of("y", FB_LOCAL_GRAD, BAD_RANK);
    int ok;
    quiet();
    if (rank == 0) batch[0] = 0; /* bad as well, and nothing to do with the finding */
    ok = run(&config, &result);
    ok = ok && EXPECT(result.found == FB_LOCATED_NOT_REPRODUCED) & EXPECT(result.tried == 3 && result.reproduced == 0);
    judge("the same tensor of another rank is not the finding", ok);
    fb_locate_release(&result);
}

static void one_rank_without_memory_hangs_nobody(void)
{
    fb_locate_result result;
    fb_locate_config config = config_of("u", FB_UPDATE, 0);
    int ok = 1;
    for (uint32_t number = 1; number <= 4; number++) {
        quiet();
        if (rank == BAD_RANK) batch[1] = 0;
        fails_in = number;
        config.parts = FB_LOCATE_SEARCH | FB_LOCATE_REPLAY;
        ok = run(&config, &result) && ok;
        ok = ok && EXPECT(strcmp(result.op, "div") == 0) &
                       EXPECT(result.found == (number == 2 || number == 3 ? FB_LOCATED_INTERVAL : FB_LOCATED_OPERATOR));
        fb_locate_release(&result);
    }
    judge("a replay that fails on one rank is lost on all, and nobody waits", ok);
}

static void ranks_with_other_operators_are_undecided(void)
{
    fb_locate_result result;
    fb_locate_config config = config_of("u", FB_UPDATE, 0);
    int ok;
    quiet();
    if (rank == BAD_RANK) batch[1] = 0;
    other_operators = 1;
    ok = run(&config, &result) && EXPECT(result.found == FB_LOCATED_UNDECIDED);
    judge("ranks that run different operators are undecided", ok);
    fb_locate_release(&result);
}

static void the_rows_of_the_findings_rank_are_left(void)
{
    fb_locate_result result;
    fb_locate_config config = config_of("y", FB_LOCAL_GRAD, BAD_RANK);
    char path[128];
    int ok;
    quiet();
    if (rank == BAD_RANK) batch[1] = 0;
    config.folder = folder;
    ok = run(&config, &result) && names(&result, "div", BAD_RANK);
    ok = ok && EXPECT(result.rows_needed == 1 && result.rows && result.rows[0] == 1);
    snprintf(path, sizeof path, "%s/locate.json", folder);
    ok = EXPECT(access(path, R_OK) == 0) && ok;
    if (rank == 0) {
        static char text[1 << 16];
        FILE *file = fopen(path, "r");
        size_t bytes = file ? fread(text, 1, sizeof text - 1, file) : 0;
        text[bytes] = '\0';
        if (file) fclose(file);
        ok = EXPECT(strstr(text, "30000000001") != NULL) && ok; /* sample 1 of rank 2 */
        ok = EXPECT(strstr(text, "10000000001") == NULL) && ok;
    }
    judge("all ranks give the rows of the finding's rank, and one file has its samples", ok);
    fb_locate_release(&result);
}

static void a_refused_rank_refuses_all(void)
{
    fb_locate_result result;
    fb_locate_config config = config_of("y", FB_LOCAL_GRAD, BAD_RANK);
    fb_error err;
    quiet();
    if (rank == 1) config.finding_tensor = NULL;
    judge("a rank whose configuration is refused keeps no other waiting",
          EXPECT(fb_locate_run(&config, &result, &err) != FB_OK) || 0);
}

int main(int argc, char **argv)
{
    char command[64];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &world);
    if (rank == 0 && !mkdtemp(folder)) MPI_Abort(comm, 1);
    MPI_Bcast(folder, (int)sizeof folder, MPI_CHAR, 0, comm);
    if (world < 4) {
        if (rank == 0) printf("needs 4 ranks, and there are %d\n", world);
        MPI_Finalize();
        return 77;
    }
    the_rank_before_the_collective_is_the_owner();
    a_broken_machine_is_alone();
    a_sum_that_overflows_is_the_collective();
    the_others_faults_are_not_the_findings();
    one_rank_without_memory_hangs_nobody();
    ranks_with_other_operators_are_undecided();
    the_rows_of_the_findings_rank_are_left();
    a_refused_rank_refuses_all();
    if (rank == 0) {
        snprintf(command, sizeof command, "rm -rf %s", folder);
        if (system(command) != 0) failed++;
        printf("%d passed, %d failed\n", passed, failed);
    }
    MPI_Finalize();
    return failed != 0;
}
