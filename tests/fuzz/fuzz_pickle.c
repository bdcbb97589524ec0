/*
 * The interpreter of pickles and what is made of its graph, against any bytes. What must hold: both end; every node, text and child
 * that is handed out exists; every tensor lies in its storage or in its memory, element by element as its strides say; names hold
 * nothing that a terminal would obey; and the same bytes give the same answer twice.
 */
#include <stdlib.h>
#include <string.h>

#include "ckpt/torch_object.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(int holds)
{
    if (!holds) abort();
}

static uint64_t sum;

static void check_name(const char *name)
{
    for (const char *c = name; *c; c++) {
        require((unsigned char)*c >= 0x20 && *c != 0x7f);
        sum = sum * 31 + (unsigned char)*c;
    }
}

static void check_nodes(const fb_pickle *pickle)
{
    uint64_t nodes = fb_pickle_nodes(pickle);
    require(fb_pickle_root(pickle) >= 1 && fb_pickle_root(pickle) <= nodes);
    require(fb_pickle_kind(pickle, 0) == 0 && fb_pickle_kind(pickle, (fb_node)nodes + 1) == 0);
    for (fb_node node = 1; node <= nodes; node++) {
        uint64_t text_bytes, children = fb_pickle_children(pickle, node);
        const char *text = fb_pickle_text(pickle, node, &text_bytes);
        if (text_bytes) sum += (uint64_t)(unsigned char)text[0] + (unsigned char)text[text_bytes - 1];
        for (uint64_t i = 0; i < children; i++)
            require(fb_pickle_child(pickle, node, i) >= 1 && fb_pickle_child(pickle, node, i) <= nodes);
        require(fb_pickle_child(pickle, node, children) == 0);
        if (fb_pickle_kind(pickle, node) == FB_PICKLE_DICT) require(children % 2 == 0);
        require(fb_pickle_items(pickle, node) <= nodes && fb_pickle_state(pickle, node) <= nodes);
        sum += (uint64_t)fb_pickle_int(pickle, node) + fb_pickle_float_bits(pickle, node) + fb_pickle_get(pickle, node, "a");
    }
}

/* The highest byte that an element touches, by its strides. */
static void check_tensor(const fb_ckpt_tensor *t, uint64_t place_bytes)
{
    uint64_t elements = 1, last = 0, width;
    check_name(t->name);
    check_name(t->dtype_name);
    require(t->ndim >= 0 && t->ndim <= FB_CKPT_DIMS_MAX);
    for (int32_t d = 0; d < t->ndim; d++) require(!__builtin_mul_overflow(elements, t->shape[d], &elements) || t->elements == 0);
    require(t->unscanned || t->elements == 0 || elements == t->elements);
    if (t->unscanned || t->elements == 0) return;
    width = t->lane_count ? t->period_bytes : fb_dtype_bytes(t->dtype, 1);
    require(width > 0);
    if (!t->strides) last = t->elements - 1;
    for (int32_t d = 0; t->strides && d < t->ndim; d++) {
        require(t->strides[d] >= 0);
        last += (t->shape[d] - 1) * (uint64_t)t->strides[d];
    }
    require(t->offset_bytes <= place_bytes && last < (place_bytes - t->offset_bytes) / width);
}

static void check_object(const fb_torch_object *object)
{
    fb_ckpt_extent extent;
    fb_ckpt_remark remark;
    for (uint64_t i = 0; i < fb_torch_storages(object); i++) {
        const fb_torch_storage *s = fb_torch_storage_at(object, i);
        check_name(s->key);
        for (uint64_t t = 0; t < s->tensor_count; t++) check_tensor(&s->tensors[t], s->elements * s->element_bytes);
    }
    for (uint64_t i = 0; fb_torch_extent(object, i, &extent); i++) {
        require(extent.encoding == FB_CKPT_MEMORY && (extent.memory || extent.bytes == 0) && extent.tensor_count > 0);
        check_name(extent.name);
        for (uint64_t b = 0; b < extent.bytes; b++) sum += extent.memory[b];
        for (uint64_t t = 0; t < extent.tensor_count; t++) check_tensor(&extent.tensors[t], extent.bytes);
    }
    for (uint64_t i = 0; fb_torch_remark(object, i, &remark); i++) {
        require(remark.kind >= FB_CKPT_REMARK_NOTE && remark.kind <= FB_CKPT_REMARK_FACT);
        check_name(remark.name);
        check_name(remark.text);
    }
}

static fb_status understand(const uint8_t *data, size_t bytes, uint64_t *answer)
{
    fb_pickle *pickle;
    fb_torch_object *object = NULL;
    fb_error err;
    uint64_t used;
    fb_pickle_limits limits = {0};
    fb_status status;
    limits.memo_max = 1u << 16;
    fb_error_clear(&err);
    sum = 0;
    status = fb_pickle_parse(&pickle, data, bytes, 7, "memory", &limits, &used, &err);
    require((status == FB_OK) == (pickle != NULL) && used <= bytes);
    if (status == FB_OK) {
        check_nodes(pickle);
        status = fb_torch_object_open(&object, pickle, "memory", &err);
        require((status == FB_OK) == (object != NULL));
        if (object) check_object(object);
    }
    require(status == FB_OK || (err.code == status && err.message[0] != '\0'));
    require(status != FB_E_CORRUPT || (err.offset_bytes >= 7 && err.offset_bytes <= 7 + bytes));
    fb_torch_object_close(object);
    fb_pickle_free(pickle);
    *answer = sum;
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint64_t first, second;
    fb_status status = understand(data, bytes, &first);
    require(understand(data, bytes, &second) == status && first == second);
    return 0;
}
