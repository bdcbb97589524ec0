/*
 * A scan for people: the answer first, what there is beside it after that, and last what was read and what was not.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli.h"
#include "report/lines.h"
#include "scan/scan_format.h"
#include "scan_show.h"

enum { INDENT = 13, SHAPE_BYTES = 160 };

/* Rates of less than this are rates of the start of a process. */
static const double RATE_BYTES_MIN = 1e6;

static const char *kind_name(int32_t kind)
{
    return kind == FB_KIND_NAN ? "NaN" : kind == FB_KIND_POS_INF ? "+Inf" : kind == FB_KIND_NEG_INF ? "-Inf" : "non-finite";
}

static const char *legal_words(int32_t legal)
{
    switch (legal) {
    case FB_CKPT_LEGAL_NAMED: return "allowed by --allow";
    case FB_CKPT_LEGAL_MASK: return "an additive mask: its name says so, and it holds nothing but 0 and -Inf";
    case FB_CKPT_LEGAL_NUMBER: return "a healthy trainer writes it, such as a best loss before the first evaluation";
    case FB_CKPT_LEGAL_UNREFERENCED: return "no tensor refers to these bytes";
    default: return "legal";
    }
}

/* ---- findings ---------------------------------------------------------------------------------------------------------------- */

static int hex_digits(int32_t dtype)
{
    const fb_format *format = fb_format_of(dtype);
    return format ? format->part_bits / 4 : 1;
}

/* "2 NaN, 1 +Inf of 4,194,304"; of a scalar the kind alone */
static void add_counts(fb_phrase *phrase, const scan_finding *finding)
{
    const fb_ckpt_finding *facts = &finding->facts;
    const struct {
        uint64_t count;
        const char *name;
    } kinds[] = {{facts->nan, "NaN"}, {facts->pos_inf, "+Inf"}, {facts->neg_inf, "-Inf"}};
    char number[32];
    int said = 0;
    for (size_t i = 0; i < 3; i++) {
        if (!kinds[i].count) continue;
        if (!finding->shape.ndim && !*finding->lane) {
            fb_phrase_add(phrase, "%s", kinds[i].name);
            return;
        }
        fb_phrase_add(phrase, "%s%s" FB_LINES_NO_BREAK "%s", said ? ", " : "", scan_count(kinds[i].count, number), kinds[i].name);
        said++;
    }
    if (!said) fb_phrase_add(phrase, "%s", kind_name(facts->kind));
    if (!*finding->lane && finding->shape.ndim) fb_phrase_add(phrase, " of %s", scan_count(facts->elements, number));
}

static void add_place(fb_phrase *phrase, const scan_finding *finding)
{
    const fb_ckpt_finding *facts = &finding->facts;
    uint64_t coordinates[FB_DIMS_MAX * 8];
    char place[SHAPE_BYTES], number[32];
    int several = (facts->nan != 0) + (facts->pos_inf != 0) + (facts->neg_inf != 0) > 1;
    int alone = facts->nan + facts->pos_inf + facts->neg_inf == 1;
    if (facts->index == FB_NO_INDEX || (!finding->shape.ndim && !*finding->lane)) return;
    fb_phrase_add(phrase, ",%s%s%s", alone ? "" : " first", several ? " " : "", several ? kind_name(facts->kind) : "");
    if (*finding->lane) fb_phrase_add(phrase, " in number %s of the block", finding->lane);
    if (finding->shape.ndim > (int32_t)(sizeof coordinates / sizeof *coordinates) ||
        !scan_coordinates(&finding->shape, facts->index, coordinates)) {
        fb_phrase_add(phrase, " at element %s", scan_count(facts->index, number));
        return;
    }
    scan_dims(coordinates, finding->shape.ndim, place, sizeof place);
    for (char *c = place; *c; c++) *c = *c == ' ' ? FB_LINES_NO_BREAK[0] : *c;
    fb_phrase_add(phrase, " %s %s", *finding->lane ? "that begins with" : "at", place);
}

static void add_largest(fb_phrase *phrase, const scan_finding *finding)
{
    if (!finding->measured || !finding->shape.ndim) return;
    if (finding->finite) fb_phrase_add(phrase, "; largest finite %.3g", finding->largest);
    else fb_phrase_add(phrase, "; nothing in it is finite");
}

