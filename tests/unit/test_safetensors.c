/*
 * The safetensors reader on files of the real library and on hostile ones; both are made by scripts/make-golden-safetensors.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "ckpt/ckpt.h"
#include "ckpt/order.h"
#include "ckpt/reader.h"
#include "ckpt/scan.h"

#define GOLDEN "tests/golden/safetensors/"

typedef struct seen {
    uint64_t findings, legal, unscanned, notes, files, tensors, progress;
    fb_ckpt_finding last;
    char tensor[256], dtype[32], why[256], note[1024], unscanned_file[256];
    uint64_t shape[8];
    char by_dtype[1024]; /* "F32:3:nan " for each finding */
    int32_t outcome;
} seen;

static void on_finding(void *ctx, const fb_ckpt_finding *f)
{
    static const char *const kinds[] = {"none", "nan", "+inf", "-inf"};
    seen *s = ctx;
    size_t used = strlen(s->by_dtype);
    s->findings++;
    s->legal += f->legal != 0;
    s->last = *f;
    (void)snprintf(s->tensor, sizeof s->tensor, "%s", f->tensor);
    (void)snprintf(s->dtype, sizeof s->dtype, "%s", f->dtype);
    for (int i = 0; i < f->ndim && i < 8; i++) s->shape[i] = f->shape[i];
    (void)snprintf(s->by_dtype + used, sizeof s->by_dtype - used, "%s:%llu:%s ", f->dtype, (unsigned long long)f->index,
                   kinds[f->kind]);
}

static void on_tensor(void *ctx, const char *file, const struct fb_ckpt_tensor *tensor, const fb_ckpt_stats *stats)
{
    (void)file;
    (void)tensor;
    (void)stats;
    ((seen *)ctx)->tensors++;
}

static void on_unscanned(void *ctx, const char *file, const char *tensor, const char *why)
{
    seen *s = ctx;
    (void)tensor;
    s->unscanned++;
    (void)snprintf(s->why, sizeof s->why, "%s", why);
    (void)snprintf(s->unscanned_file, sizeof s->unscanned_file, "%s", file);
}

static void on_note(void *ctx, const char *file, const char *text)
{
    seen *s = ctx;
    (void)file;
    s->notes++;
    (void)snprintf(s->note, sizeof s->note, "%s", text);
}

static void on_file(void *ctx, const char *file, const char *format, int32_t outcome, uint64_t bytes, uint64_t digest,
                    const fb_error *reason)
{
    seen *s = ctx;
    (void)file;
    (void)bytes;
    (void)digest;
    (void)reason;
    assert_string_equal(format, "safetensors");
    s->files++;
    s->outcome = outcome;
}

static void on_progress(void *ctx, const char *file, uint64_t done, uint64_t total)
{
    (void)file;
    assert_true(done <= total);
    ((seen *)ctx)->progress++;
}

static fb_ckpt_summary scan_with(const char *path, const fb_ckpt_options *options, seen *s)
{
    fb_ckpt_sink sink = {s, on_finding, on_tensor, on_unscanned, on_note, NULL, on_file, on_progress};
    fb_ckpt_summary summary;
    fb_error err;
    fb_error_clear(&err);
    memset(s, 0, sizeof *s);
    if (fb_ckpt_scan_path(fb_os_posix(), path, options, &sink, &summary, &err) != FB_OK) fail_msg("%s: %s", path, err.message);
    return summary;
}

static fb_ckpt_summary scan(const char *path, seen *s)
{
    return scan_with(path, NULL, s);
}

static uint64_t digest_of_file(const char *path)
{
    char *data;
    size_t bytes;
    uint64_t digest;
    fb_error err;
    assert_int_equal(fb_os_read_file(fb_os_posix(), path, 1u << 30, &data, &bytes, &err), FB_OK);
    digest = fb_hash64(data, bytes, 0);
    fb_free(data);
    return digest;
}

/* ---- files of the real library ---------------------------------------------------------------------------------------------- */

static void test_safetensors__every_dtype_of_the_library_is_read_and_finite(void **ignored)
{
    seen s;
    fb_ckpt_summary sum = scan(GOLDEN "every-dtype.safetensors", &s);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_CLEAN);
    assert_string_equal(sum.reason.message, "");
    assert_int_equal(sum.tensors, 22);
    assert_int_equal(s.tensors, 22);
    assert_int_equal(sum.elements, 19 * 5 + 10 + 1); /* F4 counts codes, two a byte */
    assert_int_equal(sum.checked, 10 * 5 + 1); /* F16 BF16 F32 F64 C64 and five of F8; the scalar; an empty tensor adds none */
    assert_int_equal(sum.bad, 0);
    assert_int_equal(sum.unscanned, 0);
    assert_int_equal(s.files, 1);
    assert_true(s.progress > 0);
}

