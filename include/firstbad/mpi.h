/*
 * firstbad/mpi.h: carry the vote over MPI. Header-only, because MPI libraries differ in their binary interfaces: it is compiled
 * with the caller's own mpi.h. Experimental: may change with a minor version.
 *
 *   fb_mpi_run_open(&run, &config, MPI_COMM_WORLD, &err)      instead of fb_run_open, on every rank
 *   fb_mpi_step_vote(run, MPI_COMM_WORLD, &verdict, &err)     ballot, all-reduce and settle in one call, on every rank
 *   fb_mpi_vote(comm, words)                                  the all-reduce alone
 *   config.max = fb_mpi_reduce_max, with a MPI_Comm * as ctx  the reduction of fb_locate_run (firstbad/locate.h)
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

/* Errors of the communicator are returned until fb_mpi_restore_ puts its own handler back. Names that end in _ are not for callers.
   */
static inline int fb_mpi_return_errors_(MPI_Comm comm, MPI_Errhandler *before)
{
    int code = MPI_Comm_get_errhandler(comm, before);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (code != MPI_SUCCESS) (void)MPI_Errhandler_free(before);
    return code;
}

static inline void fb_mpi_restore_(MPI_Comm comm, MPI_Errhandler *before)
{
    (void)MPI_Comm_set_errhandler(comm, *before);
    (void)MPI_Errhandler_free(before);
}

/**
 * Reduce four vote words over all ranks, in place: one MPI_Allreduce of four MPI_INT64_T with MPI_MIN.
 * Returns MPI_SUCCESS, or the MPI error code; the words are then not to be used (settle with NULL).
 * Collective. Cost: one all-reduce of 32 bytes.
 */
static inline int fb_mpi_vote(MPI_Comm comm, int64_t words[4])
{
    MPI_Errhandler before;
    int64_t own[4];
    int code = fb_mpi_return_errors_(comm, &before);
    if (code != MPI_SUCCESS) return code;
    memcpy(own, words, sizeof own);
    code = MPI_Allreduce(own, words, 4, MPI_INT64_T, MPI_MIN, comm);
    fb_mpi_restore_(comm, &before);
    return code;
}

/**
 * Ballot, all-reduce and settle. Reached on every path: a rank whose ballot failed still takes part in the collective, with words
 * that no vote accepts (V9 of docs/format/vote.md), so that its peers learn of it instead of waiting for it.
 * verdict  filled as by fb_step_settle; on failure its action is FB_HALT.
 * Returns what fb_step_ballot returned if that failed, else what fb_step_settle returned. Collective.
 */
static inline fb_status fb_mpi_step_vote(fb_run *run, MPI_Comm comm, fb_verdict *verdict, fb_error *err)
{
    /* Zeroed words are illegal in the vote's layout: every rank reads disagreement. */
    int64_t words[4] = {0, 0, 0, 0};
    fb_status ballot = fb_step_ballot(run, words, err);
    int code = fb_mpi_vote(comm, words);
    /* A caller that looks at the action and not at the status must not read "proceed" out of a struct that nobody filled. */
    if (verdict) verdict->action = FB_HALT;
    if (ballot != FB_OK) return ballot;
    return fb_step_settle(run, code == MPI_SUCCESS ? words : NULL, verdict, err);
}

/* What rank 0 decides for all before the run is opened. Sent as bytes between processes of one program. */
struct fb_mpi_launch_ {
    int32_t status;
    int32_t attempt;
    char run_id[64];
};

static inline fb_status fb_mpi_fail_(fb_error *err, fb_status code, const char *sentence)
{
    if (!err) return code;
    memset(err, 0, sizeof *err);
    err->code = code;
    (void)snprintf(err->message, sizeof err->message, "%s", sentence);
    return code;
}

static inline fb_status fb_mpi_choose_id_(struct fb_mpi_launch_ *launch, const fb_run_config *config, fb_error *err)
{
    const char *run_id = getenv("FIRSTBAD_RUN_ID");
    if (!run_id || !*run_id) run_id = config->run_id;
    if (!run_id) return fb_run_new_id(launch->run_id);
    if (strlen(run_id) >= sizeof launch->run_id)
        return fb_mpi_fail_(err, FB_E_USAGE, "open run: expected a run id of at most 63 bytes, found a longer one");
    memcpy(launch->run_id, run_id, strlen(run_id) + 1);
    return FB_OK;
}

static inline fb_status fb_mpi_choose_attempt_(struct fb_mpi_launch_ *launch, const fb_run_config *config, fb_error *err)
{
    const char *text = getenv("FIRSTBAD_ATTEMPT"), *dir = getenv("FIRSTBAD_DIR");
    char *end;
    long attempt;
    if (!text || !*text) {
        fb_status status = fb_run_next_attempt(dir && *dir ? dir : config->dir, launch->run_id, &launch->attempt, err);
        if (status != FB_E_IO) return status;
        /* No number can be taken where nothing can be written, and training goes on all the same: fb_run_open counts what is lost.
           INT32_MAX is never given out otherwise, so no earlier launch's ledger is in the way when only the disk is full. */
        launch->attempt = INT32_MAX;
        return FB_OK;
    }
    attempt = strtol(text, &end, 10);
    if (*end || attempt < 1 || attempt > INT32_MAX)
        return fb_mpi_fail_(err, FB_E_USAGE, "open run: expected a number from 1 in FIRSTBAD_ATTEMPT, found something else");
    launch->attempt = (int32_t)attempt;
    return FB_OK;
}

