/* From a path to an outcome: which reader, what it remarks, what became of the file. */
#include "ckpt/scan.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ckpt/companions.h"
#include "ckpt/known.h"
#include "ckpt/reading.h"

/* Fits a second-level cache. A bare read in blocks of 256 KiB took 1.3 times the processor time of one in blocks of 1 MiB, and
 * larger ones gained nothing (bench/ckpt has both rows). */
enum { BUFFER_BYTES = 1 << 20, BUFFER_BYTES_MIN = FB_CKPT_GRAIN_MAX };

/*
 * An honest file is read once, or twice where tensors share bytes; one that names its bytes again and again, or that unpacks to
 * much more than itself, ends here.
 */
static const uint64_t WORK_TIMES_MAX = 256;
static const uint64_t WORK_BYTES_MIN = UINT64_C(4) << 30;

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

/* ---- one file --------------------------------------------------------------------------------------------------------------- */

/* How one file is to be taken. */
typedef struct manner {
    int how;
    const fb_ckpt_reader *reader; /* NULL: whose content it is */
    const void *setup;
} manner;

/* What remarks of one file said about its step. */
typedef struct facts {
    double step;
    int has_step, told;
} facts;

static void note(const fb_ckpt_scan *scan, const char *path, const char *text)
{
    if (scan->sink.note) scan->sink.note(scan->sink.ctx, path, text);
}

/* A note about a part begins with its name: "theirs.Weights is an import that is not known here". */
static void note_on_part(const fb_ckpt_scan *scan, const char *path, const fb_ckpt_remark *r)
{
    char text[4096 + 512]; /* readers hold names to 4096 bytes */
    if (!r->name || !*r->name) {
        note(scan, path, r->text);
        return;
    }
    (void)snprintf(text, sizeof text, "%s %s", r->name, r->text);
    note(scan, path, text);
}

/* The scale is a number in the file like any other, but it may lie where no tensor is, so it is judged here as well. */
static void check_scale(fb_ckpt_scan *scan, const char *path, double value, int32_t *outcome)
{
    uint64_t bits;
    char text[120];
    memcpy(&bits, &value, sizeof bits);
    if (!fb_format_is_bad(fb_format_of(FB_F64), bits)) {
        if (value > 0.0) return;
        (void)snprintf(text, sizeof text, "the loss scale is %g, with which every gradient becomes 0 or changes its sign", value);
        note(scan, path, text);
        return;
    }
    note(scan, path, "the loss scale is not finite");
    *outcome = FB_CKPT_NON_FINITE;
}

static void take_fact(fb_ckpt_scan *scan, const char *path, const fb_ckpt_remark *r, facts *seen, int32_t *outcome)
{
    char text[160];
    if (strcmp(r->name, FB_CKPT_FACT_SCALE) == 0) check_scale(scan, path, r->value, outcome);
    if (strcmp(r->name, FB_CKPT_FACT_STEP) == 0) {
        if (seen->has_step && !(seen->step <= r->value && seen->step >= r->value) && !seen->told) {
            (void)snprintf(text, sizeof text, "one part of it says that it is of step %.0f, another says %.0f", seen->step,
                           r->value);
            note(scan, path, text);
            seen->told = 1;
        }
        seen->has_step = 1;
        seen->step = r->value;
    }
    if (scan->on_fact) scan->on_fact(scan->on_fact_ctx, path, r->name, r->value);
    /* A folder hears of the facts and draws its own conclusion. */
    if (!scan->on_fact && seen->has_step)
        scan->summary->step = seen->told || !(seen->step >= 0.0 && seen->step < 9e15) ? -1 : (int64_t)seen->step;
}

static void take_remarks(fb_ckpt_scan *scan, const fb_ckpt_reader *reader, void *state, const char *path, int32_t *outcome)
{
    facts seen = {0.0, 0, 0};
    fb_ckpt_remark r;
    for (uint64_t i = 0; reader->remark && (memset(&r, 0, sizeof r), reader->remark(state, i, &r)); i++) {
        switch (r.kind) {
        case FB_CKPT_REMARK_NOTE: note_on_part(scan, path, &r); break;
        case FB_CKPT_REMARK_SECURITY:
            scan->summary->security++;
            if (scan->sink.security) scan->sink.security(scan->sink.ctx, path, r.name, r.text);
            break;
        case FB_CKPT_REMARK_FACT: take_fact(scan, path, &r, &seen, outcome); break;
        default:
            fb_ckpt_scan_unscanned(scan, path, r.name, r.text);
            if (*outcome < FB_CKPT_UNSUPPORTED) *outcome = FB_CKPT_UNSUPPORTED;
        }
    }
}

fb_status fb_ckpt_scan_reader(fb_ckpt_scan *scan, const fb_ckpt_reader *reader, const fb_ckpt_range *range, int32_t *outcome,
                              fb_error *err)
{
    fb_ckpt_reading reading = {scan, range->file, outcome, NULL, 0};
    fb_ckpt_extent extent;
    void *state = NULL;
    fb_status status;
    /* A scanner that cannot work must not make a file look as if there were nothing to find in it. */
    if (!(reading.kernel = fb_kernel_get(err))) return FB_E_USAGE;
    if ((status = reader->open(&state, range, &scan->options, err)) != FB_OK) return status;
    while (!scan->done && (memset(&extent, 0, sizeof extent), status = reader->next(state, &extent, err)) == FB_OK) {
        if ((status = fb_ckpt_scan_extent(&reading, &extent, err)) != FB_OK) break;
    }
    if (status == FB_E_NOTFOUND) status = FB_OK;
    take_remarks(scan, reader, state, range->file->path, outcome); /* also of a file that broke off: what it would run is known */
    reader->close(state);
    return status;
}