static void test_safetensors__one_bad_element_is_found_in_every_format_that_has_one(void **ignored)
{
    seen s;
    fb_ckpt_summary sum = scan(GOLDEN "bad-in-every-dtype.safetensors", &s);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_NON_FINITE);
    assert_int_equal(sum.bad, 10);
    assert_int_equal(sum.bad_tensors, 10);
    assert_int_equal(s.findings, 10);
    assert_non_null(strstr(s.by_dtype, "F64:3:nan "));
    assert_non_null(strstr(s.by_dtype, "F32:3:nan "));
    assert_non_null(strstr(s.by_dtype, "F16:3:+inf "));
    assert_non_null(strstr(s.by_dtype, "BF16:3:-inf "));
    assert_non_null(strstr(s.by_dtype, "F8_E4M3:3:nan "));
    assert_non_null(strstr(s.by_dtype, "F8_E5M2:3:-inf "));
    assert_non_null(strstr(s.by_dtype, "F8_E8M0:3:nan "));
    assert_non_null(strstr(s.by_dtype, "F8_E4M3FNUZ:3:nan "));
    assert_non_null(strstr(s.by_dtype, "F8_E5M2FNUZ:3:nan "));
    assert_non_null(strstr(s.by_dtype, "C64:3:nan "));
}

static void test_safetensors__a_finding_names_tensor_index_bits_and_offset(void **ignored)
{
    seen s;
    fb_ckpt_summary sum = scan(GOLDEN "bad-moment.safetensors", &s);
    FILE *in;
    uint32_t bits = 0;
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_NON_FINITE);
    assert_string_equal(s.tensor, "optimizer.exp_avg.w");
    assert_string_equal(s.dtype, "F32");
    assert_int_equal(s.last.fb_dtype, FB_F32);
    assert_int_equal(s.last.ndim, 1);
    assert_int_equal(s.shape[0], 6);
    assert_int_equal(s.last.index, 4);
    assert_int_equal(s.last.kind, FB_KIND_NAN);
    assert_int_equal(s.last.nan, 1);
    assert_int_equal(s.last.pos_inf, 1);
    assert_int_equal(s.last.bits, 0x7fc00000);
    assert_int_equal(sum.bad, 2);
    assert_string_equal(sum.first_tensor, "optimizer.exp_avg.w");
    assert_string_equal(sum.first_file, GOLDEN "bad-moment.safetensors");
    assert_int_equal(sum.first_index, 4);
    assert_int_equal(sum.first_bits, 0x7fc00000);
    in = fopen(GOLDEN "bad-moment.safetensors", "rb");
    assert_non_null(in);
    assert_int_equal(fseek(in, (long)s.last.offset_bytes, SEEK_SET), 0);
    assert_int_equal(fread(&bits, sizeof bits, 1, in), 1);
    assert_int_equal(bits, 0x7fc00000);
    (void)fclose(in);
}

static void test_safetensors__a_signalling_nan_keeps_its_payload(void **ignored)
{
    fb_ckpt_summary sum;
    seen s;
    (void)ignored;
    sum = scan(GOLDEN "bad-in-every-dtype.safetensors", &s);
    /* The writer sorts by alignment: the F64 tensor lies first. */
    assert_string_equal(sum.first_tensor, "float64.x");
    assert_true(sum.first_bits == 0x7ff40000deadbeefu);
}

static void test_safetensors__data_at_an_odd_offset_is_scanned(void **ignored)
{
    seen s;
    fb_ckpt_summary sum = scan(GOLDEN "unaligned.safetensors", &s);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_NON_FINITE);
    assert_string_equal(s.tensor, "b");
    assert_int_equal(s.last.index, 1);
}

static void test_safetensors__a_causal_mask_may_hold_minus_infinity_and_is_shown(void **ignored)
{
    seen s;
    fb_ckpt_summary sum = scan(GOLDEN "causal-mask.safetensors", &s);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_CLEAN);
    assert_int_equal(s.findings, 1);
    assert_int_equal(s.legal, 1);
    assert_int_equal(sum.legal_tensors, 1);
    assert_int_equal(sum.bad, 0);
    assert_int_equal(s.last.neg_inf, 6);
}

static void test_safetensors__a_trained_parameter_called_mask_is_no_mask(void **ignored)
{
    const char *const legal[] = {"*.nothing", "mask_*", NULL};
    fb_ckpt_options options;
    seen s;
    (void)ignored;
    assert_int_equal(scan(GOLDEN "trained-mask-token.safetensors", &s).outcome, FB_CKPT_NON_FINITE);
    memset(&options, 0, sizeof options);
    options.legal = legal; /* somebody says so: shown, and no fault */
    assert_int_equal(scan_with(GOLDEN "trained-mask-token.safetensors", &options, &s).outcome, FB_CKPT_CLEAN);
    assert_int_equal(s.legal, 1);
    assert_int_equal(scan_with(GOLDEN "bad-moment.safetensors", &options, &s).outcome, FB_CKPT_NON_FINITE);
}

