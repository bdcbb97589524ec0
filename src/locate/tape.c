#include "locate/tape.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/status.h"
#include "firstbad/scan.h"
#include "locate/grow.h"
#include "locate/op_title.h"
#include "locate/values.h"

void fb_tape_init(fb_tape *tape, int32_t mode, fb_row *row, const fb_tape_finding *finding)
{
    memset(tape, 0, sizeof *tape);
    tape->mode = mode;
    tape->row = row;
    tape->finding = *finding;
    tape->finding_id = tape->finding_near = FB_FLOW_NONE;
}

void fb_witness_tensor_release(fb_witness_tensor *tensor)
{
    fb_free(tensor->module);
    fb_free(tensor->name);
    fb_free(tensor->values);
    memset(tensor, 0, sizeof *tensor);
}

void fb_tape_release(fb_tape *tape)
{
    for (uint32_t i = 0; i < tape->kept_count; i++) fb_witness_tensor_release(&tape->kept[i]);
    fb_free(tape->kept);
    fb_free(tape->kept_ids);
    fb_free(tape->seen);
    memset(tape, 0, sizeof *tape);
}

/* ---- what is refused --------------------------------------------------------------------------------------------------------- */

static fb_status check_value(const fb_tape_value *value, fb_error *err)
{
    const char *name = value->name ? value->name : "";
    uint64_t product = 1;
    if (value->size < sizeof *value) {
        return fb_fail(err, FB_E_USAGE, "tell the tape of \"%s\": size is %u, expected %zu; use FB_TAPE_VALUE_INIT", name,
                       value->size, sizeof *value);
    }
    if (!value->data && value->count) return fb_fail(err, FB_E_USAGE, "tell the tape of \"%s\": data is NULL", name);
    if (!fb_dtype_name(value->dtype) || (value->format && !fb_dtype_name(value->format)))
        return fb_fail(err, FB_E_DTYPE, "tell the tape of \"%s\": format %d or %d is unknown", name, value->dtype, value->format);
    if (value->count && !fb_dtype_bytes(value->dtype, value->count))
        return fb_fail(err, FB_E_USAGE, "tell the tape of \"%s\": %llu elements do not fit into memory", name,
                       (unsigned long long)value->count);
    if (value->ndim < 0 || value->ndim > FB_DIMS_MAX)
        return fb_fail(err, FB_E_USAGE, "tell the tape of \"%s\": %d dimensions, expected 0 to %d", name, value->ndim, FB_DIMS_MAX);
    for (int32_t i = 0; i < value->ndim; i++) {
        if (value->shape[i] < 0 || (value->shape[i] && product > UINT64_MAX / (uint64_t)value->shape[i]))
            return fb_fail(err, FB_E_USAGE, "tell the tape of \"%s\": dimension %d is %lld", name, i, (long long)value->shape[i]);
        product *= (uint64_t)value->shape[i];
    }
    if (value->ndim && product != value->count) {
        return fb_fail(err, FB_E_USAGE, "tell the tape of \"%s\": the shape has %llu elements, expected %llu", name,
                       (unsigned long long)product, (unsigned long long)value->count);
    }
    return FB_OK;
}

static fb_status check_op(const fb_tape *tape, const fb_tape_op *op, fb_error *err)
{
    const char *name = op->op ? op->op : "";
    if (op->size < offsetof(fb_tape_op, node))
        return fb_fail(err, FB_E_USAGE, "tell the tape of \"%s\": size is %u, expected %zu; use FB_TAPE_OP_INIT", name, op->size,
                       sizeof *op);
    if (!op->op || (op->input_count && !op->inputs) || (op->output_count && !op->outputs) ||
        (op->attribute_count && !op->attributes))
        return fb_fail(err, FB_E_USAGE, "tell the tape of \"%s\": its name or one of its arrays is NULL", name);
    if (op->attribute_count > FB_TAPE_ATTRIBUTES_MAX)
        return fb_fail(err, FB_E_USAGE, "tell the tape of \"%s\": %u attributes, at most %d", name, op->attribute_count,
                       FB_TAPE_ATTRIBUTES_MAX);
    for (uint32_t i = 0; i < op->input_count; i++) {
        if (op->inputs[i] >= tape->tensors)
            return fb_fail(err, FB_E_USAGE, "tell the tape of \"%s\": it reads tensor %u, and there are %u so far", name,
                           op->inputs[i], tape->tensors);
    }
    for (uint32_t i = 0; i < op->output_count; i++) {
        fb_status status;
        if (op->outputs[0].size < sizeof *op->outputs || fb_row_output(op, i)->size != op->outputs[0].size)
            return fb_fail(err, FB_E_USAGE, "tell the tape of \"%s\": the sizes of its outputs are not those of FB_TAPE_VALUE_INIT",
                           name);
        if ((status = check_value(fb_row_output(op, i), err)) != FB_OK) return status;
    }
    return FB_OK;
}