static void add_tensor(fb_phrase *phrase, const scan_finding *finding)
{
    char shape[SHAPE_BYTES];
    scan_dims(finding->shape.dims, finding->shape.ndim, shape, sizeof shape);
    for (char *c = shape; *c; c++) *c = *c == ' ' ? FB_LINES_NO_BREAK[0] : *c;
    fb_phrase_add(phrase, "%s " FB_LINES_NO_BREAK FB_LINES_NO_BREAK "%s", finding->tensor, finding->dtype);
    if (finding->facts.number) fb_phrase_add(phrase, ", a plain number");
    else fb_phrase_add(phrase, FB_LINES_NO_BREAK "%s", shape);
}

static void show_finding(fb_lines *lines, const scan_result *result, const scan_finding *finding, const char *label)
{
    const fb_ckpt_finding *facts = &finding->facts;
    fb_phrase phrase = {"", 0};
    if (!finding->file || !finding->tensor || !finding->dtype || !finding->lane) return;
    add_tensor(&phrase, finding);
    fb_lines_add(lines, label, INDENT, "%s", phrase.text);
    memset(&phrase, 0, sizeof phrase);
    add_counts(&phrase, finding);
    add_place(&phrase, finding);
    fb_phrase_add(&phrase, ", bits" FB_LINES_NO_BREAK "0x%0*" PRIx64, hex_digits(facts->fb_dtype), facts->bits);
    add_largest(&phrase, finding);
    if (facts->legal) fb_phrase_add(&phrase, "; %s", legal_words(facts->legal));
    fb_lines_add(lines, "", INDENT, "%s", phrase.text);
    if (result->folder || result->several) fb_lines_add(lines, "", INDENT, "in %s", finding->file);
}

static void show_left_out(fb_lines *lines, const scan_list *list, const char *what)
{
    char number[32];
    if (list->left_out) {
        fb_lines_add(lines, "", INDENT, "and %s more %s; --all lists them", scan_count(list->left_out, number), what);
    }
}

static void show_findings(fb_lines *lines, const scan_result *result, const scan_list *list, const char *label, const char *what)
{
    for (size_t i = 0; i < list->count; i++) show_finding(lines, result, scan_finding_at(list, i), label);
    show_left_out(lines, list, what);
}

/* ---- the rest ---------------------------------------------------------------------------------------------------------------- */

/* A reader's sentence names its file already, as the engine's do; what does not is given one. */
static void show_remark(fb_lines *lines, const scan_result *result, const scan_remark *remark, const char *label,
                        const char *before)
{
    fb_phrase phrase = {"", 0};
    if (!remark->file || !remark->name || !remark->text) return;
    if ((result->folder || result->several) && !strstr(remark->text, remark->file)) {
        fb_phrase_add(&phrase, "%s: ", remark->file);
    }
    fb_phrase_add(&phrase, "%s%s%s%s", *remark->name ? before : "", remark->name, *remark->name && *remark->text ? ": " : "",
                  remark->text);
    fb_lines_add(lines, label, INDENT, "%s", phrase.text);
}

static void show_remarks(fb_lines *lines, const scan_result *result, const scan_list *list, const char *label, const char *before,
                         const char *what)
{
    for (size_t i = 0; i < list->count; i++) { show_remark(lines, result, scan_remark_at(list, i), i ? "" : label, before); }
    show_left_out(lines, list, what);
}

/* What is said of one import is mostly said of the next one too, and is not repeated. */
static void show_security(fb_lines *lines, const scan_result *result)
{
    const char *said = "";
    if (!result->security.count) return;
    for (size_t i = 0; i < result->security.count; i++) {
        scan_remark import = *scan_remark_at(&result->security, i);
        char nothing[] = "";
        if (!import.text) continue;
        if (strcmp(import.text, said) == 0) import.text = nothing;
        else said = import.text;
        show_remark(lines, result, &import, i ? "" : "RUNS CODE", "imports ");
    }
    show_left_out(lines, &result->security, "imports");
    fb_lines_add(lines, "", INDENT,
                 "firstbad ran nothing of it. Do not give it to torch.load(weights_only=False), pickle.load or "
                 "np.load(allow_pickle=True).");
}