static void test_safetensors__nothing_scanned_is_not_called_clean(void **ignored)
{
    seen s;
    fb_ckpt_summary sum = scan(GOLDEN "no-tensor.safetensors", &s);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_UNSUPPORTED);
    assert_non_null(strstr(sum.reason.message, "nothing was checked"));
    sum = scan(GOLDEN "only-integers.safetensors", &s);
    assert_int_equal(sum.outcome, FB_CKPT_CLEAN);
    assert_int_equal(sum.elements, 3);
    assert_int_equal(sum.checked, 0);
    sum = scan(GOLDEN "six-bit.safetensors", &s);
    assert_int_equal(sum.elements, 4);
    assert_int_equal(sum.checked, 0);
}

static void test_safetensors__an_unknown_number_format_is_listed_and_the_rest_is_scanned(void **ignored)
{
    seen s;
    fb_ckpt_summary sum = scan(GOLDEN "unknown-dtype.safetensors", &s);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_UNSUPPORTED);
    assert_int_equal(s.outcome, FB_CKPT_UNSUPPORTED);
    assert_int_equal(sum.checked, 1);
    assert_int_equal(s.unscanned, 1);
    assert_non_null(strstr(s.why, "F12_X"));
}

static void test_safetensors__a_field_of_a_later_release_is_passed_over(void **ignored)
{
    seen s;
    (void)ignored;
    assert_int_equal(scan(GOLDEN "unknown-key.safetensors", &s).outcome, FB_CKPT_CLEAN);
}

static void test_safetensors__the_digest_is_that_of_the_whole_file(void **ignored)
{
    static const char *const files[] = {"every-dtype", "bad-moment", "unknown-dtype", "unaligned", "no-tensor", "six-bit"};
    fb_ckpt_options options;
    seen s;
    (void)ignored;
    memset(&options, 0, sizeof options);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[256];
        (void)snprintf(path, sizeof path, GOLDEN "%s.safetensors", files[i]);
        assert_true(scan(path, &s).digest == digest_of_file(path));
        options.sync = 1;
        assert_true(scan_with(path, &options, &s).digest == digest_of_file(path));
    }
}

/* ---- hostile files ---------------------------------------------------------------------------------------------------------- */

typedef struct refusal {
    const char *name;
    int32_t outcome;
    const char *says;
    uint64_t offset; /* UINT64_MAX: not looked at */
} refusal;

#define ANY UINT64_MAX
static const refusal refusals[] = {
    {"truncated-length", FB_CKPT_UNREADABLE, "too short", 3},
    {"truncated-header", FB_CKPT_UNREADABLE, "announced", 0},
    {"truncated-data", FB_CKPT_UNREADABLE, "names bytes 0 to 8 of 7", ANY},
    {"trailing-data", FB_CKPT_UNREADABLE, "1 bytes follow the last tensor", ANY},
    {"length-past-end", FB_CKPT_UNREADABLE, "a header of 10000000 bytes is announced", 0},
    {"length-bomb", FB_CKPT_UNREADABLE, "announced", 0},
    {"length-all-ones", FB_CKPT_UNREADABLE, "announced", 0},
    {"length-zero", FB_CKPT_UNREADABLE, "no strict JSON", 8},
    {"length-short", FB_CKPT_UNREADABLE, "no strict JSON", ANY},
    {"overlap", FB_CKPT_UNREADABLE, "tensor b overlaps another", ANY},
    {"same-range", FB_CKPT_UNREADABLE, "overlaps another", ANY},
    {"contained", FB_CKPT_UNREADABLE, "tensor b overlaps another", ANY},
    {"hole", FB_CKPT_UNREADABLE, "tensor b follows a hole", ANY},
    {"hole-at-start", FB_CKPT_UNREADABLE, "tensor a follows a hole", ANY},
    {"empty-tensor-inside", FB_CKPT_UNREADABLE, "tensor z overlaps another", ANY},
    {"past-end", FB_CKPT_UNREADABLE, "names bytes 0 to 4096 of 8", ANY},
    {"far-past-end", FB_CKPT_UNREADABLE, "names bytes", ANY},
    {"backwards", FB_CKPT_UNREADABLE, "names bytes 8 to 0", ANY},
    {"negative-offset", FB_CKPT_UNREADABLE, "an offset must be an integer", ANY},
    {"negative-shape", FB_CKPT_UNREADABLE, "a dimension must be an integer", ANY},
    {"float-shape", FB_CKPT_UNREADABLE, "a dimension must be an integer", 37},
    {"exponent-offset", FB_CKPT_UNREADABLE, "an offset must be an integer", ANY},
    {"string-offset", FB_CKPT_UNREADABLE, "an offset must be an integer", ANY},
    {"offset-over-64-bits", FB_CKPT_UNREADABLE, "an offset must be an integer", ANY},
    {"shape-overflow", FB_CKPT_UNREADABLE, "more than 2^64 elements", ANY},
    {"shape-overflow-by-bits", FB_CKPT_UNREADABLE, "more than 2^64 bits", ANY},
    {"shape-overflow-then-zero", FB_CKPT_UNREADABLE, "more than 2^64 elements", ANY},
    {"shape-disagrees", FB_CKPT_UNREADABLE, "takes 12 bytes by its shape, and names 8", ANY},
    {"half-byte", FB_CKPT_UNREADABLE, "ends inside a byte", ANY},
    {"one-offset", FB_CKPT_UNREADABLE, "must have two numbers, found 1", ANY},
    {"three-offsets", FB_CKPT_UNREADABLE, "more than two numbers", ANY},
    {"no-dtype", FB_CKPT_UNREADABLE, "has no dtype", ANY},
    {"no-shape", FB_CKPT_UNREADABLE, "has no shape", ANY},
    {"no-offsets", FB_CKPT_UNREADABLE, "has no data_offsets", ANY},
    {"dtype-number", FB_CKPT_UNREADABLE, "a dtype must be a text", ANY},
    {"two-dtypes", FB_CKPT_UNREADABLE, "same field twice", ANY},
    {"two-names", FB_CKPT_UNREADABLE, "two tensors have the name a", ANY},
    {"two-names-escaped", FB_CKPT_UNREADABLE, "two tensors have the name a", ANY},
    {"two-metadata", FB_CKPT_UNREADABLE, "__metadata__ stands there twice", ANY},
    {"metadata-number", FB_CKPT_UNREADABLE, "__metadata__ may hold texts alone", ANY},
    {"metadata-list", FB_CKPT_UNREADABLE, "__metadata__ must be an object", ANY},
    {"entry-list", FB_CKPT_UNREADABLE, "must be an object", ANY},
    {"header-list", FB_CKPT_UNREADABLE, "the header must be an object", 8},
    {"bad-utf8", FB_CKPT_UNREADABLE, "UTF-8", ANY},
    {"overlong-utf8", FB_CKPT_UNREADABLE, "UTF-8", ANY},
    {"lone-surrogate", FB_CKPT_UNREADABLE, "no strict JSON", ANY},
    {"nul-in-name", FB_CKPT_UNREADABLE, "control character 0x00", ANY},
    {"raw-control", FB_CKPT_UNREADABLE, "no strict JSON", ANY},
    {"long-name", FB_CKPT_LIMIT, "more than 4096 bytes", ANY},
    {"deep", FB_CKPT_UNREADABLE, "must be an object", ANY},
    {"deep-unknown-key", FB_CKPT_LIMIT, "no strict JSON", ANY},
    {"trailing-comma", FB_CKPT_UNREADABLE, "no strict JSON", ANY},
    {"two-documents", FB_CKPT_UNREADABLE, "no strict JSON", ANY},
    {"nan-literal", FB_CKPT_UNREADABLE, "no strict JSON", ANY},
    {"many-dims", FB_CKPT_LIMIT, "more than 64 dimensions", ANY},
};

