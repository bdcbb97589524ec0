/*
 * Answers 4 and 5, and why: can it be reproduced, what is safe, what was the cause and what to do about it.
 */
#include <stdio.h>
#include <string.h>

#include "registry/registry.h"
#include "report/inside.h"
#include "report/say.h"
#include "report/why_text.h"

/* ---- 4 reproduce ------------------------------------------------------------------------------------------------------------- */

/* What the ledger has of batch and random state. */
static void recorded(const fb_report *report, fb_phrase *phrase)
{
    const fb_rec_step *step = &report->spokesman_step;
    if (!(step->known & (FB_KNOWN_BATCH_ID | FB_KNOWN_BATCH_FINGERPRINT | FB_KNOWN_RNG_HASH)) && !step->samples) {
        fb_phrase_add(phrase, "neither batch nor random state is recorded");
        return;
    }
    fb_phrase_add(phrase, "recorded:");
    if (step->known & FB_KNOWN_BATCH_ID) fb_phrase_add(phrase, " batch %lld,", (long long)step->global_batch_id);
    if (step->samples) {
        fb_phrase_add(phrase, " sample%s ", fb_plural(step->sample_count));
        fb_why_samples(phrase, step->sample_ids, step->samples, step->sample_count);
        fb_phrase_add(phrase, ",");
    }
    if (step->known & FB_KNOWN_BATCH_FINGERPRINT)
        fb_phrase_add(phrase, " fingerprint %016llx,", (unsigned long long)step->batch_fingerprint);
    if (step->known & FB_KNOWN_RNG_HASH) fb_phrase_add(phrase, " random state %016llx,", (unsigned long long)step->rng_state_hash);
    phrase->text[--phrase->used] = '\0';
}

static void attempts(fb_lines *lines, const fb_report *report)
{
    const fb_located *located = report->located;
    fb_phrase phrase = {"", 0};
    fb_why_replayed(report, &phrase);
    if (phrase.used == 0) {
        fb_phrase_add(&phrase, "%s%s", located && located->count ? "not repeated" : "not attempted",
                      located && located->nothing_why[0] ? ": " : "");
        if (located) fb_phrase_add(&phrase, "%s", located->nothing_why);
        fb_phrase_add(&phrase, "; ");
        recorded(report, &phrase);
    }
    fb_lines_add(lines, "4 Reproduce", FB_WHY_NUMBERED, "%s", phrase.text);
}

void fb_why_reproduce(fb_lines *lines, const fb_report *report)
{
    fb_phrase apart = {"", 0}, smallest = {"", 0}, bundle = {"", 0};
    char command[128];
    attempts(lines, report);
    fb_why_replayed_apart(report, &apart);
    if (apart.used) fb_lines_add(lines, "", FB_WHY_NUMBERED, "%s", apart.text);
    fb_why_smallest(report, &smallest);
    if (smallest.used) fb_lines_add(lines, "", FB_WHY_NUMBERED, "smallest batch: %s", smallest.text);
    fb_why_bundle(report, &bundle);
    fb_replay_command(report, command, sizeof command);
    if (bundle.used) fb_lines_add(lines, "", FB_WHY_NUMBERED, "%s%s%s", bundle.text, command[0] ? "; " : "", command);
}

/* ---- 5 resume ---------------------------------------------------------------------------------------------------------------- */

static void blocked(const fb_report *report, fb_phrase *phrase)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < report->checkpoint_count; i++) {
        const fb_report_checkpoint *entry = &report->checkpoints[i];
        if (entry->gone || (entry->state == FB_CKPT_COMMITTED && !entry->changed)) continue;
        if (count < FB_WHY_LISTED_MAX && entry->changed) {
            fb_phrase_add(phrase, "%s%s (%s, and the file has another size now)", count ? ", " : "; blocked: ", entry->path,
                          fb_registry_state_name(entry->state));
        } else if (count < FB_WHY_LISTED_MAX) {
            fb_phrase_add(phrase, "%s%s (%s: %s%s%s)", count ? ", " : "; blocked: ", entry->path,
                          fb_registry_state_name(entry->state), fb_registry_reason_text(entry->state, entry->reason),
                          entry->tensor && entry->tensor[0] ? ", " : "", entry->tensor ? entry->tensor : "");
        }
        count++;
    }
    if (count > FB_WHY_LISTED_MAX) fb_phrase_add(phrase, " and %llu more", (unsigned long long)(count - FB_WHY_LISTED_MAX));
    if (count == 0) fb_phrase_add(phrase, "; blocked: none");
}

static void samples(const fb_report *report, fb_phrase *phrase)
{
    const int64_t *ids;
    uint64_t kept, count;
    if (report->first == UINT64_MAX) return;
    fb_skip_samples(report, &ids, &kept, &count);
    if (kept == 0) {
        fb_phrase_add(phrase, "; leave out no sample: %s", report->samples_why);
        return;
    }
    fb_phrase_add(phrase, "; leave out sample%s ", fb_plural(count));
    fb_why_samples(phrase, ids, kept, count);
    if (report->findings[report->first].rec.injected) fb_phrase_add(phrase, " (only if the fault had been real)");
}

void fb_why_resume(fb_lines *lines, const fb_report *report, const char *label, int indent)
{
    fb_phrase phrase = {"", 0};
    char command[128];
    if (report->resume == UINT64_MAX) fb_phrase_add(&phrase, "nothing that is known to be safe: %s", report->resume_why);
    else {
        const fb_report_checkpoint *entry = &report->checkpoints[report->resume];
        fb_phrase_add(&phrase, "%s (committed, step %lld)", entry->path, (long long)entry->step);
    }
    if (report->checkpoint_count) blocked(report, &phrase);
    samples(report, &phrase);
    fb_lines_add(lines, label, indent, "%s", phrase.text);
    fb_leave_out_command(report, command, sizeof command);
    if (command[0]) fb_lines_add(lines, "", indent, "%s", command);
}

/* ---- cause ------------------------------------------------------------------------------------------------------------------- */

void fb_why_cause(fb_lines *lines, const fb_report *report)
{
    fb_cause_words words = fb_cause_words_of(report);
    if (strcmp(words.name, "undecidable") == 0) fb_lines_add(lines, "Cause", FB_WHY_NAMED, "%s", words.explanation);
    else {
        fb_lines_add(lines, "Cause", FB_WHY_NAMED, "%s%s: %s", words.name, words.certain ? "" : " (fits best, not proven)",
                     words.explanation);
    }
    if (words.witness[0]) fb_lines_add(lines, "Witness", FB_WHY_NAMED, "%s", words.witness);
    if (words.fix[0]) fb_lines_add(lines, "Fix", FB_WHY_NAMED, "%s", words.fix);
    if (words.verify[0]) fb_lines_add(lines, "Check", FB_WHY_NAMED, "%s", words.verify);
}
