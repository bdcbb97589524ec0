/* What was kept, put into the plain struct that cause.c judges and evidence.c writes. */
#include "locate/locate_inside.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "locate/made_of.h"
#include "locate/values.h"

enum { CANDIDATES_MAX = 4096 };

/* ---- places ------------------------------------------------------------------------------------------------------------------ */

static fb_status place_of(fb_locate *l, uint32_t node, uint32_t tensor, int32_t label, fb_witness_place *place, fb_error *err)
{
    const fb_row *row = &l->row;
    int entry = node == FB_FLOW_NONE;
    const fb_row_node *of = entry ? NULL : &row->node[node];
    const char *name = tensor == FB_FLOW_NONE ? "" : fb_row_text(row, row->name[tensor]);
    place->op = fb_strdup(of ? fb_row_text(row, of->op) : "");
    place->module = fb_strdup(of ? fb_row_text(row, of->module) : fb_row_text(row, row->module[tensor]));
    place->source = fb_strdup(of ? fb_row_text(row, of->source) : "");
    place->node = fb_strdup(of ? fb_row_text(row, of->node) : "");
    place->tensor = fb_strdup(name);
    place->boundary = of ? of->boundary : fb_row_boundary(row, tensor);
    place->micro_step = of ? of->micro_step : -1;
    place->label = label;
    place->entry = entry;
    place->flags = of ? of->flags : row->flags[tensor];
    place->made = tensor == FB_FLOW_NONE ? FB_WITNESS_NONE : tensor;
    place->reads = FB_WITNESS_NONE;
    if (place->op && place->module && place->source && place->node && place->tensor) return FB_OK;
    return fb_fail(err, FB_E_NOMEM, "keep the witness: no memory for names");
}

static void release_place(fb_witness_place *place)
{
    fb_free(place->op);
    fb_free(place->module);
    fb_free(place->source);
    fb_free(place->node);
    fb_free(place->tensor);
}

static void release_places(fb_witness_place *places, uint32_t count)
{
    for (uint32_t i = 0; i < count && places; i++) release_place(&places[i]);
    fb_free(places);
}

static fb_status fill_chain(fb_locate *l, fb_error *err)
{
    fb_witness *w = &l->witness;
    fb_status status = FB_OK;
    w->chain = fb_calloc(l->chain_count, sizeof *w->chain);
    if (!w->chain) return fb_fail(err, FB_E_NOMEM, "keep the witness: no memory for a chain of %u", l->chain_count);
    w->chain_count = l->chain_count;
    for (uint32_t i = 0; i < l->chain_count && status == FB_OK; i++) {
        uint32_t t = l->chain[i].tensor, node = l->row.producer[t];
        int32_t label = node == FB_FLOW_NONE ? FB_LABEL_UNKNOWN : i == 0 ? FB_LABEL_GENERATE : FB_LABEL_PROPAGATE;
        status = place_of(l, node, t, label, &w->chain[i], err);
        if (i) w->chain[i].reads = l->chain[i - 1].tensor;
    }
    return status;
}

static fb_status fill_candidates(fb_locate *l, fb_error *err)
{
    fb_witness *w = &l->witness;
    uint32_t count = l->origin_count < CANDIDATES_MAX ? l->origin_count : CANDIDATES_MAX;
    fb_status status = FB_OK;
    if (l->found == FB_LOCATED_OPERATOR) return FB_OK;
    w->candidates = fb_calloc(count, sizeof *w->candidates);
    if (!w->candidates) return fb_fail(err, FB_E_NOMEM, "keep the witness: no memory for %u candidates", count);
    w->candidate_count = count;
    for (uint32_t i = 0; i < count && status == FB_OK; i++) {
        const fb_origin *origin = &l->origins[i];
        int known = origin->witnessed && origin->node != FB_FLOW_NONE;
        status = place_of(l, origin->node, origin->tensor, known ? FB_LABEL_GENERATE : FB_LABEL_UNKNOWN, &w->candidates[i], err);
    }
    return status;
}