static void test_safetensors__every_hostile_file_is_refused_in_a_sentence(void **ignored)
{
    (void)ignored;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const refusal *r = &refusals[i];
        char path[256];
        seen s;
        fb_ckpt_summary sum;
        (void)snprintf(path, sizeof path, GOLDEN "hostile/%s.safetensors", r->name);
        sum = scan(path, &s);
        if (sum.outcome != r->outcome) fail_msg("%s: %s: %s", r->name, fb_ckpt_outcome_name(sum.outcome), sum.reason.message);
        if (!strstr(sum.reason.message, r->says)) fail_msg("%s: %s", r->name, sum.reason.message);
        if (!strstr(sum.reason.message, path)) fail_msg("%s: no file name in: %s", r->name, sum.reason.message);
        if (r->offset != ANY && sum.reason.offset_bytes != r->offset) {
            fail_msg("%s: offset %llu: %s", r->name, (unsigned long long)sum.reason.offset_bytes, sum.reason.message);
        }
        assert_int_equal(sum.tensors, 0); /* no data is read before the whole table is proven */
        assert_int_equal(s.outcome, r->outcome);
    }
}

static char folder[] = "/tmp/firstbad-safetensors-XXXXXX";

static char *temp_path(const char *name)
{
    static char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(data, 1, bytes, out), bytes);
    assert_int_equal(fclose(out), 0);
}

static char *header_file(const char *name, const char *header, size_t header_bytes, const void *data, size_t bytes)
{
    char *path = temp_path(name);
    FILE *out = fopen(path, "wb");
    uint64_t n = header_bytes;
    assert_non_null(out);
    for (unsigned i = 0; i < 8; i++) assert_int_not_equal(fputc((int)(n >> (8 * i) & 0xff), out), EOF);
    assert_int_equal(fwrite(header, 1, header_bytes, out), header_bytes);
    if (bytes) assert_int_equal(fwrite(data, 1, bytes, out), bytes);
    assert_int_equal(fclose(out), 0);
    return path;
}

static void test_safetensors__a_thousand_names_of_the_same_bytes_are_refused_before_data_is_read(void **ignored)
{
    size_t room = 1000 * 80, used = 0;
    char *header = malloc(room);
    fb_ckpt_summary sum;
    seen s;
    char data[1600] = {0};
    (void)ignored;
    assert_non_null(header);
    header[used++] = '{';
    for (int i = 0; i < 1000; i++) {
        used += (size_t)snprintf(header + used, room - used,
                                 "%s\"t%d\":{\"dtype\":\"F32\",\"shape\":[400],\"data_offsets\":[0,1600]}", i ? "," : "", i);
    }
    header[used++] = '}';
    sum = scan(header_file("bomb.safetensors", header, used, data, sizeof data), &s);
    assert_int_equal(sum.outcome, FB_CKPT_UNREADABLE);
    assert_non_null(strstr(sum.reason.message, "overlaps another"));
    assert_int_equal(s.progress, 0);
    free(header);
}

