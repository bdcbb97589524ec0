#include "ckpt/index.h"

#include <string.h>

#include "base/alloc.h"
#include "ckpt/json_text.h"
#include "ckpt/order.h"

typedef struct place {
    uint32_t tensor, file; /* places in the text */
    int32_t met;
} place;

struct fb_ckpt_index {
    char *text;
    fb_ckpt_json json;
    place *places;
    uint64_t count, room;
    uint32_t *by_tensor; /* sorted */
    uint32_t *files;     /* one place for each file name, sorted by it */
    uint64_t file_count;
    int seen_map;
};

#define REFUSE(x, token, err, ...) FB_CKPT_REFUSE(&(x)->json, token, err, __VA_ARGS__)

void fb_ckpt_index_free(fb_ckpt_index *x)
{
    if (!x) return;
    fb_free(x->text);
    fb_free(x->places);
    fb_free(x->by_tensor);
    fb_free(x->files);
    fb_free(x);
}

/* A name that stays in the folder, whatever system reads it. */
static int is_plain(const char *name)
{
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return 0;
    return strpbrk(name, "/\\:") == NULL;
}

static fb_status add_place(fb_ckpt_index *x, const fb_json_token *key, fb_error *err)
{
    fb_json_token token;
    place *p;
    fb_status status;
    if (x->count == x->room) {
        uint64_t room = x->room ? x->room * 2 : 64;
        place *grown = fb_realloc(x->places, (size_t)room * sizeof *grown);
        if (!grown)
            return fb_fail(err, FB_E_NOMEM, "read index %s: no memory for %llu tensors", x->json.path, (unsigned long long)room);
        x->places = grown;
        x->room = room;
    }
    p = &x->places[x->count];
    p->met = 0;
    if ((status = fb_ckpt_json_keep(&x->json, key, &p->tensor, err)) != FB_OK) return status;
    if ((status = fb_ckpt_json_next(&x->json, &token, err)) != FB_OK) return status;
    if (token.type != FB_JSON_STRING) return REFUSE(x, &token, err, "read index %s: a file name must be a text", x->json.path);
    if ((status = fb_ckpt_json_keep(&x->json, &token, &p->file, err)) != FB_OK) return status;
    if (!is_plain(x->text + p->file)) {
        return REFUSE(x, &token, err, "read index %s: %.200s is not the name of a file in this folder", x->json.path,
                      x->text + p->file);
    }
    x->count++;
    return FB_OK;
}

static fb_status read_map(fb_ckpt_index *x, const fb_json_token *key, fb_error *err)
{
    fb_json_token token;
    fb_status status;
    if (x->seen_map) return REFUSE(x, key, err, "read index %s: weight_map stands there twice", x->json.path);
    x->seen_map = 1;
    if ((status = fb_ckpt_json_next(&x->json, &token, err)) != FB_OK) return status;
    if (token.type != FB_JSON_OBJECT) return REFUSE(x, &token, err, "read index %s: weight_map must be an object", x->json.path);
    for (;;) {
        if ((status = fb_ckpt_json_next(&x->json, &token, err)) != FB_OK) return status;
        if (token.type == FB_JSON_OBJECT_END) return FB_OK;
        if ((status = add_place(x, &token, err)) != FB_OK) return status;
    }
}

static fb_status parse(fb_ckpt_index *x, fb_error *err)
{
    fb_json_token token;
    fb_status status = fb_ckpt_json_next(&x->json, &token, err);
    if (status != FB_OK) return status;
    if (token.type != FB_JSON_OBJECT) return REFUSE(x, &token, err, "read index %s: it must be an object", x->json.path);
    for (;;) {
        if ((status = fb_ckpt_json_next(&x->json, &token, err)) != FB_OK) return status;
        if (token.type == FB_JSON_OBJECT_END) break;
        status = fb_json_is(&token, "weight_map") ? read_map(x, &token, err) : fb_ckpt_json_skip(&x->json, err);
        if (status != FB_OK) return status;
    }
    if (!x->seen_map) return REFUSE(x, &token, err, "read index %s: it has no weight_map", x->json.path);
    return fb_ckpt_json_next(&x->json, &token, err);
}

