/*
 * One update on several ranks, with MPI and with a collective of the trainer's own: what docs/integrating.md quotes beside alone.c,
 * compiled and run by tests/mpi/test_integrating_ranks.c.
 */
#include <firstbad/firstbad.h>
#include <firstbad/mpi.h>

#include <math.h>

/* Over MPI the header-only adapter opens the run and carries the vote; on one rank both do without a neighbour. */
static fb_status open_over_mpi(fb_run **run, MPI_Comm comm, fb_error *err)
{
    fb_run_config config = FB_RUN_CONFIG_INIT;
    config.precision = "fp32";
    return fb_mpi_run_open(run, &config, comm, err); /* rank, world, run id and attempt, equal where they must be */
}

/* A collective of your own: 0 when every rank has the smallest of each word, anything else when it failed. */
typedef int all_reduce_min(void *context, int64_t *words, int count);

static fb_status vote_over(fb_run *run, all_reduce_min *reduce, void *context, fb_verdict *verdict, fb_error *err)
{
    int64_t words[4] = {0, 0, 0, 0}; /* no vote accepts zeroes: a rank whose ballot fails takes part, and all learn of it */
    fb_status ballot = fb_step_ballot(run, words, err);
    int failed = reduce(context, words, 4);
    verdict->action = FB_HALT;
    if (ballot != FB_OK) return ballot;
    return fb_step_settle(run, failed ? NULL : words, verdict, err); /* NULL: no quorum, and never an update */
}

/* One tensor of gradients, n elements, and the same tensor's parameters. */
typedef struct replica {
    fb_run *run;
    fb_view grad;
    float *d_w, *w;
    int n;
} replica;

/* A refused call is a mistake in this program, and one that returns leaves the others waiting in a collective: all are ended. */
static void must(fb_status status, const fb_error *err)
{
    if (status == FB_OK) return;
    fprintf(stderr, "%s: %s\n", fb_status_name(status), err->message);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static int32_t update(replica *r, MPI_Comm comm, int64_t number)
{
    fb_step step = FB_STEP_INIT;
    fb_verdict verdict = FB_VERDICT_INIT;
    fb_step_result result = FB_STEP_RESULT_INIT;
    fb_error err;
    double sum_sq;
    int world;
    MPI_Comm_size(comm, &world);
    step.step = number;
    must(fb_step_begin(r->run, &step, &err), &err);
    must(fb_step_check(r->run, FB_LOCAL_GRAD, &r->grad, 1, &err), &err); /* before the collective: only the origin is bad */
    must(fb_mpi_step_vote(r->run, comm, &verdict, &err), &err);
    if (verdict.action == FB_PROCEED) {
        MPI_Allreduce(MPI_IN_PLACE, r->d_w, r->n, MPI_FLOAT, MPI_SUM, comm);
        must(fb_step_unscale(r->run, &r->grad, 1, 1.0 / world, &sum_sq, &err), &err);
        result.grad_norm = sqrt(sum_sq);
        result.known = FB_KNOWN_GRAD_NORM;
        must(fb_mpi_step_vote(r->run, comm, &verdict, &err), &err); /* finite parts can have an infinite sum */
    }
    if (verdict.action == FB_PROCEED) {
        must(fb_step_apply(r->run, &err), &err);
        for (int i = 0; i < r->n; i++) r->w[i] -= 0.1f * r->d_w[i];
    }
    must(fb_step_end(r->run, &result, &err), &err);
    return verdict.action;
}
