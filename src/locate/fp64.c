/*
 * The accused operator again in FP64, on what it read; and the operators of its module that lead to it, one after the other, from
 * what the module itself read. The trainer does the arithmetic (config->rerun); what cannot be run again is left out.
 */
#include "locate/locate_inside.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"

#define MODULE_BYTES_MAX (UINT64_C(1) << 30)

/* Tensors in FP64 by their id; owned: made here. */
typedef struct bench {
    fb_locate *l;
    double **made; /* [tensors from first to last] */
    uint32_t first, last;
    const double **inputs; /* of the operator at hand */
    double **outputs;
    uint64_t *input_counts, *output_counts;
    fb_tape_attribute *attributes;
} bench;

static fb_status open_bench(bench *b, fb_locate *l, uint32_t first_node, uint32_t last_node)
{
    const fb_row *row = &l->row;
    size_t inputs = 0, outputs = 0;
    b->l = l;
    b->first = row->node[first_node].first_output;
    b->last = row->node[last_node].first_output + row->node[last_node].output_count;
    for (uint32_t i = 0; i < l->module_count; i++) {
        uint32_t k = l->module_nodes[i];
        size_t reads = (size_t)(row->first[k + 1] - row->first[k]);
        if (reads > inputs) inputs = reads;
        if (row->node[k].output_count > outputs) outputs = row->node[k].output_count;
    }
    b->made = fb_calloc((size_t)(b->last - b->first), sizeof *b->made);
    b->inputs = fb_calloc(inputs, sizeof *b->inputs);
    b->input_counts = fb_calloc(inputs, sizeof *b->input_counts);
    b->outputs = fb_calloc(outputs, sizeof *b->outputs);
    b->output_counts = fb_calloc(outputs, sizeof *b->output_counts);
    b->attributes = fb_calloc(FB_TAPE_ATTRIBUTES_MAX, sizeof *b->attributes);
    return b->made && b->inputs && b->input_counts && b->outputs && b->output_counts && b->attributes ? FB_OK : FB_E_NOMEM;
}

static void close_bench(bench *b)
{
    for (uint32_t t = b->first; t < b->last && b->made; t++) fb_free(b->made[t - b->first]);
    fb_free(b->made);
    fb_free(b->inputs);
    fb_free(b->input_counts);
    fb_free(b->outputs);
    fb_free(b->output_counts);
    fb_free(b->attributes);
    memset(b, 0, sizeof *b);
}

/* NULL: it was neither made here nor kept. */
static const double *tensor_of(const bench *b, uint32_t t, uint64_t *count)
{
    const fb_witness_tensor *kept = fb_tape_kept(&b->l->proof, t);
    *count = b->l->row.count[t];
    if (t >= b->first && t < b->last && b->made[t - b->first]) return b->made[t - b->first];
    return kept ? kept->values : NULL;
}

/* Room for what the operator makes, and what it reads in its place. FB_E_UNSUPPORTED: something was not kept. */
static fb_status lay_out(bench *b, uint32_t node)
{
    const fb_row *row = &b->l->row;
    const fb_row_node *of = &row->node[node];
    uint32_t reads = (uint32_t)(row->first[node + 1] - row->first[node]);
    for (uint32_t i = 0; i < reads; i++) {
        b->inputs[i] = tensor_of(b, row->inputs[row->first[node] + i], &b->input_counts[i]);
        if (!b->inputs[i]) return FB_E_UNSUPPORTED;
    }
    for (uint32_t i = 0; i < of->output_count; i++) {
        uint32_t t = of->first_output + i;
        b->output_counts[i] = row->count[t];
        b->outputs[i] = fb_calloc((size_t)row->count[t], sizeof(double));
        if (!b->outputs[i]) return FB_E_NOMEM;
        b->made[t - b->first] = b->outputs[i];
    }
    for (uint32_t i = 0; i < of->attribute_count; i++) {
        b->attributes[i].name = fb_row_text(row, row->attribute[of->first_attribute + i].name);
        b->attributes[i].value = row->attribute[of->first_attribute + i].value;
    }
    return FB_OK;
}

