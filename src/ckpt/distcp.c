/*
 * One file of a torch.distributed.checkpoint folder: archives of torch.save, or safetensors files, one after the other, each of
 * them a chunk of a tensor or an object. Nothing in the file says where one ends: that is in the table of the folder (dcp.h), which
 * comes as the range's setup. Each slice is read by the reader of its own format, on its own range; here it is compared with the
 * table and gets the name and the place that the table gives it.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/dcp.h"
#include "ckpt/pool.h"
#include "ckpt/torch_facts.h"

/* A hundred thousand small slices are read a dozen times each: through this, most of that asks the system nothing. */
enum { AHEAD_BYTES = 65536 };

typedef struct state {
    const fb_dcp_file *table;
    fb_ckpt_range range;
    fb_os os;             /* the file's, with a pread that knows what lies in `ahead` */
    fb_ckpt_file through; /* the same file, as the readers of slices see it */
    uint8_t *ahead, *view;
    uint64_t ahead_at, ahead_bytes;
    const fb_ckpt_options *options;
    uint64_t next; /* slice that is to be opened next */
    /* The slice in work. */
    const fb_dcp_slice *slice;
    const fb_ckpt_reader *reader;
    void *sub;
    uint64_t tensors_met;
    /* What was handed out last. */
    fb_ckpt_tensor one;
    fb_ckpt_tensor *many;
    uint64_t many_room;
    fb_pool names;
    /* What lives until the end. */
    fb_pool pool;
    fb_ckpt_remark *remarks;
    uint64_t remark_count, remark_room;
    double step_min, step_max;
    int32_t has_steps;
} state;

static fb_status no_memory(const state *s, fb_error *err)
{
    return fb_fail(err, FB_E_NOMEM, "read distcp %s: no memory", s->range.file->path);
}

/* ---- remarks ---------------------------------------------------------------------------------------------------------------- */

static fb_status add_remark(state *s, const fb_ckpt_remark *remark, const char *name, fb_error *err)
{
    fb_ckpt_remark *r;
    if (s->remark_count == s->remark_room) {
        uint64_t room = s->remark_room ? s->remark_room * 2 : 16;
        fb_ckpt_remark *grown = fb_realloc(s->remarks, (size_t)room * sizeof *grown);
        if (!grown) return no_memory(s, err);
        s->remarks = grown;
        s->remark_room = room;
    }
    r = &s->remarks[s->remark_count];
    *r = *remark;
    r->name = fb_pool_text(&s->pool, name, strlen(name));
    r->text = remark->text ? fb_pool_text(&s->pool, remark->text, strlen(remark->text)) : NULL;
    if (!r->name || (remark->text && !r->text)) return no_memory(s, err);
    s->remark_count++;
    return FB_OK;
}

static fb_status remark(state *s, int32_t kind, const char *name, const char *text, fb_error *err)
{
    fb_ckpt_remark r;
    memset(&r, 0, sizeof r);
    r.kind = kind;
    r.text = text;
    return add_remark(s, &r, name, err);
}

/* A name inside an object, behind the name of the object. NULL: no memory. */
static const char *inner_name(fb_pool *pool, const char *outer, const char *inner)
{
    size_t head = strlen(outer), tail = strlen(inner);
    char *made;
    if (tail == 0 || strcmp(inner, "(numbers)") == 0 || strcmp(inner, "(root)") == 0) return outer;
    made = fb_pool_take(pool, head + 1 + tail + 1);
    if (!made) return NULL;
    memcpy(made, outer, head + 1);
    made[head] = '.';
    memcpy(made + head + 1, inner, tail + 1);
    return made;
}

/* Imports repeat in every slice: one remark for each is enough. */
static int known(const state *s, int32_t kind, const char *name)
{
    for (uint64_t i = 0; i < s->remark_count && i < 64; i++) {
        if (s->remarks[i].kind == kind && strcmp(s->remarks[i].name, name) == 0) return 1;
    }
    return 0;
}

static fb_status keep_remarks(state *s, fb_error *err)
{
    fb_ckpt_remark r;
    memset(&r, 0, sizeof r);
    for (uint64_t i = 0; s->reader->remark && s->reader->remark(s->sub, i, &r); i++) {
        fb_status status;
        const char *name = r.name ? r.name : "";
        if (r.kind == FB_CKPT_REMARK_SECURITY) {
            if (known(s, r.kind, name)) continue;
        } else if (r.kind != FB_CKPT_REMARK_FACT && (name = inner_name(&s->pool, s->slice->name, name)) == NULL) {
            return no_memory(s, err);
        }
        if ((status = add_remark(s, &r, name, err)) != FB_OK) return status;
        memset(&r, 0, sizeof r);
    }
    return FB_OK;
}

