/* faults_data.c: changes of what the program reads and of what becomes of its gradients. Each hook
 * asks every fault whether it is on. */
#include "faults_inside.h"

#include <math.h>
#include <string.h>

enum { RACE_PERIOD = 2 };

/* The faults that are on now, one after the other: the next one behind *at, or NULL. */
static const fault *next_on(const faults *f, gpt_place place, size_t *at)
{
    while (*at < f->count) {
        const fault *one = &f->of[(*at)++];
        if (one->row->how != HOW_NOTHING && fault_is_on(one, place.step, place.rank)) return one;
    }
    return NULL;
}

static bool is_on(const faults *f, gpt_place place, int how)
{
    const fault *one;
    for (size_t at = 0; (one = next_on(f, place, &at)) != NULL;)
        if (one->row->how == how) return true;
    return false;
}

/* All bits 1, as memory that nobody wrote often holds; a NaN in every format. */
static float unwritten(void)
{
    return float_from_bits(0xffffffffu);
}

static float infinite(void)
{
    return float_from_bits(0x7f800000u);
}

/* ---- batch ------------------------------------------------------------------------------------------------------------------- */

/*
 * Two samples whose weighted losses sum to 2.2e38 each, about: either alone is a number of FP32, both together are not. A token's
 * loss is near log(256) at the start of a training.
 */
static void make_weights_huge(const fault_batch *b)
{
    for (size_t i = 0; i < b->rows * b->columns && i < 2 * b->columns; i++)
        b->weights[i] = (float)(2.2e38 / ((double)b->columns * 5.545177));
}

static void set_weights(const fault_batch *b, float weight)
{
    for (size_t i = 0; i < b->rows * b->columns; i++) b->weights[i] = weight;
}

static void ignore_labels(const fault_batch *b, size_t from)
{
    for (size_t i = from; i < b->rows * b->columns; i++) b->targets[i] = GPT_IGNORE;
}

/* Keys from .. to of the last sample are padding. */
static void hide_keys(const fault_batch *b, size_t from, size_t to)
{
    for (size_t t = from; t < to; t++) b->key_mask[(b->rows - 1) * b->columns + t] = 0.0f;
}

/* Two texts in one sample: the positions of the second begin again at 0. */
static void pack_positions(const fault_batch *b)
{
    for (size_t i = 0; i < b->rows * b->columns; i++) b->positions[i] = (int32_t)(i % b->columns % (b->columns / 2 + 1));
}

static void change_batch(const fault_batch *b, int how)
{
    size_t some = b->columns / 3, middle = (b->rows - 1) * b->columns + some; /* in the last sample */
    switch (how) {
    case HOW_LABELS_IGNORED: ignore_labels(b, 0); break;
    case HOW_LABELS_MOSTLY_IGNORED: ignore_labels(b, 1); break;
    case HOW_LABEL_UNKNOWN: b->targets[middle] = 999; break;
    case HOW_WEIGHTS_ZERO: set_weights(b, 0.0f); break;
    case HOW_WEIGHTS_FEW:
        set_weights(b, 0.0f);
        b->weights[middle] = 1.0f;
        break;
    case HOW_WEIGHT_NAN: b->weights[middle] = float_from_bits(0x7fc00000u); break;
    case HOW_WEIGHT_INF: b->weights[middle] = infinite(); break;
    case HOW_WEIGHTS_HUGE: make_weights_huge(b); break;
    case HOW_TOKEN_UNKNOWN: b->tokens[middle] = 300; break;
    case HOW_POSITION_UNKNOWN: b->positions[middle] = (int32_t)b->columns; break;
    case HOW_POSITIONS_PACKED: pack_positions(b); break;
    case HOW_NO_KEYS: hide_keys(b, 0, b->columns); break;
    case HOW_LEFT_PADDING: hide_keys(b, 0, b->columns / 4); break;
    case HOW_ONE_KEY: hide_keys(b, 1, b->columns); break;
    default: break;
    }
}

void faults_batch(const faults *f, gpt_place place, const fault_batch *batch)
{
    const fault *one;
    for (size_t at = 0; place.micro_step == 0 && (one = next_on(f, place, &at)) != NULL;) change_batch(batch, one->row->how);
}

/* ---- state ------------------------------------------------------------------------------------------------------------------- */

/* c_fc.weight of the fault's layer. */
static const gpt_tensor *tensor_of(const fault *f, const gpt_model *model)
{
    fault_name module = fault_module(f, &model->config, ".mlp");
    for (size_t i = 0; i < model->tensor_count; i++)
        if (!strcmp(model->tensors[i].module, module.text) && !strcmp(model->tensors[i].name, "c_fc.weight"))
            return &model->tensors[i];
    return NULL;
}