static void show_digest(fb_lines *lines, const scan_result *result)
{
    if (!result->digest || result->stopped_at_first) return;
    if (strcmp(result->digest, "sha256") == 0) {
        for (size_t i = 0; result->folder && i < result->files.count; i++) {
            const scan_file *file = scan_file_at(&result->files, i);
            if (file->path && *file->sha256) {
                fb_lines_add(lines, i ? "" : "DIGEST", INDENT, "SHA-256" FB_LINES_NO_BREAK "%s %s", file->sha256, file->path);
            }
        }
        if (*result->sha256) {
            fb_lines_add(lines, result->folder ? "" : "DIGEST", INDENT, "SHA-256" FB_LINES_NO_BREAK "%s%s%s", result->sha256,
                         result->folder ? " of that list, as sha256sum would write it in the folder, sorted by name" : "", "");
        }
        return;
    }
    if (result->status == FB_OK && result->summary.bytes) {
        fb_lines_add(lines, "DIGEST", INDENT, "XXH3" FB_LINES_NO_BREAK "%016" PRIx64, result->summary.digest);
    }
}

/* ---- the sum ----------------------------------------------------------------------------------------------------------------- */

/* "548 MB in 0.12 s (4.6 GB/s)" */
static void add_amount(fb_phrase *phrase, const scan_result *result)
{
    char number[32];
    double bytes = (double)result->summary.bytes;
    fb_phrase_add(phrase, "%s", scan_bytes(result->summary.bytes, number));
    if (bytes < RATE_BYTES_MIN || result->stopped_at_first || !(result->seconds > 0)) return;
    fb_phrase_add(phrase, " in %.*f s (%s/s)",
                  result->seconds < 1     ? 2
                  : result->seconds < 100 ? 1
                                          : 0,
                  result->seconds, scan_bytes((uint64_t)(bytes / result->seconds), number));
}

/* A file that was passed over whole: one sentence says it, and a list of one part would say it again. */
static int is_one_refusal(const scan_result *result)
{
    const scan_remark *only = result->unscanned.count == 1 ? scan_remark_at(&result->unscanned, 0) : NULL;
    return !result->folder && only && only->name && !*only->name && result->summary.tensors == 0;
}

static void add_left(fb_phrase *phrase, const scan_result *result)
{
    const fb_ckpt_summary *summary = &result->summary;
    char number[32];
    if (result->stopped_at_first) {
        fb_phrase_add(phrase, "stopped there, the rest was not looked at");
    } else if (summary->unscanned && !is_one_refusal(result)) {
        fb_phrase_add(phrase, "%s part%s not looked at", scan_count(summary->unscanned, number),
                      summary->unscanned == 1 ? "" : "s");
    } else if (scan_is_whole(result)) {
        fb_phrase_add(phrase, "nothing left unscanned");
    } else {
        fb_phrase_add(phrase, summary->checked ? "not all of it could be judged" : "nothing of it could be judged");
    }
}

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* "torch-zip, 148 tensors, " and of a folder also how many files; a layout such as "safetensors, 2 shards" says it itself. */
static void add_what(fb_phrase *phrase, const scan_result *result)
{
    const char *format = scan_format(result);
    uint64_t files = result->summary.files;
    char number[32];
    if (*format && strcmp(format, "folder") != 0) fb_phrase_add(phrase, "%s, ", format); /* "folder": no layout is known */
    if (result->folder && !strchr(format, ',')) { fb_phrase_add(phrase, "%s file%s, ", scan_count(files, number), plural(files)); }
}

static void show_sum(fb_lines *lines, const scan_result *result)
{
    const fb_ckpt_summary *summary = &result->summary;
    fb_phrase phrase = {"", 0};
    char bad[32], all[32];
    add_what(&phrase, result);
    add_amount(&phrase, result);
    if (summary->outcome == FB_CKPT_NON_FINITE || summary->bad_tensors) {
        fb_phrase_add(&phrase, ", %s of %s tensor%s bad", scan_count(summary->bad_tensors, bad), scan_count(summary->tensors, all),
                      plural(summary->tensors));
    } else {
        fb_phrase_add(&phrase, ", %s tensor%s", scan_count(summary->tensors, all), plural(summary->tensors));
    }
    fb_phrase_add(&phrase, ", ");
    add_left(&phrase, result);
    fb_lines_add(lines, "", 0, "%s: %s", result->path, phrase.text);
}

static void show_clean(fb_lines *lines, const scan_result *result)
{
    fb_phrase phrase = {"", 0};
    char number[32];
    add_what(&phrase, result);
    fb_phrase_add(&phrase, "%s tensor%s, ", scan_count(result->summary.tensors, number), plural(result->summary.tensors));
    add_amount(&phrase, result);
    fb_phrase_add(&phrase, ", ");
    add_left(&phrase, result);
    fb_lines_add(lines, "CLEAN", INDENT, "%s: %s", result->path, phrase.text);
}

