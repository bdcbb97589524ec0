/*
 * Proof of skip: digests of all owned state at the decision to withhold an update and at the next begin. Equal digests say that the
 * trainer changed nothing in between, whatever its optimizer would have done with a gradient of zero.
 */
#include <string.h>

#include "base/hash.h"
#include "guard/run.h"

void fb_proof_digest(const struct fb_run *run, int32_t wanted, fb_rec_proof *proof)
{
    memset(proof, 0, sizeof *proof);
    for (size_t i = 0; i < run->owned_count; i++) {
        const fb_view *view = &run->owned[i];
        int32_t role = fb_sites_get(&run->sites, view->site)->role;
        uint64_t bytes = fb_dtype_bytes(view->dtype, view->count);
        if (wanted && role != wanted) continue;
        proof->by_role[role] = fb_hash64(view->data, (size_t)bytes, proof->by_role[role] + 1);
        proof->digest = fb_hash64(view->data, (size_t)bytes, proof->digest + 1);
        proof->bytes += bytes;
        proof->tensors++;
    }
}

void fb_proof_take(struct fb_run *run)
{
    if (run->owned_count == 0) return;
    fb_proof_digest(run, 0, &run->proof);
    run->proof.step = run->step.rec.step;
    run->proof.moment = FB_PROOF_DECISION;
    run->proof.equal = -1;
    run->proof_pending = 1;
    run->proof_equal = 0;
    fb_record_proof(run, &run->proof);
}

void fb_proof_compare(struct fb_run *run)
{
    fb_rec_proof now;
    if (!run->proof_pending) return;
    run->proof_pending = 0;
    fb_proof_digest(run, 0, &now);
    now.step = run->proof.step;
    now.moment = FB_PROOF_NEXT_BEGIN;
    now.equal = now.digest == run->proof.digest && memcmp(now.by_role, run->proof.by_role, sizeof now.by_role) == 0;
    if (now.equal && run->proof_equal) return;
    fb_record_proof(run, &now);
    run->proof_equal = now.equal;
    if (now.equal) {
        fb_checkpoint_trust(run);
        return;
    }
    /* The trainer stepped all the same: its replicas may differ by now, and what descends from here is suspect. */
    fb_record_event(run, FB_EVENT_MISUSE, FB_E_WITHHELD, 0, "owned state changed although its update was withheld", 1);
    fb_checkpoint_taint(run, now.step);
    run->skip_broken = 1;
}

/* A run that halts has no next begin, and its trainer may be torn down before it is closed. It is compared once more at the close
 * if
   the state is owned still. */
void fb_proof_at_halt(struct fb_run *run)
{
    if (!run->gate.halted || !run->proof_pending) return;
    fb_proof_compare(run);
    run->proof_pending = run->proof_equal;
}
