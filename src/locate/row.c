#include "locate/row.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/status.h"
#include "locate/grow.h"
#include "locate/op_title.h"

void fb_row_release(fb_row *row)
{
    fb_names_release(&row->names);
    fb_free(row->node);
    fb_free(row->attribute);
    fb_free(row->entry);
    fb_free(row->first);
    fb_free(row->inputs);
    fb_free(row->producer);
    fb_free(row->flags);
    fb_free(row->module);
    fb_free(row->name);
    fb_free(row->count);
    fb_free(row->format);
    fb_free(row->flow_flags);
    memset(row, 0, sizeof *row);
}

const char *fb_row_text(const fb_row *row, uint32_t name)
{
    return fb_names_text(&row->names, name);
}

int32_t fb_row_boundary(const fb_row *row, uint32_t tensor)
{
    if (row->producer[tensor] != FB_FLOW_NONE) return row->node[row->producer[tensor]].boundary;
    return row->flags[tensor] & FB_TAPE_BATCH ? FB_INPUT : FB_ENTRY;
}

/* ---- hashes ------------------------------------------------------------------------------------------------------------------ */

static uint64_t hash_text(const char *text, uint64_t seed)
{
    return text ? fb_hash64(text, strlen(text) + 1, seed) : fb_hash64("", 1, seed);
}

static uint64_t hash_number(uint64_t number, uint64_t seed)
{
    return fb_hash64(&number, sizeof number, seed);
}

/* The memory's dtype is no part of it: a replay in another format may keep the same operators. */
uint64_t fb_row_shape_of(const fb_tape_op *op)
{
    uint64_t hash = hash_text(op->module, hash_text(op->op, 1));
    hash = hash_number(((uint64_t)(uint32_t)op->boundary << 32) | (uint32_t)op->micro_step, hash);
    hash = hash_number(((uint64_t)op->flags << 32) | op->input_count, hash);
    if (op->input_count) hash = fb_hash64(op->inputs, (size_t)op->input_count * sizeof *op->inputs, hash);
    hash = hash_number(op->output_count, hash);
    for (uint32_t i = 0; i < op->output_count; i++) {
        const fb_tape_value *value = fb_row_output(op, i);
        hash = hash_text(value->name, hash_text(value->module ? value->module : op->module, hash));
        hash = hash_number(value->flags, hash);
    }
    return hash;
}

uint64_t fb_row_counts_of(const fb_tape_op *op)
{
    uint64_t hash = 2;
    for (uint32_t i = 0; i < op->output_count; i++) {
        const fb_tape_value *value = fb_row_output(op, i);
        hash = hash_number(value->count, hash);
        hash = hash_number(((uint64_t)(uint32_t)value->dtype << 32) | (uint32_t)value->format, hash);
    }
    return hash;
}

uint64_t fb_row_entry_shape_of(const fb_tape_value *value)
{
    return hash_number(value->flags, hash_text(value->name, hash_text(value->module, 3)));
}

/* ---- what is heard ----------------------------------------------------------------------------------------------------------- */

static fb_status add_tensor(fb_row *row, const fb_tape_value *value, const char *module, uint32_t producer, fb_error *err)
{
    size_t wanted = (size_t)row->tensors + 1;
    fb_status status;
    if (row->tensors == FB_ROW_TENSORS_MAX)
        return fb_fail(err, FB_E_LIMIT, "listen to a step: it has more than %d tensors", FB_ROW_TENSORS_MAX);
    if ((status = fb_grow(&row->producer, &row->producer_room, sizeof *row->producer, wanted, err)) != FB_OK) return status;
    if ((status = fb_grow(&row->flags, &row->flags_room, sizeof *row->flags, wanted, err)) != FB_OK) return status;
    if ((status = fb_grow(&row->module, &row->module_room, sizeof *row->module, wanted, err)) != FB_OK) return status;
    if ((status = fb_grow(&row->name, &row->name_room, sizeof *row->name, wanted, err)) != FB_OK) return status;
    if ((status = fb_grow(&row->count, &row->count_room, sizeof *row->count, wanted, err)) != FB_OK) return status;
    if ((status = fb_grow(&row->format, &row->format_room, sizeof *row->format, wanted, err)) != FB_OK) return status;
    status = fb_names_add(&row->names, value->module ? value->module : module, &row->module[row->tensors], err);
    if (status == FB_OK) status = fb_names_add(&row->names, value->name, &row->name[row->tensors], err);
    if (status != FB_OK) return status;
    row->producer[row->tensors] = producer;
    row->flags[row->tensors] = value->flags;
    row->count[row->tensors] = value->count;
    row->format[row->tensors] = value->format ? value->format : value->dtype;
    row->tensors++;
    return FB_OK;
}

