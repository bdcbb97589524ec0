/*
 * The engine between readers and findings, on extents made by hand: each way in which it can read them, against a slow and simple
 * account of the same bytes, with one thread and many, with small and large buffers, and with every call and request failing.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "ckpt/reading.h"

/* ---- a file in memory ------------------------------------------------------------------------------------------------------- */

typedef struct memory_file {
    const uint8_t *data;
    uint64_t bytes;
    uint64_t fail_at, calls; /* the pread that fails, from 1; 0: none */
    int shrink;              /* ... by giving nothing, as a file that became shorter does */
    int64_t mtime;
    int advised;
} memory_file;

static int64_t m_open(void *ctx, const char *path, int flags, int mode)
{
    (void)ctx;
    (void)path;
    (void)flags;
    (void)mode;
    return 3;
}

static int64_t m_close(void *ctx, int fd)
{
    (void)ctx;
    (void)fd;
    return 0;
}

static int64_t m_fstat(void *ctx, int fd, fb_os_info *info)
{
    memory_file *file = ctx;
    (void)fd;
    memset(info, 0, sizeof *info);
    info->size_bytes = file->bytes;
    info->kind = FB_OS_FILE;
    info->mtime_ns = file->mtime;
    return 0;
}

static int64_t m_stat(void *ctx, const char *path, fb_os_info *info)
{
    (void)path;
    return m_fstat(ctx, 3, info);
}

/* Refused, since a hint that comes to nothing is no fault. */
static int64_t m_advise(void *ctx, int fd)
{
    memory_file *file = ctx;
    (void)fd;
    file->advised++;
    return -EINVAL;
}

static int64_t m_pread(void *ctx, int fd, void *out, size_t bytes, uint64_t offset)
{
    memory_file *file = ctx;
    uint64_t call = __atomic_add_fetch(&file->calls, 1, __ATOMIC_SEQ_CST);
    (void)fd;
    if (file->fail_at && call == file->fail_at) {
        if (!file->shrink) return -EIO;
        return 0;
    }
    if (offset > file->bytes || bytes > file->bytes - offset) abort();
    if (bytes) memcpy(out, file->data + offset, bytes);
    return (int64_t)bytes;
}

/* ---- a reader that hands out what it is told -------------------------------------------------------------------------------- */

typedef struct script {
    const fb_ckpt_extent *extents;
    uint64_t count, next;
    const fb_ckpt_remark *remarks;
    uint64_t remark_count;
} script;

static fb_status s_open(void **state, const fb_ckpt_range *range, const fb_ckpt_options *options, fb_error *err)
{
    script *s = (script *)(uintptr_t)range->setup;
    (void)options;
    (void)err;
    s->next = 0;
    *state = s;
    return FB_OK;
}

static fb_status s_next(void *state, fb_ckpt_extent *extent, fb_error *err)
{
    script *s = state;
    (void)err;
    if (s->next == s->count) return FB_E_NOTFOUND;
    *extent = s->extents[s->next++];
    return FB_OK;
}

static int s_remark(void *state, uint64_t i, fb_ckpt_remark *remark)
{
    const script *s = state;
    if (i >= s->remark_count) return 0;
    *remark = s->remarks[i];
    return 1;
}

static void s_close(void *state)
{
    (void)state;
}

static const fb_ckpt_reader scripted = {"scripted", NULL, s_open, s_next, s_remark, s_close};

/* ---- what came out ---------------------------------------------------------------------------------------------------------- */

enum { SEEN_MAX = 64 };

typedef struct seen {
    fb_status status;
    fb_error err;
    fb_ckpt_summary sum;
    fb_ckpt_finding findings[SEEN_MAX];
    char names[SEEN_MAX][32], lanes[SEEN_MAX][16];
    uint64_t finding_count, tensor_count, notes, security, facts, stats_count, stops, tapped;
    double fact;
    char note[200];
    fb_ckpt_stats stats[SEEN_MAX];
    char stats_names[SEEN_MAX][32];
    uint64_t digest, tap_hash;
    fb_hash_stream *tap;
} seen;

static void on_finding(void *ctx, const fb_ckpt_finding *f)
{
    seen *s = ctx;
    if (s->finding_count == SEEN_MAX) return;
    s->findings[s->finding_count] = *f;
    (void)snprintf(s->names[s->finding_count], sizeof s->names[0], "%s", f->tensor);
    (void)snprintf(s->lanes[s->finding_count], sizeof s->lanes[0], "%s", f->lane);
    s->finding_count++;
}

static void on_tensor(void *ctx, const char *file, const struct fb_ckpt_tensor *tensor, const fb_ckpt_stats *stats)
{
    seen *s = ctx;
    (void)file;
    s->tensor_count++;
    if (!stats || s->stats_count == SEEN_MAX) return;
    (void)snprintf(s->stats_names[s->stats_count], sizeof s->stats_names[0], "%s", tensor->name);
    s->stats[s->stats_count++] = *stats;
}

static void on_note(void *ctx, const char *file, const char *text)
{
    seen *s = ctx;
    (void)file;
    s->notes++;
    (void)snprintf(s->note, sizeof s->note, "%s", text);
}

static void on_security(void *ctx, const char *file, const char *import, const char *text)
{
    (void)file;
    (void)import;
    (void)text;
    ((seen *)ctx)->security++;
}

static void on_fact(void *ctx, const char *file, const char *name, double value)
{
    (void)file;
    (void)name;
    ((seen *)ctx)->facts++;
    ((seen *)ctx)->fact = value;
}

static void on_tap(void *ctx, const char *file, const void *data, size_t bytes, int done)
{
    seen *s = ctx;
    (void)file;
    if (!done) fb_hash_stream_add(s->tap, data, bytes);
    else s->tap_hash = fb_hash_stream_digest(s->tap);
    s->tapped += bytes;
}

static int on_stop(void *ctx)
{
    return ++((seen *)ctx)->stops > 1;
}

static void run(memory_file *file, script *sc, const fb_ckpt_options *options, int facts, seen *s)
{
    fb_os os;
    fb_ckpt_scan scan;
    uint64_t size;
    memset(&os, 0, sizeof os);
    os.ctx = file;
    os.open = m_open;
    os.close = m_close;
    os.fstat = m_fstat;
    os.stat = m_stat;
    os.pread = m_pread;
    os.advise_in_order = m_advise;
    memset(&scan, 0, sizeof scan);
    memset(s, 0, sizeof *s);
    file->calls = 0;
    s->sum.step = -1;
    scan.os = &os;
    scan.summary = &s->sum;
    if (options) scan.options = *options;
    if (scan.options.tap) s->tap = fb_hash_stream_new();
    scan.options.tap_ctx = scan.options.stop_ctx = s;
    scan.sink.ctx = s;
    scan.sink.finding = on_finding;
    scan.sink.tensor = on_tensor;
    scan.sink.note = on_note;
    scan.sink.security = on_security;
    if (facts) scan.on_fact = on_fact;
    scan.on_fact_ctx = s;
    s->status = fb_ckpt_scan_file_as(&scan, "memory", &scripted, sc, &size, &s->digest, &s->err);
    fb_ckpt_scan_release(&scan);
    fb_hash_stream_free(s->tap);
}