/* ---- looking ----------------------------------------------------------------------------------------------------------------- */

static fb_view view_of(const fb_tape_value *value)
{
    fb_view view = FB_VIEW_INIT((void *)(uintptr_t)value->data, value->count, value->dtype, 0);
    return view;
}

/* Most tensors are finite, and one read tells; what is not is counted in a second. */
static fb_status look(const fb_tape_value *value, uint8_t *seen, fb_error *err)
{
    fb_view view = view_of(value);
    fb_scan_result result = FB_SCAN_RESULT_INIT;
    uint64_t first = FB_NO_INDEX;
    fb_status status = fb_scan_first(&view, &first, err);
    *seen = FB_SEEN_FINITE;
    if (status != FB_OK || first == FB_NO_INDEX) return status;
    if ((status = fb_scan(&view, &result, err)) != FB_OK) return status;
    *seen = result.nan || result.pos_inf || !result.neg_inf ? FB_SEEN_BAD : FB_SEEN_NEG_INF;
    return FB_OK;
}

static fb_status copy_values(fb_tape *tape, fb_witness_tensor *kept, const fb_tape_value *value)
{
    uint64_t bytes = value->count <= UINT64_MAX / sizeof(double) ? value->count * sizeof(double) : UINT64_MAX;
    if (!fb_values_readable(value->dtype) || bytes > SIZE_MAX) return FB_OK;
    if (tape->keep_bytes_max && (bytes > tape->keep_bytes_max || tape->kept_bytes > tape->keep_bytes_max - bytes)) return FB_OK;
    kept->values = fb_calloc((size_t)value->count, sizeof *kept->values);
    if (!kept->values) return FB_OK; /* evidence that there is no memory for is left out, and the search goes on */
    tape->kept_bytes += bytes;
    fb_values_read(value->dtype, value->data, value->count, kept->values);
    return FB_OK;
}

static fb_status keep(fb_tape *tape, uint32_t id, const fb_tape_value *value, const char *module, fb_error *err)
{
    fb_view view = view_of(value);
    fb_witness_tensor *kept;
    fb_status status = fb_grow(&tape->kept, &tape->kept_room, sizeof *tape->kept, (size_t)tape->kept_count + 1, err);
    if (status != FB_OK) return status;
    status = fb_grow(&tape->kept_ids, &tape->kept_ids_room, sizeof *tape->kept_ids, (size_t)tape->kept_count + 1, err);
    if (status != FB_OK) return status;
    kept = &tape->kept[tape->kept_count];
    memset(kept, 0, sizeof *kept);
    tape->kept_ids[tape->kept_count++] = id;
    kept->module = fb_strdup(value->module ? value->module : module);
    kept->name = fb_strdup(value->name ? value->name : "");
    if (!kept->module || !kept->name) return fb_fail(err, FB_E_NOMEM, "keep a tensor: no memory for its name");
    kept->flags = value->flags;
    kept->format = value->format ? value->format : value->dtype;
    kept->ndim = value->ndim ? value->ndim : 1;
    if (value->ndim) memcpy(kept->shape, value->shape, (size_t)value->ndim * sizeof kept->shape[0]);
    else kept->shape[0] = (int64_t)value->count;
    kept->count = value->count;
    kept->entry = id < tape->row->tensors && tape->row->producer[id] == FB_FLOW_NONE;
    kept->stats.size = sizeof kept->stats;
    if ((status = fb_scan(&view, &kept->stats, err)) != FB_OK) return status;
    kept->seen = tape->seen[id];
    return copy_values(tape, kept, value);
}

static int same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

/* boundary 0: an entry, which is the finding of either boundary that entries can be found at, and belongs to no micro-step. */
static int is_finding(const fb_tape *tape, const fb_tape_value *value, const char *module, int32_t boundary)
{
    const fb_tape_finding *finding = &tape->finding;
    if (boundary == 0 && finding->boundary != FB_ENTRY && finding->boundary != FB_INPUT) return 0;
    if (boundary != 0 && boundary != finding->boundary) return 0;
    return same_text(value->name, finding->tensor) &&
           (!finding->module || same_text(value->module ? value->module : module, finding->module));
}

static fb_status take_finding(fb_tape *tape, uint32_t id, const fb_tape_value *value, int exact, fb_error *err)
{
    uint8_t seen = FB_SEEN_UNTESTABLE;
    fb_status status = look(value, &seen, err);
    if (status != FB_OK) return status;
    /* A name that is told of twice is that of the later one, which is what was still there when the step was judged. */
    *(exact ? &tape->finding_id : &tape->finding_near) = id;
    *(exact ? &tape->finding_seen : &tape->near_seen) = seen;
    if (tape->mode == FB_TAPE_RECORD) tape->seen[id] = seen;
    return FB_OK;
}