static fb_status run_node(bench *b, uint32_t node, fb_error *why)
{
    const fb_locate_config *config = b->l->config;
    const fb_row_node *of = &b->l->row.node[node];
    fb_rerun rerun;
    memset(&rerun, 0, sizeof rerun);
    rerun.size = sizeof rerun;
    rerun.token = of->token;
    rerun.input_count = (uint32_t)(b->l->row.first[node + 1] - b->l->row.first[node]);
    rerun.output_count = of->output_count;
    rerun.inputs = b->inputs;
    rerun.input_counts = b->input_counts;
    rerun.outputs = b->outputs;
    rerun.output_counts = b->output_counts;
    rerun.attributes = b->attributes;
    rerun.attribute_count = of->attribute_count;
    return config->rerun(config->ctx, &rerun, why);
}

/* Hand what the origin made over to the witness. NULL without memory. */
static double **take_outputs(bench *b, uint32_t node)
{
    const fb_row_node *of = &b->l->row.node[node];
    double **outputs = fb_calloc(of->output_count, sizeof *outputs);
    for (uint32_t i = 0; i < of->output_count && outputs; i++) {
        outputs[i] = b->made[of->first_output + i - b->first];
        b->made[of->first_output + i - b->first] = NULL;
    }
    return outputs;
}

static fb_status rerun_operator(fb_locate *l, uint32_t node, int mine, int together, fb_error *err)
{
    bench b;
    fb_error why;
    fb_status status = FB_OK;
    fb_error_clear(&why);
    memset(&b, 0, sizeof b);
    if (mine) {
        status = open_bench(&b, l, node, node);
        if (status == FB_OK) status = lay_out(&b, node);
    }
    if (together) {
        /* A collective operator is run by all ranks or by none: who cannot says so before the others wait for it. */
        int32_t cannot = status != FB_OK;
        fb_status agreed = fb_ranks_any(&l->ranks, &cannot, err);
        if (agreed != FB_OK) {
            close_bench(&b);
            return agreed;
        }
        if (cannot && status == FB_OK) status = FB_E_UNSUPPORTED;
    }
    if (mine && status == FB_OK) status = run_node(&b, node, &why);
    if (mine && status == FB_OK) l->witness.exact = take_outputs(&b, node);
    if (mine && status != FB_OK) {
        fb_locate_note(l, "the operator could not be run again in FP64: %.160s",
                       why.message[0]         ? why.message
                       : status == FB_E_NOMEM ? "there is no memory"
                                              : "it has no such form, or its inputs are too large to keep");
    }
    close_bench(&b);
    return FB_OK;
}

static int fits(const fb_locate *l)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < l->module_count; i++) {
        const fb_row_node *of = &l->row.node[l->module_nodes[i]];
        for (uint32_t o = 0; o < of->output_count; o++) {
            uint64_t count = l->row.count[of->first_output + o];
            if (count > MODULE_BYTES_MAX / 8 || (bytes += count * 8) > MODULE_BYTES_MAX) return 0;
        }
    }
    return 1;
}

static void rerun_module(fb_locate *l)
{
    uint32_t origin = l->module_nodes[l->module_count - 1];
    fb_status status;
    fb_error why;
    bench b;
    fb_error_clear(&why);
    memset(&b, 0, sizeof b);
    if (!fits(l)) {
        fb_locate_note(l, "the module is too large to be run again in FP64");
        return;
    }
    status = open_bench(&b, l, l->module_nodes[0], origin);
    for (uint32_t i = 0; i < l->module_count && status == FB_OK; i++) {
        status = lay_out(&b, l->module_nodes[i]);
        if (status == FB_OK) status = run_node(&b, l->module_nodes[i], &why);
    }
    if (status == FB_OK) l->witness.module_exact = take_outputs(&b, origin);
    else
        fb_locate_note(l, "the module could not be run again in FP64: %.160s",
                       why.message[0] ? why.message : fb_status_name(status));
    close_bench(&b);
}

fb_status fb_locate_rerun(fb_locate *l, fb_error *err)
{
    uint32_t node = l->has_witness ? l->origins[0].node : FB_FLOW_NONE;
    int together, mine;
    fb_status status;
    if (!l->config->rerun || node == FB_FLOW_NONE) return FB_OK;
    together = (l->row.node[node].flags & FB_TAPE_COLLECTIVE) != 0;
    mine = together || l->origins[0].owner == l->ranks.rank;
    status = rerun_operator(l, node, mine, together, err);
    if (status == FB_OK && mine && !together && l->module_count > 1) rerun_module(l);
    return status;
}