/* ---- random extents, and a slow account of them ----------------------------------------------------------------------------- */

static uint64_t seed;

static uint64_t rnd(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % below;
}

enum { TENSORS_MAX = 6, DIMS = 4, BYTES_MAX = 150000 };

typedef struct world {
    uint8_t plain[BYTES_MAX]; /* decoded extent */
    uint8_t file[BYTES_MAX * 2 + 4096];
    uint64_t bytes, file_bytes;
    fb_ckpt_tensor tensors[TENSORS_MAX];
    char names[TENSORS_MAX][16];
    uint64_t shapes[TENSORS_MAX][DIMS];
    int64_t strides[TENSORS_MAX][DIMS];
    fb_ckpt_extent extent;
    uint8_t referred[BYTES_MAX], mark[BYTES_MAX];
} world;

static uint64_t element_bytes(int32_t dtype)
{
    return fb_dtype_bytes(dtype, 1);
}

/* The slow way: bits in the machine's order, then the plain definition of IEEE 754. */
static int32_t kind_at(const world *w, uint64_t at, int32_t dtype, uint64_t *bits)
{
    uint64_t n = element_bytes(dtype);
    unsigned mantissa = dtype == FB_F64 ? 52 : dtype == FB_F32 ? 23 : dtype == FB_F16 ? 10 : 7;
    unsigned exponent = dtype == FB_F64 ? 11 : dtype == FB_F16 ? 5 : 8;
    uint64_t low, field;
    *bits = 0;
    for (uint64_t i = 0; i < n; i++) *bits |= (uint64_t)w->plain[at + (w->extent.swapped ? n - 1 - i : i)] << (8 * i);
    low = *bits & ((UINT64_C(1) << mantissa) - 1);
    field = *bits >> mantissa & ((1u << exponent) - 1);
    if (field != (1u << exponent) - 1) return FB_KIND_NONE;
    if (low) return FB_KIND_NAN;
    return *bits >> (mantissa + exponent) ? FB_KIND_NEG_INF : FB_KIND_POS_INF;
}

static void put(world *w, uint64_t at, int32_t dtype, uint64_t bits)
{
    uint64_t n = element_bytes(dtype);
    for (uint64_t i = 0; i < n; i++) w->plain[at + (w->extent.swapped ? n - 1 - i : i)] = (uint8_t)(bits >> (8 * i));
}

static uint64_t some_code(int32_t dtype, int bad)
{
    static const uint64_t f64[] = {UINT64_C(0x7ff0000000000000), UINT64_C(0xfff0000000000000), UINT64_C(0x7ff8000000000001)};
    static const uint64_t f32[] = {0x7f800000, 0xff800000, 0xffc00001};
    static const uint64_t f16[] = {0x7c00, 0xfc00, 0x7e01}, bf16[] = {0x7f80, 0xff80, 0xffc1};
    uint64_t k = rnd(3);
    uint64_t noise = rnd(UINT64_C(1) << 31) | rnd(UINT64_C(1) << 31) << 31;
    if (rnd(8) == 0) noise = 0;
    switch (dtype) {
    case FB_F64: return bad ? f64[k] : noise & UINT64_C(0xbfffffffffffffff);
    case FB_F32: return bad ? f32[k] : noise & 0xbfffffff;
    case FB_F16: return bad ? f16[k] : noise & 0xbfff;
    default: return bad ? bf16[k] : noise & 0xbfff;
    }
}

/* A view that fits into `room` elements from `base` on. style 0: dense; 1: any nested order; 2: any strides; 3: expanded. */
static void some_view(world *w, unsigned t, uint64_t room, int style)
{
    fb_ckpt_tensor *tensor = &w->tensors[t];
    int32_t ndim = (int32_t)rnd(DIMS + 1);
    uint64_t elements = 1, stride = 1;
    int order[DIMS] = {3, 2, 1, 0};
    memset(tensor, 0, sizeof *tensor);
    if (style) {
        for (int i = ndim - 1; i > 0; i--) {
            int k = (int)rnd((uint64_t)i + 1), keep = order[i];
            order[i] = order[k];
            order[k] = keep;
        }
    }
    for (int32_t d = 0; d < ndim; d++) w->shapes[t][d] = 1;
    for (int32_t i = 0; i < DIMS; i++) { /* innermost first, in some order of dimensions */
        int32_t d = order[i];
        uint64_t size, limit;
        if (d >= ndim) continue;
        if (style == 1 || style == 2) stride += rnd(3) * (style == 2 ? 1 : stride);
        limit = room > elements * stride ? room / (elements * stride) : 1;
        size = 1 + rnd(limit < 40 ? limit : 40);
        w->shapes[t][d] = size;
        w->strides[t][d] = (int64_t)stride;
        if (style == 3 && rnd(2)) {
            w->strides[t][d] = 0;
            elements *= 1;
            continue;
        }
        if (style == 2) stride = 1 + rnd(5);
        else stride *= size;
    }
    tensor->ndim = ndim;
    tensor->shape = w->shapes[t];
    tensor->strides = style ? w->strides[t] : NULL;
    tensor->elements = 1;
    for (int32_t d = 0; d < ndim; d++) tensor->elements *= w->shapes[t][d];
    if (tensor->elements > 200000) { /* keep the slow account fast */
        tensor->ndim = 0;
        tensor->elements = 1;
    }
}

static uint64_t span_of(const fb_ckpt_tensor *t)
{
    uint64_t span = 1, weight = 1;
    for (int32_t d = t->ndim - 1; d >= 0; d--) {
        span += (t->shape[d] - 1) * (t->strides ? (uint64_t)t->strides[d] : weight);
        weight *= t->shape[d];
    }
    return span;
}

static uint64_t stored_at(const fb_ckpt_tensor *t, uint64_t index)
{
    uint64_t at = 0, weight = 1;
    for (int32_t d = t->ndim - 1; d >= 0; d--) {
        uint64_t k = index % t->shape[d];
        index /= t->shape[d];
        at += k * (t->strides ? (uint64_t)t->strides[d] : weight);
        weight *= t->shape[d];
    }
    return at;
}