static int change_state(const fault *f, const fault_state *state)
{
    const gpt_tensor *t = tensor_of(f, state->model);
    if (!t) return 0;
    float *parameter = state->model->parameters + t->offset;
    size_t some = t->count < 16 ? t->count : 16;
    switch (f->row->how) {
    case HOW_PARAMETER_NAN:
        for (size_t i = 0; i < some; i++) parameter[i] = unwritten();
        return 1;
    case HOW_PARAMETER_FLIP: parameter[3] = float_from_bits(float_bits(parameter[3]) ^ 1u << 24); return 1;
    case HOW_PARAMETER_ZEROS:
        for (size_t i = 0; i < t->count; i++) parameter[i] = 0.0f;
        return 1;
    case HOW_MOMENT_INF: state->exp_avg_sq[t->offset + 3] = infinite(); return 0;
    case HOW_MOMENT_NAN:
        for (size_t i = 0; i < some; i++) state->exp_avg[t->offset + i] = unwritten();
        return 0;
    case HOW_MOMENT_NEGATIVE:
        for (size_t i = 0; i < some; i++) state->exp_avg_sq[t->offset + i] = -1.0f;
        return 0;
    case HOW_MOMENT_TINY:
        for (size_t i = 0; i < t->count; i++) state->exp_avg_sq[t->offset + i] = 1e-42f;
        return 0;
    default: return 0;
    }
}

/* State is damaged once, however long the fault lasts. */
int faults_entry(const faults *f, gpt_place place, const fault_state *state)
{
    const fault *one;
    int parameters = 0;
    for (size_t at = 0; (one = next_on(f, place, &at)) != NULL;)
        if (place.step == one->step) parameters |= change_state(one, state);
    return parameters;
}

int faults_scaler(const faults *f, gpt_place place, double *scale)
{
    if (!is_on(f, place, HOW_SCALER)) return 0;
    *scale *= 0.5;
    return 1;
}

double faults_scale(const faults *f, gpt_place place, double scale)
{
    if (is_on(f, place, HOW_SCALE_INF)) return (double)infinite();
    return is_on(f, place, HOW_SCALE_ZERO) ? 0.0 : scale;
}

/* ---- buffers ----------------------------------------------------------------------------------------------------------------- */

static void fill(const gpt_value *value, const fault *on)
{
    float *data = value->data, x = on && on->row->how == HOW_BUFFER_ZERO ? 0.0f : 1.0f;
    size_t count = value->rows * value->columns;
    for (size_t i = 0; data && i < count; i++) data[i] = x;
    if (data && on && on->row->how == HOW_BUFFER_INF) data[count / 2] = infinite();
    if (data && on && on->row->how == HOW_BUFFER_NAN) data[count / 2] = unwritten();
}

void faults_buffers(const faults *f, gpt_model *model, gpt_place place)
{
    for (size_t k = 0; k < f->count; k++) {
        const fault *one = &f->of[k];
        for (int i = 0; one->row->alter && i < model->program.value_count; i++) {
            const gpt_value *v = &model->program.values[i];
            if (v->role != ROLE_BUFFER && (v->role != ROLE_SCALAR || i == model->program.loss_seed)) continue;
            fill(v, fault_is_on(one, place.step, place.rank) ? one : NULL);
        }
    }
}

/* ---- a device that computes wrongly ------------------------------------------------------------------------------------------ */

static bool is_device(int how)
{
    return how == HOW_FLIP_ONCE || how == HOW_FLIP_DEVICE || how == HOW_RACE || how == HOW_TAIL;
}

bool faults_hear(const faults *f)
{
    for (size_t i = 0; i < f->count; i++)
        if (is_device(f->of[i].row->how)) return true;
    return false;
}

/* Whether it shows this time: `replay` 0 is training. */
static bool shows(const fault *f, int64_t step, int32_t batch_rank, int32_t process_rank, uint32_t replay)
{
    switch (f->row->how) {
    case HOW_FLIP_ONCE: return replay == 0 && fault_is_on(f, step, process_rank);
    case HOW_FLIP_DEVICE: return fault_is_on(f, step, process_rank);
    case HOW_RACE: return replay % RACE_PERIOD == 0 && fault_is_on(f, step, process_rank);
    case HOW_REDUCED_RACE: return replay % RACE_PERIOD == 0 && fault_is_on(f, step, process_rank);
    case HOW_REDUCED_NAN: return fault_is_on(f, step, process_rank);
    case HOW_TAIL: return fault_is_on(f, step, batch_rank);
    default: return false;
    }
}

