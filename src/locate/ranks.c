#include "locate/ranks.h"

#include <string.h>

#include "base/status.h"

fb_status fb_ranks_max(const fb_ranks *ranks, int32_t *values, size_t count, fb_error *err)
{
    if (ranks->world == 1 || count == 0) return FB_OK;
    return ranks->max(ranks->ctx, values, count, err);
}

fb_status fb_ranks_agree(const fb_ranks *ranks, fb_status mine, fb_error *err)
{
    int32_t worst = -mine;
    fb_error ignored;
    /* The sentence of a failure of mine is in err already and stays there. */
    fb_status status = fb_ranks_max(ranks, &worst, 1, mine == FB_OK ? err : &ignored);
    if (mine != FB_OK) return mine;
    if (status != FB_OK) return status;
    if (worst == 0) return FB_OK;
    return fb_fail(err, -worst, "locate: another rank failed with %s; its own message says why", fb_status_name(-worst));
}

fb_status fb_ranks_any(const fb_ranks *ranks, int32_t *yes, fb_error *err)
{
    *yes = *yes != 0;
    return fb_ranks_max(ranks, yes, 1, err);
}

fb_status fb_ranks_lowest(const fb_ranks *ranks, int mine, int32_t *lowest, fb_error *err)
{
    int32_t best = mine ? INT32_MAX - ranks->rank : -1;
    fb_status status = fb_ranks_max(ranks, &best, 1, err);
    *lowest = best < 0 ? -1 : INT32_MAX - best;
    return status;
}

/* The largest of a piece and of its complement: they belong together only where all pieces are the same. */
fb_status fb_ranks_same(const fb_ranks *ranks, uint64_t number, int32_t *same, fb_error *err)
{
    int32_t pieces[8];
    fb_status status;
    for (int i = 0; i < 4; i++) {
        pieces[i] = (int32_t)(number >> 16 * i & 0xffff);
        pieces[4 + i] = 0xffff - pieces[i];
    }
    status = fb_ranks_max(ranks, pieces, 8, err);
    *same = 1;
    for (int i = 0; i < 4; i++) *same &= pieces[i] + pieces[4 + i] == 0xffff;
    return status;
}

fb_status fb_ranks_from(const fb_ranks *ranks, int32_t from, int32_t *values, size_t count, fb_error *err)
{
    for (size_t i = 0; i < count && ranks->rank != from; i++) values[i] = INT32_MIN;
    return fb_ranks_max(ranks, values, count, err);
}

fb_status fb_ranks_text_from(const fb_ranks *ranks, int32_t from, char *text, size_t room, fb_error *err)
{
    int32_t letters[1024];
    fb_status status;
    if (room > 1024) room = 1024;
    for (size_t i = 0; i < room; i++) letters[i] = ranks->rank == from ? (unsigned char)text[i] : 0;
    status = fb_ranks_max(ranks, letters, room, err);
    for (size_t i = 0; i < room && status == FB_OK; i++) text[i] = (char)letters[i];
    if (room) text[room - 1] = '\0';
    return status;
}