static void encode(world *w)
{
    uint64_t at = rnd(700);
    w->extent.has_crc = 1;
    w->extent.crc32 = (uint32_t)crc32(0, w->plain, (uInt)w->bytes);
    for (uint64_t i = 0; i < at; i++) w->file[i] = (uint8_t)rnd(256);
    w->extent.offset_bytes = w->extent.stored_bytes = 0;
    if (w->extent.encoding == FB_CKPT_STORED) {
        memcpy(w->file + at, w->plain, w->bytes);
        w->extent.offset_bytes = at;
        w->extent.stored_bytes = w->bytes;
    } else if (w->extent.encoding == FB_CKPT_DEFLATED) {
        z_stream z;
        memset(&z, 0, sizeof z);
        assert_int_equal(deflateInit2(&z, 1, Z_DEFLATED, -15, 8, 0), Z_OK);
        z.next_in = w->plain;
        z.avail_in = (uInt)w->bytes;
        z.next_out = w->file + at;
        z.avail_out = (uInt)(sizeof w->file - at);
        assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
        w->extent.offset_bytes = at;
        w->extent.stored_bytes = sizeof w->file - at - z.avail_out;
        (void)deflateEnd(&z);
    } else {
        w->extent.memory = w->plain;
    }
    w->file_bytes = at + w->extent.stored_bytes;
    for (uint64_t i = rnd(300); i > 0 && w->file_bytes < sizeof w->file; i--) w->file[w->file_bytes++] = (uint8_t)rnd(256);
}

static void make_world(world *w)
{
    static const int32_t dtypes[] = {FB_F32, FB_BF16, FB_F16, FB_F64, FB_I32};
    uint64_t count = 1 + rnd(TENSORS_MAX), at = 0;
    int uniform = rnd(3) != 0, tiled = rnd(2) == 0, any_bad = rnd(4) != 0;
    int32_t dtype = dtypes[rnd(4)];
    memset(&w->extent, 0, sizeof w->extent);
    w->extent.swapped = rnd(4) == 0;
    w->extent.encoding = (int32_t)rnd(3);
    w->bytes = rnd(20) ? 200 + rnd(BYTES_MAX - 200) : rnd(200);
    for (uint64_t i = 0; i < w->bytes / element_bytes(dtype); i++)
        put(w, i * element_bytes(dtype), dtype, some_code(dtype, any_bad && rnd(1 + rnd(100000)) == 0));
    for (unsigned t = 0; t < count; t++) {
        int32_t own = uniform ? dtype : dtypes[rnd(5)];
        uint64_t unit = element_bytes(own), room = w->bytes / unit, base, span;
        some_view(w, t, room, tiled ? 0 : (int)rnd(4));
        span = span_of(&w->tensors[t]);
        if (span > room) {
            w->tensors[t].ndim = 1;
            w->shapes[t][0] = 0;
            w->tensors[t].elements = 0;
            span = 0;
        }
        base = rnd(room - span + 1) * unit;
        if (tiled) base = (at + unit - 1) / unit * unit;
        if (tiled && rnd(3) == 0) base += unit * rnd(50);
        if (base + span * unit > w->bytes) {
            w->tensors[t].ndim = 1;
            w->shapes[t][0] = 0;
            w->tensors[t].elements = 0;
            base = w->bytes / unit * unit;
            span = 0;
        }
        at = base + span * unit;
        (void)snprintf(w->names[t], sizeof w->names[t], "t%u", t);
        w->tensors[t].name = w->names[t];
        w->tensors[t].dtype_name = "x";
        w->tensors[t].dtype = own;
        w->tensors[t].offset_bytes = base;
    }
    w->extent.name = "data";
    w->extent.bytes = w->bytes;
    w->extent.tensors = w->tensors;
    w->extent.tensor_count = count;
    encode(w);
}

typedef struct account {
    uint64_t nan, pos_inf, neg_inf, first, bits, at, finite, stored;
    int32_t kind;
} account;

static void account_for(world *w, const fb_ckpt_tensor *t, account *a)
{
    uint64_t unit = element_bytes(t->dtype);
    memset(a, 0, sizeof *a);
    memset(w->mark, 0, w->bytes);
    a->first = FB_NO_INDEX;
    for (uint64_t i = 0; i < t->elements; i++) {
        uint64_t at = t->offset_bytes + stored_at(t, i) * unit, bits;
        int32_t kind = t->dtype == FB_I32 ? FB_KIND_NONE : kind_at(w, at, t->dtype, &bits);
        for (uint64_t k = 0; k < unit; k++) w->referred[at + k] = 1;
        if (w->mark[at]) continue;
        w->mark[at] = 1;
        a->stored++;
        a->nan += kind == FB_KIND_NAN;
        a->pos_inf += kind == FB_KIND_POS_INF;
        a->neg_inf += kind == FB_KIND_NEG_INF;
        a->finite += kind == FB_KIND_NONE;
        if (kind == FB_KIND_NONE || a->first != FB_NO_INDEX) continue;
        a->first = i;
        a->bits = bits;
        a->kind = kind;
        a->at = at;
    }
}

static const fb_ckpt_finding *finding_of(const seen *s, const char *name)
{
    for (uint64_t i = 0; i < s->finding_count; i++) {
        if (strcmp(s->names[i], name) == 0) return &s->findings[i];
    }
    return NULL;
}

static void compare(world *w, const seen *s, uint64_t round)
{
    uint64_t bad = 0;
    memset(w->referred, 0, w->bytes);
    assert_int_equal(s->status, FB_OK);
    assert_int_equal(s->tensor_count, w->extent.tensor_count);
    for (unsigned t = 0; t < w->extent.tensor_count; t++) {
        const fb_ckpt_finding *f = finding_of(s, w->names[t]);
        account a;
        account_for(w, &w->tensors[t], &a);
        bad += a.nan + a.pos_inf + a.neg_inf;
        if ((f != NULL) != (a.first != FB_NO_INDEX))
            fail_msg("round %llu, tensor %u: %s", (unsigned long long)round, t, f ? "accused" : "missed");
        if (!f) continue;
        if (f->nan != a.nan || f->pos_inf != a.pos_inf || f->neg_inf != a.neg_inf || f->index != a.first || f->bits != a.bits ||
            f->kind != a.kind ||
            f->offset_bytes != (w->extent.encoding == FB_CKPT_STORED ? w->extent.offset_bytes + a.at : FB_NO_INDEX))
            fail_msg("round %llu, tensor %u: index %llu, expected %llu; %llu nan, expected %llu", (unsigned long long)round, t,
                     (unsigned long long)f->index, (unsigned long long)a.first, (unsigned long long)f->nan,
                     (unsigned long long)a.nan);
    }
    assert_int_equal(s->sum.bad, bad);
    assert_int_equal(s->sum.outcome, bad ? FB_CKPT_NON_FINITE : FB_CKPT_CLEAN);
    assert_true(s->digest == fb_hash64(w->file, w->file_bytes, 0));
}

