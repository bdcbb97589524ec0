/*
 * The row of operators of one step, as the first replay told it: who reads what and makes what, under which names. Later replays
 * are compared with it. Its arrays are the dataflow of src/search.
 *
 * Filled by the tape: fb_row_entry and fb_row_op in the order in which they are heard, fb_row_finish at the end.
 */
#ifndef FB_LOCATE_ROW_H
#define FB_LOCATE_ROW_H

#include "firstbad/locate.h"
#include "locate/names.h"
#include "search/flow.h"

enum { FB_ROW_TENSORS_MAX = 1 << 24, FB_ROW_EDGES_MAX = 1 << 28 };

typedef struct fb_row_node {
    uint32_t op, module, source, node; /* names */
    int32_t boundary, micro_step;
    uint32_t flags, token;
    uint32_t first_output, output_count; /* consecutive ids of tensors */
    uint32_t first_attribute, attribute_count;
    int32_t format;  /* of the first output; 0: it makes nothing */
    uint64_t shape;  /* hash of the above but source and token, of the inputs and of the names it makes */
    uint64_t counts; /* hash of the elements and formats of what it makes */
} fb_row_node;

typedef struct fb_row_attribute {
    uint32_t name;
    double value;
} fb_row_attribute;

typedef struct fb_row_entry_bytes {
    uint32_t tensor;
    uint64_t hash;
} fb_row_entry_bytes;

typedef struct fb_row {
    fb_names names;
    uint32_t nodes, tensors, attributes, entries;
    uint64_t edges;
    fb_row_node *node;
    fb_row_attribute *attribute;
    fb_row_entry_bytes *entry;                  /* [entries] in the order in which they were heard */
    uint64_t *first;                            /* [nodes + 1] */
    uint32_t *inputs;                           /* [edges] */
    uint32_t *producer, *flags, *module, *name; /* [tensors]; flags: FB_TAPE_* */
    uint64_t *count;                            /* [tensors] elements */
    int32_t *format;                            /* [tensors] FB_F16, FB_I64, ... that the numbers live in */
    size_t node_room, attribute_room, entry_room, first_room, inputs_room;
    size_t producer_room, flags_room, module_room, name_room, count_room, format_room;
    uint32_t *flow_flags; /* [tensors] after fb_row_finish */
    fb_flow flow;         /* after fb_row_finish */
    uint64_t digest;      /* of all `shape` and the entries' names, in order: equal on all ranks */
} fb_row;

/* A zeroed struct is an empty row. */
void fb_row_release(fb_row *row);

/* What fb_row_op and a comparison with it need of an operator. */
uint64_t fb_row_shape_of(const fb_tape_op *op);
uint64_t fb_row_counts_of(const fb_tape_op *op);
uint64_t fb_row_entry_shape_of(const fb_tape_value *value);

/* Errors: FB_E_LIMIT, FB_E_NOMEM. The row is then not to be used. */
fb_status fb_row_entry(fb_row *row, const fb_tape_value *value, uint64_t hash, uint32_t *id, fb_error *err);
fb_status fb_row_op(fb_row *row, const fb_tape_op *op, uint32_t *first_id, fb_error *err);
fb_status fb_row_finish(fb_row *row, fb_error *err);

/* The boundary that a tensor belongs to: that of its operator; of an entry FB_INPUT or FB_ENTRY. */
int32_t fb_row_boundary(const fb_row *row, uint32_t tensor);
const char *fb_row_text(const fb_row *row, uint32_t name);

/* A caller of an older header knows of no node. */
static inline const char *fb_row_node_of(const fb_tape_op *op)
{
    return op->size >= offsetof(fb_tape_op, node) + sizeof op->node ? op->node : NULL;
}

/* Outputs are an array of structs as large as their caller knows them. */
static inline const fb_tape_value *fb_row_output(const fb_tape_op *op, uint32_t i)
{
    return (const fb_tape_value *)(const void *)((const char *)op->outputs + (size_t)i * op->outputs[0].size);
}

#endif
