/*
 * A witness put together by hand, for tests of what is made of one: tensors are rows of numbers with a name, a format and a shape;
 * their statistics are counted here, by bits, and not by the code under test.
 */
#ifndef FB_TESTS_SUPPORT_ONE_WITNESS_H
#define FB_TESTS_SUPPORT_ONE_WITNESS_H

#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include "locate/cause.h"

#define NAN_BITS UINT64_C(0x7ff8000000000000)
#define INF_BITS UINT64_C(0x7ff0000000000000)

typedef struct one_witness {
    fb_witness w;
    fb_witness_tensor in[6], out[4], module[6];
    double *exact[4], *module_exact[4];
    fb_tape_attribute attributes[4];
    fb_witness_number numbers[4];
    fb_witness_place candidate, chain[3];
    fb_cause_facts facts;
    fb_cause cause;
} one_witness;

static inline double bits_to_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline double a_nan(void)
{
    return bits_to_double(NAN_BITS);
}
static inline double an_inf(void)
{
    return bits_to_double(INF_BITS);
}

static inline void count_stats(fb_witness_tensor *t)
{
    t->stats = (fb_scan_result)FB_SCAN_RESULT_INIT;
    t->stats.elements = t->count;
    for (uint64_t i = 0; t->values && i < t->count; i++) {
        uint64_t bits, magnitude;
        double absolute;
        memcpy(&bits, &t->values[i], sizeof bits);
        magnitude = bits & UINT64_C(0x7fffffffffffffff);
        if (magnitude > INF_BITS) t->stats.nan++;
        else if (magnitude == INF_BITS && bits >> 63) t->stats.neg_inf++;
        else if (magnitude == INF_BITS) t->stats.pos_inf++;
        else {
            absolute = bits_to_double(magnitude);
            if (absolute > t->stats.abs_max) t->stats.abs_max = absolute;
            t->stats.sum_sq += absolute * absolute;
        }
    }
}

/* shape: as many dimensions as ndim says; ndim 0: one of `count`. The values are borrowed. */
static inline void set_tensor(fb_witness_tensor *t, const char *name, int32_t format, double *values, uint64_t count, int32_t ndim,
                              va_list shape)
{
    static char module[] = "h.3.attn";
    memset(t, 0, sizeof *t);
    t->module = module;
    t->name = (char *)(uintptr_t)name;
    t->format = format;
    t->values = values;
    t->count = count;
    t->ndim = ndim;
    for (int32_t i = 0; i < ndim; i++) t->shape[i] = va_arg(shape, int);
    count_stats(t);
}

static inline void set_place(fb_witness_place *p, const char *op, const char *module, const char *tensor, int32_t boundary)
{
    static char source[] = "model.c:88";
    memset(p, 0, sizeof *p);
    p->op = (char *)(uintptr_t)op;
    p->module = (char *)(uintptr_t)module;
    p->tensor = (char *)(uintptr_t)tensor;
    p->source = source;
    p->boundary = boundary;
    p->made = 7;
    p->reads = FB_WITNESS_NONE;
}

static inline void begin(one_witness *o, const char *op, const char *module, int32_t boundary)
{
    memset(o, 0, sizeof *o);
    o->w.inputs = o->in;
    o->w.outputs = o->out;
    o->w.module_inputs = o->module;
    o->w.attributes = o->attributes;
    o->w.numbers = o->numbers;
    o->w.module_ops = 1;
    o->w.finding = 7;
    o->w.bad_kind = FB_KIND_NAN;
    set_place(&o->w.place, op, module, "out", boundary);
    o->facts.witness = &o->w;
    o->facts.found = FB_LOCATED_OPERATOR;
    o->facts.world = 4;
    o->facts.owner = 1;
    o->facts.step = 412;
    o->facts.reproduced = o->facts.tried = 3;
    o->facts.faithful = 1;
    o->facts.persists = -1;
    o->facts.folder = "runs/r1/cases/a1-000412";
}

static inline void add_input(one_witness *o, const char *name, int32_t format, double *values, uint64_t count, int32_t ndim, ...)
{
    va_list shape;
    va_start(shape, ndim);
    set_tensor(&o->in[o->w.input_count++], name, format, values, count, ndim, shape);
    va_end(shape);
}

static inline void add_module_input(one_witness *o, const char *name, int32_t format, double *values, uint64_t count)
{
    va_list none;
    memset(&none, 0, sizeof none);
    set_tensor(&o->module[o->w.module_input_count++], name, format, values, count, 0, none);
}

/* The bad element is the first that is not finite, or 0 where all are. */
static inline void add_output(one_witness *o, const char *name, int32_t format, double *values, uint64_t count, int32_t ndim, ...)
{
    fb_witness_tensor *t = &o->out[o->w.output_count];
    va_list shape;
    va_start(shape, ndim);
    set_tensor(t, name, format, values, count, ndim, shape);
    va_end(shape);
    for (uint64_t i = count; i-- > 0;) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        if ((bits & INF_BITS) != INF_BITS) continue;
        o->w.bad_index = i;
        o->w.bad_output = o->w.output_count;
        o->w.bad_kind = (bits & UINT64_C(0x7fffffffffffffff)) > INF_BITS ? FB_KIND_NAN
                        : bits >> 63                                     ? FB_KIND_NEG_INF
                                                                         : FB_KIND_POS_INF;
    }
    o->w.output_count++;
}

/* What FP64 makes of the output that was added last. */
static inline void set_exact(one_witness *o, double *values)
{
    o->w.exact = o->exact;
    o->exact[o->w.output_count - 1] = values;
}

static inline void set_module_exact(one_witness *o, double *values, uint32_t operators)
{
    o->w.module_exact = o->module_exact;
    o->module_exact[o->w.output_count - 1] = values;
    o->w.module_ops = operators;
}

static inline void add_attribute(one_witness *o, const char *name, double value)
{
    o->attributes[o->w.attribute_count++] = (fb_tape_attribute){name, value};
}

static inline void add_number(one_witness *o, const char *op, const char *name, double value, int32_t format)
{
    o->numbers[o->w.number_count++] = (fb_witness_number){(char *)(uintptr_t)op, (char *)(uintptr_t)name, value, format};
}

static inline const char *judge(one_witness *o)
{
    fb_cause_judge(&o->facts, &o->cause);
    return fb_cause_class_of(o->cause.class_number)->name;
}

#endif
