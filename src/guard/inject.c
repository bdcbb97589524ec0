#include "guard/inject.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

struct word {
    const char *name;
    int32_t value;
};

static const struct word places[] = {
    {"input", FB_INJECT_INPUT},   {"token", FB_INJECT_TOKEN},           {"label", FB_INJECT_LABEL},
    {"weight", FB_INJECT_WEIGHT}, {"activation", FB_INJECT_ACTIVATION}, {"loss", FB_INJECT_LOSS},
    {"grad", FB_INJECT_GRAD},     {"reduced", FB_INJECT_REDUCED},       {"param", FB_INJECT_PARAM},
    {"moment", FB_INJECT_MOMENT}, {"buffer", FB_INJECT_BUFFER},
};

static const struct word plants[] = {
    {"nan", FB_PLANT_NAN},   {"inf", FB_PLANT_INF},     {"neginf", FB_PLANT_NEG_INF}, {"bitflip", FB_PLANT_BITFLIP},
    {"huge", FB_PLANT_HUGE}, {"scale", FB_PLANT_SCALE}, {"zero", FB_PLANT_ZERO},      {"bad", FB_PLANT_BAD},
};

static int32_t find_word(const struct word *words, size_t n, const char *text)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(words[i].name, text) == 0) return words[i].value;
    }
    return 0;
}

static int integer(const char *text, int64_t *value)
{
    char *end;
    long long number;
    if (!*text) return 0;
    number = strtoll(text, &end, 10);
    if (*end) return 0;
    *value = number;
    return 1;
}

static int range(char *text, int64_t *first, int64_t *last)
{
    char *dash = strchr(text, '-');
    if (!dash) return integer(text, first) && (*last = *first, 1);
    *dash = '\0';
    return integer(text, first) && integer(dash + 1, last) && *last >= *first;
}

static int small(const char *text, int32_t *value)
{
    int64_t number;
    if (strcmp(text, "all") == 0) {
        *value = -1;
        return 1;
    }
    if (!integer(text, &number) || number < 0 || number > INT32_MAX) return 0;
    *value = (int32_t)number;
    return 1;
}

static int set_key(fb_injection *item, const char *key, char *value)
{
    int64_t number = 0;
    char *end;
    if (strcmp(key, "step") == 0) return range(value, &item->step_first, &item->step_last) && item->step_first >= 0;
    if (strcmp(key, "rank") == 0) return small(value, &item->rank);
    if (strcmp(key, "micro") == 0) return small(value, &item->micro);
    if (strcmp(key, "site") == 0) {
        if (strlen(value) >= sizeof item->site) return 0;
        memcpy(item->site, value, strlen(value) + 1);
        return 1;
    }
    if (strcmp(key, "factor") == 0) {
        item->factor = strtod(value, &end);
        return *value && !*end;
    }
    if (!integer(value, &number) || number < 0) return 0;
    if (strcmp(key, "index") == 0) item->index = (uint64_t)number;
    else if (strcmp(key, "count") == 0 && number > 0) item->count = (uint64_t)number;
    else if (strcmp(key, "bit") == 0 && number < 64) item->bit = (int32_t)number;
    else return 0;
    return 1;
}

/* What can be planted where: integers take ids, floats take values. */
static int fits(const fb_injection *item)
{
    int integers = item->where == FB_INJECT_TOKEN || item->where == FB_INJECT_LABEL;
    int for_integers = item->what == FB_PLANT_ZERO || item->what == FB_PLANT_BAD;
    return integers == for_integers;
}

static fb_status parse_item(fb_injection *item, char *text, fb_error *err)
{
    char *at = strchr(text, '@'), *dash, *save = NULL;
    char head[32];
    memset(item, 0, sizeof *item);
    (void)snprintf(item->text, sizeof item->text, "%s", text);
    item->step_first = -1;
    item->rank = item->micro = 0;
    item->bit = -1;
    item->index = FB_NO_INDEX;
    item->count = 1;
    item->factor = 1.0;
    (void)snprintf(head, sizeof head, "%.*s", at ? (int)(at - text) : (int)strlen(text), text);
    dash = strchr(head, '-');
    if (dash) {
        *dash = '\0';
        item->where = find_word(places, sizeof places / sizeof *places, head);
        item->what = find_word(plants, sizeof plants / sizeof *plants, dash + 1);
    }
    if (!item->where || !item->what) {
        return fb_fail(
            err, FB_E_USAGE,
            "read injection '%s': expected PLACE-FAULT@step=N,..., with a place of input token label weight activation loss grad "
            "reduced param moment buffer and a fault of nan inf neginf bitflip huge scale zero bad",
            item->text);
    }
    if (!fits(item)) {
        return fb_fail(err, FB_E_USAGE, "read injection '%s': zero and bad go into token and label, the other faults into tensors",
                       item->text);
    }
    for (char *part = at ? strtok_r(at + 1, ",", &save) : NULL; part; part = strtok_r(NULL, ",", &save)) {
        char *equals = strchr(part, '=');
        if (equals) *equals = '\0';
        if (!equals || !set_key(item, part, equals + 1)) {
            return fb_fail(
                err, FB_E_USAGE,
                "read injection '%s': cannot read '%s'; keys are step (N or N-M), rank, micro, site, index, count, bit, factor",
                item->text, part);
        }
    }
    if (item->step_first < 0) return fb_fail(err, FB_E_USAGE, "read injection '%s': step=N is missing", item->text);
    return FB_OK;
}

