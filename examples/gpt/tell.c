/* tell.c: see tell.h. */
#include "tell.h"

#include <string.h>

int32_t told_format(precision format)
{
    return format == PRECISION_FP32 ? FB_F32 : format == PRECISION_BF16 ? FB_BF16 : FB_F16;
}

fb_tape_value told_tensor(const gpt_tensor *tensor, const char *name, const void *data, int32_t dtype, uint32_t flags)
{
    fb_tape_value value = FB_TAPE_VALUE_INIT;
    value.flags = flags;
    value.module = tensor->module;
    value.name = name;
    value.data = data;
    value.count = tensor->count;
    value.dtype = value.format = dtype;
    value.ndim = tensor->ndim;
    for (int d = 0; d < tensor->ndim; d++) value.shape[d] = (int64_t)tensor->shape[d];
    return value;
}

fb_tape_value told_number(const char *module, const char *name, const double *x, uint32_t flags)
{
    fb_tape_value value = FB_TAPE_VALUE_INIT;
    value.flags = flags;
    value.module = module;
    value.name = name;
    value.data = x;
    value.count = 1;
    value.dtype = value.format = FB_F64;
    value.ndim = 1;
    value.shape[0] = 1;
    return value;
}

fb_tape_op told_op(told which, const char *op, const char *module, const char *source, int32_t boundary, int32_t micro_step)
{
    fb_tape_op out = FB_TAPE_OP_INIT;
    out.op = op;
    out.module = module;
    out.source = source;
    out.boundary = boundary;
    out.micro_step = micro_step;
    out.token = TOKEN_OUTSIDE | (uint32_t)which;
    return out;
}

uint32_t tell_entry(teller *t, const fb_tape_value *value)
{
    uint32_t id = TOLD_NONE;
    if (t->status == FB_OK) t->status = fb_tape_entry(t->tape, value, &id, &t->error);
    return t->status == FB_OK ? id : TOLD_NONE;
}

void tell_outputs(teller *t, fb_tape_op op, const uint32_t *inputs, uint32_t input_count, const fb_tape_value *outputs,
                  uint32_t *ids)
{
    op.inputs = inputs;
    op.input_count = input_count;
    op.outputs = outputs;
    op.output_ids = ids;
    for (uint32_t i = 0; ids && i < op.output_count; i++) ids[i] = TOLD_NONE;
    if (t->status == FB_OK) t->status = fb_tape_op_ran(t->tape, &op, &t->error);
}

uint32_t tell_op(teller *t, fb_tape_op op, const uint32_t *inputs, uint32_t input_count, const fb_tape_value *output)
{
    uint32_t id = TOLD_NONE;
    op.output_count = 1;
    tell_outputs(t, op, inputs, input_count, output, &id);
    return t->status == FB_OK ? id : TOLD_NONE;
}