static void test_safetensors__more_tensors_or_header_than_asked_for_are_a_limit(void **ignored)
{
    fb_ckpt_options options;
    fb_ckpt_summary sum;
    seen s;
    (void)ignored;
    memset(&options, 0, sizeof options);
    options.tensors_max = 21;
    sum = scan_with(GOLDEN "every-dtype.safetensors", &options, &s);
    assert_int_equal(sum.outcome, FB_CKPT_LIMIT);
    assert_non_null(strstr(sum.reason.message, "more than 21 tensors"));
    options.tensors_max = 22;
    assert_int_equal(scan_with(GOLDEN "every-dtype.safetensors", &options, &s).outcome, FB_CKPT_CLEAN);
    options.header_bytes_max = 100;
    assert_int_equal(scan_with(GOLDEN "every-dtype.safetensors", &options, &s).outcome, FB_CKPT_LIMIT);
}

/* Each prefix of a real file is unreadable, and no byte flip in its header crashes or hangs the reader. */
static void test_safetensors__every_prefix_of_a_real_file_is_unreadable(void **ignored)
{
    char *data;
    size_t bytes;
    fb_error err;
    (void)ignored;
    assert_int_equal(fb_os_read_file(fb_os_posix(), GOLDEN "bad-moment.safetensors", 1 << 20, &data, &bytes, &err), FB_OK);
    for (size_t n = 0; n < bytes; n++) {
        seen s;
        char *path = temp_path("prefix.safetensors");
        write_file(path, data, n);
        assert_int_equal(scan(path, &s).outcome, FB_CKPT_UNREADABLE);
    }
    fb_free(data);
}

/* ---- pieces ----------------------------------------------------------------------------------------------------------------- */

/* A file of several buffers, whose elements straddle the ends of the buffer: the index and the counts must not care. */
static void test_safetensors__pieces_give_the_same_result_as_one_read(void **ignored)
{
    enum { COUNT = 40000 };
    static const uint64_t bad[] = {0, 511, 512, 1023, 1024, 4095, 20000, COUNT - 1};
    double *data = calloc(COUNT, sizeof *data);
    char header[200];
    char *path;
    int pad = (int)(getpid() % 8); /* some alignment; printed when it fails */
    int n;
    (void)ignored;
    assert_non_null(data);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t nan = 0x7ff8000000000000u;
        fb_ckpt_options options;
        seen s;
        memset(data, 0, COUNT * sizeof *data);
        memcpy(&data[bad[i]], &nan, sizeof nan);
        memcpy(&data[COUNT - 1], &nan, sizeof nan);
        n = snprintf(header, sizeof header, "{\"x\":{\"dtype\":\"F64\",\"shape\":[%d],\"data_offsets\":[0,%d]}}%*s", COUNT,
                     COUNT * 8, pad, "");
        path = header_file("pieces.safetensors", header, (size_t)n, data, COUNT * sizeof *data);
        memset(&options, 0, sizeof options);
        options.buffer_bytes = 4096 + (uint64_t)i;
        for (int whole = 0; whole < 2; whole++) {
            fb_ckpt_summary sum = scan_with(path, whole ? NULL : &options, &s);
            if (s.last.index != bad[i]) fail_msg("padding %d: index %llu", pad, (unsigned long long)s.last.index);
            assert_int_equal(sum.bad, bad[i] == COUNT - 1 ? 1 : 2);
            assert_true(sum.digest == digest_of_file(path));
        }
    }
    free(data);
}

typedef struct meddler {
    fb_os os;
    const fb_os *real;
    const char *path;
    int how; /* 1: append, 2: replace, 3: cut, 4: remove */
    int reads, at;
} meddler;

static int64_t meddling_pread(void *ctx, int fd, void *data, size_t bytes, uint64_t offset)
{
    meddler *m = ctx;
    if (++m->reads == m->at) {
        char other[520];
        FILE *out;
        (void)snprintf(other, sizeof other, "%s.new", m->path);
        if (m->how == 1) {
            out = fopen(m->path, "ab");
            assert_non_null(out);
            assert_int_not_equal(fputc(0, out), EOF);
            assert_int_equal(fclose(out), 0);
        } else if (m->how == 2) {
            write_file(other, "new", 3);
            assert_int_equal(rename(other, m->path), 0);
        } else if (m->how == 3) {
            assert_int_equal(truncate(m->path, 100), 0);
        } else {
            assert_int_equal(unlink(m->path), 0);
        }
    }
    return m->real->pread(m->real->ctx, fd, data, bytes, offset);
}

static int64_t meddling_fstat(void *ctx, int fd, fb_os_info *info)
{
    meddler *m = ctx;
    return m->real->fstat(m->real->ctx, fd, info);
}

