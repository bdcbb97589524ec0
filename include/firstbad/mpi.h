/*
 * firstbad/mpi.h: carry the vote over MPI. Header-only, because MPI libraries differ in their binary interfaces: it is compiled with
 * the caller's own mpi.h. Experimental: may change with a minor version.
 *
 *   fb_mpi_run_open(&run, &config, MPI_COMM_WORLD, &err)      instead of fb_run_open, on every rank
 *   fb_mpi_step_vote(run, MPI_COMM_WORLD, &verdict, &err)     ballot, all-reduce and settle in one call, on every rank
 *   fb_mpi_vote(comm, words)                                  the all-reduce alone
 *
 * The communicator's error handler is set to MPI_ERRORS_RETURN for the length of a call and put back, so that a failed collective
 * becomes "no quorum" and never an abort of ours. There is no timeout of ours: a dead peer ends the call when MPI notices.
 */
#ifndef FIRSTBAD_MPI_H
#define FIRSTBAD_MPI_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "firstbad/firstbad.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Reduce four vote words over all ranks, in place: one MPI_Allreduce of four MPI_INT64_T with MPI_MIN.
 * Returns MPI_SUCCESS, or the MPI error code; the words are then not to be used (settle with NULL).
 * Collective. Cost: one all-reduce of 32 bytes.
 */
static inline int fb_mpi_vote(MPI_Comm comm, int64_t words[4])
{
    MPI_Errhandler before;
    int64_t own[4];
    int code = MPI_Comm_get_errhandler(comm, &before);
    if (code != MPI_SUCCESS) return code;
    memcpy(own, words, sizeof own);
    code = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS) {
        code = MPI_Allreduce(own, words, 4, MPI_INT64_T, MPI_MIN, comm);
        (void)MPI_Comm_set_errhandler(comm, before);
    }
    (void)MPI_Errhandler_free(&before);
    return code;
}

/**
 * Ballot, all-reduce and settle. Reached on every path: a rank whose ballot failed still takes part in the collective, with words
 * that no vote accepts, so that its peers learn of it instead of waiting for it.
 * verdict  filled as by fb_step_settle.
 * Returns what fb_step_ballot returned if that failed, else what fb_step_settle returned. Collective.
 */
static inline fb_status fb_mpi_step_vote(fb_run *run, MPI_Comm comm, fb_verdict *verdict, fb_error *err)
{
    /* Zeroed words are illegal in the vote's layout: every rank reads disagreement. */
    int64_t words[4] = {0, 0, 0, 0};
    fb_status ballot = fb_step_ballot(run, words, err);
    int code = fb_mpi_vote(comm, words);
    fb_status settle;
    if (ballot != FB_OK) return ballot;
    settle = fb_step_settle(run, code == MPI_SUCCESS ? words : NULL, verdict, err);
    return settle;
}

/* What rank 0 decides for all before the run is opened. Plain bytes, sent as such. */
struct fb_mpi_launch {
    int32_t status;
    int32_t attempt;
    char run_id[64];
};

static inline void fb_mpi_launch_choose_(struct fb_mpi_launch *launch, const fb_run_config *config, fb_error *err)
{
    const char *run_id = getenv("FIRSTBAD_RUN_ID");
    const char *attempt = getenv("FIRSTBAD_ATTEMPT");
    const char *dir = getenv("FIRSTBAD_DIR");
    memset(launch, 0, sizeof *launch);
    if (!run_id || !*run_id) run_id = config->run_id;
    if (run_id && strlen(run_id) < sizeof launch->run_id) strcpy(launch->run_id, run_id);
    else if (run_id) launch->status = FB_E_USAGE;
    else launch->status = fb_run_new_id(launch->run_id);
    if (launch->status != FB_OK) {
        if (err) {
            err->code = launch->status;
            (void)snprintf(err->message, sizeof err->message, "open run: rank 0 has no usable run id (at most 63 bytes)");
        }
        return;
    }
    if (attempt && *attempt) launch->attempt = (int32_t)strtol(attempt, NULL, 10);
    else launch->status = fb_run_next_attempt(dir && *dir ? dir : config->dir, launch->run_id, &launch->attempt, err);
}

/**
 * Open a run on every rank of a communicator, with rank, world, run id and attempt filled in and equal where they must be.
 * config  as for fb_run_open; its rank, world, run_id and attempt are not read, except run_id on rank 0 where FIRSTBAD_RUN_ID is unset.
 *         The attempt is FIRSTBAD_ATTEMPT, or the one after those in the run folder.
 * out     on FB_OK an open run; NULL otherwise, on all ranks alike: if one rank fails, all close what they opened and return an error.
 * Collective: every rank of comm must call it.
 */
static inline fb_status fb_mpi_run_open(fb_run **out, const fb_run_config *config, MPI_Comm comm, fb_error *err)
{
    struct fb_mpi_launch launch;
    fb_run_config mine;
    int rank = 0, world = 1;
    int32_t status, worst = FB_E_IO;
    *out = NULL;
    memset(&launch, 0, sizeof launch);
    (void)MPI_Comm_rank(comm, &rank);
    (void)MPI_Comm_size(comm, &world);
    if (rank == 0) fb_mpi_launch_choose_(&launch, config, err);
    if (MPI_Bcast(&launch, (int)sizeof launch, MPI_BYTE, 0, comm) != MPI_SUCCESS) launch.status = FB_E_IO;
    mine = *config;
    mine.rank = rank;
    mine.world = world;
    mine.run_id = launch.run_id;
    mine.attempt = launch.attempt;
    status = launch.status;
    if (status == FB_OK) status = fb_run_open(out, &mine, err);
    if (MPI_Allreduce(&status, &worst, 1, MPI_INT32_T, MPI_MIN, comm) != MPI_SUCCESS) worst = FB_E_IO;
    if (worst == FB_OK) return FB_OK;
    fb_run_close(*out);
    *out = NULL;
    if (status == FB_OK && err) {
        memset(err, 0, sizeof *err);
        err->code = worst;
        (void)snprintf(err->message, sizeof err->message, "open run on rank %d of %d: another rank failed with %s, so all ranks gave up", rank,
                       world, fb_status_name(worst));
    }
    return status == FB_OK ? worst : status;
}

#ifdef __cplusplus
}
#endif

#endif
