#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/pickle_graph.h"
#include "ckpt/torch_inside.h"

fb_status fb_torch_no_memory(const fb_torch_object *object, fb_error *err)
{
    return fb_fail(err, FB_E_NOMEM, "understand the pickle in %s: no memory for %llu tensors", object->path,
                   (unsigned long long)object->record_count);
}

static fb_status too_many(const fb_torch_object *object, const char *what, uint64_t most, fb_error *err)
{
    return fb_fail(err, FB_E_LIMIT, "understand the pickle in %s: more than %llu %s", object->path, (unsigned long long)most, what);
}

/* ---- text ------------------------------------------------------------------------------------------------------------------- */

fb_status fb_torch_keep(fb_torch_object *object, const char *text, uint64_t bytes, uint32_t *at, fb_error *err)
{
    if (bytes > FB_TORCH_TEXT_MAX || object->text_used + bytes + 2 > FB_TORCH_TEXT_MAX)
        return too_many(object, "bytes of names", FB_TORCH_TEXT_MAX, err);
    if (!fb_pickle_grow((void **)&object->text, &object->text_room, object->text_used + bytes + 2, 1))
        return fb_torch_no_memory(object, err);
    if (object->text_used == 0) object->text[object->text_used++] = '\0';
    *at = (uint32_t)object->text_used;
    if (bytes) memcpy(object->text + object->text_used, text, (size_t)bytes);
    object->text_used += bytes;
    object->text[object->text_used++] = '\0';
    return FB_OK;
}