/* ---- slices ----------------------------------------------------------------------------------------------------------------- */

/* Every slice lies in the file; what lies between them belongs to nobody, and is told. */
static fb_status check_slices(state *s, fb_error *err)
{
    uint64_t end = 0, stray = 0, first_stray = 0;
    char text[160];
    for (uint64_t i = 0; i <= s->table->count; i++) {
        const fb_dcp_slice *slice = i < s->table->count ? &s->table->slices[i] : NULL;
        uint64_t begin = slice ? slice->offset_bytes : s->range.bytes;
        if (slice && (slice->offset_bytes > s->range.bytes || slice->bytes > s->range.bytes - slice->offset_bytes)) {
            return fb_fail_at(err, s->range.bytes,
                              "read distcp %s: %.200s lies in bytes %llu to %llu by .metadata, the file ends after %llu",
                              s->range.file->path, slice->name, (unsigned long long)slice->offset_bytes,
                              (unsigned long long)slice->offset_bytes + slice->bytes, (unsigned long long)s->range.bytes);
        }
        if (begin > end) {
            if (stray == 0) first_stray = end;
            stray += begin - end;
        }
        if (slice) end = slice->offset_bytes + slice->bytes;
    }
    if (stray == 0) return FB_OK;
    (void)snprintf(text, sizeof text, "%llu bytes, the first at offset %llu, belong to nothing that .metadata lists",
                   (unsigned long long)stray, (unsigned long long)first_stray);
    return remark(s, FB_CKPT_REMARK_NOTE, "", text, err);
}

/* ---- reading ahead ---------------------------------------------------------------------------------------------------------- */

static int64_t ahead_pread(void *ctx, int fd, void *out, size_t bytes, uint64_t offset)
{
    const state *s = ctx;
    uint64_t skip = offset - s->ahead_at;
    if (offset >= s->ahead_at && skip <= s->ahead_bytes && bytes <= s->ahead_bytes - skip) {
        if (bytes) memcpy(out, s->ahead + skip, bytes);
        return (int64_t)bytes;
    }
    return s->range.file->os->pread(s->range.file->os->ctx, fd, out, bytes, offset);
}

/* A slice that fits is in the buffer afterwards, together with those that follow it. */
static fb_status read_ahead(state *s, uint64_t offset, uint64_t bytes, fb_error *err)
{
    uint64_t left = s->range.offset_bytes + s->range.bytes - offset;
    uint64_t skip = offset - s->ahead_at;
    size_t load = left < AHEAD_BYTES ? (size_t)left : AHEAD_BYTES;
    fb_status status;
    if (bytes > AHEAD_BYTES) return FB_OK;
    if (offset >= s->ahead_at && skip <= s->ahead_bytes && bytes <= s->ahead_bytes - skip) return FB_OK;
    s->ahead_bytes = 0;
    if ((status = fb_ckpt_file_read(s->range.file, offset, s->ahead, load, err)) != FB_OK) return status;
    s->ahead_at = offset;
    s->ahead_bytes = load;
    return FB_OK;
}

static int look_through(state *s)
{
    s->ahead = fb_calloc(AHEAD_BYTES, 1);
    s->view = fb_calloc(AHEAD_BYTES, 1);
    if (!s->ahead || !s->view) return 0;
    s->os = *s->range.file->os;
    s->os.ctx = s;
    s->os.pread = ahead_pread;
    s->through.os = &s->os;
    s->through.path = s->range.file->path;
    s->through.fd = s->range.file->fd;
    s->through.info = s->range.file->info;
    s->through.window = s->view;
    s->through.window_room = AHEAD_BYTES;
    fb_ckpt_file_no_digest(&s->through); /* the digest is made where the bytes are scanned */
    return 1;
}

/* ---- opening and closing ---------------------------------------------------------------------------------------------------- */

static void close_slice(state *s)
{
    if (s->sub) s->reader->close(s->sub);
    s->sub = NULL;
    s->reader = NULL;
}