void faults_heard(const faults *f, gpt_model *model, int op, gpt_place place, int32_t process_rank, uint32_t replay)
{
    for (size_t k = 0; k < f->count; k++) {
        const fault *one = &f->of[k];
        if (!is_device(one->row->how) || !shows(one, place.step, place.rank, process_rank, replay)) continue;
        const gpt_value *out = &model->program.values[model->program.ops[op].out[0]];
        fault_name module = fault_module(one, &model->config, ".mlp");
        if (strcmp(out->module, module.text) != 0 || strcmp(out->name, one->row->how == HOW_TAIL ? "c_fc" : "gelu") != 0) continue;
        float *data = out->data;
        size_t count = gpt_value_count(out, &model->shape);
        if (one->row->how == HOW_TAIL) /* the last row, of which nothing was written */
            for (size_t i = count - out->columns; i < count; i++) data[i] = unwritten();
        else data[count / 3] = float_from_bits(float_bits(data[count / 3]) | 0x7f800000u); /* the whole exponent set */
    }
}

/* ---- gradients --------------------------------------------------------------------------------------------------------------- */

static void set_gradient(const fault *f, gpt_model *model, uint16_t *half, float x)
{
    const gpt_tensor *t = tensor_of(f, model);
    precision format = model->config.format;
    if (!t) return;
    if (half) half[t->offset] = precision_pack_one(format, format == PRECISION_BF16 ? round_bf16(x) : round_fp16(x));
    else model->gradients[t->offset] = x;
}

int faults_store(const faults *f, gpt_place place, gpt_model *model, uint16_t *half)
{
    const fault *one;
    int changed = 0;
    for (size_t at = 0; (one = next_on(f, place, &at)) != NULL;) {
        if (one->row->how != HOW_STORE) continue;
        set_gradient(one, model, half, unwritten());
        changed = 1;
    }
    return changed;
}

void faults_local(const faults *f, gpt_place place, gpt_model *model, uint16_t *half)
{
    const fault *one;
    for (size_t at = 0; (one = next_on(f, place, &at)) != NULL;) {
        if (one->row->how == HOW_LOCAL_HUGE) set_gradient(one, model, half, 0.75f * precision_max(PRECISION_FP32));
        if (one->row->how == HOW_LOCAL_HALF) set_gradient(one, model, half, 0.75f * precision_max(PRECISION_FP16));
        if (one->row->how == HOW_NORM_SINGLE || one->row->how == HOW_LOCAL_LARGE) set_gradient(one, model, half, 1e20f);
    }
}

void faults_reduced(const faults *f, gpt_place place, int32_t process_rank, uint32_t replay, gpt_model *model, uint16_t *half)
{
    for (size_t k = 0; k < f->count; k++) {
        const fault *one = &f->of[k];
        bool is = one->row->how == HOW_REDUCED_NAN || one->row->how == HOW_REDUCED_RACE;
        if (is && shows(one, place.step, place.rank, process_rank, replay)) set_gradient(one, model, half, unwritten());
    }
}

/* ---- constants of the update ------------------------------------------------------------------------------------------------- */

static void change_constants(fault_constants *c, int how, int64_t warmup_steps)
{
    switch (how) {
    case HOW_ADAM_HALF: c->moments = PRECISION_FP16; break;
    case HOW_ADAM_NO_EPSILON: c->epsilon = 0.0; break;
    case HOW_BIAS_CORRECTION: c->updates = 0; break;
    case HOW_RATE_NAN: c->learning_rate *= (double)warmup_steps / (double)warmup_steps; break;
    case HOW_RATE_HUGE: c->learning_rate *= 1e24; break;
    case HOW_RATE_ZERO: c->learning_rate = 0.0; break;
    default: break;
    }
}

void faults_update(const faults *f, gpt_place place, fault_constants *constants)
{
    const fault *one;
    for (size_t at = 0; (one = next_on(f, place, &at)) != NULL;)
        change_constants(constants, one->row->how, 0); /* a warm-up of no steps */
}

/* The norm as a kernel in FP32 takes it. */
static double single_norm(const float *gradient, size_t count)
{
    float sum = 0.0f;
    for (size_t i = 0; i < count; i++) sum += gradient[i] * gradient[i];
    return (double)sqrtf(sum);
}

double faults_clip(const faults *f, gpt_place place, const float *gradient, size_t count, double clip, double *norm,
                   double coefficient)
{
    if (is_on(f, place, HOW_NORM_SINGLE)) {
        *norm = single_norm(gradient, count);
        return clip / *norm;
    }
    return is_on(f, place, HOW_CLIP_NO_NORM) ? clip / *norm : coefficient;
}

bool faults_norm_is_single(const faults *f, gpt_place place)
{
    return is_on(f, place, HOW_NORM_SINGLE);
}

bool faults_applies(const faults *f, gpt_place place)
{
    return !is_on(f, place, HOW_LEAVES_OUT);
}
