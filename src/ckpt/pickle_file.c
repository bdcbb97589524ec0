/*
 * A file that is one pickle and nothing else: arguments, random states, a dictionary of numbers and NumPy arrays. What is in it is
 * understood as the object of torch.save is; it has no place for storages, so a reference to one leads nowhere.
 */
#include <string.h>

#include "base/alloc.h"
#include "ckpt/torch_object.h"

enum { PROTOCOL_MIN = 2, PROTOCOL_MAX = 5 };
static const uint64_t PICKLE_BYTES_MAX = 1u << 30;

typedef struct state {
    uint8_t *bytes;
    fb_pickle *pickle;
    fb_torch_object *object;
    uint64_t next;
} state;

/* Two bytes are a weak sign, so the opcode after them has to be one that begins an object. */
static int pickle_detect(const uint8_t *head, size_t head_bytes, uint64_t file_bytes)
{
    static const char first[] = "\x95(}])\x8f"
                                "NKMJ\x8a\x8bGXUTCB\x8c\x8d\x8e\x96\x88\x89"
                                "c";
    (void)file_bytes;
    return head_bytes >= 3 && head[0] == 0x80 && head[1] >= PROTOCOL_MIN && head[1] <= PROTOCOL_MAX &&
           memchr(first, head[2], sizeof first - 1) != NULL;
}

static void pickle_close(void *state_)
{
    state *s = state_;
    if (!s) return;
    fb_torch_object_close(s->object);
    fb_pickle_free(s->pickle);
    fb_free(s->bytes);
    fb_free(s);
}

static fb_status check_whole(const state *s, const fb_ckpt_range *range, uint64_t used, fb_error *err)
{
    const char *path = range->file->path;
    if (used != range->bytes) {
        return fb_fail_at(err, range->offset_bytes + used, "read pickle %s: %llu bytes follow its end", path,
                          (unsigned long long)(range->bytes - used));
    }
    if (fb_torch_storages(s->object) > 0) {
        return fb_fail_at(err, range->offset_bytes,
                          "read pickle %s: it refers to %llu storages of torch, which are not in this file", path,
                          (unsigned long long)fb_torch_storages(s->object));
    }
    return FB_OK;
}

static fb_status load(state *s, const fb_ckpt_range *range, const fb_ckpt_options *options, fb_error *err)
{
    const char *path = range->file->path;
    uint64_t most = options->header_bytes_max ? options->header_bytes_max : PICKLE_BYTES_MAX, used = 0;
    fb_pickle_limits limits;
    fb_status status;
    memset(&limits, 0, sizeof limits);
    limits.bytes_max = most;
    if (range->bytes > most) {
        return fb_fail(err, FB_E_LIMIT, "read pickle %s: %llu bytes, at most %llu are taken", path,
                       (unsigned long long)range->bytes, (unsigned long long)most);
    }
    s->bytes = fb_calloc((size_t)range->bytes + 1, 1);
    if (!s->bytes)
        return fb_fail(err, FB_E_NOMEM, "read pickle %s: no memory for %llu bytes", path, (unsigned long long)range->bytes);
    status = fb_ckpt_file_read(range->file, range->offset_bytes, s->bytes, (size_t)range->bytes, err);
    if (status == FB_OK)
        status = fb_pickle_parse(&s->pickle, s->bytes, range->bytes, range->offset_bytes, path, &limits, &used, err);
    if (status == FB_OK) status = fb_torch_object_open(&s->object, s->pickle, path, err);
    return status == FB_OK ? check_whole(s, range, used, err) : status;
}

static fb_status pickle_open(void **out, const fb_ckpt_range *range, const fb_ckpt_options *options, fb_error *err)
{
    state *s = fb_calloc(1, sizeof *s);
    fb_status status;
    *out = NULL;
    if (!s) return fb_fail(err, FB_E_NOMEM, "read pickle %s: no memory", range->file->path);
    status = load(s, range, options, err);
    if (status != FB_OK) {
        pickle_close(s);
        return status;
    }
    *out = s;
    return FB_OK;
}

static fb_status pickle_next(void *state_, fb_ckpt_extent *extent, fb_error *err)
{
    state *s = state_;
    (void)err;
    return fb_torch_extent(s->object, s->next, extent) ? (s->next++, FB_OK) : FB_E_NOTFOUND;
}

static int pickle_remark(void *state_, uint64_t i, fb_ckpt_remark *remark)
{
    return fb_torch_remark(((state *)state_)->object, i, remark);
}

const fb_ckpt_reader fb_ckpt_pickle = {
    .format = "pickle",
    .detect = pickle_detect,
    .open = pickle_open,
    .next = pickle_next,
    .remark = pickle_remark,
    .close = pickle_close,
};
