#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "report/inside.h"

void fb_notes_add(fb_notes *notes, const char *format, ...)
{
    va_list args;
    if (notes->count == FB_REPORT_NOTES_MAX) {
        notes->dropped++;
        return;
    }
    va_start(args, format);
    (void)vsnprintf(notes->text[notes->count++], FB_REPORT_TEXT_MAX, format, args);
    va_end(args);
}

void fb_sentence(char out[FB_REPORT_TEXT_MAX], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(out, FB_REPORT_TEXT_MAX, format, args);
    va_end(args);
}

void fb_text_copy(char *out, size_t room, fb_text text)
{
    size_t n = text.bytes < room ? text.bytes : room - 1;
    if (text.data) memcpy(out, text.data, n);
    else n = 0;
    out[n] = '\0';
}

void fb_finding_name(const fb_rec_finding *finding, char *out, size_t room)
{
    char module[FB_TEXT_MAX + 1], tensor[FB_TEXT_MAX + 1];
    fb_text_copy(module, sizeof module, finding->module);
    fb_text_copy(tensor, sizeof tensor, finding->tensor);
    if (!module[0] && !tensor[0]) (void)snprintf(out, room, "site %u", (unsigned)finding->site);
    else (void)snprintf(out, room, "%s%s%s", module, module[0] && tensor[0] ? " " : "", tensor);
}

const char *fb_boundary_text(int32_t boundary)
{
    static const char *const names[] = {
        "?",         "state on entry", "input", "forward", "loss", "local gradient", "reduced gradient", "state after the update",
        "checkpoint"};
    return boundary >= FB_ENTRY && boundary <= FB_CHECKPOINT ? names[boundary] : "?";
}

const char *fb_thousands(uint64_t value, char out[32])
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)value), at = 0;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

fb_status fb_grow(void **array, uint64_t count, uint64_t *room, size_t element, fb_error *err)
{
    uint64_t wanted = *room ? *room * 2 : 16;
    void *grown;
    if (count < *room) return FB_OK;
    grown = fb_realloc(*array, (size_t)wanted * element);
    if (!grown) return fb_fail(err, FB_E_NOMEM, "load report: no memory for %llu entries", (unsigned long long)wanted);
    *array = grown;
    *room = wanted;
    return FB_OK;
}

int64_t fb_numbered_name(const char *name, const char *before, const char *after, int width)
{
    char again[64];
    int64_t number = 0;
    const char *c = name + strlen(before);
    if (strncmp(name, before, strlen(before)) != 0) return -1;
    for (; *c >= '0' && *c <= '9'; c++) {
        number = number * 10 + (*c - '0');
        if (number > INT32_MAX) return -1;
    }
    (void)snprintf(again, sizeof again, "%s%0*lld%s", before, width, (long long)number, after);
    return strcmp(again, name) == 0 ? number : -1;
}

/* ---- bad steps --------------------------------------------------------------------------------------------------------------- */

static uint64_t lower_bound(const fb_report *report, int64_t step)
{
    uint64_t low = 0, high = report->bad_step_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (report->bad_steps[middle].step < step) low = middle + 1;
        else high = middle;
    }
    return low;
}

fb_report_bad_step *fb_bad_step(fb_report *report, int64_t step)
{
    uint64_t at = lower_bound(report, step), room = 16;
    fb_report_bad_step *entry;
    if (at < report->bad_step_count && report->bad_steps[at].step == step) return &report->bad_steps[at];
    if (report->bad_step_count == FB_REPORT_BAD_STEPS_MAX) return NULL;
    while (room < report->bad_step_count) room *= 2; /* the room that earlier calls have made */
    if (report->bad_step_count == 0 || report->bad_step_count == room) {
        void *grown = fb_realloc(report->bad_steps, (size_t)(report->bad_step_count ? room * 2 : room) * sizeof *entry);
        if (!grown) return NULL;
        report->bad_steps = grown;
    }
    entry = &report->bad_steps[at];
    memmove(entry + 1, entry, (size_t)(report->bad_step_count - at) * sizeof *entry);
    memset(entry, 0, sizeof *entry);
    entry->step = step;
    entry->case_step = -1;
    entry->first_rank = -1;
    report->bad_step_count++;
    return entry;
}

/* A skip that the loss scale explains is no bad step. */
int fb_bad_step_counts(const fb_report_bad_step *entry)
{
    return entry->fault || entry->frozen || entry->folder || !entry->probing;
}

int fb_case_id_parse(const char *text, size_t bytes, int32_t *attempt, int64_t *step)
{
    size_t i = 1;
    int64_t number = 0;
    size_t from;
    if (bytes < 3 || text[0] != 'a') return 0;
    for (; i < bytes && text[i] >= '0' && text[i] <= '9'; i++) {
        number = number * 10 + (text[i] - '0');
        if (number > INT32_MAX) return 0;
    }
    if (i == 1 || i == bytes || text[i] != '-' || number < 1) return 0;
    *attempt = (int32_t)number;
    number = 0;
    for (from = ++i; i < bytes && text[i] >= '0' && text[i] <= '9'; i++) {
        if (number > INT64_MAX / 10 - 1) return 0;
        number = number * 10 + (text[i] - '0');
    }
    if (i == from || i != bytes) return 0;
    *step = number;
    return 1;
}

/* ---- findings ---------------------------------------------------------------------------------------------------------------- */

static int same_finding(const fb_rec_finding *a, const fb_rec_finding *b)
{
    return a->rank == b->rank && a->step == b->step && a->boundary == b->boundary && a->micro_step == b->micro_step &&
           a->site == b->site && a->field == b->field;
}

fb_status fb_report_keep(fb_report *report, const fb_rec_finding *finding, int32_t source, fb_error *err)
{
    uint8_t encoded[FB_REC_BYTES_MAX];
    fb_report_finding *kept;
    uint32_t bytes;
    for (uint64_t i = 0; i < report->finding_count; i++) {
        kept = &report->findings[i];
        if (!same_finding(&kept->rec, finding)) continue;
        if (source == FB_SOURCE_FROZEN) kept->source = source; /* the stronger evidence */
        return FB_OK;
    }
    if (report->finding_count == FB_REPORT_FINDINGS_MAX) {
        report->findings_dropped++;
        return FB_OK;
    }
    if (!report->findings) {
        report->findings = fb_calloc(FB_REPORT_FINDINGS_MAX, sizeof *report->findings);
        if (!report->findings) return fb_fail(err, FB_E_NOMEM, "load report: no memory for findings");
    }
    bytes = fb_rec_finding_encode(encoded, sizeof encoded, finding);
    if (bytes == 0) {
        report->findings_dropped++;
        return FB_OK;
    }
    kept = &report->findings[report->finding_count];
    kept->bytes = fb_calloc(1, bytes);
    if (!kept->bytes) return fb_fail(err, FB_E_NOMEM, "load report: no memory for %u bytes of a finding", bytes);
    memcpy(kept->bytes, encoded, bytes);
    kept->bytes_used = bytes;
    kept->source = source;
    kept->ranks = 1;
    if (fb_rec_finding_decode(kept->bytes, bytes, &kept->rec, err) != FB_OK) {
        fb_free(kept->bytes);
        kept->bytes = NULL;
        report->findings_dropped++;
        return FB_OK;
    }
    report->finding_count++;
    return FB_OK;
}
