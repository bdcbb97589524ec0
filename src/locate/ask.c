/* One replay: asked for, listened to, and its outcome agreed on by all ranks. */
#include "locate/locate_inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

void fb_locate_request(fb_replay_request *request, int32_t purpose)
{
    memset(request, 0, sizeof *request);
    request->size = sizeof *request;
    request->purpose = purpose;
    request->as_rank = -1;
}

void fb_locate_want_nothing(fb_locate *l, fb_tape *tape)
{
    memset(l->wanted, 0, l->row.tensors);
    tape->wanted = l->wanted;
    tape->wanted_count = 0;
}

void fb_locate_want(fb_locate *l, fb_tape *tape, uint32_t tensor, uint8_t want)
{
    tape->wanted_count += l->wanted[tensor] == 0;
    l->wanted[tensor] |= want;
}

void fb_locate_differ(fb_locate *l, const char *sentence)
{
    for (uint32_t i = 0; i < l->difference_count; i++) {
        if (strcmp(l->differences[i], sentence) == 0) return;
    }
    if (l->difference_count == FB_DIFFERENCES_MAX) return;
    snprintf(l->differences[l->difference_count++], sizeof l->differences[0], "%s", sentence);
}

/* The first few sentences; what comes after them rarely says more. */
void fb_locate_note(fb_locate *l, const char *format, ...)
{
    size_t used = strlen(l->notes);
    va_list arguments;
    if (used + 2 >= sizeof l->notes) return;
    if (used) used += (size_t)snprintf(l->notes + used, sizeof l->notes - used, "; ");
    va_start(arguments, format);
    vsnprintf(l->notes + used, sizeof l->notes - used, format, arguments);
    va_end(arguments);
}

static int32_t how_it_went(fb_locate *l, const fb_tape *tape, const fb_replay_request *request, fb_status status,
                           const fb_error *why)
{
    char sentence[256];
    if (status == FB_E_UNSUPPORTED) return FB_PLAYED_NOT_SUPPORTED;
    if (status != FB_OK || tape->broken) {
        fb_locate_note(l, "replay %u could not be looked at: %.160s", request->number,
                       why->message[0] ? why->message : fb_status_name(status != FB_OK ? status : tape->broken));
        return FB_PLAYED_FAILED;
    }
    if (tape->strayed) {
        if (request->purpose == FB_REPLAY_AGAIN) {
            l->unfaithful = 1;
            fb_locate_differ(l, tape->differs);
        }
        fb_locate_note(l, "replay %u could not be looked at: %.160s", request->number, tape->differs);
        return FB_PLAYED_STRAYED;
    }
    if (tape->changed && request->purpose == FB_REPLAY_AGAIN) {
        l->unfaithful = 1;
        snprintf(sentence, sizeof sentence, "%s did not hold the same bytes in every replay", tape->changed_name);
        fb_locate_differ(l, sentence);
    }
    return FB_PLAYED;
}

fb_status fb_locate_play(fb_locate *l, fb_tape *tape, fb_replay_request *request, int32_t *played, fb_error *err)
{
    fb_error why;
    fb_status status;
    fb_error_clear(&why);
    request->number = ++l->replays;
    status = l->config->replay(l->config->ctx, tape, request, &why);
    if (status == FB_OK) fb_tape_end(tape);
    if (status == FB_E_UNSUPPORTED && request->purpose == FB_REPLAY_AGAIN)
        (void)snprintf(l->refusal, sizeof l->refusal, "%.*s", (int)sizeof l->refusal - 1, why.message);
    *played = how_it_went(l, tape, request, status, &why);
    return fb_ranks_max(&l->ranks, played, 1, err);
}

int fb_locate_counts(const fb_locate *l, uint32_t tensor)
{
    return l->ranks.rank == l->config->finding_rank || l->far[tensor];
}

void fb_locate_saw(fb_locate *l, uint32_t tensor, int32_t seen)
{
    uint8_t *known = &l->seen[tensor];
    if (!fb_locate_counts(l, tensor)) return;
    if (seen == FB_SEEN_UNTESTABLE) {
        if (*known == FB_SEEN_NOT) *known = FB_SEEN_UNTESTABLE;
        return;
    }
    if (*known != FB_SEEN_NOT && *known != FB_SEEN_UNTESTABLE && *known != seen) l->contradicted = 1;
    else *known = (uint8_t)seen;
}

int32_t fb_locate_of_finding(const fb_locate *l, int32_t seen)
{
    int32_t kind = l->config->finding_kind;
    int mask = l->finding != FB_FLOW_NONE && (l->row.flow_flags[l->finding] & FB_FLOW_MASK);
    if (seen != FB_SEEN_NEG_INF || !mask) return seen;
    if (kind == FB_KIND_NAN || kind == FB_KIND_POS_INF) return FB_SEEN_FINITE;
    /* Nobody says what was found: the -Inf may be it, or be meant, and a look that cannot tell is no look. */
    return kind == FB_KIND_NONE ? FB_SEEN_UNTESTABLE : seen;
}

/* The finding is one rank's: the same tensor may be bad on others for reasons of their own. */
fb_status fb_locate_count_finding(fb_locate *l, int32_t seen, fb_error *err)
{
    int32_t of_rank = l->ranks.rank == l->config->finding_rank ? fb_locate_of_finding(l, seen) : FB_SEEN_NOT;
    fb_status status = fb_ranks_max(&l->ranks, &of_rank, 1, err);
    if (status != FB_OK || of_rank == FB_SEEN_UNTESTABLE || of_rank == FB_SEEN_NOT) return status;
    l->tried++;
    l->reproduced += of_rank != FB_SEEN_FINITE;
    return FB_OK;
}
