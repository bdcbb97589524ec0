/*
 * Replicas that drifted apart: every number is finite, and the ranks do not hold the same ones. The ledgers have each rank's
 * digest; whoever holds another than most is named, and where there is no most, nobody is.
 */
#include <stdio.h>
#include <string.h>

#include "report/inside.h"

enum { NAMED_MAX = 8 };

static int differs(const fb_report *report, uint64_t i, uint64_t digest)
{
    return report->ranks[i].drifted && report->ranks[i].replica_digest != digest;
}

/* The digest that most of the `count` ranks hold, if any does; found by cancelling pairs of different ones. */
static int majority(const fb_report *report, uint64_t count, uint64_t *digest)
{
    uint64_t weight = 0, held = 0;
    for (uint64_t i = 0; i < report->rank_count; i++) {
        if (!report->ranks[i].drifted) continue;
        if (weight == 0) *digest = report->ranks[i].replica_digest;
        weight = report->ranks[i].replica_digest == *digest ? weight + 1 : weight - 1;
    }
    for (uint64_t i = 0; i < report->rank_count; i++) held += (uint64_t)(report->ranks[i].drifted && !differs(report, i, *digest));
    return held * 2 > count;
}

static void name_others(fb_report *report, uint64_t count, uint64_t digest)
{
    char list[160] = "";
    size_t used = 0;
    uint64_t others = 0;
    for (uint64_t i = 0; i < report->rank_count; i++) {
        if (!differs(report, i, digest)) continue;
        if (others++ < NAMED_MAX && used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", others > 1 ? ", " : "", report->ranks[i].rank);
    }
    fb_sentence(report->drift, "the parameters of rank%s %s%s differ from those of the other %llu, which are equal",
                others == 1 ? "" : "s", list, others > NAMED_MAX ? ", ..." : "", (unsigned long long)(count - others));
}

void fb_judge_replicas(fb_report *report)
{
    uint64_t count = 0, digest = 0;
    for (uint64_t i = 0; i < report->rank_count; i++) count += (uint64_t)report->ranks[i].drifted;
    if (count == 0) return;
    /* Most of those that were read is not most of the ranks, unless all of them were. */
    if (count > 2 && report->world > 0 && count == (uint64_t)report->world && majority(report, count, &digest))
        name_others(report, count, digest);
    else fb_sentence(report->drift, "the parameters are not equal on all ranks, and it cannot be told which rank is wrong");
}
