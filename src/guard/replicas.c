/*
 * Are the parameters still the same on all ranks? A flipped bit, a rank that stepped alone or a reduction that gave two answers
 * leave every number finite, and nothing else here would ever see it. The digest goes with a vote that is made in any case, so a
 * comparison costs one read of the parameters and no message.
 */
#include <string.h>

#include "guard/run.h"

static int is_due(const struct fb_run *run)
{
    if (run->replica_period == 0 || run->world == 1 || run->agreement != FB_AGREE_VOTE) return 0;
    return run->replicas_due || run->step.rec.step % run->replica_period == 0;
}

void fb_replicas_take(struct fb_run *run)
{
    int due = is_due(run);
    run->step.replicas_asked = run->replicas_due;
    run->replicas_due = 0;
    if (!due) return;
    fb_proof_digest(run, FB_ROLE_PARAMETER, &run->step.replicas);
    if (run->step.replicas.tensors == 0) return; /* nothing is owned: then no rank may have an opinion, and the vote sees to that */
    run->step.replicas.step = run->step.rec.step;
    run->step.replicas.moment = FB_PROOF_REPLICAS;
    run->step.replicas.equal = -1;
    run->step.has_replicas = 1;
}

static int compares(const struct fb_run *run)
{
    return run->step.has_replicas && run->step.votes == 0;
}

void fb_replicas_vote(const struct fb_run *run, fb_vote_agreement *agreement)
{
    if (!compares(run)) return;
    agreement->has_replicas = 1;
    agreement->replicas = run->step.replicas.digest;
}

void fb_replicas_read(const struct fb_run *run, const int64_t words[4], fb_vote_outcome *outcome)
{
    if (!compares(run) || !words || outcome->illegal || outcome->quorum_equal != FB_VOTE_DISAGREE) return;
    outcome->drifted = fb_vote_drifted(words);
}

void fb_replicas_settle(struct fb_run *run, const fb_vote_outcome *outcome)
{
    fb_rec_proof *rec = &run->step.replicas;
    if (!compares(run)) return;
    if (outcome->quorum_equal == FB_VOTE_EQUAL) rec->equal = 1;
    else if (outcome->drifted) rec->equal = 0;
    fb_record_proof(run, rec); /* of every rank, so that it can be told which of them differ */
    if (rec->equal == 1) {
        run->replicas_equal = rec->step;
        run->step.rec.flags |= FB_STEP_REPLICAS;
    }
    /* The update of the last step that began with equal parameters is the first that may have drifted. */
    if (rec->equal == 0) fb_checkpoint_taint(run, run->replicas_equal < 0 ? 0 : run->replicas_equal);
}