/* Where all tensors are of one format and on one grid, what nobody refers to is told. */
static void compare_unreferenced(const world *w, const seen *s, uint64_t round)
{
    int32_t dtype = 0;
    uint64_t unit, expected = 0, bits, looked = 0;
    for (unsigned t = 0; t < w->extent.tensor_count; t++) {
        if (w->tensors[t].dtype == FB_I32) return;
        if (w->tensors[t].elements == 0) continue;
        if (dtype && dtype != w->tensors[t].dtype) return;
        dtype = w->tensors[t].dtype;
        looked++;
    }
    if (!looked) return;
    unit = element_bytes(dtype);
    for (uint64_t at = 0; at + unit <= w->bytes; at += unit)
        expected += !w->referred[at] && kind_at(w, at, dtype, &bits) != FB_KIND_NONE;
    if (s->sum.unreferenced != expected)
        fail_msg("round %llu: %llu unreferenced, expected %llu", (unsigned long long)round, (unsigned long long)s->sum.unreferenced,
                 (unsigned long long)expected);
}

static int same_stats(const fb_ckpt_stats *a, const fb_ckpt_stats *b)
{
    return memcmp(&a->scan, &b->scan, sizeof a->scan) == 0 && memcmp(&a->histogram, &b->histogram, sizeof a->histogram) == 0 &&
           memcmp(&a->min, &b->min, sizeof a->min) == 0 && memcmp(&a->max, &b->max, sizeof a->max) == 0 && a->finite == b->finite;
}

static void test_ckpt_scan__random_extents_agree_with_a_slow_account(void **ignored)
{
    world *w = malloc(sizeof *w);
    seen *s = malloc(sizeof *s), *other = malloc(sizeof *other);
    uint64_t start = (uint64_t)getpid();
    (void)ignored;
    assert_true(w && s && other);
    for (uint64_t round = 0; round < 400; round++) {
        memory_file file;
        script sc;
        fb_ckpt_options options;
        seed = start * 1000003 + round;
        make_world(w);
        memset(&file, 0, sizeof file);
        memset(&sc, 0, sizeof sc);
        memset(&options, 0, sizeof options);
        file.data = w->file;
        file.bytes = w->file_bytes;
        sc.extents = &w->extent;
        sc.count = 1;
        options.flags = FB_CKPT_CRC | (rnd(2) ? FB_CKPT_STATS : 0);
        options.buffer_bytes = 16384;
        run(&file, &sc, &options, 0, s);
        if (s->status != FB_OK || s->sum.reason.code)
            fail_msg("seed %llu round %llu: %s %s", (unsigned long long)start, (unsigned long long)round, s->err.message,
                     s->sum.reason.message);
        compare(w, s, start * 1000003 + round);
        compare_unreferenced(w, s, start * 1000003 + round);
        for (int variant = 0; variant < 3; variant++) {
            options.threads = variant == 0 ? 2 : variant == 1 ? 5 : 1;
            options.buffer_bytes = variant == 2 ? 100000 : 16384 + rnd(9000);
            options.tap = on_tap;
            run(&file, &sc, &options, 0, other);
            assert_int_equal(other->status, FB_OK);
            assert_true(other->tap_hash == s->digest && other->tapped == w->file_bytes);
            assert_true(other->digest == s->digest && other->finding_count == s->finding_count);
            assert_memory_equal(&other->sum, &s->sum, sizeof s->sum);
            assert_int_equal(other->stats_count, s->stats_count);
            for (uint64_t i = 0; i < s->finding_count; i++) {
                assert_string_equal(other->names[i], s->names[i]);
                assert_int_equal(other->findings[i].index, s->findings[i].index);
                assert_int_equal(other->findings[i].nan, s->findings[i].nan);
            }
            for (uint64_t i = 0; i < s->stats_count; i++) {
                if (!same_stats(&other->stats[i], &s->stats[i]))
                    fail_msg("seed %llu round %llu: statistics of %s differ", (unsigned long long)start, (unsigned long long)round,
                             s->stats_names[i]);
            }
        }
    }
    free(w);
    free(s);
    free(other);
}

/* ---- small worlds, by hand -------------------------------------------------------------------------------------------------- */

typedef struct bench {
    uint8_t data[300000];
    memory_file file;
    fb_ckpt_tensor tensors[300];
    uint64_t shapes[300][2];
    fb_ckpt_extent extents[8];
    script sc;
    fb_ckpt_options options;
    seen s;
} bench;

/* One stored extent over all bytes, with one F32 tensor of `elements`. */
static bench *new_bench(uint64_t bytes, uint64_t elements)
{
    bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->file.data = b->data;
    b->file.bytes = bytes;
    b->sc.extents = b->extents;
    b->sc.count = 1;
    b->extents[0].name = "data/0";
    b->extents[0].bytes = b->extents[0].stored_bytes = bytes;
    b->extents[0].tensors = b->tensors;
    b->extents[0].tensor_count = 1;
    b->tensors[0].name = "w";
    b->tensors[0].dtype_name = "F32";
    b->tensors[0].dtype = FB_F32;
    b->tensors[0].ndim = 1;
    b->tensors[0].shape = b->shapes[0];
    b->shapes[0][0] = b->tensors[0].elements = elements;
    return b;
}

static void put32(bench *b, uint64_t element, uint32_t bits)
{
    memcpy(b->data + 4 * element, &bits, 4);
}

static const uint32_t nan32 = 0x7fc00001, pinf32 = 0x7f800000, ninf32 = 0xff800000, one32 = 0x3f800000;

static void scan(bench *b)
{
    run(&b->file, &b->sc, &b->options, 0, &b->s);
}