static fb_status open_slice(state *s, fb_error *err)
{
    uint8_t head[FB_CKPT_HEAD_BYTES];
    const fb_dcp_slice *slice = &s->table->slices[s->next++];
    size_t bytes = slice->bytes < sizeof head ? (size_t)slice->bytes : sizeof head;
    fb_ckpt_range range = {&s->through, s->range.offset_bytes + slice->offset_bytes, slice->bytes, NULL};
    fb_status status;
    s->slice = slice;
    s->tensors_met = 0;
    if (slice->transformed) {
        return remark(s, FB_CKPT_REMARK_UNSCANNED, slice->name, "it is compressed or encrypted (transform_descriptors)", err);
    }
    if ((status = read_ahead(s, range.offset_bytes, slice->bytes, err)) != FB_OK) return status;
    if ((status = fb_ckpt_file_read(range.file, range.offset_bytes, head, bytes, err)) != FB_OK) return status;
    s->reader = fb_ckpt_reader_find(head, bytes, slice->bytes);
    if (!s->reader && slice->is_blob)
        return remark(s, FB_CKPT_REMARK_UNSCANNED, slice->name, "bytes in no format that this build reads", err);
    if (!s->reader) {
        return fb_fail_at(err, range.offset_bytes, "read distcp %s: the bytes of %.200s are no archive of torch.save",
                          s->range.file->path, slice->name);
    }
    status = s->reader->open(&s->sub, &range, s->options, err);
    if (status == FB_E_UNSUPPORTED && slice->is_blob) {
        s->sub = NULL;
        fb_error_clear(err);
        return remark(s, FB_CKPT_REMARK_UNSCANNED, slice->name, "an object in a form that this build does not read", err);
    }
    return status;
}

static fb_status end_slice(state *s, fb_error *err)
{
    fb_status status;
    if (!s->slice->is_blob && s->tensors_met != 1) {
        return fb_fail_at(err, s->range.offset_bytes + s->slice->offset_bytes,
                          "read distcp %s: the archive of %.200s holds %llu tensors, one is due", s->range.file->path,
                          s->slice->name, (unsigned long long)s->tensors_met);
    }
    status = keep_remarks(s, err);
    close_slice(s);
    return status;
}

/* ---- extents ---------------------------------------------------------------------------------------------------------------- */

static fb_status refuse_tensor(const state *s, const fb_ckpt_extent *extent, const char *what, fb_error *err)
{
    return fb_fail_at(err, extent->offset_bytes,
                      "read distcp %s: %.200s has another %s than .metadata says: a file of another save?", s->range.file->path,
                      s->slice->name, what);
}

/* The step of an optimizer: a number that says of which save this file is. The smallest and the largest are kept. */
static fb_status look_at_step(state *s, const fb_ckpt_extent *extent, fb_error *err)
{
    uint8_t raw[4];
    uint32_t bits = 0;
    float value;
    fb_status status;
    if (!s->slice->is_step || extent->encoding != FB_CKPT_STORED || extent->swapped || extent->bytes != sizeof raw) return FB_OK;
    if ((status = fb_ckpt_file_read(&s->through, extent->offset_bytes, raw, sizeof raw, err)) != FB_OK) return status;
    for (unsigned i = 0; i < sizeof raw; i++) bits |= (uint32_t)raw[i] << (8 * i);
    memcpy(&value, &bits, sizeof value);
    if (!(value >= 0 && value <= 16777216.0f)) return FB_OK;
    if (!s->has_steps || (double)value < s->step_min) s->step_min = (double)value;
    if (!s->has_steps || (double)value > s->step_max) s->step_max = (double)value;
    s->has_steps = 1;
    return FB_OK;
}

static fb_status tell_steps(state *s, fb_error *err)
{
    fb_ckpt_remark r;
    fb_status status;
    memset(&r, 0, sizeof r);
    if (!s->has_steps) return FB_OK;
    s->has_steps = 0;
    r.kind = FB_CKPT_REMARK_FACT;
    r.value = s->step_max;
    if ((status = add_remark(s, &r, FB_CKPT_FACT_STEP, err)) != FB_OK || s->step_min == s->step_max) return status;
    r.value = s->step_min;
    return add_remark(s, &r, FB_CKPT_FACT_STEP, err);
}