static int64_t meddling_stat(void *ctx, const char *path, fb_os_info *info)
{
    meddler *m = ctx;
    return m->real->stat(m->real->ctx, path, info);
}

static int64_t meddling_open(void *ctx, const char *path, int flags, int mode)
{
    meddler *m = ctx;
    return m->real->open(m->real->ctx, path, flags, mode);
}

static int64_t meddling_close(void *ctx, int fd)
{
    meddler *m = ctx;
    return m->real->close(m->real->ctx, fd);
}

static void test_safetensors__a_file_that_changes_while_it_is_read_is_unreadable(void **ignored)
{
    static const char *const says[] = {"", "written to", "another file took its name", "", "removed"};
    char *data;
    size_t bytes;
    fb_error err;
    (void)ignored;
    assert_int_equal(fb_os_read_file(fb_os_posix(), GOLDEN "every-dtype.safetensors", 1 << 20, &data, &bytes, &err), FB_OK);
    for (int how = 1; how <= 4; how++) {
        for (int at = 1; at <= 3; at++) { /* the head, the length, the header */
            fb_ckpt_summary sum;
            meddler m;
            char path[512];
            memset(&m, 0, sizeof m);
            m.real = fb_os_posix();
            m.os = *m.real;
            m.os.ctx = &m;
            m.os.pread = meddling_pread;
            m.os.fstat = meddling_fstat;
            m.os.stat = meddling_stat;
            m.os.open = meddling_open;
            m.os.close = meddling_close;
            (void)snprintf(path, sizeof path, "%s/changing.safetensors", folder);
            write_file(path, data, bytes);
            m.path = path;
            m.how = how;
            m.at = at;
            assert_int_equal(fb_ckpt_scan_path(&m.os, path, NULL, NULL, &sum, &err), FB_OK);
            assert_true(m.reads >= at);
            if (sum.outcome != FB_CKPT_UNREADABLE) fail_msg("how %d at %d: %s", how, at, fb_ckpt_outcome_name(sum.outcome));
            assert_non_null(strstr(sum.reason.message, says[how]));
        }
    }
    fb_free(data);
}

/* ---- folders ---------------------------------------------------------------------------------------------------------------- */

static void test_safetensors__a_sharded_checkpoint_is_one_checkpoint(void **ignored)
{
    seen s;
    fb_ckpt_summary sum = scan(GOLDEN "sharded", &s);
    (void)ignored;
    if (sum.outcome != FB_CKPT_CLEAN) fail_msg("%s", sum.reason.message);
    assert_int_equal(sum.files, 2);
    assert_int_equal(sum.tensors, 3);
    assert_int_equal(s.notes, 0);
    assert_true(sum.digest != 0);
}

static void test_safetensors__a_checkpoint_without_one_of_its_shards_is_unreadable(void **ignored)
{
    seen s;
    fb_ckpt_summary sum = scan(GOLDEN "sharded-missing", &s);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_UNREADABLE);
    assert_non_null(strstr(sum.reason.message, "the file model-00002-of-00002.safetensors, which is missing"));
    assert_int_equal(sum.tensors, 2); /* the rest is scanned all the same */
}

static void copy_file(const char *from, const char *to)
{
    char *data;
    size_t bytes;
    fb_error err;
    assert_int_equal(fb_os_read_file(fb_os_posix(), from, 1 << 20, &data, &bytes, &err), FB_OK);
    write_file(to, data, bytes);
    fb_free(data);
}