static void test_ckpt_scan__lanes_are_judged_and_the_index_is_the_first_element_they_scale(void **ignored)
{
    static const fb_ckpt_lane lanes[] = {{"d", FB_F16, 2, 1, 256}, {"dmin", FB_F16, 4, 1, 256}, {"scales", FB_F16, 8, 4, 64}};
    static const uint64_t wide[] = {20, 4096, 5000};
    (void)ignored;
    for (uint64_t round = 0; round < 60; round++) {
        uint64_t period = wide[round % 3], blocks = period == 20 ? 3000 : 60, block, k = 0, at;
        bench *b = new_bench(period * blocks, blocks * 256);
        unsigned which;
        seed = round;
        which = (unsigned)rnd(3);
        block = rnd(blocks);
        if (which == 2) k = rnd(4);
        b->tensors[0].lanes = lanes;
        b->tensors[0].lane_count = 3;
        b->tensors[0].block_elements = 256;
        b->tensors[0].period_bytes = period;
        b->tensors[0].dtype = 0;
        b->extents[0].swapped = (int32_t)rnd(2);
        memset(b->data, 0xff, sizeof b->data); /* all other bytes are integers, and may look like anything */
        for (uint64_t i = 0; i < blocks; i++) memset(b->data + i * period + 2, 1, 4), memset(b->data + i * period + 8, 1, 8);
        scan(b);
        assert_int_equal(b->s.sum.outcome, FB_CKPT_CLEAN);
        assert_int_equal(b->s.sum.checked, blocks * 256);
        at = block * period + lanes[which].offset_bytes + 2 * k;
        b->data[at + !b->extents[0].swapped] = 0xfc;
        b->data[at + (b->extents[0].swapped ? 1 : 0)] = 0;
        for (int threads = 1; threads < 4; threads += 2) {
            b->options.threads = threads;
            b->options.buffer_bytes = 16384;
            b->options.flags = rnd(2) ? FB_CKPT_STATS : 0;
            scan(b);
            assert_int_equal(b->s.finding_count, 1);
            assert_string_equal(b->s.lanes[0], lanes[which].name);
            assert_int_equal(b->s.findings[0].kind, FB_KIND_NEG_INF);
            assert_int_equal(b->s.findings[0].bits, 0xfc00);
            assert_int_equal(b->s.findings[0].fb_dtype, FB_F16);
            assert_int_equal(b->s.findings[0].index, block * 256 + k * 64);
            assert_int_equal(b->s.findings[0].offset_bytes, at);
            assert_int_equal(b->s.findings[0].neg_inf, 1);
            if (b->options.flags) assert_int_equal(b->s.stats[0].scan.elements, blocks * 6);
        }
        free(b);
    }
}

/* The scale of a block of GGML's IQ1_M lies in the top nibbles of four words. */
static void test_ckpt_scan__the_scattered_scale_of_iq1_m_is_put_together(void **ignored)
{
    static const fb_ckpt_lane lane = {"d", FB_CKPT_LANE_IQ1_M, 48, 1, 256};
    bench *b = new_bench(56 * 100, 25600);
    (void)ignored;
    b->tensors[0].lanes = &lane;
    b->tensors[0].lane_count = 1;
    b->tensors[0].block_elements = 256;
    b->tensors[0].period_bytes = 56;
    b->tensors[0].dtype = 0;
    memset(b->data, 0x0f, sizeof b->data); /* low nibbles of the high bytes: not part of it */
    scan(b);
    assert_int_equal(b->s.sum.outcome, FB_CKPT_CLEAN);
    b->data[56 * 70 + 48 + 7] = 0x7f; /* 0x7c00: +Inf */
    b->data[56 * 70 + 48 + 5] = 0xcf;
    scan(b);
    assert_int_equal(b->s.sum.outcome, FB_CKPT_NON_FINITE);
    assert_int_equal(b->s.findings[0].bits, 0x7c00);
    assert_int_equal(b->s.findings[0].index, 70 * 256);
    free(b);
}

/* Fields of records: several tensors share each record, and the last record may end before its period does. */
static void test_ckpt_scan__fields_of_records_are_read_apart(void **ignored)
{
    static const fb_ckpt_lane lane = {"", FB_F32, 0, 1, 1};
    bench *b = new_bench(12 * 5000, 5000);
    (void)ignored;
    for (unsigned t = 0; t < 3; t++) {
        b->tensors[t] = b->tensors[0];
        b->tensors[t].name = t == 0 ? "x" : t == 1 ? "y" : "z";
        b->tensors[t].lanes = &lane;
        b->tensors[t].lane_count = 1;
        b->tensors[t].block_elements = 1;
        b->tensors[t].period_bytes = 12;
        b->tensors[t].offset_bytes = 4 * t;
        b->tensors[t].dtype = 0;
    }
    b->extents[0].tensor_count = 3;
    put32(b, 3 * 4999 + 2, nan32); /* the last number of all */
    put32(b, 3 * 17 + 1, ninf32);
    b->options.flags = FB_CKPT_STATS;
    scan(b);
    assert_int_equal(b->s.finding_count, 2);
    assert_string_equal(b->s.names[0], "y");
    assert_int_equal(b->s.findings[0].index, 17);
    assert_string_equal(b->s.names[1], "z");
    assert_int_equal(b->s.findings[1].index, 4999);
    assert_int_equal(b->s.findings[1].offset_bytes, 12 * 4999 + 8);
    assert_int_equal(b->s.stats_count, 3);
    free(b);
}

static void test_ckpt_scan__a_piece_is_named_by_its_place_in_the_whole(void **ignored)
{
    uint64_t whole[] = {10, 8}, start[] = {4, 3};
    bench *b = new_bench(4 * 6, 6);
    (void)ignored;
    b->tensors[0].ndim = 2;
    b->shapes[0][0] = 2;
    b->shapes[0][1] = 3;
    b->tensors[0].whole_shape = whole;
    b->tensors[0].whole_start = start;
    put32(b, 4, nan32); /* [1][1] of the piece, [5][4] of the whole */
    scan(b);
    assert_int_equal(b->s.findings[0].index, 5 * 8 + 4);
    assert_int_equal(b->s.findings[0].elements, 80);
    assert_true(b->s.findings[0].shape == whole);
    assert_int_equal(b->s.sum.tensors, 0); /* counted with the piece that begins at 0 */
    start[0] = start[1] = 0;
    scan(b);
    assert_int_equal(b->s.sum.tensors, 1);
    free(b);
}

static void test_ckpt_scan__minus_infinity_is_legal_in_masks_and_nowhere_else(void **ignored)
{
    int64_t strides[2] = {1, 4};
    static const char *const legal[] = {"w", NULL};
    bench *b = new_bench(4 * 12, 12);
    (void)ignored;
    put32(b, 2, ninf32);
    scan(b);
    assert_int_equal(b->s.findings[0].legal, 0);
    b->tensors[0].name = "h.mask";
    scan(b);
    assert_int_equal(b->s.findings[0].legal, FB_CKPT_LEGAL_MASK);
    assert_int_equal(b->s.sum.outcome, FB_CKPT_CLEAN);
    b->tensors[0].ndim = 2; /* the same, seen across */
    b->shapes[0][0] = 4;
    b->shapes[0][1] = 3;
    b->tensors[0].strides = strides;
    scan(b);
    assert_int_equal(b->s.findings[0].legal, FB_CKPT_LEGAL_MASK);
    assert_int_equal(b->s.findings[0].index, 6);
    put32(b, 3, one32); /* no longer a mask */
    scan(b);
    assert_int_equal(b->s.findings[0].legal, 0);
    b->shapes[0][1] = 0;
    b->tensors[0].strides = NULL;
    b->tensors[0].ndim = 1;
    b->shapes[0][0] = 12;
    b->tensors[0].name = "w";
    b->options.legal = legal;
    scan(b);
    assert_int_equal(b->s.findings[0].legal, FB_CKPT_LEGAL_NAMED);
    put32(b, 5, pinf32);
    scan(b);
    assert_int_equal(b->s.findings[0].legal, 0);
    b->options.legal = NULL;
    b->tensors[0].legal_inf = b->tensors[0].number = 1;
    scan(b);
    assert_int_equal(b->s.findings[0].legal, FB_CKPT_LEGAL_NUMBER);
    assert_int_equal(b->s.findings[0].number, 1);
    put32(b, 7, nan32);
    scan(b);
    assert_int_equal(b->s.findings[0].legal, 0);
    assert_int_equal(b->s.sum.outcome, FB_CKPT_NON_FINITE);
    free(b);
}