/* What it made that went nowhere: the first output that was seen to be bad on this rank, else the first. */
static uint32_t bad_output_of(const fb_locate *l, uint32_t node)
{
    const fb_row_node *of = &l->row.node[node];
    for (uint32_t i = 0; i < of->output_count; i++) {
        uint8_t seen = l->seen[of->first_output + i] ? l->seen[of->first_output + i] : l->first_seen[of->first_output + i];
        if (seen == FB_SEEN_BAD || seen == FB_SEEN_NEG_INF) return of->first_output + i;
    }
    return of->output_count ? of->first_output : FB_FLOW_NONE;
}

static fb_status fill_swallowed(fb_locate *l, fb_error *err)
{
    fb_witness *w = &l->witness;
    fb_status status = FB_OK;
    w->swallowed = fb_calloc(l->swallowed_count, sizeof *w->swallowed);
    if (!w->swallowed) return fb_fail(err, FB_E_NOMEM, "keep the witness: no memory for what was swallowed");
    w->swallowed_count = l->swallowed_count;
    for (uint32_t i = 0; i < l->swallowed_count && status == FB_OK; i++)
        status = place_of(l, l->swallowed[i], bad_output_of(l, l->swallowed[i]), FB_LABEL_GENERATE, &w->swallowed[i], err);
    return status;
}