static void make_folder(const char *name, char *path, size_t room)
{
    (void)snprintf(path, room, "%s/%s", folder, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void test_safetensors__numbered_shards_without_an_index_miss_each_other(void **ignored)
{
    char dir[256], path[512];
    seen s;
    fb_ckpt_summary sum;
    (void)ignored;
    make_folder("numbered", dir, sizeof dir);
    (void)snprintf(path, sizeof path, "%s/m-00002-of-00002.safetensors", dir);
    copy_file(GOLDEN "unknown-key.safetensors", path);
    sum = scan(dir, &s);
    assert_int_equal(sum.outcome, FB_CKPT_UNREADABLE);
    assert_non_null(strstr(sum.reason.message, "m-00001-of-00002.safetensors is missing"));
    (void)snprintf(path, sizeof path, "%s/m-00001-of-00002.safetensors", dir);
    copy_file(GOLDEN "unknown-key.safetensors", path);
    assert_int_equal(scan(dir, &s).outcome, FB_CKPT_CLEAN);
}

static void test_safetensors__tensors_must_be_where_the_index_says(void **ignored)
{
    seen s;
    fb_ckpt_summary sum = scan(GOLDEN "sharded-wrong-shard", &s);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_UNREADABLE);
    assert_non_null(strstr(sum.reason.message, "h.2.w, which should be in model-00001-of-00002.safetensors"));
    sum = scan(GOLDEN "sharded-unlisted", &s);
    assert_int_equal(sum.outcome, FB_CKPT_CLEAN);
    assert_int_equal(s.notes, 1);
    assert_non_null(strstr(s.note, "h.1.w is here, and the index does not list it"));
}

static void test_safetensors__an_index_cannot_lead_out_of_its_folder(void **ignored)
{
    seen s;
    fb_ckpt_summary sum = scan(GOLDEN "sharded-path", &s);
    (void)ignored;
    assert_int_equal(sum.outcome, FB_CKPT_UNREADABLE);
    assert_non_null(strstr(sum.reason.message, "is not the name of a file in this folder"));
}

static void test_safetensors__a_part_that_was_not_looked_at_keeps_a_folder_from_being_clean(void **ignored)
{
    static const char other[] = "\x01\x02\x03\x04 optimizer state in a format of a later build";
    char dir[256], path[512];
    seen s;
    fb_ckpt_summary sum;
    (void)ignored;
    make_folder("mixed", dir, sizeof dir);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", dir);
    copy_file(GOLDEN "unknown-key.safetensors", path);
    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    write_file(path, "{\"layers\": 12}\n", 15);
    (void)snprintf(path, sizeof path, "%s/done", dir);
    write_file(path, "", 0);
    (void)snprintf(path, sizeof path, "%s/tokenizer.model", dir);
    write_file(path, "\x00\x01\x02", 3);
    assert_int_equal(scan(dir, &s).outcome, FB_CKPT_CLEAN);
    (void)snprintf(path, sizeof path, "%s/optimizer.xyz", dir);
    write_file(path, other, sizeof other);
    sum = scan(dir, &s);
    assert_int_equal(sum.outcome, FB_CKPT_UNSUPPORTED);
    assert_int_equal(s.unscanned, 1);
    assert_non_null(strstr(s.unscanned_file, "optimizer.xyz"));
    assert_int_equal(sum.checked, 1);
    assert_int_equal(unlink(path), 0);
    (void)snprintf(path, sizeof path, "%s/link.safetensors", dir);
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_int_equal(scan(dir, &s).outcome, FB_CKPT_UNSUPPORTED);
    assert_non_null(strstr(s.why, "symbolic link"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* must not block */
    assert_int_equal(scan(dir, &s).outcome, FB_CKPT_UNSUPPORTED);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(scan(dir, &s).outcome, FB_CKPT_CLEAN);
}

static void test_safetensors__the_digest_of_a_folder_sees_names_and_content(void **ignored)
{
    char dir[256], path[512], other[512];
    seen s;
    uint64_t first, second;
    (void)ignored;
    make_folder("digest", dir, sizeof dir);
    (void)snprintf(path, sizeof path, "%s/a.safetensors", dir);
    (void)snprintf(other, sizeof other, "%s/b.safetensors", dir);
    copy_file(GOLDEN "unknown-key.safetensors", path);
    first = scan(dir, &s).digest;
    assert_true(scan(dir, &s).digest == first);
    assert_int_equal(rename(path, other), 0);
    second = scan(dir, &s).digest;
    assert_true(second != first);
    copy_file(GOLDEN "causal-mask.safetensors", other);
    assert_true(scan(dir, &s).digest != second);
}

static void test_safetensors__what_is_not_there_or_no_checkpoint_says_so(void **ignored)
{
    fb_ckpt_summary sum;
    fb_error err;
    seen s;
    char *path;
    (void)ignored;
    assert_int_equal(fb_ckpt_scan_path(fb_os_posix(), "no/such/file", NULL, NULL, &sum, &err), FB_E_NOTFOUND);
    assert_int_equal(sum.outcome, FB_CKPT_UNREADABLE);
    assert_non_null(strstr(err.message, "no such file"));
    assert_int_equal(fb_ckpt_scan_path(fb_os_posix(), NULL, NULL, NULL, &sum, &err), FB_E_USAGE);
    path = temp_path("some.bin");
    write_file(path, "GGUF and so on", 14);
    assert_int_equal(scan(path, &s).outcome, FB_CKPT_UNSUPPORTED);
    write_file(path, "", 0);
    sum = scan(path, &s);
    assert_int_equal(sum.outcome, FB_CKPT_UNREADABLE);
    assert_non_null(strstr(sum.reason.message, "is empty: the save did not finish"));
    path = temp_path("no-promise");
    write_file(path, "", 0);
    assert_int_equal(scan(path, &s).outcome, FB_CKPT_UNSUPPORTED);
    assert_string_equal(s.why, "the file is empty");
}

/* ---- memory, names, order --------------------------------------------------------------------------------------------------- */

static void test_safetensors__every_failing_request_for_memory_is_reported(void **ignored)
{
    static const char *const paths[] = {GOLDEN "every-dtype.safetensors", GOLDEN "sharded"};
    (void)ignored;
    for (size_t p = 0; p < 2; p++) {
        fb_ckpt_summary sum;
        fb_error err;
        uint64_t requests;
        fb_alloc_fail_at(0, 0);
        assert_int_equal(fb_ckpt_scan_path(fb_os_posix(), paths[p], NULL, NULL, &sum, &err), FB_OK);
        requests = fb_alloc_requests();
        assert_true(requests > 3);
        for (uint64_t k = 1; k <= requests; k++) {
            fb_status status;
            fb_alloc_fail_at(k, 0);
            status = fb_ckpt_scan_path(fb_os_posix(), paths[p], NULL, NULL, &sum, &err);
            fb_alloc_fail_at(0, 0);
            assert_int_equal(status, FB_E_NOMEM);
            assert_int_equal(sum.outcome, FB_CKPT_UNREADABLE);
        }
    }
}

static void test_safetensors__name_patterns_know_one_star(void **ignored)
{
    (void)ignored;
    assert_true(fb_ckpt_name_fits("*mask*", "h.0.attn.mask"));
    assert_true(fb_ckpt_name_fits("*mask*", "mask"));
    assert_false(fb_ckpt_name_fits("*mask*", "h.0.mas"));
    assert_true(fb_ckpt_name_fits("a*b*c", "aXbbYbc"));
    assert_false(fb_ckpt_name_fits("a*b*c", "aXbbYbcd"));
    assert_true(fb_ckpt_name_fits("*", ""));
    assert_false(fb_ckpt_name_fits("", "a"));
    assert_true(fb_ckpt_name_fits("**a", "a"));
}

static int compare_values(const void *ctx, uint32_t a, uint32_t b)
{
    const uint32_t *values = ctx;
    return values[a] < values[b] ? -1 : values[a] > values[b];
}

static void test_safetensors__sorting_sorts(void **ignored)
{
    uint32_t values[300], order[300];
    uint64_t seed = (uint64_t)getpid();
    (void)ignored;
    for (uint64_t n = 0; n < 300; n++) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint64_t word[2] = {n, i};
            values[i] = (uint32_t)fb_hash64(word, sizeof word, seed) % 50;
            order[i] = i;
        }
        fb_ckpt_sort(order, n, compare_values, values);
        for (uint32_t i = 0; i < n; i++) {
            sum += order[i];
            if (i && values[order[i - 1]] > values[order[i]])
                fail_msg("seed %llu, %llu values", (unsigned long long)seed, (unsigned long long)n);
        }
        assert_int_equal(sum, n ? n * (n - 1) / 2 : 0);
    }
}

static int set_up(void **ignored)
{
    (void)ignored;
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **ignored)
{
    char command[300];
    (void)ignored;
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors__every_dtype_of_the_library_is_read_and_finite),
        cmocka_unit_test(test_safetensors__one_bad_element_is_found_in_every_format_that_has_one),
        cmocka_unit_test(test_safetensors__a_finding_names_tensor_index_bits_and_offset),
        cmocka_unit_test(test_safetensors__a_signalling_nan_keeps_its_payload),
        cmocka_unit_test(test_safetensors__data_at_an_odd_offset_is_scanned),
        cmocka_unit_test(test_safetensors__a_causal_mask_may_hold_minus_infinity_and_is_shown),
        cmocka_unit_test(test_safetensors__a_trained_parameter_called_mask_is_no_mask),
        cmocka_unit_test(test_safetensors__nothing_scanned_is_not_called_clean),
        cmocka_unit_test(test_safetensors__an_unknown_number_format_is_listed_and_the_rest_is_scanned),
        cmocka_unit_test(test_safetensors__a_field_of_a_later_release_is_passed_over),
        cmocka_unit_test(test_safetensors__the_digest_is_that_of_the_whole_file),
        cmocka_unit_test(test_safetensors__every_hostile_file_is_refused_in_a_sentence),
        cmocka_unit_test(test_safetensors__a_thousand_names_of_the_same_bytes_are_refused_before_data_is_read),
        cmocka_unit_test(test_safetensors__more_tensors_or_header_than_asked_for_are_a_limit),
        cmocka_unit_test(test_safetensors__every_prefix_of_a_real_file_is_unreadable),
        cmocka_unit_test(test_safetensors__pieces_give_the_same_result_as_one_read),
        cmocka_unit_test(test_safetensors__a_file_that_changes_while_it_is_read_is_unreadable),
        cmocka_unit_test(test_safetensors__a_sharded_checkpoint_is_one_checkpoint),
        cmocka_unit_test(test_safetensors__a_checkpoint_without_one_of_its_shards_is_unreadable),
        cmocka_unit_test(test_safetensors__numbered_shards_without_an_index_miss_each_other),
        cmocka_unit_test(test_safetensors__tensors_must_be_where_the_index_says),
        cmocka_unit_test(test_safetensors__an_index_cannot_lead_out_of_its_folder),
        cmocka_unit_test(test_safetensors__a_part_that_was_not_looked_at_keeps_a_folder_from_being_clean),
        cmocka_unit_test(test_safetensors__the_digest_of_a_folder_sees_names_and_content),
        cmocka_unit_test(test_safetensors__what_is_not_there_or_no_checkpoint_says_so),
        cmocka_unit_test(test_safetensors__every_failing_request_for_memory_is_reported),
        cmocka_unit_test(test_safetensors__name_patterns_know_one_star),
        cmocka_unit_test(test_safetensors__sorting_sorts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