/* Everything about a tensor that can still be read: what it holds, and whether it is the finding. */
static fb_status hear_value(fb_tape *tape, uint32_t id, const fb_tape_value *value, const char *module, int32_t boundary,
                            int32_t micro_step, fb_error *err)
{
    int by_name = tape->mode == FB_TAPE_RECORD || tape->mode == FB_TAPE_FREE;
    uint8_t want = 0;
    fb_status status = FB_OK;
    if (tape->mode != FB_TAPE_FREE) {
        status = fb_grow(&tape->seen, &tape->seen_room, 1, (size_t)id + 1, err);
        if (status != FB_OK) return status;
        tape->seen[id] = FB_SEEN_NOT;
    }
    if (tape->mode == FB_TAPE_RECORD) want = tape->look_all || (boundary == 0 && tape->entries_too) ? FB_WANT_LOOK : 0;
    else if (tape->mode != FB_TAPE_FREE && !tape->strayed && tape->wanted && id < tape->row->tensors) want = tape->wanted[id];
    if (want) {
        status = look(value, &tape->seen[id], err);
        tape->looked++;
    }
    if (status == FB_OK && (want & FB_WANT_KEEP)) status = keep(tape, id, value, module, err);
    if (status == FB_OK && by_name && is_finding(tape, value, module, boundary)) {
        int exact = boundary == 0 || tape->finding.micro_step < 0 || micro_step == tape->finding.micro_step;
        status = take_finding(tape, id, value, exact, err);
    }
    return status;
}

/* ---- comparing --------------------------------------------------------------------------------------------------------------- */

static void stray(fb_tape *tape, const char *heard, const char *module)
{
    const fb_row *row = tape->row;
    char plain[96];
    if (tape->strayed) return;
    tape->strayed = 1;
    heard = fb_op_plain(plain, sizeof plain, heard);
    if (row->node && tape->nodes < row->nodes) {
        const fb_row_node *node = &row->node[tape->nodes];
        snprintf(tape->differs, sizeof tape->differs,
                 "not the same operators: number %u is %.80s of \"%.60s\", and was %.40s of \"%.40s\"", tape->nodes, heard, module,
                 fb_row_text(row, node->op), fb_row_text(row, node->module));
    } else {
        snprintf(tape->differs, sizeof tape->differs, "not the same operators: number %u is %.80s of \"%.60s\", and there were %u",
                 tape->nodes, heard, module, row->nodes);
    }
}

static void compare_entry(fb_tape *tape, const fb_tape_value *value, uint64_t hash)
{
    const fb_row *row = tape->row;
    const char *module = value->module ? value->module : "", *name = value->name ? value->name : "";
    int same = tape->entries < row->entries && row->entry[tape->entries].tensor == tape->tensors;
    if (same) {
        uint32_t id = tape->tensors;
        same = row->flags[id] == value->flags && same_text(fb_row_text(row, row->module[id]), module) &&
               same_text(fb_row_text(row, row->name[id]), name);
    }
    if (!same) {
        stray(tape, name, module);
        return;
    }
    if (tape->mode != FB_TAPE_COMPARE || tape->changed || row->entry[tape->entries].hash == hash) return;
    tape->changed = 1;
    snprintf(tape->changed_name, sizeof tape->changed_name, "%.70s%s%.70s", module, *module ? "." : "", name);
}

static void compare_op(fb_tape *tape, const fb_tape_op *op)
{
    const fb_row_node *node = tape->nodes < tape->row->nodes ? &tape->row->node[tape->nodes] : NULL;
    if (tape->strayed) return;
    if (node && node->first_output == tape->tensors && node->shape == fb_row_shape_of(op) &&
        (tape->mode == FB_TAPE_SMALLER || node->counts == fb_row_counts_of(op)))
        return;
    stray(tape, op->op, op->module ? op->module : "");
}

/* ---- what the trainer calls -------------------------------------------------------------------------------------------------- */

static fb_status hear_entry(fb_tape *tape, const fb_tape_value *value, uint32_t *id, fb_error *err)
{
    /* The bytes of an entry are hashed in each replay: "from the same bytes" is checked, and not believed. */
    uint64_t hash = tape->mode == FB_TAPE_RECORD || tape->mode == FB_TAPE_COMPARE
                        ? fb_hash64(value->data, (size_t)fb_dtype_bytes(value->dtype, value->count), 0)
                        : 0;
    fb_status status = FB_OK;
    *id = tape->tensors;
    if (tape->mode == FB_TAPE_RECORD) status = fb_row_entry(tape->row, value, hash, id, err);
    else if (tape->mode != FB_TAPE_FREE && !tape->strayed) compare_entry(tape, value, hash);
    if (status == FB_OK) status = hear_value(tape, *id, value, "", 0, -1, err);
    tape->entries++;
    tape->tensors++;
    return status;
}