/* The same of those that come later. Only the first search looked at all of it, so what they made may be unknown. */
static fb_status fill_later(fb_locate *l, fb_error *err)
{
    fb_witness *w = &l->witness;
    fb_status status = FB_OK;
    w->later = fb_calloc(l->later_count, sizeof *w->later);
    if (!w->later) return fb_fail(err, FB_E_NOMEM, "keep the witness: no memory for what comes later");
    w->later_count = l->later_count;
    for (uint32_t i = 0; i < l->later_count && status == FB_OK; i++)
        status = place_of(l, l->later[i], bad_output_of(l, l->later[i]), FB_LABEL_UNKNOWN, &w->later[i], err);
    return status;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------------------- */

static fb_status copy_tensor(fb_witness_tensor *to, const fb_witness_tensor *from, fb_error *err)
{
    *to = *from;
    to->module = fb_strdup(from->module);
    to->name = fb_strdup(from->name);
    to->values = from->values ? fb_calloc((size_t)from->count, sizeof *to->values) : NULL;
    if (to->values) memcpy(to->values, from->values, (size_t)from->count * sizeof *to->values);
    if (to->module && to->name) return FB_OK;
    return fb_fail(err, FB_E_NOMEM, "keep the witness: no memory for a tensor");
}

/* Copied, since one tensor may be read twice. What is not there was not this rank's to keep. */
static fb_status take_tensor(fb_locate *l, uint32_t id, fb_witness_tensor *to, fb_error *err)
{
    const fb_row *row = &l->row;
    const fb_witness_tensor *kept = fb_tape_kept(&l->proof, id);
    if (kept) return copy_tensor(to, kept, err);
    to->module = fb_strdup(fb_row_text(row, row->module[id]));
    to->name = fb_strdup(fb_row_text(row, row->name[id]));
    to->flags = row->flags[id];
    to->count = row->count[id];
    to->entry = row->producer[id] == FB_FLOW_NONE;
    if (to->module && to->name) return FB_OK;
    return fb_fail(err, FB_E_NOMEM, "keep the witness: no memory for a name");
}

static fb_status fill_entry(fb_locate *l, uint32_t tensor, fb_error *err)
{
    fb_witness *w = &l->witness;
    w->outputs = fb_calloc(1, sizeof *w->outputs);
    if (!w->outputs) return fb_fail(err, FB_E_NOMEM, "keep the witness: no memory for a tensor");
    w->output_count = 1;
    return take_tensor(l, tensor, &w->outputs[0], err);
}

static fb_status fill_operator(fb_locate *l, uint32_t node, fb_error *err)
{
    const fb_row *row = &l->row;
    const fb_row_node *of = &row->node[node];
    fb_witness *w = &l->witness;
    uint32_t inputs = (uint32_t)(row->first[node + 1] - row->first[node]);
    fb_status status = FB_OK;
    w->inputs = fb_calloc(inputs, sizeof *w->inputs);
    w->outputs = fb_calloc(of->output_count, sizeof *w->outputs);
    w->attributes = fb_calloc(of->attribute_count, sizeof *w->attributes);
    if (!w->inputs || !w->outputs || !w->attributes) return fb_fail(err, FB_E_NOMEM, "keep the witness: no memory for an operator");
    w->op_flags = of->flags;
    w->input_count = inputs;
    w->output_count = of->output_count;
    w->attribute_count = of->attribute_count;
    for (uint32_t i = 0; i < of->attribute_count; i++) {
        /* Names live in the row, which outlives the witness and does not change any more. */
        w->attributes[i].name = fb_row_text(row, row->attribute[of->first_attribute + i].name);
        w->attributes[i].value = row->attribute[of->first_attribute + i].value;
    }
    for (uint32_t i = 0; i < inputs && status == FB_OK; i++)
        status = take_tensor(l, row->inputs[row->first[node] + i], &w->inputs[i], err);
    for (uint32_t i = 0; i < of->output_count && status == FB_OK; i++)
        status = take_tensor(l, of->first_output + i, &w->outputs[i], err);
    return status;
}

static fb_status copy_name(const fb_row *row, uint32_t name, char **to, fb_error *err)
{
    *to = fb_strdup(fb_row_text(row, name));
    return *to ? FB_OK : fb_fail(err, FB_E_NOMEM, "keep the witness: no memory for a name");
}

static fb_status fill_source(fb_locate *l, uint32_t tensor, fb_witness_source *to, fb_error *err)
{
    const fb_row *row = &l->row;
    fb_status status = FB_OK;
    fb_made made;
    fb_made_of(row, tensor, &made);
    to->is = made.is;
    to->unseen = made.unseen;
    to->summed_id = made.summed == FB_FLOW_NONE ? FB_WITNESS_NONE : made.summed;
    if (made.entry != FB_FLOW_NONE) status = copy_name(row, row->name[made.entry], &to->entry, err);
    if (status == FB_OK && made.of != FB_FLOW_NONE) status = copy_name(row, row->name[made.of], &to->of, err);
    if (status == FB_OK && made.by != FB_FLOW_NONE) status = copy_name(row, row->node[made.by].op, &to->by, err);
    if (status == FB_OK && made.summed != FB_FLOW_NONE) status = take_tensor(l, made.summed, &to->summed, err);
    if (status == FB_OK && made.summed != FB_FLOW_NONE) to->summed.format = row->format[made.summed];
    return status;
}

static fb_status fill_sources(fb_locate *l, uint32_t node, fb_error *err)
{
    fb_witness *w = &l->witness;
    fb_status status = FB_OK;
    w->sources = fb_calloc(w->input_count, sizeof *w->sources);
    if (!w->sources) return fb_fail(err, FB_E_NOMEM, "keep the witness: no memory for where its inputs come from");
    for (uint32_t i = 0; i < w->input_count && status == FB_OK; i++)
        status = fill_source(l, l->row.inputs[l->row.first[node] + i], &w->sources[i], err);
    return status;
}

static int read_by_module(const fb_locate *l, uint32_t tensor)
{
    const fb_row *row = &l->row;
    for (uint32_t i = 0; i < l->module_count; i++) {
        uint32_t k = l->module_nodes[i];
        for (uint64_t e = row->first[k]; e < row->first[k + 1]; e++) {
            if (row->inputs[e] == tensor) return 1;
        }
    }
    return 0;
}

/* Kept because a denominator is the sum of it, and not because the module reads it. */
static int is_beside(const fb_locate *l, uint32_t tensor)
{
    for (uint32_t i = 0; i < l->witness.input_count; i++) {
        if (l->witness.sources[i].summed_id == tensor) return !read_by_module(l, tensor);
    }
    return 0;
}

/* What the module read, each tensor once. */
static fb_status fill_module_inputs(fb_locate *l, fb_error *err)
{
    fb_witness *w = &l->witness;
    fb_status status = FB_OK;
    w->module_inputs = fb_calloc(l->proof.kept_count, sizeof *w->module_inputs);
    if (!w->module_inputs) return fb_fail(err, FB_E_NOMEM, "keep the witness: no memory for what a module read");
    for (uint32_t i = 0; i < l->proof.kept_count && status == FB_OK; i++) {
        uint32_t producer = l->row.producer[l->proof.kept_ids[i]];
        if (producer != FB_FLOW_NONE && producer <= l->origins[0].node && l->in_module[producer]) continue;
        if (is_beside(l, l->proof.kept_ids[i])) continue;
        status = copy_tensor(&w->module_inputs[w->module_input_count++], &l->proof.kept[i], err);
    }
    return status;
}

static fb_status add_number(fb_witness *w, const fb_row *row, const fb_row_node *of, const fb_row_attribute *attribute,
                            fb_error *err)
{
    fb_witness_number *number = &w->numbers[w->number_count++];
    number->op = fb_strdup(fb_row_text(row, of->op));
    number->name = fb_strdup(fb_row_text(row, attribute->name));
    number->value = attribute->value;
    number->format = of->format;
    if (number->op && number->name) return FB_OK;
    return fb_fail(err, FB_E_NOMEM, "keep the witness: no memory for a number");
}

static int vanishes(double value, int32_t format)
{
    double size = value < 0 ? -value : value;
    return size > 0 && size <= fb_values_vanish_at(format);
}

static fb_status fill_numbers(fb_locate *l, fb_error *err)
{
    const fb_row *row = &l->row;
    fb_witness *w = &l->witness;
    uint32_t count = 0;
    for (uint32_t i = 0; i < l->module_count; i++) count += row->node[l->module_nodes[i]].attribute_count;
    w->numbers = fb_calloc(count, sizeof *w->numbers);
    if (!w->numbers) return fb_fail(err, FB_E_NOMEM, "keep the witness: no memory for %u numbers", count);
    for (uint32_t i = 0; i < l->module_count; i++) {
        const fb_row_node *of = &row->node[l->module_nodes[i]];
        for (uint32_t a = 0; a < of->attribute_count; a++) {
            const fb_row_attribute *attribute = &row->attribute[of->first_attribute + a];
            fb_status status = add_number(w, row, of, attribute, err);
            if (status != FB_OK) return status;
            if (w->vanished || !vanishes(attribute->value, of->format)) continue;
            w->vanished = fb_strdup(fb_row_text(row, attribute->name));
            w->vanished_value = attribute->value;
            w->vanished_format = of->format;
            if (!w->vanished) return fb_fail(err, FB_E_NOMEM, "keep the witness: no memory for a name");
        }
    }
    return FB_OK;
}

/* In a mask -Inf is intended: the element that is bad is the first of the others, where there is one. */
static void find_bad_element(fb_witness *w)
{
    const fb_witness_tensor *out = &w->outputs[w->bad_output];
    w->bad_index = out->stats.first_index;
    w->bad_kind = out->stats.first_kind;
    if (!(out->flags & FB_TAPE_MASK) || !out->values || out->stats.nan + out->stats.pos_inf == 0) return;
    for (uint64_t i = out->stats.first_index; i < out->count; i++) {
        int32_t kind = fb_values_kind(out->values[i]);
        if (kind != FB_KIND_NAN && kind != FB_KIND_POS_INF) continue;
        w->bad_index = i;
        w->bad_kind = kind;
        return;
    }
}

/* ---- all of it --------------------------------------------------------------------------------------------------------------- */

static fb_status fill_origin(fb_locate *l, fb_error *err)
{
    const fb_origin *origin = &l->origins[0];
    fb_witness *w = &l->witness;
    fb_status status = place_of(l, origin->node, origin->tensor,
                                origin->node == FB_FLOW_NONE ? FB_LABEL_UNKNOWN : FB_LABEL_GENERATE, &w->place, err);
    if (status != FB_OK) return status;
    if (origin->node == FB_FLOW_NONE) {
        status = fill_entry(l, origin->tensor, err);
    } else {
        w->bad_output = origin->tensor - l->row.node[origin->node].first_output;
        w->module_ops = l->module_count;
        status = fill_operator(l, origin->node, err);
        if (status == FB_OK) status = fill_sources(l, origin->node, err);
        if (status == FB_OK) status = fill_module_inputs(l, err);
        if (status == FB_OK) status = fill_numbers(l, err);
    }
    if (status == FB_OK && w->output_count) find_bad_element(w);
    return status;
}

/* On how many ranks is what the origin made bad, in the replay of the witness? */
static fb_status count_ranks(fb_locate *l, fb_error *err)
{
    const fb_ranks *ranks = &l->ranks;
    uint32_t t = l->origins[0].tensor;
    int32_t *bad = fb_calloc((size_t)ranks->world, sizeof *bad);
    fb_status status = bad ? FB_OK : fb_fail(err, FB_E_NOMEM, "keep the witness: no memory for %d ranks", ranks->world);
    status = fb_ranks_agree(ranks, status, err);
    if (status == FB_OK && bad) {
        int32_t seen = fb_tape_saw(&l->proof, t);
        bad[ranks->rank] = seen == FB_SEEN_BAD || seen == FB_SEEN_NEG_INF;
        status = fb_ranks_max(ranks, bad, (size_t)ranks->world, err);
    }
    for (int32_t i = 0; i < ranks->world && status == FB_OK && bad; i++) l->witness.ranks_bad += bad[i] != 0;
    fb_free(bad);
    return status;
}

fb_status fb_locate_witness(fb_locate *l, fb_error *err)
{
    fb_status status = FB_OK;
    l->witness.finding = l->finding == FB_FLOW_NONE ? FB_WITNESS_NONE : l->finding;
    l->witness.place.made = l->witness.place.reads = FB_WITNESS_NONE;
    if (l->has_witness) status = fill_origin(l, err);
    if (status == FB_OK && l->chain_count && l->found != FB_LOCATED_INTERVAL) status = fill_chain(l, err);
    if (status == FB_OK && l->origin_count) status = fill_candidates(l, err);
    if (status == FB_OK && l->swallowed_count) status = fill_swallowed(l, err);
    if (status == FB_OK && l->later_count) status = fill_later(l, err);
    status = fb_ranks_agree(&l->ranks, status, err);
    return status == FB_OK && l->has_witness ? count_ranks(l, err) : status;
}

static void release_tensors(fb_witness_tensor *tensors, uint32_t count)
{
    for (uint32_t i = 0; i < count && tensors; i++) fb_witness_tensor_release(&tensors[i]);
    fb_free(tensors);
}

static void release_outputs(double **outputs, uint32_t count)
{
    for (uint32_t i = 0; i < count && outputs; i++) fb_free(outputs[i]);
    fb_free(outputs);
}

static void release_sources(fb_witness_source *sources, uint32_t count)
{
    for (uint32_t i = 0; i < count && sources; i++) {
        fb_free(sources[i].entry);
        fb_free(sources[i].of);
        fb_free(sources[i].by);
        fb_witness_tensor_release(&sources[i].summed);
    }
    fb_free(sources);
}

void fb_locate_witness_release(fb_witness *w)
{
    release_sources(w->sources, w->input_count);
    release_place(&w->place);
    release_outputs(w->exact, w->output_count);
    release_outputs(w->module_exact, w->output_count);
    release_tensors(w->inputs, w->input_count);
    release_tensors(w->outputs, w->output_count);
    release_tensors(w->module_inputs, w->module_input_count);
    for (uint32_t i = 0; i < w->number_count; i++) {
        fb_free(w->numbers[i].op);
        fb_free(w->numbers[i].name);
    }
    fb_free(w->numbers);
    fb_free(w->attributes);
    fb_free(w->vanished);
    release_places(w->chain, w->chain_count);
    release_places(w->candidates, w->candidate_count);
    release_places(w->swallowed, w->swallowed_count);
    release_places(w->later, w->later_count);
    memset(w, 0, sizeof *w);
}