/* A bias begins with zeros, and so do the moments of a parameter whatever it is called: 0 and -Inf are no proof there. */
static void test_ckpt_scan__only_a_buffer_that_is_called_mask_is_a_mask(void **ignored)
{
    static const char *const masks[] = {"mask", "h.0.attn_mask", "attn.mask.0", "encoder/mask", "causal", "h.tril", "_future_mask"};
    static const char *const others[] = {"mask_head.bias",
                                         "causal_attn.lora_B.weight",
                                         "optimizer.exp_avg.mask_token",
                                         "optimizer.state.exp_avg of x.mask",
                                         "mask.weight",
                                         "tril_bias"};
    bench *b = new_bench(4 * 12, 12);
    (void)ignored;
    put32(b, 2, ninf32);
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        b->tensors[0].name = masks[i];
        scan(b);
        assert_int_equal(b->s.findings[0].legal, FB_CKPT_LEGAL_MASK);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        b->tensors[0].name = others[i];
        scan(b);
        assert_int_equal(b->s.findings[0].legal, 0);
    }
    free(b);
}

static void test_ckpt_scan__what_waits_for_its_first_value_may_be_infinite(void **ignored)
{
    static const struct {
        const char *name;
        uint32_t bits;
        int32_t legal;
    } cases[] = {
        {"callbacks.EarlyStopping{'monitor': 'val'}.best_score", pinf32, FB_CKPT_LEGAL_NUMBER},
        {"callbacks.ModelCheckpoint{'monitor': None}.kth_value", ninf32, FB_CKPT_LEGAL_NUMBER},
        {"best", pinf32, FB_CKPT_LEGAL_NUMBER},
        {"val_best_loss", pinf32, FB_CKPT_LEGAL_NUMBER},
        {"best_score", nan32, 0},
        {"fc.activation_post_process.min_val", pinf32, FB_CKPT_LEGAL_NUMBER},
        {"fc.activation_post_process.max_val", ninf32, FB_CKPT_LEGAL_NUMBER},
        {"fc.activation_post_process.max_val", pinf32, 0}, /* an activation was infinite */
        {"logit_scale", pinf32, 0},
    };
    bench *b = new_bench(4 * 12, 1);
    (void)ignored;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        b->tensors[0].name = cases[i].name;
        put32(b, 0, cases[i].bits);
        for (int first = 0; first < 2; first++) {
            b->options.flags = first ? FB_CKPT_FIRST : 0;
            scan(b);
            assert_int_equal(b->s.findings[0].legal, cases[i].legal);
            assert_int_equal(b->s.sum.outcome, cases[i].legal ? FB_CKPT_CLEAN : FB_CKPT_NON_FINITE);
        }
    }
    free(b);
    b = new_bench(4 * 12, 2); /* two of them are a parameter */
    b->tensors[0].name = "best";
    put32(b, 0, pinf32);
    scan(b);
    assert_int_equal(b->s.findings[0].legal, 0);
    free(b);
}

static void test_ckpt_scan__the_first_bad_element_ends_a_scan_that_asks_for_no_more(void **ignored)
{
    (void)ignored;
    for (int threads = 1; threads < 6; threads += 2) {
        bench *b = new_bench(200000, 20000);
        b->tensors[1] = b->tensors[0];
        b->tensors[1].name = "v";
        b->tensors[1].offset_bytes = 80000;
        b->shapes[1][0] = b->tensors[1].elements = 30000;
        b->tensors[1].shape = b->shapes[1];
        b->extents[0].tensor_count = 2;
        put32(b, 20000 + 5000, ninf32);
        put32(b, 20000 + 5001, nan32);
        put32(b, 20000 + 29000, nan32);
        b->options.flags = FB_CKPT_FIRST;
        b->options.threads = threads;
        b->options.buffer_bytes = 16384;
        scan(b);
        assert_int_equal(b->s.status, FB_OK);
        assert_int_equal(b->s.sum.outcome, FB_CKPT_NON_FINITE);
        assert_int_equal(b->s.finding_count, 1);
        assert_int_equal(b->s.findings[0].index, 5000);
        assert_int_equal(b->s.findings[0].neg_inf, 1);
        assert_int_equal(b->s.findings[0].nan, 0);
        assert_int_equal(b->s.sum.bad, 1);
        assert_int_equal(b->s.digest, 0);
        assert_true(b->file.calls < 13 || threads > 1);
        free(b);
    }
}

static void test_ckpt_scan__more_small_tensors_than_a_piece_may_hold(void **ignored)
{
    bench *b = new_bench(300 * 40, 10);
    (void)ignored;
    for (unsigned t = 0; t < 300; t++) {
        b->tensors[t] = b->tensors[0];
        b->tensors[t].offset_bytes = 40 * t;
    }
    b->extents[0].tensor_count = 300;
    put32(b, 10 * 299 + 9, nan32);
    put32(b, 10 * 64, pinf32);
    b->options.flags = FB_CKPT_STATS;
    scan(b);
    assert_int_equal(b->s.tensor_count, 300);
    assert_int_equal(b->s.sum.tensors, 300);
    assert_int_equal(b->s.finding_count, 2);
    assert_int_equal(b->s.findings[0].offset_bytes, 40 * 64);
    assert_int_equal(b->s.findings[1].index, 9);
    free(b);
}

static void test_ckpt_scan__a_file_beyond_the_buffer_is_announced_as_read_in_order(void **ignored)
{
    (void)ignored;
    for (uint64_t bytes = 16384; bytes <= 16388; bytes += 4) {
        bench *b = new_bench(bytes, bytes / 4);
        b->options.buffer_bytes = 16384;
        scan(b);
        assert_int_equal(b->s.status, FB_OK);
        assert_int_equal(b->s.sum.outcome, FB_CKPT_CLEAN);
        assert_int_equal(b->file.advised, bytes > 16384);
        free(b);
    }
}