static fb_status hear_op(fb_tape *tape, const fb_tape_op *op, uint32_t *first, fb_error *err)
{
    fb_status status = FB_OK;
    *first = tape->tensors;
    if (tape->mode == FB_TAPE_RECORD) status = fb_row_op(tape->row, op, first, err);
    else if (tape->mode != FB_TAPE_FREE) compare_op(tape, op);
    tape->tensors += op->output_count;
    tape->nodes++;
    for (uint32_t i = 0; i < op->output_count && status == FB_OK; i++) {
        status =
            hear_value(tape, *first + i, fb_row_output(op, i), op->module ? op->module : "", op->boundary, op->micro_step, err);
    }
    return status;
}

fb_status fb_tape_entry(fb_tape *tape, const fb_tape_value *value, uint32_t *id, fb_error *err)
{
    uint32_t mine = 0;
    fb_status status;
    if (!tape || !value) return fb_fail(err, FB_E_USAGE, "tell the tape of a tensor: an argument is NULL");
    if (tape->broken) return fb_fail(err, tape->broken, "tell the tape of a tensor: an earlier call has failed in this replay");
    status = check_value(value, err);
    if (status == FB_OK && tape->tensors >= FB_ROW_TENSORS_MAX)
        status = fb_fail(err, FB_E_LIMIT, "tell the tape of a tensor: there are %d already", FB_ROW_TENSORS_MAX);
    if (status == FB_OK) status = hear_entry(tape, value, &mine, err);
    if (status != FB_OK) tape->broken = status;
    else if (id) *id = mine;
    return status;
}

fb_status fb_tape_op_ran(fb_tape *tape, const fb_tape_op *op, fb_error *err)
{
    uint32_t first = 0;
    fb_status status;
    if (!tape || !op) return fb_fail(err, FB_E_USAGE, "tell the tape of an operator: an argument is NULL");
    if (tape->broken) return fb_fail(err, tape->broken, "tell the tape of an operator: an earlier call has failed in this replay");
    status = check_op(tape, op, err);
    if (status == FB_OK && op->output_count > FB_ROW_TENSORS_MAX - tape->tensors)
        status = fb_fail(err, FB_E_LIMIT, "tell the tape of an operator: more than %d tensors", FB_ROW_TENSORS_MAX);
    if (status == FB_OK) status = hear_op(tape, op, &first, err);
    if (status != FB_OK) tape->broken = status;
    for (uint32_t i = 0; status == FB_OK && op->output_ids && i < op->output_count; i++) op->output_ids[i] = first + i;
    return status;
}

static int all_was_looked_at(const fb_tape *tape)
{
    return (tape->mode == FB_TAPE_COMPARE || tape->mode == FB_TAPE_SMALLER) && tape->looked == tape->wanted_count;
}

int fb_tape_done(const fb_tape *tape)
{
    return tape && (tape->broken || tape->strayed || all_was_looked_at(tape));
}

/* ---- afterwards -------------------------------------------------------------------------------------------------------------- */

void fb_tape_end(fb_tape *tape)
{
    const fb_row *row = tape->row;
    if (tape->mode != FB_TAPE_COMPARE && tape->mode != FB_TAPE_SMALLER) return;
    if (tape->broken || tape->strayed || all_was_looked_at(tape) || tape->nodes >= row->nodes) return;
    tape->strayed = 1;
    snprintf(tape->differs, sizeof tape->differs, "not the same operators: it ended after %u, and there were %u", tape->nodes,
             row->nodes);
}

int32_t fb_tape_saw(const fb_tape *tape, uint32_t tensor)
{
    if (tape->broken || tape->strayed || tensor >= tape->tensors || tensor >= tape->seen_room || !tape->seen[tensor])
        return FB_SEEN_UNTESTABLE;
    return tape->seen[tensor];
}

int32_t fb_tape_saw_finding(const fb_tape *tape)
{
    if (tape->broken) return FB_SEEN_UNTESTABLE;
    return tape->finding_id != FB_FLOW_NONE ? tape->finding_seen : tape->near_seen;
}

fb_witness_tensor *fb_tape_kept(const fb_tape *tape, uint32_t tensor)
{
    uint32_t low = 0, high = tape->kept_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (tape->kept_ids[middle] < tensor) low = middle + 1;
        else high = middle;
    }
    return low < tape->kept_count && tape->kept_ids[low] == tensor ? &tape->kept[low] : NULL;
}
