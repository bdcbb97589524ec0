/*
 * Samples that are left out of training: a list of ids from the environment, read once and strictly. A list that is read wrongly
 * trains on the sample that it was to keep away, so whatever is not a list of ids is an error of the open.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/status.h"
#include "guard/run.h"

enum { IDS_MAX = 1000000, FILE_BYTES_MAX = 32 << 20, TOLD_BYTES = 900 };

static int is_gap(char c)
{
    return c == ',' || c == '\n' || c == '\r' || c == ' ' || c == '\t';
}

/* One decimal of 64 bits at *at, which is moved behind it. 0: there is none. */
static int take_id(const char **at, const char *end, int64_t *id)
{
    const char *c = *at;
    int negative = c < end && *c == '-', digits = 0;
    uint64_t value = 0, limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    for (c += negative; c < end && *c >= '0' && *c <= '9'; c++, digits++) {
        uint64_t digit = (uint64_t)(*c - '0');
        if (value > (limit - digit) / 10) return 0;
        value = value * 10 + digit;
    }
    if (digits == 0 || (c < end && !is_gap(*c))) return 0;
    *at = c;
    *id = negative ? (int64_t)(0 - value) : (int64_t)value;
    return 1;
}

static fb_status add_id(struct fb_run *run, size_t *room, int64_t id, fb_error *err)
{
    if (run->left_out_count == IDS_MAX) {
        return fb_fail(err, FB_E_USAGE, "open run: FIRSTBAD_LEAVE_OUT names more than %d samples", (int)IDS_MAX);
    }
    if (run->left_out_count == *room) {
        size_t wanted = *room ? *room * 2 : 64;
        int64_t *grown = fb_realloc(run->left_out, wanted * sizeof *grown);
        if (!grown) return fb_fail(err, FB_E_NOMEM, "open run: no memory for %zu samples that are left out", wanted);
        run->left_out = grown;
        *room = wanted;
    }
    run->left_out[run->left_out_count++] = id;
    return FB_OK;
}

static fb_status parse(struct fb_run *run, const char *text, size_t bytes, fb_error *err)
{
    const char *at = text, *end = text + bytes;
    size_t room = 0;
    while (at < end) {
        int64_t id;
        fb_status status;
        if (is_gap(*at)) {
            at++;
            continue;
        }
        if (!take_id(&at, end, &id)) {
            return fb_fail(err, FB_E_USAGE,
                           "open run: FIRSTBAD_LEAVE_OUT must be ids of samples, or @FILE with such ids; found '%.*s'",
                           end - at < 40 ? (int)(end - at) : 40, at);
        }
        if ((status = add_id(run, &room, id, err)) != FB_OK) return status;
    }
    return FB_OK;
}

/* A file without an id was cut, or never written: training on would train on what it was to name. */
static fb_status parse_file(struct fb_run *run, const char *path, fb_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    fb_error why;
    fb_status status = fb_os_read_file(run->os, path, FILE_BYTES_MAX, &text, &bytes, &why);
    if (status != FB_OK)
        return fb_fail(err, status, "open run: FIRSTBAD_LEAVE_OUT names the file '%.200s' of samples: %.600s", path, why.message);
    status = parse(run, text, bytes, err);
    if (status == FB_OK && run->left_out_count == 0)
        status = fb_fail(err, FB_E_USAGE, "open run: FIRSTBAD_LEAVE_OUT names the file '%.200s', and no sample stands in it", path);
    fb_free(text);
    return status;
}

static int rising(const void *a, const void *b)
{
    int64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

/* Each id once, in order, whatever the order in which they were written. */
static void settle(struct fb_run *run)
{
    size_t n = 0;
    qsort(run->left_out, run->left_out_count, sizeof *run->left_out, rising);
    for (size_t i = 0; i < run->left_out_count; i++) {
        if (n == 0 || run->left_out[n - 1] != run->left_out[i]) run->left_out[n++] = run->left_out[i];
    }
    run->left_out_count = n;
    run->left_out_hash = fb_hash64(run->left_out, n * sizeof *run->left_out, n);
}

fb_status fb_leave_out_read(struct fb_run *run, const char *text, fb_error *err)
{
    fb_status status;
    if (!text) return FB_OK;
    status = text[0] == '@' ? parse_file(run, text + 1, err) : parse(run, text, strlen(text), err);
    if (status == FB_OK && run->left_out_count) settle(run);
    return status;
}

void fb_leave_out_record(struct fb_run *run)
{
    char text[TOLD_BYTES + 64];
    size_t used = 0, i = 0;
    if (run->left_out_count == 0) return;
    for (; i < run->left_out_count && used < TOLD_BYTES; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRId64, i ? ", " : "", run->left_out[i]);
    }
    if (i < run->left_out_count) (void)snprintf(text + used, sizeof text - used, " and %zu more", run->left_out_count - i);
    fb_record_event(run, FB_EVENT_LEFT_OUT, (int64_t)run->left_out_count, run->left_out[0], text, 1);
}

int fb_run_left_out(const struct fb_run *run, int64_t sample_id)
{
    size_t low = 0, high = run ? run->left_out_count : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (run->left_out[middle] == sample_id) return 1;
        if (run->left_out[middle] < sample_id) low = middle + 1;
        else high = middle;
    }
    return 0;
}