/* Bytes of the UTF-8 character at text that may be shown; 0: none is there. Controls of both ranges are not shown. */
static uint64_t character(const char *text, uint64_t bytes)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const uint8_t *u = (const uint8_t *)text;
    uint32_t n, code;
    if (u[0] < 0x80) return u[0] >= 0x20 && u[0] != 0x7f;
    n = u[0] >= 0xf0 ? 4 : u[0] >= 0xe0 ? 3 : 2;
    if (u[0] < 0xc2 || u[0] > 0xf4 || n > bytes) return 0;
    code = u[0] & (0xffu >> (n + 1));
    for (uint32_t i = 1; i < n; i++) {
        if ((u[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (u[i] & 0x3fu);
    }
    if (code < least[n] || code < 0xa0 || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return 0;
    return n;
}

uint64_t fb_torch_clean(char *out, uint64_t room, const char *text, uint64_t bytes)
{
    uint64_t used = 0;
    for (uint64_t i = 0; i < bytes;) {
        uint64_t n = character(text + i, bytes - i);
        if (n > room - used || (n == 0 && room - used < 4)) break;
        if (n) {
            memcpy(out + used, text + i, (size_t)n);
            used += n;
            i += n;
        } else {
            static const char digits[] = "0123456789abcdef";
            uint8_t byte = (uint8_t)text[i++];
            out[used++] = '\\';
            out[used++] = 'x';
            out[used++] = digits[byte >> 4];
            out[used++] = digits[byte & 15];
        }
    }
    return used;
}

/* ---- places, tensors, remarks ----------------------------------------------------------------------------------------------- */

fb_status fb_torch_add_place(fb_torch_object *object, const fb_torch_place *place, uint32_t *index, fb_error *err)
{
    if (object->place_count >= FB_TORCH_TENSORS_MAX) return too_many(object, "storages", FB_TORCH_TENSORS_MAX, err);
    if (!fb_pickle_grow((void **)&object->places, &object->place_room, object->place_count + 1, sizeof *object->places))
        return fb_torch_no_memory(object, err);
    object->places[object->place_count] = *place;
    *index = (uint32_t)object->place_count++;
    return FB_OK;
}

fb_status fb_torch_add_tensor(fb_torch_object *object, fb_torch_record record, const uint64_t *shape, const int64_t *strides,
                              fb_error *err)
{
    uint64_t dims = record.ndim * (strides ? 2u : 1u);
    if (object->record_count >= FB_TORCH_TENSORS_MAX) return too_many(object, "tensors", FB_TORCH_TENSORS_MAX, err);
    if (object->dims_used + dims > FB_TORCH_DIMS_MAX) return too_many(object, "dimensions", FB_TORCH_DIMS_MAX, err);
    if (!fb_pickle_grow((void **)&object->records, &object->record_room, object->record_count + 1, sizeof *object->records) ||
        !fb_pickle_grow((void **)&object->dims, &object->dims_room, object->dims_used + dims, sizeof *object->dims))
        return fb_torch_no_memory(object, err);
    record.dims_at = (uint32_t)object->dims_used;
    record.strided = strides != NULL;
    if (record.ndim) memcpy(object->dims + object->dims_used, shape, record.ndim * sizeof *shape);
    if (record.ndim && strides) memcpy(object->dims + object->dims_used + record.ndim, strides, record.ndim * sizeof *strides);
    object->dims_used += dims;
    object->records[object->record_count++] = record;
    object->places[record.place].count++;
    return FB_OK;
}

fb_status fb_torch_remark_add(fb_torch_object *object, int32_t kind, uint32_t name_at, double value, fb_error *err,
                              const char *format, ...)
{
    char text[512];
    fb_torch_note note = {kind, name_at, 0, value};
    va_list args;
    fb_status status;
    if (kind == FB_CKPT_REMARK_UNSCANNED && object->unscanned_count++ >= FB_TORCH_UNSCANNED_MAX) return FB_OK;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if ((status = fb_torch_keep(object, text, strlen(text), &note.text_at, err)) != FB_OK) return status;
    if (!fb_pickle_grow((void **)&object->notes, &object->note_room, object->note_count + 1, sizeof *object->notes))
        return fb_torch_no_memory(object, err);
    object->notes[object->note_count++] = note;
    return FB_OK;
}

fb_status fb_torch_word(fb_torch_object *object, fb_torch_words *words, uint64_t word, fb_error *err)
{
    if (!fb_pickle_grow((void **)&words->data, &words->room, words->count + 1, sizeof *words->data))
        return fb_torch_no_memory(object, err);
    words->data[words->count++] = word;
    return FB_OK;
}

/* ---- results ---------------------------------------------------------------------------------------------------------------- */

/* All numbers of one kind as one tensor. The words hold bits in the machine's order; bytes go out little-endian. */
static fb_status add_words(fb_torch_object *object, fb_torch_words *words, int32_t kind, const char *name, fb_error *err)
{
    fb_torch_place place = {0};
    fb_torch_record record = {0};
    fb_status status;
    for (uint64_t i = 0; i < words->count; i++) {
        uint64_t bits = words->data[i];
        uint8_t *bytes = (uint8_t *)&words->data[i];
        for (int b = 0; b < 8; b++) bytes[b] = (uint8_t)(bits >> (8 * b));
    }
    if (words->count == 0 || kind == FB_TORCH_ODD_NUMBER) return FB_OK;
    if ((status = fb_torch_keep(object, name, strlen(name), &record.name_at, err)) != FB_OK) return status;
    if ((status = fb_torch_keep(object, "float", strlen("float"), &record.dtype_at, err)) != FB_OK) return status;
    place.kind = kind;
    place.name_at = record.name_at;
    place.bytes = words->count * 8;
    if ((status = fb_torch_add_place(object, &place, &record.place, err)) != FB_OK) return status;
    record.dtype = FB_F64;
    record.ndim = 1;
    record.elements = words->count;
    record.number = 1;
    return fb_torch_add_tensor(object, record, &words->count, NULL, err);
}

static void fill_tensor(const fb_torch_object *object, const fb_torch_record *from, fb_ckpt_tensor *to)
{
    static const uint64_t no_dims = 0;
    static const fb_ckpt_lane halves[] = {{"real", FB_F16, 0, 1, 1}, {"imag", FB_F16, 2, 1, 1}};
    to->name = object->text + from->name_at;
    to->dtype_name = object->text + from->dtype_at;
    to->dtype = from->dtype;
    to->ndim = (int32_t)from->ndim;
    to->shape = from->ndim ? object->dims + from->dims_at : &no_dims;
    to->strides = from->strided && from->ndim ? (const int64_t *)(object->dims + from->dims_at + from->ndim) : NULL;
    to->elements = from->elements;
    to->offset_bytes = from->offset_bytes;
    to->unscanned = from->unscanned;
    to->number = from->number;
    to->legal_inf = from->legal_inf;
    if (from->dtype != FB_TORCH_COMPLEX32) return;
    to->dtype = 0;
    to->lanes = halves;
    to->lane_count = 2;
    to->block_elements = 1;
    to->period_bytes = 4;
    if (from->strided) to->unscanned = "complex32 numbers that do not lie one after the other";
}

/* Tensors of one place side by side, in the order in which they were found. */
static fb_status place_tensors(fb_torch_object *object, fb_error *err)
{
    uint64_t first = 0;
    object->tensors = fb_calloc((size_t)object->record_count, sizeof *object->tensors);
    if (!object->tensors) return fb_torch_no_memory(object, err);
    for (uint64_t i = 0; i < object->place_count; i++) {
        object->places[i].first = first;
        first += object->places[i].count;
        object->places[i].count = 0;
    }
    for (uint64_t i = 0; i < object->record_count; i++) {
        fb_torch_place *place = &object->places[object->records[i].place];
        fill_tensor(object, &object->records[i], &object->tensors[place->first + place->count++]);
    }
    return FB_OK;
}

static void fill_storage(const fb_torch_object *object, const fb_torch_place *from, fb_torch_storage *to)
{
    to->key = object->text + from->name_at;
    if (from->format) {
        to->dtype = from->format->dtype == FB_TORCH_COMPLEX32 ? 0 : from->format->dtype;
        to->dtype_name = from->format->name;
        to->element_bytes = from->format->bytes;
    } else to->dtype_name = "?";
    to->elements = from->elements;
    to->tensors = object->tensors + from->first;
    to->tensor_count = from->count;
    to->root_key = from->root_at ? object->text + from->root_at : NULL;
    to->root_offset_elements = from->root_offset;
}

fb_status fb_torch_finish(fb_torch_object *object, fb_error *err)
{
    uint64_t storages = 0;
    uint32_t none;
    fb_status status = object->text_used ? FB_OK : fb_torch_keep(object, "", 0, &none, err);
    if (status == FB_OK) status = add_words(object, &object->numbers, FB_TORCH_NUMBERS, "(numbers)", err);
    if (status == FB_OK) status = add_words(object, &object->odd, FB_TORCH_ODD_NUMBER, "", err);
    if (status == FB_OK) status = add_words(object, &object->more_odd, FB_TORCH_ODD_NUMBERS, "(more numbers)", err);
    if (status == FB_OK && object->unscanned_count > FB_TORCH_UNSCANNED_MAX)
        status = fb_torch_remark_add(object, FB_CKPT_REMARK_NOTE, 0, 0, err, "%llu more parts were not looked at",
                                     (unsigned long long)(object->unscanned_count - FB_TORCH_UNSCANNED_MAX));
    if (status == FB_OK) status = place_tensors(object, err);
    if (status != FB_OK) return status;
    object->storages = fb_calloc((size_t)object->storage_count, sizeof *object->storages);
    object->extents = fb_calloc((size_t)object->place_count, sizeof *object->extents);
    if (!object->storages || !object->extents) return fb_torch_no_memory(object, err);
    for (uint64_t i = 0; i < object->place_count; i++) {
        if (object->places[i].kind == FB_TORCH_STORAGE) fill_storage(object, &object->places[i], &object->storages[storages++]);
        else object->extents[object->extent_count++] = (uint32_t)i;
    }
    return FB_OK;
}

/* ---- what torch_object.h hands out ------------------------------------------------------------------------------------------ */

uint64_t fb_torch_storages(const fb_torch_object *object)
{
    return object->storage_count;
}

const fb_torch_storage *fb_torch_storage_at(const fb_torch_object *object, uint64_t i)
{
    return i < object->storage_count ? &object->storages[i] : NULL;
}

int fb_torch_extent(const fb_torch_object *object, uint64_t i, fb_ckpt_extent *extent)
{
    const fb_torch_place *place;
    memset(extent, 0, sizeof *extent);
    if (i >= object->extent_count) return 0;
    place = &object->places[object->extents[i]];
    extent->name = object->text + place->name_at;
    extent->encoding = FB_CKPT_MEMORY;
    extent->swapped = place->swapped;
    extent->bytes = place->bytes;
    extent->memory = place->data;
    if (place->kind == FB_TORCH_NUMBERS) extent->memory = (const uint8_t *)object->numbers.data;
    if (place->kind == FB_TORCH_ODD_NUMBERS) extent->memory = (const uint8_t *)object->more_odd.data;
    if (place->kind == FB_TORCH_ODD_NUMBER) extent->memory = (const uint8_t *)(object->odd.data + place->at);
    extent->tensors = object->tensors + place->first;
    extent->tensor_count = place->count;
    return 1;
}

int fb_torch_remark(const fb_torch_object *object, uint64_t i, fb_ckpt_remark *remark)
{
    if (i >= object->note_count) return 0;
    remark->kind = object->notes[i].kind;
    remark->name = object->text + object->notes[i].name_at;
    remark->text = object->text + object->notes[i].text_at;
    remark->value = object->notes[i].value;
    return 1;
}

void fb_torch_object_close(fb_torch_object *object)
{
    if (!object) return;
    for (uint64_t i = 0; i < object->place_count; i++) {
        if (object->places[i].kind == FB_TORCH_OWNED) fb_free((void *)(uintptr_t)object->places[i].data);
    }
    for (uint64_t i = 0; i < object->map_count; i++) fb_free(object->maps[i].names);
    fb_free(object->maps);
    fb_free(object->marks);
    fb_free(object->text);
    fb_free(object->dims);
    fb_free(object->places);
    fb_free(object->keys);
    fb_free(object->records);
    fb_free(object->numbers.data);
    fb_free(object->odd.data);
    fb_free(object->more_odd.data);
    fb_free(object->models.data);
    fb_free(object->notes);
    fb_free(object->tensors);
    fb_free(object->storages);
    fb_free(object->extents);
    fb_free(object);
}