static int compare_tensors(const void *ctx, uint32_t a, uint32_t b)
{
    const fb_ckpt_index *x = ctx;
    return strcmp(x->text + x->places[a].tensor, x->text + x->places[b].tensor);
}

static int compare_files(const void *ctx, uint32_t a, uint32_t b)
{
    const fb_ckpt_index *x = ctx;
    return strcmp(x->text + x->places[a].file, x->text + x->places[b].file);
}

static fb_status sort(fb_ckpt_index *x, fb_error *err)
{
    x->by_tensor = fb_calloc((size_t)x->count, sizeof *x->by_tensor);
    x->files = fb_calloc((size_t)x->count, sizeof *x->files);
    if (!x->by_tensor || !x->files) {
        return fb_fail(err, FB_E_NOMEM, "read index %s: no memory to sort %llu tensors", x->json.path,
                       (unsigned long long)x->count);
    }
    for (uint64_t i = 0; i < x->count; i++) x->by_tensor[i] = x->files[i] = (uint32_t)i;
    fb_ckpt_sort(x->by_tensor, x->count, compare_tensors, x);
    for (uint64_t i = 1; i < x->count; i++) {
        if (compare_tensors(x, x->by_tensor[i - 1], x->by_tensor[i]) == 0) {
            const char *name = x->text + x->places[x->by_tensor[i]].tensor;
            return fb_fail_at(err, x->places[x->by_tensor[i]].tensor, "read index %s: tensor %.200s stands there twice",
                              x->json.path, name);
        }
    }
    fb_ckpt_sort(x->files, x->count, compare_files, x);
    for (uint64_t i = 0; i < x->count; i++) {
        if (i > 0 && compare_files(x, x->files[x->file_count - 1], x->files[i]) == 0) continue;
        x->files[x->file_count++] = x->files[i];
    }
    return FB_OK;
}

fb_status fb_ckpt_index_parse(fb_ckpt_index **out, char *text, uint64_t bytes, const char *path, fb_error *err)
{
    fb_ckpt_index *x = fb_calloc(1, sizeof *x);
    fb_status status;
    *out = NULL;
    if (!x) {
        fb_free(text);
        return fb_fail(err, FB_E_NOMEM, "read index %s: no memory", path);
    }
    x->text = text;
    fb_ckpt_json_begin(&x->json, "index", path, text, (size_t)bytes, 0);
    status = parse(x, err);
    if (status == FB_OK) status = sort(x, err);
    x->json.path = NULL; /* it was lent for this call */
    if (status != FB_OK) fb_ckpt_index_free(x);
    else *out = x;
    return status;
}

int fb_ckpt_index_names_file(const fb_ckpt_index *x, const char *file)
{
    uint64_t low = 0, high = x->file_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int order = strcmp(x->text + x->places[x->files[middle]].file, file);
        if (order == 0) return 1;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return 0;
}

const char *fb_ckpt_index_meet(fb_ckpt_index *x, const char *tensor, const char *file)
{
    uint64_t low = 0, high = x->count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        place *p = &x->places[x->by_tensor[middle]];
        int order = strcmp(x->text + p->tensor, tensor);
        if (order == 0) {
            if (strcmp(x->text + p->file, file) == 0) p->met = 1;
            return x->text + p->file;
        }
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

const char *fb_ckpt_index_missing(const fb_ckpt_index *x, const char **file, uint64_t *count)
{
    const char *first = NULL;
    *count = 0;
    *file = NULL;
    for (uint64_t i = 0; i < x->count; i++) {
        const place *p = &x->places[x->by_tensor[i]];
        if (p->met) continue;
        if (!first) {
            first = x->text + p->tensor;
            *file = x->text + p->file;
        }
        ++*count;
    }
    return first;
}

const char *fb_ckpt_index_file(const fb_ckpt_index *x, uint64_t i)
{
    return i < x->file_count ? x->text + x->places[x->files[i]].file : NULL;
}
