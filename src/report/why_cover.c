/*
 * What was checked at the bad step, and in how many steps.
 */
#include "report/inside.h"
#include "report/say.h"
#include "report/why_text.h"

enum { HOLES_SHOWN = 6 };

/* What the attachment said of itself, after the boundaries that nobody looked at. */
static void add_holes(fb_phrase *phrase, const fb_report *report)
{
    const fb_notes *said = &report->not_covered;
    uint32_t shown = said->count < HOLES_SHOWN ? said->count : HOLES_SHOWN;
    for (uint32_t i = 0; i < shown; i++) fb_phrase_add(phrase, "%s%s", phrase->used ? "; " : "", said->text[i]);
    if (said->count + said->dropped > shown) {
        fb_phrase_add(phrase, "; and %u more, which --json lists", said->count + said->dropped - shown);
    }
}

void fb_why_coverage(fb_lines *lines, const fb_report *report)
{
    static const int32_t order[] = {FB_INPUT,        FB_FORWARD, FB_LOSS,  FB_LOCAL_GRAD,
                                    FB_REDUCED_GRAD, FB_UPDATE,  FB_ENTRY, FB_CHECKPOINT};
    static const char *const names[] = {"input",           "activations",       "loss",
                                        "local gradients", "reduced gradients", "state after the update",
                                        "state on entry",  "checkpoints"};
    fb_phrase covered = {"", 0}, holes = {"", 0};
    char n[32];
    if (report->cover_ranks == 0) {
        add_holes(&holes, report);
        fb_lines_add(lines, "Covered", FB_WHY_NAMED, "unknown: %s%s%s",
                     report->has_case ? "the bad step has no end in any ledger that was read" : "no update was applied",
                     holes.used ? ". Not covered: " : "", holes.text);
        return;
    }
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        int level = report->cover.level[order[i]];
        uint32_t tensors = report->cover.tensors[order[i]];
        if (level == FB_COVER_NONE) fb_phrase_add(&holes, "%s%s", holes.used ? ", " : "", names[i]);
        else if (level == FB_COVER_SUMMARY) fb_phrase_add(&covered, "%s%s (summary)", covered.used ? ", " : "", names[i]);
        else if (level == FB_COVER_FULL && tensors < 2) fb_phrase_add(&covered, "%s%s", covered.used ? ", " : "", names[i]);
        else {
            fb_phrase_add(&covered, "%s%s (%s%s)", covered.used ? ", " : "", names[i],
                          level == FB_COVER_FULL ? "all " : "in part: ", fb_thousands(tensors, n));
        }
    }
    fb_phrase_add(&covered, "%s on %llu of ", covered.used ? "" : "nothing", (unsigned long long)report->cover_ranks);
    if (report->world > 0) fb_phrase_add(&covered, "%d rank%s", report->world, fb_plural((uint64_t)report->world));
    else fb_phrase_add(&covered, "unknown ranks");
    if (report->cover.exempt) fb_phrase_add(&covered, "; exempt by declaration: %u", report->cover.exempt);
    add_holes(&holes, report);
    if (holes.used) fb_phrase_add(&covered, ". Not covered: %s", holes.text);
    fb_lines_add(lines, "Covered", FB_WHY_NAMED, "%s", covered.text);
}

/* The most and the fewest steps that a rank recorded, of those that recorded any. */
static uint64_t most_steps(const fb_report *report, uint64_t *fewest)
{
    uint64_t steps = 0;
    *fewest = UINT64_MAX;
    for (uint64_t i = 0; i < report->rank_count; i++) {
        if (report->ranks[i].steps > steps) steps = report->ranks[i].steps;
        if (report->ranks[i].steps && report->ranks[i].steps < *fewest) *fewest = report->ranks[i].steps;
    }
    return steps;
}

void fb_why_steps(fb_lines *lines, const fb_report *report, const char *label)
{
    uint64_t fewest, steps = most_steps(report, &fewest), applied = 0, gated = 0, probing = 0, read = 0, duration = 0, guard = 0;
    char a[32], b[32], c[32];
    fb_phrase phrase = {"", 0};
    for (uint64_t i = 0; i < report->rank_count; i++) {
        const fb_report_rank *rank = &report->ranks[i];
        read += (uint64_t)(rank->steps > 0);
        applied += rank->applied;
        gated += rank->gated;
        duration += rank->duration_ns;
        guard += rank->guard_ns;
        if (rank->probing > probing) probing = rank->probing;
    }
    if (steps == 0) {
        fb_lines_add(lines, label, FB_WHY_NAMED, "no step of any rank");
        return;
    }
    if (fewest < steps) fb_phrase_add(&phrase, "%s to ", fb_thousands(fewest, a));
    fb_phrase_add(&phrase, "%s step%s on %llu of ", fb_thousands(steps, a), fb_plural(steps), (unsigned long long)read);
    if (report->world > 0) fb_phrase_add(&phrase, "%d rank%s", report->world, fb_plural((uint64_t)report->world));
    else fb_phrase_add(&phrase, "an unknown number of ranks");
    fb_phrase_add(&phrase, "; %s of %s applied updates had a clean vote over all gradients", fb_thousands(gated, b),
                  fb_thousands(applied, c));
    if (probing) fb_phrase_add(&phrase, "; %s probing skip%s of the loss scale", fb_thousands(probing, a), fb_plural(probing));
    if (duration) fb_phrase_add(&phrase, "; the guard took %.2f %% of the time", 100.0 * (double)guard / (double)duration);
    fb_lines_add(lines, label, FB_WHY_NAMED, "%s", phrase.text);
}
