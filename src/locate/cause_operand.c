/*
 * Which element of an input the bad element of the output was made of, and which sample of the batch it belongs to. Both are read
 * from shapes; where shapes allow two answers, the caller asks for the other one when the first explains nothing.
 */
#include <string.h>

#include "evidence/site.h"
#include "locate/cause_inside.h"

/* Elements of the first n dimensions; 0 when the shape is not known, is not that of the count, or holds a 0. */
static uint64_t product(const fb_witness_tensor *tensor, int32_t n)
{
    uint64_t elements = 1;
    for (int32_t i = 0; i < n; i++) {
        if (tensor->shape[i] <= 0 || elements > tensor->count / (uint64_t)tensor->shape[i]) return 0;
        elements *= (uint64_t)tensor->shape[i];
    }
    return elements;
}

int fb_has_shape(const fb_witness_tensor *tensor)
{
    return tensor->ndim > 0 && tensor->ndim <= FB_DIMS_MAX && product(tensor, tensor->ndim) == tensor->count;
}

uint64_t fb_last_dim(const fb_witness_tensor *tensor)
{
    return fb_has_shape(tensor) ? (uint64_t)tensor->shape[tensor->ndim - 1] : tensor->count;
}

const char *fb_place_text(char *out, size_t room, const fb_witness_tensor *tensor, uint64_t at)
{
    int64_t index[FB_DIMS_MAX];
    int32_t n = fb_has_shape(tensor) ? fb_site_unravel(tensor->shape, tensor->ndim, at, index) : 0;
    out[0] = '\0';
    fb_say(out, room, "[");
    if (n == 0) fb_say(out, room, "%llu", (unsigned long long)at);
    for (int32_t i = 0; i < n; i++) fb_say(out, room, "%s%lld", i ? ", " : "", (long long)index[i]);
    fb_say(out, room, "]");
    return out;
}

/* As NumPy and PyTorch spread a smaller operand: dimensions are matched from the last one, and one of 1 stands for all. */
static int spread(const fb_witness_tensor *out, const fb_witness_tensor *in, uint64_t at, uint64_t *found)
{
    int64_t index[FB_DIMS_MAX];
    uint64_t flat = 0;
    int32_t skip = out->ndim - in->ndim;
    if (!fb_has_shape(out) || !fb_has_shape(in) || skip < 0) return 0;
    if (fb_site_unravel(out->shape, out->ndim, at, index) != out->ndim) return 0;
    for (int32_t i = 0; i < in->ndim; i++) {
        if (in->shape[i] != out->shape[i + skip] && in->shape[i] != 1) return 0;
        flat = flat * (uint64_t)in->shape[i] + (in->shape[i] == 1 ? 0 : (uint64_t)index[i + skip]);
    }
    *found = flat;
    return 1;
}

/* One number a row, as the statistics of a norm are kept. */
static int by_row(const fb_witness_tensor *out, const fb_witness_tensor *in, uint64_t at, uint64_t *found)
{
    if (in->count == 0 || in->count >= out->count || out->count % in->count != 0) return 0;
    *found = at / (out->count / in->count);
    return 1;
}

int fb_operand(const fb_look *look, uint32_t k, int way, double *value, uint64_t *at)
{
    const fb_witness_tensor *in;
    uint64_t found = 0;
    int ok;
    if (k >= look->w->input_count) return 0;
    in = &look->w->inputs[k];
    if (!in->values || in->count == 0) return 0;
    if (in->count == look->out->count || in->count == 1) {
        found = in->count == 1 ? 0 : look->at;
        ok = way == 0;
    } else if (way == 0) {
        ok = spread(look->out, in, look->at, &found) || by_row(look->out, in, look->at, &found);
    } else {
        ok = by_row(look->out, in, look->at, &found);
    }
    if (!ok || found >= in->count) return 0;
    *at = found;
    *value = in->values[found];
    return 1;
}

int32_t fb_operand_integers(const fb_witness *w)
{
    for (uint32_t i = 0; i < w->input_count; i++) {
        if (w->inputs[i].format >= FB_I8 && w->inputs[i].format <= FB_U64) return (int32_t)i;
    }
    return -1;
}

/* Gradients of parameters sum over samples: an index into one says nothing about the batch, even
 * where a dimension happens to fit. */
static int is_of_samples(const fb_look *look)
{
    const char *name = look->out->name;
    int32_t boundary = look->w->place.boundary;
    if (boundary != FB_FORWARD && boundary != FB_LOSS && boundary != FB_LOCAL_GRAD) return 0;
    if (look->backward &&
        (look->kind == FB_OP_EMBEDDING || (look->kind != FB_OP_OTHER && look->kind != FB_OP_COPY && look->w->bad_output > 0)))
        return 0;
    return strncmp(name, "grad.", 5) != 0 && !fb_text_has(name, "weight") && !fb_text_has(name, "bias");
}

void fb_operand_sample(fb_look *look)
{
    const fb_cause_facts *facts = look->facts;
    const fb_witness_tensor *out = look->out;
    uint64_t last = fb_last_dim(out), first = fb_has_shape(out) ? (uint64_t)out->shape[0] : out->count;
    uint64_t sample, of_first = first ? out->count / first : 0;
    if (last > 0) look->cause->row = (int64_t)(look->at / last);
    if (facts->rows == 0 || !is_of_samples(look) || of_first == 0) return;
    if (first == facts->rows) sample = look->at / of_first;
    else if (facts->columns > 0 && first == (uint64_t)facts->rows * facts->columns) sample = look->at / of_first / facts->columns;
    else return;
    look->cause->sample = (int64_t)sample;
    if (facts->sample_ids) look->cause->sample_id = facts->sample_ids[sample];
}