static fb_status scan_with(fb_ckpt_scan *scan, const manner *m, fb_ckpt_file *file, int32_t *outcome, uint64_t *digest,
                           fb_error *err)
{
    fb_ckpt_range range = {file, 0, file->info.size_bytes, m->setup};
    fb_status status;
    if (scan->options.flags & FB_CKPT_NO_DIGEST) fb_ckpt_file_no_digest(file);
    file->tap = scan->options.tap;
    file->tap_ctx = scan->options.tap_ctx;
    if (__builtin_mul_overflow(file->info.size_bytes, WORK_TIMES_MAX, &file->work_bytes_max)) file->work_bytes_max = UINT64_MAX;
    if (file->work_bytes_max < WORK_BYTES_MIN) file->work_bytes_max = WORK_BYTES_MIN;
    status = fb_ckpt_scan_reader(scan, m->reader, &range, outcome, err);
    if (status != FB_OK) return status;
    if (scan->done) return fb_ckpt_file_unchanged(file, err); /* the rest was not read, so there is no digest */
    if ((status = fb_ckpt_file_finish(file, digest, err)) != FB_OK) return status;
    if (scan->sink.progress) {
        scan->sink.progress(scan->sink.ctx, file->path, scan->done_bytes + file->info.size_bytes,
                            scan->total_bytes ? scan->total_bytes : scan->done_bytes + file->info.size_bytes);
    }
    return FB_OK;
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

/* Which format it is that no reader reads, where that is known. */
static void not_ours(fb_ckpt_scan *scan, const fb_ckpt_file *file, const uint8_t *head, size_t bytes)
{
    const char *known = fb_ckpt_known(head, bytes);
    char why[200];
    if (known) (void)snprintf(why, sizeof why, "it is %s, which this build does not read", known);
    else (void)snprintf(why, sizeof why, "%s", file->info.size_bytes ? "no format that this build reads" : "the file is empty");
    fb_ckpt_scan_unscanned(scan, file->path, "", why);
}

/* Nobody's format. Returns 1 when the file is to be read as safetensors all the same, so that its reader says what is wrong. Of a
   file in a folder the folder has asked already whether it keeps what its name promises. */
static int nobody(fb_ckpt_scan *scan, const fb_ckpt_file *file, const uint8_t *head, size_t bytes, int how)
{
    const char *slash = strrchr(file->path, '/'), *base = slash ? slash + 1 : file->path;
    const char *broken = how == FB_CKPT_BESIDE ? NULL : fb_broken_promise(base, file->info.size_bytes, head, bytes);
    fb_error reason;
    if (broken) {
        (void)fb_fail(&reason, FB_E_CORRUPT, "read checkpoint %s: it %s", file->path, broken);
        fb_ckpt_scan_outcome(scan, FB_CKPT_UNREADABLE, &reason);
        return 0;
    }
    if (how == FB_CKPT_EXPECTED) return 1;
    /* A page of a web server that was saved as pytorch_model.bin, and a pickle of protocol 0, are text as well. */
    if (how == FB_CKPT_BESIDE && ((is_text(head, bytes) && !fb_promises_numbers(base)) || is_harmless(file->path))) return 0;
    not_ours(scan, file, head, bytes);
    return 0;
}

static void file_done(fb_ckpt_scan *scan, const fb_ckpt_file *file, const char *format, int32_t outcome, uint64_t digest,
                      const fb_error *reason)
{
    scan->summary->files++;
    scan->summary->bytes += file->info.size_bytes;
    scan->done_bytes += file->info.size_bytes;
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
    if (scan->done) return FB_OK;
    if (room < BUFFER_BYTES_MIN) room = BUFFER_BYTES_MIN;
    status = fb_ckpt_scan_open(scan, &file, path, (size_t)room, &reason);
    if (status == FB_E_UNSUPPORTED) { /* a link, a pipe, a folder inside a folder */
        const char *why = strstr(reason.message, path), *end = strrchr(reason.message, ':');
        /* Behind a link the sentence names what the link leads to. */
        fb_ckpt_scan_unscanned(scan, path, "", why ? why + strlen(path) + 2 : end && end[1] ? end + 2 : reason.message);
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
    if (options && options->threads < 0) {
        summary->outcome = FB_CKPT_UNREADABLE;
        return fb_fail(err, FB_E_USAGE, "scan %s: %d threads were asked for, expected 0 or more", path, (int)options->threads);
    }
    scan.os = os;
    scan.summary = summary;
    if (options) scan.options = *options;
    if (sink) scan.sink = *sink;
    got = os->stat(os->ctx, path, &info);
    if (got == -ENOENT || got == -ENOTDIR) status = fb_fail(err, FB_E_NOTFOUND, "scan %s: no such file or folder", path);
    else if (got < 0) status = fb_fail_os(err, (int)-got, "scan %s", path);
    else if (info.kind == FB_OS_FOLDER) status = fb_ckpt_scan_folder(&scan, path, err);
    else if (fb_ckpt_is_index(path)) status = fb_ckpt_scan_index(&scan, path, err);
    else status = scan_alone(&scan, path, err);
    fb_ckpt_scan_release(&scan);
    if (status != FB_OK) summary->outcome = FB_CKPT_UNREADABLE;
    else if (summary->tensors == 0 && summary->outcome == FB_CKPT_CLEAN) nothing_there(&scan, path);
    return status;
}