fb_status fb_inject_parse(fb_inject *inject, const char *text, fb_error *err)
{
    char copy[FB_INJECT_MAX * FB_INJECT_TEXT];
    char *save = NULL;
    memset(inject, 0, sizeof *inject);
    if (!text || !*text) return FB_OK;
    if (strlen(text) >= sizeof copy) return fb_fail(err, FB_E_LIMIT, "read injections: more than %zu bytes", sizeof copy - 1);
    memcpy(copy, text, strlen(text) + 1);
    for (char *part = strtok_r(copy, ";\n", &save); part; part = strtok_r(NULL, ";\n", &save)) {
        fb_status status;
        while (*part == ' ') part++;
        if (!*part) continue;
        if (inject->count == FB_INJECT_MAX) return fb_fail(err, FB_E_LIMIT, "read injections: more than %d", FB_INJECT_MAX);
        if (strlen(part) >= FB_INJECT_TEXT) {
            return fb_fail(err, FB_E_LIMIT, "read injection '%.40s...': longer than %d bytes", part, FB_INJECT_TEXT - 1);
        }
        if ((status = parse_item(&inject->items[inject->count], part, err)) != FB_OK) return status;
        inject->count++;
    }
    return FB_OK;
}

void fb_inject_begin(fb_inject *inject)
{
    memset(inject->fired, 0, sizeof inject->fired);
}

/* "h.3.mlp" names all tensors of that module, "h.3.mlp.c_fc.weight" one; "h.3" does not name "h.30". */
static int names(const char *wanted, const fb_site_entry *site)
{
    char full[2 * (FB_SITE_TEXT_MAX + 1)];
    size_t n = strlen(wanted);
    if (n == 0) return 1;
    (void)snprintf(full, sizeof full, "%s%s%s", site->module, site->module[0] && site->tensor[0] ? "." : "", site->tensor);
    return strncmp(full, wanted, n) == 0 && (full[n] == '\0' || full[n] == '.');
}

const fb_injection *fb_inject_due(fb_inject *inject, uint32_t *cursor, int32_t where, int64_t step, int32_t micro, int32_t rank,
                                  const fb_site_entry *site)
{
    while (*cursor < inject->count) {
        const fb_injection *item = &inject->items[*cursor];
        uint32_t fired = inject->fired[(*cursor)++];
        if (fired || item->where != where || step < item->step_first || step > item->step_last) continue;
        if (item->rank >= 0 && item->rank != rank) continue;
        if (item->micro >= 0 && item->micro != micro) continue;
        if (names(item->site, site)) return item;
    }
    return NULL;
}

void fb_inject_fired(fb_inject *inject, const fb_injection *item)
{
    if (item->micro >= 0) inject->fired[item - inject->items]++;
}

/* ---- writing bits ------------------------------------------------------------------------------------------------------------ */

struct pattern {
    int32_t dtype;
    unsigned bytes;
    uint64_t nan, inf, neg_inf, huge;
    int top_bit; /* highest bit of the exponent */
};

/* 0 for a value that the format has no code for. Sources: IEEE 754, OCP FP8. */
static const struct pattern patterns[] = {
    {FB_F64, 8, 0x7ff8000000000000u, 0x7ff0000000000000u, 0xfff0000000000000u, 0x7fefffffffffffffu, 62},
    {FB_F32, 4, 0x7fc00000u, 0x7f800000u, 0xff800000u, 0x7f7fffffu, 30},
    {FB_F16, 2, 0x7e00u, 0x7c00u, 0xfc00u, 0x7bffu, 14},
    {FB_BF16, 2, 0x7fc0u, 0x7f80u, 0xff80u, 0x7f7fu, 14},
    {FB_F8_E4M3FN, 1, 0x7fu, 0, 0, 0x7eu, 6},
    {FB_F8_E5M2, 1, 0x7eu, 0x7cu, 0xfcu, 0x7bu, 6},
    {FB_F8_E4M3FNUZ, 1, 0x80u, 0, 0, 0x7fu, 6},
    {FB_F8_E5M2FNUZ, 1, 0x80u, 0, 0, 0x7fu, 6},
    {FB_F8_E8M0, 1, 0xffu, 0, 0, 0xfeu, 7},
};