fb_status fb_row_entry(fb_row *row, const fb_tape_value *value, uint64_t hash, uint32_t *id, fb_error *err)
{
    fb_status status = fb_grow(&row->entry, &row->entry_room, sizeof *row->entry, (size_t)row->entries + 1, err);
    if (status == FB_OK) status = add_tensor(row, value, "", FB_FLOW_NONE, err);
    if (status != FB_OK) return status;
    *id = row->tensors - 1;
    row->entry[row->entries].tensor = *id;
    row->entry[row->entries++].hash = hash;
    row->digest = hash_number(fb_row_entry_shape_of(value), row->digest);
    return FB_OK;
}

static fb_status add_attributes(fb_row *row, fb_row_node *node, const fb_tape_op *op, fb_error *err)
{
    size_t wanted = (size_t)row->attributes + op->attribute_count;
    fb_status status = fb_grow(&row->attribute, &row->attribute_room, sizeof *row->attribute, wanted, err);
    node->first_attribute = row->attributes;
    node->attribute_count = op->attribute_count;
    for (uint32_t i = 0; i < op->attribute_count && status == FB_OK; i++) {
        fb_row_attribute *attribute = &row->attribute[row->attributes + i];
        attribute->value = op->attributes[i].value;
        status = fb_names_add(&row->names, op->attributes[i].name, &attribute->name, err);
    }
    if (status == FB_OK) row->attributes += op->attribute_count;
    return status;
}

static fb_status add_inputs(fb_row *row, const fb_tape_op *op, fb_error *err)
{
    fb_status status;
    if (row->edges + op->input_count > FB_ROW_EDGES_MAX)
        return fb_fail(err, FB_E_LIMIT, "listen to a step: its operators read more than %d tensors", FB_ROW_EDGES_MAX);
    status = fb_grow(&row->inputs, &row->inputs_room, sizeof *row->inputs, (size_t)row->edges + op->input_count, err);
    if (status == FB_OK) status = fb_grow(&row->first, &row->first_room, sizeof *row->first, (size_t)row->nodes + 2, err);
    if (status != FB_OK) return status;
    if (op->input_count) memcpy(row->inputs + row->edges, op->inputs, (size_t)op->input_count * sizeof *row->inputs);
    row->first[row->nodes] = row->edges;
    row->edges += op->input_count;
    row->first[row->nodes + 1] = row->edges;
    return FB_OK;
}

fb_status fb_row_op(fb_row *row, const fb_tape_op *op, uint32_t *first_id, fb_error *err)
{
    char plain[128];
    fb_row_node *node;
    fb_status status = fb_grow(&row->node, &row->node_room, sizeof *row->node, (size_t)row->nodes + 1, err);
    if (status != FB_OK) return status;
    node = &row->node[row->nodes];
    memset(node, 0, sizeof *node);
    if ((status = add_inputs(row, op, err)) != FB_OK) return status;
    if ((status = fb_names_add(&row->names, fb_op_plain(plain, sizeof plain, op->op), &node->op, err)) != FB_OK) return status;
    if ((status = fb_names_add(&row->names, op->module, &node->module, err)) != FB_OK) return status;
    if ((status = fb_names_add(&row->names, op->source, &node->source, err)) != FB_OK) return status;
    if ((status = fb_names_add(&row->names, fb_row_node_of(op), &node->node, err)) != FB_OK) return status;
    if ((status = add_attributes(row, node, op, err)) != FB_OK) return status;
    node->boundary = op->boundary;
    node->micro_step = op->micro_step;
    node->flags = op->flags;
    node->token = op->token;
    node->first_output = row->tensors;
    node->output_count = op->output_count;
    if (op->output_count) node->format = op->outputs[0].format ? op->outputs[0].format : op->outputs[0].dtype;
    node->shape = fb_row_shape_of(op);
    node->counts = fb_row_counts_of(op);
    for (uint32_t i = 0; i < op->output_count; i++) {
        if ((status = add_tensor(row, fb_row_output(op, i), op->module, row->nodes, err)) != FB_OK) return status;
    }
    *first_id = node->first_output;
    row->digest = hash_number(node->shape, row->digest);
    row->nodes++;
    return FB_OK;
}

fb_status fb_row_finish(fb_row *row, fb_error *err)
{
    fb_status status = fb_grow(&row->first, &row->first_room, sizeof *row->first, (size_t)row->nodes + 1, err);
    if (status != FB_OK) return status;
    if (row->nodes == 0) row->first[0] = 0;
    row->flow_flags = fb_calloc(row->tensors, sizeof *row->flow_flags);
    if (!row->flow_flags) return fb_fail(err, FB_E_NOMEM, "listen to a step: no memory for the flags of %u tensors", row->tensors);
    for (uint32_t t = 0; t < row->tensors; t++) {
        if (row->flags[t] & FB_TAPE_STATE) row->flow_flags[t] |= FB_FLOW_STATE;
        if (row->flags[t] & FB_TAPE_MASK) row->flow_flags[t] |= FB_FLOW_MASK;
    }
    row->flow.nodes = row->nodes;
    row->flow.tensors = row->tensors;
    row->flow.producer = row->producer;
    row->flow.flags = row->flow_flags;
    row->flow.first = row->first;
    row->flow.inputs = row->inputs;
    return fb_flow_check(&row->flow, err);
}
