/* From a reader's tensors to findings: one pass over the data, piece by piece. */
#include "ckpt/scan.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "firstbad/scan.h"

enum { BUFFER_BYTES = 256 << 10, BUFFER_BYTES_MIN = 4096 };

/* What has been seen of one tensor so far. */
typedef struct tally {
    uint64_t nan, pos_inf, neg_inf, zero;
    uint64_t first_index, first_bits;
    int32_t first_kind;
    int32_t exact; /* 1: zeros are wanted too, so every piece gets the full statistics */
} tally;

int fb_ckpt_name_fits(const char *pattern, const char *name)
{
    const char *star = NULL, *from = NULL;
    while (*name) {
        if (*pattern == '*') {
            star = pattern++; /* let it stand for nothing, and for one character more each time the rest does not fit */
            from = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++from;
        } else {
            return 0;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == '\0';
}

/* ---- outcomes --------------------------------------------------------------------------------------------------------------- */

void fb_ckpt_scan_outcome(fb_ckpt_scan *scan, int32_t outcome, const fb_error *reason)
{
    if (reason && reason->code != FB_OK && outcome > scan->reason_of) {
        scan->summary->reason = *reason;
        scan->reason_of = outcome;
    }
    if (outcome > scan->summary->outcome) scan->summary->outcome = outcome;
}

int32_t fb_ckpt_outcome_of(fb_status status)
{
    switch (status) {
    case FB_E_CORRUPT: return FB_CKPT_UNREADABLE;
    case FB_E_LIMIT: return FB_CKPT_LIMIT;
    case FB_E_UNSUPPORTED: return FB_CKPT_UNSUPPORTED;
    default: return -1;
    }
}

void fb_ckpt_scan_unscanned(fb_ckpt_scan *scan, const char *file, const char *tensor, const char *why)
{
    fb_error reason;
    scan->summary->unscanned++;
    if (scan->sink.unscanned) scan->sink.unscanned(scan->sink.ctx, file, tensor, why);
    (void)fb_fail(&reason, FB_E_UNSUPPORTED, "scan %s%s%.200s: not looked at: %s", file, *tensor ? ", tensor " : "", tensor, why);
    fb_ckpt_scan_outcome(scan, FB_CKPT_UNSUPPORTED, &reason);
}

/* ---- one tensor ------------------------------------------------------------------------------------------------------------- */

static fb_status scan_piece(const fb_ckpt_tensor *tensor, tally *t, const uint8_t *data, uint64_t elements, uint64_t index,
                            fb_error *err)
{
    fb_scan_result result = FB_SCAN_RESULT_INIT;
    fb_view view;
    fb_status status;
    memset(&view, 0, sizeof view);
    view.data = (void *)(uintptr_t)data; /* a scan never writes */
    view.count = elements;
    view.dtype = tensor->dtype;
    view.device = -1;
    if (!t->exact) {
        uint64_t first = FB_NO_INDEX;
        if ((status = fb_scan_first(&view, &first, err)) != FB_OK || first == FB_NO_INDEX) return status;
    }
    if ((status = fb_scan(&view, &result, err)) != FB_OK) return status;
    t->nan += result.nan;
    t->pos_inf += result.pos_inf;
    t->neg_inf += result.neg_inf;
    t->zero += result.zero;
    if (t->first_index == FB_NO_INDEX && result.first_index != FB_NO_INDEX) {
        t->first_index = index + result.first_index;
        t->first_bits = result.first_bits;
        t->first_kind = result.first_kind;
    }
    return FB_OK;
}

/*
 * Can elements of this format be non-finite? Asked of the scanner itself, so that there is one truth about formats. A scanner that
 * cannot work must not make a file look as if there were nothing to find in it.
 */
static fb_status ask_scanner(fb_ckpt_scan *scan, int32_t dtype, int *look, fb_error *err)
{
    static const uint64_t zero[2];
    fb_scan_result result = FB_SCAN_RESULT_INIT;
    fb_view view;
    fb_status status;
    *look = 0;
    if (dtype <= 0 || dtype >= FB_CKPT_DTYPES) return FB_OK;
    if (scan->answers[dtype] == 0) {
        memset(&view, 0, sizeof view);
        view.data = (void *)(uintptr_t)zero;
        view.count = 1;
        view.dtype = dtype;
        view.device = -1;
        if ((status = fb_scan(&view, &result, err)) != FB_OK) return status;
        scan->answers[dtype] = result.checked ? FB_CKPT_LOOK : FB_CKPT_NOTHING;
    }
    *look = scan->answers[dtype] == FB_CKPT_LOOK;
    return FB_OK;
}

/* All bytes of a tensor pass through here, scanned or not, so that the digest sees the file in order. */
static fb_status read_tensor(fb_ckpt_scan *scan, fb_ckpt_file *file, const fb_ckpt_extent *extent, const fb_ckpt_tensor *tensor,
                             int look, tally *t, fb_error *err)
{
    uint64_t unit = look ? fb_dtype_bytes(tensor->dtype, 1) : 1;
    uint64_t at = extent->offset_bytes, end = at + extent->bytes, index = 0;
    while (at < end) {
        const uint8_t *data;
        size_t got;
        uint64_t elements;
        fb_status status = fb_ckpt_file_view(file, at, (size_t)unit, &data, &got, err);
        if (status != FB_OK) return status;
        elements = (got < end - at ? got : end - at) / unit;
        if (elements == 0)
            return fb_fail_at(err, at, "read checkpoint %s: tensor %.200s ends inside an element", file->path, tensor->name);
        if (look && (status = scan_piece(tensor, t, data, elements, index, err)) != FB_OK) return status;
        index += elements;
        at += elements * unit;
        if (scan->sink.progress) scan->sink.progress(scan->sink.ctx, file->path, at, file->info.size_bytes);
    }
    return FB_OK;
}

static int name_says_mask(const char *name)
{
    return fb_ckpt_name_fits("*mask*", name) || fb_ckpt_name_fits("*attn_bias*", name);
}

static int named_legal(const fb_ckpt_scan *scan, const char *name)
{
    for (const char *const *pattern = scan->options.legal; pattern && *pattern; pattern++) {
        if (fb_ckpt_name_fits(*pattern, name)) return 1;
    }
    return 0;
}

/*
 * -Inf is right in an additive mask, and only there. A name alone does not prove one: `mask_token` is a trained parameter, and -Inf
 * in it is a fault. What proves it is the content: a mask holds 0 and -Inf and nothing else.
 */
static int is_legal(const fb_ckpt_scan *scan, const fb_ckpt_tensor *tensor, const tally *t)
{
    if (t->nan > 0 || t->pos_inf > 0) return 0;
    if (named_legal(scan, tensor->name)) return FB_CKPT_LEGAL_NAMED;
    return name_says_mask(tensor->name) && t->zero > 0 && t->zero + t->neg_inf == tensor->elements ? FB_CKPT_LEGAL_MASK : 0;
}

static void remember_first(fb_ckpt_summary *summary, const fb_ckpt_finding *f)
{
    if (summary->bad_tensors > 0) return;
    summary->first_kind = f->kind;
    summary->first_index = f->index;
    summary->first_bits = f->bits;
    (void)snprintf(summary->first_file, sizeof summary->first_file, "%s", f->file);
    (void)snprintf(summary->first_tensor, sizeof summary->first_tensor, "%s", f->tensor);
}

static void report(fb_ckpt_scan *scan, const fb_ckpt_file *file, const fb_ckpt_extent *extent, const fb_ckpt_tensor *tensor,
                   const tally *t, int32_t *outcome)
{
    fb_ckpt_finding f;
    memset(&f, 0, sizeof f);
    f.file = file->path;
    f.tensor = tensor->name;
    f.dtype = tensor->dtype_name;
    f.fb_dtype = tensor->dtype;
    f.ndim = tensor->ndim;
    f.shape = tensor->shape;
    f.elements = tensor->elements;
    f.index = t->first_index;
    f.offset_bytes = extent->offset_bytes + t->first_index * fb_dtype_bytes(tensor->dtype, 1);
    f.bits = t->first_bits;
    f.nan = t->nan;
    f.pos_inf = t->pos_inf;
    f.neg_inf = t->neg_inf;
    f.kind = t->first_kind;
    f.legal = is_legal(scan, tensor, t);
    f.lane = "";
    if (f.legal) {
        scan->summary->legal_tensors++;
    } else {
        remember_first(scan->summary, &f);
        scan->summary->bad_tensors++;
        scan->summary->bad += t->nan + t->pos_inf + t->neg_inf;
        *outcome = FB_CKPT_NON_FINITE;
    }
    if (scan->sink.finding) scan->sink.finding(scan->sink.ctx, &f);
}

static fb_status scan_extent(fb_ckpt_scan *scan, fb_ckpt_file *file, const fb_ckpt_extent *extent, int32_t *outcome, fb_error *err)
{
    const fb_ckpt_tensor *tensor = extent->tensors;
    tally t;
    int look;
    fb_status status = ask_scanner(scan, tensor->dtype, &look, err);
    if (status != FB_OK) return status;
    memset(&t, 0, sizeof t);
    t.first_index = FB_NO_INDEX;
    t.exact = look && name_says_mask(tensor->name);
    if ((status = read_tensor(scan, file, extent, tensor, look, &t, err)) != FB_OK) return status;
    scan->summary->tensors++;
    scan->summary->elements += tensor->elements;
    if (look) scan->summary->checked += tensor->elements;
    if (tensor->dtype == 0) {
        char why[160];
        (void)snprintf(why, sizeof why, "this build does not know the number format %.64s", tensor->dtype_name);
        fb_ckpt_scan_unscanned(scan, file->path, tensor->name, why);
        if (*outcome < FB_CKPT_UNSUPPORTED) *outcome = FB_CKPT_UNSUPPORTED;
    }
    if (t.first_index != FB_NO_INDEX) report(scan, file, extent, tensor, &t, outcome);
    if (scan->sink.tensor) scan->sink.tensor(scan->sink.ctx, file->path, tensor, NULL);
    if (scan->on_tensor) scan->on_tensor(scan->on_tensor_ctx, tensor->name);
    return FB_OK;
}

/* ---- one file --------------------------------------------------------------------------------------------------------------- */

/* How one file is to be taken. */
typedef struct manner {
    int how;
    const fb_ckpt_reader *reader; /* NULL: whose content it is */
    const void *setup;
} manner;

static void take_remarks(fb_ckpt_scan *scan, const fb_ckpt_reader *reader, void *state, const char *path, int32_t *outcome)
{
    fb_ckpt_remark r;
    for (uint64_t i = 0; reader->remark && (memset(&r, 0, sizeof r), reader->remark(state, i, &r)); i++) {
        switch (r.kind) {
        case FB_CKPT_REMARK_NOTE:
            if (scan->sink.note) scan->sink.note(scan->sink.ctx, path, r.text);
            break;
        case FB_CKPT_REMARK_SECURITY:
            scan->summary->security++;
            if (scan->sink.security) scan->sink.security(scan->sink.ctx, path, r.name, r.text);
            break;
        case FB_CKPT_REMARK_FACT:
            if (scan->on_fact) scan->on_fact(scan->on_fact_ctx, path, r.name, r.value);
            break;
        default:
            fb_ckpt_scan_unscanned(scan, path, r.name, r.text);
            if (*outcome < FB_CKPT_UNSUPPORTED) *outcome = FB_CKPT_UNSUPPORTED;
        }
    }
}

static fb_status scan_with(fb_ckpt_scan *scan, const manner *m, fb_ckpt_file *file, int32_t *outcome, uint64_t *digest,
                           fb_error *err)
{
    const fb_ckpt_reader *reader = m->reader;
    void *state = NULL;
    fb_ckpt_extent extent;
    fb_ckpt_range range = {file, 0, file->info.size_bytes, m->setup};
    fb_status status = reader->open(&state, &range, &scan->options, err);
    if (status != FB_OK) return status;
    while (status == FB_OK && (status = reader->next(state, &extent, err)) == FB_OK)
        status = scan_extent(scan, file, &extent, outcome, err);
    if (status == FB_E_NOTFOUND) {
        take_remarks(scan, reader, state, file->path, outcome);
        status = FB_OK;
    }
    reader->close(state);
    if (status == FB_OK) status = fb_ckpt_file_finish(file, digest, err);
    return status;
}

/* Text holds no control characters but those of layout: configurations, tokenizers, READMEs, indices. */
static int is_text(const uint8_t *head, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if ((head[i] < 0x20 && head[i] != '\n' && head[i] != '\r' && head[i] != '\t' && head[i] != '\f') || head[i] == 0x7f)
            return 0;
    }
    return 1;
}

/* Binary files that stand beside checkpoints and hold no state of training. */
static int is_harmless(const char *path)
{
    static const char *const names[] = {"*/tokenizer.model", "*/spiece.model", "*/sentencepiece.bpe.model", "*/tokenizer.model.v3"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (fb_ckpt_name_fits(names[i], path)) return 1;
    }
    return 0;
}

/* Nobody's format. Returns 1 when the file is to be read as safetensors all the same, so that its reader says what is wrong. */
static int nobody(fb_ckpt_scan *scan, const fb_ckpt_file *file, const uint8_t *head, size_t bytes, int how)
{
    if (how == FB_CKPT_EXPECTED) return 1;
    if (how == FB_CKPT_BESIDE && (is_text(head, bytes) || is_harmless(file->path))) return 0;
    fb_ckpt_scan_unscanned(scan, file->path, "",
                           file->info.size_bytes == 0 ? "the file is empty" : "no format that this build reads");
    return 0;
}

static void file_done(fb_ckpt_scan *scan, const fb_ckpt_file *file, const char *format, int32_t outcome, uint64_t digest,
                      const fb_error *reason)
{
    scan->summary->files++;
    scan->summary->bytes += file->info.size_bytes;
    fb_ckpt_scan_outcome(scan, outcome, reason);
    if (scan->sink.file) scan->sink.file(scan->sink.ctx, file->path, format, outcome, file->info.size_bytes, digest, reason);
}

static fb_status scan_open_file(fb_ckpt_scan *scan, fb_ckpt_file *file, const manner *how, int *is_part, uint64_t *digest,
                                fb_error *err)
{
    uint8_t head[FB_CKPT_HEAD_BYTES];
    size_t bytes = file->info.size_bytes < sizeof head ? (size_t)file->info.size_bytes : sizeof head;
    manner m = *how;
    fb_error reason;
    int32_t outcome = FB_CKPT_CLEAN;
    int64_t got;
    fb_status status;
    fb_error_clear(&reason);
    if (scan->options.sync && (got = fb_os_fsync(scan->os, file->fd)) < 0) {
        return fb_fail_os(err, (int)-got, "make checkpoint %s durable", file->path);
    }
    got = fb_os_pread_full(scan->os, file->fd, head, bytes, 0);
    if (got < 0) return fb_fail_os(err, (int)-got, "read checkpoint %s", file->path);
    bytes = (size_t)got;
    if (!m.reader) m.reader = fb_ckpt_reader_find(head, bytes, file->info.size_bytes);
    if (!m.reader && nobody(scan, file, head, bytes, m.how)) m.reader = &fb_ckpt_safetensors;
    if (!m.reader) return FB_OK;
    *is_part = 1;
    status = scan_with(scan, &m, file, &outcome, digest, &reason);
    if (status != FB_OK) {
        if (fb_ckpt_outcome_of(status) < 0) {
            if (err) *err = reason;
            return status;
        }
        outcome = fb_ckpt_outcome_of(status) > outcome ? fb_ckpt_outcome_of(status) : outcome;
        fb_ckpt_scan_outcome(scan, fb_ckpt_outcome_of(status), &reason);
    }
    file_done(scan, file, m.reader->format, outcome, *digest, &reason);
    return FB_OK;
}

static fb_status scan_file(fb_ckpt_scan *scan, const char *path, const manner *how, int *is_part, uint64_t *size_bytes,
                           uint64_t *digest, fb_error *err)
{
    uint64_t room = scan->options.buffer_bytes ? scan->options.buffer_bytes : BUFFER_BYTES;
    fb_ckpt_file file;
    fb_error reason;
    fb_status status;
    *is_part = 0;
    *digest = *size_bytes = 0;
    if (room < BUFFER_BYTES_MIN) room = BUFFER_BYTES_MIN;
    status = fb_ckpt_file_open(&file, scan->os, path, (size_t)room, &reason);
    if (status == FB_E_UNSUPPORTED) { /* a link, a pipe, a folder inside a folder */
        const char *why = strstr(reason.message, path);
        fb_ckpt_scan_unscanned(scan, path, "", why ? why + strlen(path) + 2 : reason.message);
        return FB_OK;
    }
    if (status != FB_OK) {
        if (err) *err = reason;
        return status;
    }
    *size_bytes = file.info.size_bytes;
    status = scan_open_file(scan, &file, how, is_part, digest, err);
    fb_ckpt_file_close(&file);
    return status;
}

fb_status fb_ckpt_scan_file(fb_ckpt_scan *scan, const char *path, int how, int *is_part, uint64_t *size_bytes, uint64_t *digest,
                            fb_error *err)
{
    manner m = {how, NULL, NULL};
    return scan_file(scan, path, &m, is_part, size_bytes, digest, err);
}

fb_status fb_ckpt_scan_file_as(fb_ckpt_scan *scan, const char *path, const fb_ckpt_reader *reader, const void *setup,
                               uint64_t *size_bytes, uint64_t *digest, fb_error *err)
{
    manner m = {FB_CKPT_EXPECTED, reader, setup};
    int is_part;
    return scan_file(scan, path, &m, &is_part, size_bytes, digest, err);
}

/* ---- the whole -------------------------------------------------------------------------------------------------------------- */

static fb_status scan_alone(fb_ckpt_scan *scan, const char *path, fb_error *err)
{
    uint64_t size, digest;
    int is_part;
    int how = fb_ckpt_name_fits("*.safetensors", path) ? FB_CKPT_EXPECTED : FB_CKPT_ALONE;
    fb_status status = fb_ckpt_scan_file(scan, path, how, &is_part, &size, &digest, err);
    scan->summary->digest = digest;
    return status;
}

/* "No NaN was found" and "nothing was looked at" are different results. */
static void nothing_there(fb_ckpt_scan *scan, const char *path)
{
    fb_error reason;
    (void)fb_fail(&reason, FB_E_UNSUPPORTED, "scan %s: it holds no tensor, so nothing was checked", path);
    fb_ckpt_scan_outcome(scan, FB_CKPT_UNSUPPORTED, &reason);
}

fb_status fb_ckpt_scan_path(const fb_os *os, const char *path, const fb_ckpt_options *options, const fb_ckpt_sink *sink,
                            fb_ckpt_summary *summary, fb_error *err)
{
    fb_ckpt_scan scan;
    fb_os_info info;
    fb_status status;
    int64_t got;
    if (!os || !path || !summary) return fb_fail(err, FB_E_USAGE, "scan a checkpoint: os, path and summary must be given");
    memset(&scan, 0, sizeof scan);
    memset(summary, 0, sizeof *summary);
    summary->step = -1;
    scan.os = os;
    scan.summary = summary;
    if (options) scan.options = *options;
    if (sink) scan.sink = *sink;
    got = os->stat(os->ctx, path, &info);
    if (got == -ENOENT || got == -ENOTDIR) status = fb_fail(err, FB_E_NOTFOUND, "scan %s: no such file or folder", path);
    else if (got < 0) status = fb_fail_os(err, (int)-got, "scan %s", path);
    else if (info.kind == FB_OS_FOLDER) status = fb_ckpt_scan_folder(&scan, path, err);
    else status = scan_alone(&scan, path, err);
    if (status != FB_OK) summary->outcome = FB_CKPT_UNREADABLE;
    else if (summary->tensors == 0 && summary->outcome == FB_CKPT_CLEAN) nothing_there(&scan, path);
    return status;
}