static const struct pattern *find_pattern(int32_t dtype)
{
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        if (patterns[i].dtype == dtype) return &patterns[i];
    }
    return NULL;
}

uint8_t *fb_view_element(const fb_view *view, uint64_t flat, size_t bytes)
{
    int64_t offset = 0;
    if (!view->layout) return (uint8_t *)view->data + flat * bytes;
    for (int32_t i = view->layout->ndim - 1; i >= 0; i--) {
        offset += (int64_t)(flat % (uint64_t)view->layout->shape[i]) * view->layout->strides[i];
        flat /= (uint64_t)view->layout->shape[i];
    }
    return (uint8_t *)view->data + offset * (int64_t)bytes;
}

static void put(uint8_t *at, uint64_t bits, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) at[i] = (uint8_t)(bits >> (8 * i));
}

static uint64_t get(const uint8_t *at, unsigned bytes)
{
    uint64_t bits = 0;
    for (unsigned i = 0; i < bytes; i++) bits |= (uint64_t)at[i] << (8 * i);
    return bits;
}

static uint64_t scale_all(const fb_injection *item, const fb_view *view)
{
    if (view->dtype != FB_F32 && view->dtype != FB_F64) return 0;
    for (uint64_t i = 0; i < view->count; i++) {
        if (view->dtype == FB_F32) {
            float value;
            uint8_t *at = fb_view_element(view, i, 4);
            memcpy(&value, at, sizeof value);
            value *= (float)item->factor;
            memcpy(at, &value, sizeof value);
        } else {
            double value;
            uint8_t *at = fb_view_element(view, i, 8);
            memcpy(&value, at, sizeof value);
            value *= item->factor;
            memcpy(at, &value, sizeof value);
        }
    }
    return view->count;
}

static int bits_for(const fb_injection *item, const struct pattern *pattern, uint64_t old, uint64_t *bits)
{
    switch (item->what) {
    case FB_PLANT_NAN: *bits = pattern->nan; return 1;
    case FB_PLANT_INF: *bits = pattern->inf; return pattern->inf != 0;
    case FB_PLANT_NEG_INF: *bits = pattern->neg_inf; return pattern->neg_inf != 0;
    case FB_PLANT_HUGE: *bits = pattern->huge; return 1;
    case FB_PLANT_BITFLIP: *bits = old ^ (UINT64_C(1) << (item->bit >= 0 ? item->bit : pattern->top_bit)); return 1;
    default: return 0;
    }
}

uint64_t fb_inject_plant(const fb_injection *item, const fb_view *view)
{
    const struct pattern *pattern = find_pattern(view->dtype);
    uint64_t start = item->index == FB_NO_INDEX ? view->count / 2 : item->index;
    uint64_t changed = 0;
    if (item->what == FB_PLANT_SCALE) return scale_all(item, view);
    if (!pattern || start >= view->count) return 0;
    if (item->what == FB_PLANT_BITFLIP && item->bit >= (int32_t)(8 * pattern->bytes)) return 0;
    for (uint64_t i = start; i < view->count && changed < item->count; i++, changed++) {
        uint8_t *at = fb_view_element(view, i, pattern->bytes);
        uint64_t bits;
        if (!bits_for(item, pattern, get(at, pattern->bytes), &bits)) return 0;
        put(at, bits, pattern->bytes);
    }
    return changed;
}

uint64_t fb_inject_plant_integers(const fb_injection *item, void *data, int32_t dtype, uint64_t count, int64_t bad, int64_t ignored)
{
    unsigned bytes = (unsigned)fb_dtype_bytes(dtype, 1);
    uint64_t start = item->what == FB_PLANT_ZERO ? 0 : item->index == FB_NO_INDEX ? count / 2 : item->index;
    uint64_t most = item->what == FB_PLANT_ZERO ? count : item->count;
    int64_t value = item->what == FB_PLANT_ZERO ? ignored : bad;
    uint64_t changed = 0;
    if (bytes == 0 || !data) return 0;
    /* A value that the array's format cannot hold would be planted as another one: then nothing is. */
    if (bytes < 8 && (value > (INT64_C(1) << (8 * bytes)) - 1 || value < -(INT64_C(1) << (8 * bytes - 1)))) return 0;
    for (uint64_t i = start; i < count && changed < most; i++, changed++) {
        put((uint8_t *)data + i * bytes, (uint64_t)value, bytes);
    }
    return changed;
}