/* Everything between setting the error handler and putting it back. Every rank reaches both collectives, whatever fails. */
static inline fb_status fb_mpi_open_together_(fb_run **out, const fb_run_config *config, MPI_Comm comm, fb_error *err)
{
    struct fb_mpi_launch_ launch;
    fb_run_config mine = *config;
    int rank = 0, world = 1;
    int32_t status, worst = FB_E_IO;
    memset(&launch, 0, sizeof launch);
    if (MPI_Comm_rank(comm, &rank) != MPI_SUCCESS || MPI_Comm_size(comm, &world) != MPI_SUCCESS)
        return fb_mpi_fail_(err, FB_E_USAGE, "open run: the communicator gives neither rank nor size");
    if (rank == 0) {
        launch.status = fb_mpi_choose_id_(&launch, config, err);
        if (launch.status == FB_OK) launch.status = fb_mpi_choose_attempt_(&launch, config, err);
    }
    if (MPI_Bcast(&launch, (int)sizeof launch, MPI_BYTE, 0, comm) != MPI_SUCCESS) launch.status = FB_E_IO;
    mine.rank = rank;
    mine.world = world;
    mine.run_id = launch.run_id;
    mine.attempt = launch.attempt;
    status = launch.status == FB_OK ? fb_run_open(out, &mine, err) : launch.status;
    if (MPI_Allreduce(&status, &worst, 1, MPI_INT32_T, MPI_MIN, comm) != MPI_SUCCESS) worst = FB_E_IO;
    if (worst == FB_OK) return FB_OK;
    fb_run_close(*out);
    *out = NULL;
    /* The rank that failed has its own sentence; the others learn that somebody did. */
    if (status == FB_OK || (launch.status != FB_OK && rank != 0))
        return fb_mpi_fail_(err, worst, "open run: another rank could not open the run, so no rank did; its own message says why");
    return status;
}

/**
 * Open a run on every rank of a communicator, with rank, world, run id and attempt filled in and equal where they must be.
 * config  as for fb_run_open; rank, world and attempt are not read. Run id: FIRSTBAD_RUN_ID, else config->run_id of rank 0, else
 *         a fresh one. Attempt: FIRSTBAD_ATTEMPT, else the one after those in the run folder. Rank 0's environment counts.
 * out     on FB_OK an open run; NULL otherwise, on all ranks alike: where one rank fails, all close what they opened and fail.
 * Collective: every rank of comm must call it. Cost: one broadcast and one all-reduce beside fb_run_open.
 */
static inline fb_status fb_mpi_run_open(fb_run **out, const fb_run_config *config, MPI_Comm comm, fb_error *err)
{
    MPI_Errhandler before;
    fb_status status;
    *out = NULL;
    if (fb_mpi_return_errors_(comm, &before) != MPI_SUCCESS)
        return fb_mpi_fail_(err, FB_E_USAGE, "open run: the communicator takes no error handler");
    status = fb_mpi_open_together_(out, config, comm, err);
    fb_mpi_restore_(comm, &before);
    return status;
}

/**
 * Replace each of `count` integers by the largest over all ranks: an fb_reduce_max_fn of firstbad/locate.h.
 * ctx  the address of an MPI_Comm. A caller whose replays need more than that writes a callback of its own around this one.
 * Returns FB_OK, or FB_E_IO with the MPI error in the sentence; the values are then not to be used. Collective.
 */
static inline fb_status fb_mpi_reduce_max(void *ctx, int32_t *values, size_t count, fb_error *err)
{
    MPI_Comm comm = *(MPI_Comm *)ctx;
    MPI_Errhandler before;
    char sentence[128];
    int code = fb_mpi_return_errors_(comm, &before);
    if (code != MPI_SUCCESS) return fb_mpi_fail_(err, FB_E_USAGE, "reduce over ranks: the communicator takes no error handler");
    while (count && code == MPI_SUCCESS) {
        /* MPI counts in int. */
        int piece = count > (1u << 30) ? 1 << 30 : (int)count;
        code = MPI_Allreduce(MPI_IN_PLACE, values, piece, MPI_INT32_T, MPI_MAX, comm);
        values += piece;
        count -= (size_t)piece;
    }
    fb_mpi_restore_(comm, &before);
    if (code == MPI_SUCCESS) return FB_OK;
    (void)snprintf(sentence, sizeof sentence, "reduce over ranks: MPI_Allreduce failed with code %d; a rank may be gone", code);
    return fb_mpi_fail_(err, FB_E_IO, sentence);
}

#ifdef __cplusplus
}
#endif

#endif