static void test_ckpt_scan__what_cannot_be_looked_at_is_listed(void **ignored)
{
    bench *b = new_bench(400, 100);
    (void)ignored;
    b->tensors[0].unscanned = "its codes have no meaning";
    put32(b, 3, nan32);
    scan(b);
    assert_int_equal(b->s.sum.outcome, FB_CKPT_UNSUPPORTED);
    assert_int_equal(b->s.sum.unscanned, 1);
    assert_non_null(strstr(b->s.sum.reason.message, "its codes have no meaning"));
    assert_int_equal(b->s.sum.checked, 0);
    b->tensors[0].unscanned = NULL;
    b->tensors[0].dtype = 0;
    b->tensors[0].dtype_name = "F7";
    scan(b);
    assert_non_null(strstr(b->s.sum.reason.message, "F7"));
    free(b);
}

static void test_ckpt_scan__remarks_reach_the_caller_and_facts_the_summary(void **ignored)
{
    fb_ckpt_remark remarks[] = {{FB_CKPT_REMARK_NOTE, "", "a note", 0.0},
                                {FB_CKPT_REMARK_SECURITY, "os.system", "runs a command", 0.0},
                                {FB_CKPT_REMARK_FACT, FB_CKPT_FACT_STEP, "", 400.0},
                                {FB_CKPT_REMARK_FACT, FB_CKPT_FACT_STEP, "", 400.0},
                                {FB_CKPT_REMARK_FACT, FB_CKPT_FACT_SCALE, "", 65536.0}};
    bench *b = new_bench(400, 100);
    (void)ignored;
    b->sc.remarks = remarks;
    b->sc.remark_count = 5;
    scan(b);
    assert_int_equal(b->s.sum.outcome, FB_CKPT_CLEAN);
    assert_int_equal(b->s.sum.step, 400);
    assert_int_equal(b->s.sum.security, 1);
    assert_int_equal(b->s.security, 1);
    assert_int_equal(b->s.notes, 1);
    assert_string_equal(b->s.note, "a note");
    remarks[0].name = "data/7"; /* a note about a part names it */
    scan(b);
    assert_string_equal(b->s.note, "data/7 a note");
    remarks[0].name = "";
    remarks[3].value = 401.0; /* two parts disagree */
    scan(b);
    assert_int_equal(b->s.sum.step, -1);
    assert_int_equal(b->s.notes, 2);
    assert_int_equal(b->s.sum.outcome, FB_CKPT_CLEAN);
    run(&b->file, &b->sc, &b->options, 1, &b->s); /* a folder hears of them and draws its own conclusion */
    assert_int_equal(b->s.facts, 3);
    assert_int_equal(b->s.sum.step, -1);
    remarks[3].value = 400.0;
    remarks[4].value = 0.0;
    scan(b);
    assert_int_equal(b->s.notes, 2);
    assert_int_equal(b->s.sum.outcome, FB_CKPT_CLEAN);
    memset(&remarks[4].value, 0xff, sizeof remarks[4].value);
    scan(b);
    assert_int_equal(b->s.sum.outcome, FB_CKPT_NON_FINITE);
    remarks[4].kind = FB_CKPT_REMARK_UNSCANNED;
    remarks[4].name = "rng";
    remarks[4].text = "an object of unknown kind";
    scan(b);
    assert_int_equal(b->s.sum.outcome, FB_CKPT_UNSUPPORTED);
    free(b);
}

/* ---- digest, checksum, tap, stop -------------------------------------------------------------------------------------------- */

static void test_ckpt_scan__extents_in_any_order_give_the_digest_of_the_file(void **ignored)
{
    (void)ignored;
    for (uint64_t round = 0; round < 60; round++) {
        bench *b = new_bench(200000, 0);
        seed = round;
        for (uint64_t i = 0; i < 200000; i++) b->data[i] = (uint8_t)rnd(256) & 0x3f;
        b->sc.count = 8;
        for (unsigned e = 0; e < 8; e++) {
            uint64_t at = rnd(200000), bytes = rnd(round % 2 ? 200000 - at : 3000);
            if (bytes > 200000 - at) bytes = 200000 - at;
            b->tensors[e] = b->tensors[0];
            b->tensors[e].shape = b->shapes[e];
            b->shapes[e][0] = b->tensors[e].elements = bytes / 4;
            b->extents[e] = b->extents[0];
            b->extents[e].offset_bytes = at;
            b->extents[e].bytes = b->extents[e].stored_bytes = bytes;
            b->extents[e].tensors = &b->tensors[e];
        }
        b->options.threads = 1 + (int32_t)rnd(4);
        b->options.buffer_bytes = 16384;
        b->options.tap = on_tap;
        scan(b);
        assert_int_equal(b->s.status, FB_OK);
        assert_true(b->s.digest == fb_hash64(b->data, 200000, 0) && b->s.tap_hash == b->s.digest);
        assert_int_equal(b->s.tapped, 200000);
        b->options.flags = FB_CKPT_NO_DIGEST;
        b->options.tap = NULL;
        scan(b);
        assert_int_equal(b->s.digest, 0);
        assert_int_equal(b->s.sum.outcome, FB_CKPT_CLEAN);
        free(b);
    }
}

static void test_ckpt_scan__a_wrong_checksum_is_unreadable(void **ignored)
{
    (void)ignored;
    for (int threads = 1; threads < 4; threads++) {
        bench *b = new_bench(200000, 50000);
        b->options.threads = threads;
        b->options.buffer_bytes = 16384;
        b->extents[0].has_crc = 1;
        b->extents[0].crc32 = (uint32_t)crc32(0, b->data, 200000) ^ 1;
        scan(b);
        assert_int_equal(b->s.sum.outcome, FB_CKPT_CLEAN); /* nobody asked */
        b->options.flags = FB_CKPT_CRC;
        scan(b);
        assert_int_equal(b->s.sum.outcome, FB_CKPT_UNREADABLE);
        assert_non_null(strstr(b->s.sum.reason.message, "checksum of data/0"));
        b->extents[0].crc32 ^= 1;
        scan(b);
        assert_int_equal(b->s.sum.outcome, FB_CKPT_CLEAN);
        free(b);
    }
}

static void test_ckpt_scan__a_scan_stops_when_it_is_asked_to(void **ignored)
{
    uint64_t bytes = 24 << 20;
    uint8_t *data = calloc(bytes, 1);
    (void)ignored;
    assert_non_null(data);
    for (int threads = 1; threads < 4; threads++) {
        bench *b = new_bench(bytes, bytes / 4);
        b->file.data = data;
        b->options.threads = threads;
        b->options.stop = on_stop; /* says yes the second time */
        scan(b);
        assert_int_equal(b->s.status, FB_E_WITHHELD);
        assert_int_equal(b->s.stops, 2);
        free(b);
    }
    free(data);
}

