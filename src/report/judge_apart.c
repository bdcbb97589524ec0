/*
 * Ranks that do not agree on what they vote on: on the step, on its loss scale, or on the policy. Each ledger says what its own
 * rank had; whoever had another value than most is named, and where there is no most, both values are told and nobody is named.
 */
#include <stdio.h>
#include <string.h>

#include "policy/gate.h"
#include "report/inside.h"

enum { NAMED_MAX = 8, VALUE_ROOM = 96 };

/* What this rank had, as text that is equal where the values are; 0: no record says. */
typedef int (*value_fn)(const fb_report *report, const fb_report_rank *rank, char out[VALUE_ROOM]);

/* That a rank was halted in is the last step that it came to; one that goes on under `observe` tells nothing. */
static int step_of(const fb_report *report, const fb_report_rank *rank, char out[VALUE_ROOM])
{
    (void)report;
    (void)snprintf(out, VALUE_ROOM, "%lld", (long long)rank->parted_step);
    return rank->parted_step >= 0;
}

static int scale_of(const fb_report *report, const fb_report_rank *rank, char out[VALUE_ROOM])
{
    (void)report;
    (void)snprintf(out, VALUE_ROOM, "%.17g", rank->loss_scale);
    return rank->has_step;
}

static int policy_of(const fb_report *report, const fb_report_rank *rank, char out[VALUE_ROOM])
{
    (void)report;
    (void)snprintf(out, VALUE_ROOM, "%s", rank->policy);
    return rank->policy[0] != '\0';
}

typedef struct tally {
    uint64_t known, most_count; /* ranks with a value; with the most frequent one, where more than half of them have it */
    int differ;                 /* 1: there are two different ones */
    int others_equal;           /* 1: those that have not the most frequent one all have `other` */
    char most[VALUE_ROOM], first[VALUE_ROOM], other[VALUE_ROOM];
    int32_t first_rank, other_rank;
} tally;

/* Found by cancelling pairs of different ones. */
static void candidate(const fb_report *report, value_fn value, tally *all)
{
    uint64_t weight = 0;
    char text[VALUE_ROOM];
    for (uint64_t i = 0; i < report->rank_count; i++) {
        if (!value(report, &report->ranks[i], text)) continue;
        if (all->known++ == 0) {
            memcpy(all->first, text, sizeof text);
            all->first_rank = report->ranks[i].rank;
        } else if (!all->differ && strcmp(text, all->first) != 0) {
            all->differ = 1;
            memcpy(all->other, text, sizeof text);
            all->other_rank = report->ranks[i].rank;
        }
        if (weight == 0) memcpy(all->most, text, sizeof text);
        weight = strcmp(text, all->most) == 0 ? weight + 1 : weight - 1;
    }
}

static void count(const fb_report *report, value_fn value, tally *all)
{
    char text[VALUE_ROOM], another[VALUE_ROOM] = "";
    all->others_equal = 1;
    for (uint64_t i = 0; i < report->rank_count; i++) {
        if (!value(report, &report->ranks[i], text)) continue;
        if (strcmp(text, all->most) == 0) {
            all->most_count++;
            continue;
        }
        if (another[0] && strcmp(text, another) != 0) all->others_equal = 0;
        memcpy(another, text, sizeof another);
    }
    if (all->most_count * 2 <= all->known) all->most_count = 0;
    else memcpy(all->other, another, sizeof another);
}

static void name_others(fb_report *report, value_fn value, const char *had, const char *again, const tally *all)
{
    char list[160] = "", text[VALUE_ROOM];
    size_t used = 0;
    uint64_t others = 0;
    for (uint64_t i = 0; i < report->rank_count; i++) {
        if (!value(report, &report->ranks[i], text) || strcmp(text, all->most) == 0) continue;
        if (others++ < NAMED_MAX && used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", others > 1 ? ", " : "", report->ranks[i].rank);
    }
    if (!all->others_equal) {
        fb_sentence(report->drift, "rank%s %s%s differ, and the other %llu %s %s", others == 1 ? "" : "s", list,
                    others > NAMED_MAX ? ", ..." : "", (unsigned long long)all->most_count, had, all->most);
        return;
    }
    fb_sentence(report->drift, "rank%s %s%s %s %s, the other %llu %s %s", others == 1 ? "" : "s", list,
                others > NAMED_MAX ? ", ..." : "", had, all->other, (unsigned long long)all->most_count, again, all->most);
}

/* had: "used the loss scale"; again: "used", said of the other value. Returns 1 when the ranks differ in this. */
static int told_apart(fb_report *report, value_fn value, const char *had, const char *again, int32_t parted)
{
    tally all;
    memset(&all, 0, sizeof all);
    candidate(report, value, &all);
    if (!all.differ) return 0;
    count(report, value, &all);
    report->parted = parted;
    /* Most of those that were read is not most of the ranks, unless all of them were. */
    if (all.most_count && all.known > 2 && report->world > 0 && all.known == (uint64_t)report->world) {
        name_others(report, value, had, again, &all);
        return 1;
    }
    fb_sentence(report->drift, "rank %d %s %s and rank %d %s %s%s; it cannot be told which is right", all.first_rank, had,
                all.first, all.other_rank, again, all.other,
                all.known > 2 ? ", and there is no majority that all records show" : "");
    return 1;
}

void fb_judge_apart(fb_report *report)
{
    int apart = 0;
    for (uint64_t i = 0; i < report->rank_count; i++)
        apart |= report->ranks[i].has_verdict && report->ranks[i].reason == FB_REASON_DISAGREE;
    if (!apart) return;
    if (told_apart(report, step_of, "came to step", "to step", FB_PARTED_STEP)) return;
    if (told_apart(report, scale_of, "used the loss scale", "used", FB_PARTED_SCALE)) return;
    (void)told_apart(report, policy_of, "had the policy", "had", FB_PARTED_POLICY);
}