/* The one tensor of a slice must be the chunk that the table says, and takes its name and place. */
static fb_status take_chunk(state *s, fb_ckpt_extent *extent, fb_error *err)
{
    const fb_dcp_slice *slice = s->slice;
    if (extent->tensor_count == 0) return FB_OK;
    s->tensors_met += extent->tensor_count;
    if (s->tensors_met != 1) return FB_OK; /* refused at the end of the slice, with the number */
    s->one = extent->tensors[0];
    if (s->one.dtype != slice->dtype && slice->dtype != 0) return refuse_tensor(s, extent, "number format", err);
    if (s->one.ndim != slice->ndim) return refuse_tensor(s, extent, "number of dimensions", err);
    for (int32_t i = 0; i < slice->ndim; i++) {
        if (s->one.shape[i] != slice->shape[i]) return refuse_tensor(s, extent, "shape", err);
    }
    s->one.name = slice->name;
    if (slice->group) {
        s->one.whole_shape = slice->whole_shape;
        s->one.whole_start = slice->start;
    }
    extent->tensors = &s->one;
    extent->group = slice->group;
    return look_at_step(s, extent, err);
}

/*
 * What lies in an object keeps its own names, behind that of the object; memory outlives the slice. The keys above a number are in
 * the name of the object alone, and say whether an infinity may be healthy.
 */
static fb_status take_blob(state *s, fb_ckpt_extent *extent, fb_error *err)
{
    if (extent->tensor_count > s->many_room) {
        fb_ckpt_tensor *grown = fb_realloc(s->many, (size_t)extent->tensor_count * sizeof *grown);
        if (!grown) return no_memory(s, err);
        s->many = grown;
        s->many_room = extent->tensor_count;
    }
    for (uint64_t i = 0; i < extent->tensor_count; i++) {
        s->many[i] = extent->tensors[i];
        s->many[i].name = inner_name(&s->names, s->slice->name, extent->tensors[i].name);
        if (!s->many[i].name) return no_memory(s, err);
        if (fb_torch_path_is_strict(s->slice->name)) s->many[i].legal_inf = 0;
    }
    extent->tensors = s->many;
    extent->group = 0;
    if (extent->encoding == FB_CKPT_MEMORY && extent->bytes > 0) {
        uint8_t *kept = fb_pool_take(&s->pool, (size_t)extent->bytes);
        if (!kept) return no_memory(s, err);
        memcpy(kept, extent->memory, (size_t)extent->bytes);
        extent->memory = kept;
    }
    return FB_OK;
}

static fb_status distcp_next(void *state_, fb_ckpt_extent *extent, fb_error *err)
{
    state *s = state_;
    fb_status status;
    fb_pool_release(&s->names);
    for (;;) {
        if (!s->sub) {
            if (s->next == s->table->count) return (status = tell_steps(s, err)) != FB_OK ? status : FB_E_NOTFOUND;
            if ((status = open_slice(s, err)) != FB_OK) return status;
            continue;
        }
        memset(extent, 0, sizeof *extent);
        status = s->reader->next(s->sub, extent, err);
        if (status == FB_OK) return s->slice->is_blob ? take_blob(s, extent, err) : take_chunk(s, extent, err);
        if (status != FB_E_NOTFOUND || (status = end_slice(s, err)) != FB_OK) return status;
    }
}

/* ---- the reader ------------------------------------------------------------------------------------------------------------- */

static void distcp_close(void *state_)
{
    state *s = state_;
    if (!s) return;
    close_slice(s);
    fb_free(s->ahead);
    fb_free(s->view);
    fb_free(s->many);
    fb_free(s->remarks);
    fb_pool_release(&s->names);
    fb_pool_release(&s->pool);
    fb_free(s);
}

static fb_status distcp_open(void **out, const fb_ckpt_range *range, const fb_ckpt_options *options, fb_error *err)
{
    state *s;
    fb_status status;
    *out = NULL;
    if (!range->setup) {
        return fb_fail(err, FB_E_UNSUPPORTED, "read distcp %s: it can be read only together with the .metadata of its folder",
                       range->file->path);
    }
    s = fb_calloc(1, sizeof *s);
    if (!s) return fb_fail(err, FB_E_NOMEM, "read distcp %s: no memory", range->file->path);
    s->table = range->setup;
    s->range = *range;
    s->options = options;
    status = look_through(s) ? check_slices(s, err) : no_memory(s, err);
    if (status != FB_OK) {
        distcp_close(s);
        return status;
    }
    *out = s;
    return FB_OK;
}

static int distcp_remark(void *state_, uint64_t i, fb_ckpt_remark *remark_)
{
    const state *s = state_;
    if (i >= s->remark_count) return 0;
    *remark_ = s->remarks[i];
    return 1;
}

const fb_ckpt_reader fb_ckpt_distcp = {
    .format = "distcp",
    .detect = NULL,
    .open = distcp_open,
    .next = distcp_next,
    .remark = distcp_remark,
    .close = distcp_close,
};