/* ---- faults ----------------------------------------------------------------------------------------------------------------- */

/* Dense ones, tangled ones, a deflated one: everything that asks for memory or reads. */
static world *busy_world(bench *b)
{
    world *w = malloc(sizeof *w);
    assert_non_null(w);
    do {
        seed++;
        make_world(w);
    } while (w->extent.encoding == FB_CKPT_MEMORY || w->bytes < 70000);
    b->extents[0] = w->extent;
    b->file.data = w->file;
    b->file.bytes = w->file_bytes;
    b->options.buffer_bytes = 16384;
    b->options.flags = FB_CKPT_CRC | (seed % 2 ? FB_CKPT_STATS : 0);
    return w;
}

static void test_ckpt_scan__every_failing_request_for_memory_is_reported(void **ignored)
{
    (void)ignored;
    for (uint64_t round = 0; round < 30; round++) {
        bench *b = new_bench(8, 2);
        world *w;
        uint64_t requests;
        seed = round * 1000;
        w = busy_world(b);
        b->options.threads = 1 + (int32_t)(round % 3);
        fb_alloc_fail_at(0, 0);
        scan(b);
        requests = fb_alloc_requests();
        assert_int_equal(b->s.status, FB_OK);
        for (uint64_t k = 1; k <= requests; k++) {
            fb_alloc_fail_at(k, 0);
            scan(b);
            fb_alloc_fail_at(0, 0);
            assert_int_equal(b->s.status, FB_E_NOMEM);
        }
        free(w);
        free(b);
    }
}

static void test_ckpt_scan__every_failing_read_is_reported(void **ignored)
{
    (void)ignored;
    for (uint64_t round = 0; round < 30; round++) {
        bench *b = new_bench(8, 2);
        world *w;
        uint64_t calls;
        seed = round * 1000;
        w = busy_world(b);
        b->options.threads = 1 + (int32_t)(round % 3);
        scan(b);
        assert_int_equal(b->s.status, FB_OK);
        calls = b->file.calls;
        for (uint64_t k = 1; k <= calls; k++) {
            b->file.fail_at = k;
            b->file.shrink = 0;
            scan(b);
            assert_int_equal(b->s.status, FB_E_IO);
            b->file.shrink = 1;
            scan(b);
            if (k == 1) continue; /* the head, by which a reader would be found */
            assert_int_equal(b->s.status, FB_OK);
            assert_true(b->s.sum.outcome == FB_CKPT_UNREADABLE || b->s.sum.outcome == FB_CKPT_NON_FINITE);
            assert_int_equal(b->s.sum.reason.code, FB_E_CORRUPT);
        }
        free(w);
        free(b);
    }
}

static void test_ckpt_scan__a_reader_that_hands_out_what_is_not_there_is_refused(void **ignored)
{
    bench *b = new_bench(400, 101);
    (void)ignored;
    scan(b);
    assert_int_equal(b->s.sum.outcome, FB_CKPT_UNREADABLE);
    assert_non_null(strstr(b->s.sum.reason.message, "does not fit"));
    b->tensors[0].elements = b->shapes[0][0] = UINT64_MAX / 2;
    scan(b);
    assert_int_equal(b->s.sum.outcome, FB_CKPT_UNREADABLE);
    b->tensors[0].elements = b->shapes[0][0] = 100;
    b->extents[0].offset_bytes = 1;
    scan(b);
    assert_int_equal(b->s.sum.outcome, FB_CKPT_UNREADABLE);
    free(b);
}

/* Twenty thousand tensors that each cover all bytes, in formats that differ: read once each, that would be gigabytes. */
static void test_ckpt_scan__bytes_that_are_named_again_and_again_are_a_limit(void **ignored)
{
    bench *b = new_bench(300000, 75000);
    fb_ckpt_tensor *many = calloc(20000, sizeof *many);
    uint64_t halves = 150000;
    (void)ignored;
    assert_non_null(many);
    for (unsigned t = 0; t < 20000; t++) {
        many[t] = b->tensors[0];
        if (t % 2) continue;
        many[t].dtype = FB_BF16;
        many[t].elements = halves;
        many[t].shape = &halves;
    }
    b->extents[0].tensors = many;
    b->extents[0].tensor_count = 20000;
    scan(b);
    assert_int_equal(b->s.status, FB_OK);
    assert_int_equal(b->s.sum.outcome, FB_CKPT_LIMIT);
    free(many);
    free(b);
}

static int set_up(void **ignored)
{
    (void)ignored;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ckpt_scan__random_extents_agree_with_a_slow_account),
        cmocka_unit_test(test_ckpt_scan__lanes_are_judged_and_the_index_is_the_first_element_they_scale),
        cmocka_unit_test(test_ckpt_scan__the_scattered_scale_of_iq1_m_is_put_together),
        cmocka_unit_test(test_ckpt_scan__fields_of_records_are_read_apart),
        cmocka_unit_test(test_ckpt_scan__a_piece_is_named_by_its_place_in_the_whole),
        cmocka_unit_test(test_ckpt_scan__minus_infinity_is_legal_in_masks_and_nowhere_else),
        cmocka_unit_test(test_ckpt_scan__only_a_buffer_that_is_called_mask_is_a_mask),
        cmocka_unit_test(test_ckpt_scan__what_waits_for_its_first_value_may_be_infinite),
        cmocka_unit_test(test_ckpt_scan__the_first_bad_element_ends_a_scan_that_asks_for_no_more),
        cmocka_unit_test(test_ckpt_scan__more_small_tensors_than_a_piece_may_hold),
        cmocka_unit_test(test_ckpt_scan__a_file_beyond_the_buffer_is_announced_as_read_in_order),
        cmocka_unit_test(test_ckpt_scan__what_cannot_be_looked_at_is_listed),
        cmocka_unit_test(test_ckpt_scan__remarks_reach_the_caller_and_facts_the_summary),
        cmocka_unit_test(test_ckpt_scan__extents_in_any_order_give_the_digest_of_the_file),
        cmocka_unit_test(test_ckpt_scan__a_wrong_checksum_is_unreadable),
        cmocka_unit_test(test_ckpt_scan__a_scan_stops_when_it_is_asked_to),
        cmocka_unit_test(test_ckpt_scan__every_failing_request_for_memory_is_reported),
        cmocka_unit_test(test_ckpt_scan__every_failing_read_is_reported),
        cmocka_unit_test(test_ckpt_scan__a_reader_that_hands_out_what_is_not_there_is_refused),
        cmocka_unit_test(test_ckpt_scan__bytes_that_are_named_again_and_again_are_a_limit),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