static void show_sentence(fb_lines *lines, const scan_result *result, const char *label, const char *reason)
{
    static const char verb[] = "scan ";
    int named = strstr(reason, result->path) != NULL;
    /* "scan PATH: ..." is how the library begins a sentence of its own; here it is an answer, and begins with the path. */
    if (strncmp(reason, verb, sizeof verb - 1) == 0 && strncmp(reason + sizeof verb - 1, result->path, strlen(result->path)) == 0) {
        reason += sizeof verb - 1;
    }
    fb_lines_add(lines, label, INDENT, "%s%s%s", named ? "" : result->path, named ? "" : ": ", reason);
}

/* Of a folder: each file that could not be read, and why. 1 when the reason of the whole is among them. */
static int show_broken_files(fb_lines *lines, const scan_result *result, const char *label, const char *reason)
{
    uint64_t shown = 0, left_out = 0;
    char number[32];
    int among = 0;
    for (size_t i = 0; result->folder && i < result->files.count; i++) {
        const scan_file *file = scan_file_at(&result->files, i);
        if (!file->reason || !*file->reason || (file->outcome != FB_CKPT_UNREADABLE && file->outcome != FB_CKPT_LIMIT)) continue;
        among |= strcmp(file->reason, reason) == 0;
        if (result->notes.max && shown == result->notes.max) left_out++;
        else show_sentence(lines, result, shown++ ? "" : label, file->reason);
    }
    if (left_out) fb_lines_add(lines, "", INDENT, "and %s more files; --all lists them", scan_count(left_out, number));
    return among;
}

static void show_reason(fb_lines *lines, const scan_result *result)
{
    const char *reason = scan_reason(result), *label;
    fb_status code = result->status != FB_OK ? result->status : result->summary.reason.code;
    if (!*reason) return;
    label = code == FB_E_LIMIT ? "LIMIT" : code == FB_E_UNSUPPORTED || code == FB_OK ? "UNDECIDED" : "UNREADABLE";
    /* What was passed over is told below, part by part. */
    if (code == FB_E_UNSUPPORTED && result->unscanned.count && result->summary.outcome != FB_CKPT_UNSUPPORTED) return;
    if (code == FB_E_UNSUPPORTED && result->unscanned.count && !is_one_refusal(result)) {
        fb_lines_add(lines, label, INDENT, "%s: %s", result->path,
                     result->summary.checked ? "what was looked at is finite, and not all of it could be looked at"
                                             : "nothing in it could be looked at");
        return;
    }
    if (show_broken_files(lines, result, label, reason)) return;
    show_sentence(lines, result, label, reason);
}

static void show_all(fb_lines *lines, const scan_result *result)
{
    const char *label = "NON-FINITE";
    if (!*scan_reason(result) && result->summary.outcome == FB_CKPT_CLEAN) show_clean(lines, result);
    show_findings(lines, result, &result->findings, label, "of them");
    show_reason(lines, result);
    if (!is_one_refusal(result)) show_remarks(lines, result, &result->unscanned, "NOT SCANNED", "", "parts");
    show_findings(lines, result, &result->legal, "LEGAL", "of them");
    show_findings(lines, result, &result->unreferenced, "UNUSED", "of them");
    show_security(lines, result);
    show_remarks(lines, result, &result->notes, "NOTE", "", "notes");
    show_digest(lines, result);
}

/* The table has rows of its own making, so what stands above and below it goes out by itself. */
static int print_lines(fb_lines *lines)
{
    fb_error err;
    char *text = NULL;
    int code;
    if (fb_lines_finish(lines, &text, &err) != FB_OK) code = cli_fail(&err);
    else code = cli_print(text);
    fb_free(text);
    return code;
}

int scan_show_text(const scan_result *result, const scan_style *style)
{
    fb_lines lines;
    int code, clean = scan_exit_code(result) == CLI_CLEAN;
    if (style->quiet && clean && !result->stats && !result->digest && !result->summary.security) return 0;
    fb_lines_init(&lines, style->columns, style->colour);
    show_all(&lines, result);
    if ((code = print_lines(&lines)) != 0) return code;
    if (result->stats && (code = scan_show_table(result, style)) != 0) return code;
    if (clean) return 0;
    fb_lines_init(&lines, style->columns, style->colour);
    show_sum(&lines, result);
    return print_lines(&lines);
}
