/* The list of operators: how it is built and changed, that it runs in its order and keeps what is
 * still to be read, and rows left out. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model.h"

static const gpt_config TINY = {
    .layers = 2,
    .heads = 2,
    .channels = 16,
    .block = 11, /* odd, so that the draws of a sample and of a head do not lie side by side by themselves */
    .batch = 3,
    .dropout = 0.1f,
    .activation_gain = 1.0f,
    .seed = 3,
};
enum { TOKENS = 33 };

typedef struct tiny_batch {
    int32_t tokens[TOKENS], targets[TOKENS], positions[TOKENS];
    float weights[TOKENS], key_mask[TOKENS];
} tiny_batch;

static tiny_batch make_batch(void)
{
    tiny_batch b;
    for (int32_t i = 0; i < TOKENS; i++) {
        b.tokens[i] = (i * 37 + 11) % GPT_VOCAB;
        b.targets[i] = i % 7 == 2 ? GPT_IGNORE : (i * 53 + 7) % GPT_VOCAB;
        b.positions[i] = (i + 3) % 11;
        b.weights[i] = 0.5f + (float)(i % 4) * 0.5f;
        b.key_mask[i] = i == 15 ? 0.0f : 1.0f; /* key 4 of sample 1 */
    }
    return b;
}

static gpt_input input_of(const tiny_batch *b)
{
    return (gpt_input){
        .tokens = b->tokens, .targets = b->targets, .weights = b->weights, .key_mask = b->key_mask, .positions = b->positions};
}

static gpt_model *open_rough(const gpt_config *config)
{
    gpt_model *model = gpt_open(config);
    assert_non_null(model);
    for (size_t i = 0; i < model->parameter_count; i++) model->parameters[i] += 0.2f * (float)((int)(i * 7919 % 101) - 50) / 50.0f;
    gpt_load_weights(model);
    return model;
}

static void step(gpt_model *model, gpt_input input, gpt_place place)
{
    memset(model->gradients, 0, model->parameter_count * sizeof *model->gradients);
    gpt_forward(model, input, place, 1.0);
    gpt_backward(model, input, place);
}

static bool is_bad(float x)
{
    return (float_bits(x) & 0x7f800000u) == 0x7f800000u;
}

/* ---- how it runs ------------------------------------------------------------------------------------------------------------- */

/* What was heard: the bits of each value when it was made. */
typedef struct ear {
    int calls;
    uint64_t *made; /* [value_count], 0: not yet */
} ear;

static uint64_t hash_value(const gpt_model *model, int value)
{
    const gpt_value *v = &model->program.values[value];
    const uint8_t *bytes = v->data;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < 4 * gpt_value_count(v, &model->shape); i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

static void listen(void *listener, const gpt_model *model, int op)
{
    ear *e = listener;
    const gpt_op *o = &model->program.ops[op];
    assert_int_equal(op, e->calls++);
    for (int k = 0; k < o->in_count; k++) {
        if (e->made[o->in[k]] && e->made[o->in[k]] != hash_value(model, o->in[k]))
            fail_msg("%s %s: input %s changed since it was made", o->module, o->name, model->program.values[o->in[k]].name);
    }
    for (int k = 0; k < o->out_count; k++) {
        const gpt_value *v = &model->program.values[o->out[k]];
        const float *x = v->data;
        e->made[o->out[k]] = hash_value(model, o->out[k]);
        for (size_t i = 0; v->format == PRECISION_FP16 && i < gpt_value_count(v, &model->shape); i++)
            assert_true(is_bad(x[i]) || x[i] == round_fp16(x[i]));
    }
}

static void test_program__is_heard_once_an_operator_in_order_and_keeps_what_is_still_to_be_read(void **state)
{
    (void)state;
    tiny_batch b = make_batch();
    for (int format = PRECISION_FP32; format <= PRECISION_FP16; format++) {
        gpt_config config = TINY;
        config.format = (precision)format;
        gpt_model *model = open_rough(&config);
        ear e = {.made = calloc((size_t)model->program.value_count, sizeof *e.made)};
        assert_non_null(e.made);
        model->heard = listen;
        model->listener = &e;
        gpt_forward(model, input_of(&b), (gpt_place){1, 0, 0}, 1.0);
        assert_int_equal(e.calls, model->program.backward);
        gpt_backward(model, input_of(&b), (gpt_place){1, 0, 0});
        assert_int_equal(e.calls, model->program.op_count);
        free(e.made);
        gpt_close(model);
    }
}

static void test_program__names_every_operator_and_finds_its_way_back(void **state)
{
    (void)state;
    for (int drops = 0; drops < 2; drops++) {
        gpt_config config = TINY;
        config.dropout = drops ? 0.1f : 0.0f;
        gpt_model *model = open_rough(&config);
        const gpt_program *p = &model->program;
        assert_true(gpt_program_sound(p));
        assert_int_equal(gpt_find_op(p, 0, "h.1.attn", "dropout", false) >= 0, drops);
        assert_int_equal(gpt_find_value(p, "h.1.mlp", "c_proj") >= 0, drops);
        for (int i = 0; i < p->op_count; i++) {
            const gpt_op *op = &p->ops[i];
            assert_non_null(strstr(op->file, "program_"));
            assert_true(op->line > 0 && op->name[0] && op->backward == (i >= p->backward));
            assert_true(!op->loss || !strcmp(op->module, "loss"));
            if (op->backward && op->of >= 0) assert_int_equal(p->values[op->of].gradient, op->in[0]);
        }
        int softmax = gpt_find_op(p, 0, "h.1.attn", "softmax", false), made = p->ops[softmax].out[0];
        assert_int_equal(made, gpt_find_value(p, "h.1.attn", "probabilities"));
        assert_int_equal(gpt_producer(p, made), softmax);
        assert_string_equal(p->ops[gpt_backward_op(p, made)].name, "softmax_backward");
        assert_int_equal(gpt_find_op(p, 0, "h.9.attn", "softmax", false), -1);
        assert_int_equal(gpt_producer(p, gpt_find_value(p, "", "tokens")), -1);
        gpt_close(model);
    }
}

/* A sample whose keys are all masked has no probabilities; the others do not notice. */
static void test_program__a_sample_without_a_key_is_nan_from_its_softmax_on(void **state)
{
    (void)state;
    tiny_batch b = make_batch();
    gpt_model *model = open_rough(&TINY);
    for (size_t t = 0; t < 11; t++) b.key_mask[11 + t] = 0.0f;
    gpt_forward(model, input_of(&b), (gpt_place){1, 0, 0}, 1.0);
    const float *x = model->program.values[gpt_find_value(&model->program, "h.0.attn", "probabilities")].data;
    for (size_t i = 0; i < (size_t)3 * 2 * 121; i++) assert_int_equal(is_bad(x[i]), i / 242 == 1);
    for (size_t i = 0; i < (size_t)TOKENS * GPT_VOCAB; i++) assert_int_equal(is_bad(model->logits[i]), i / (11 * GPT_VOCAB) == 1);
    gpt_close(model);
}

static void test_program__a_masked_key_is_not_seen_by_others(void **state)
{
    (void)state;
    tiny_batch b = make_batch();
    gpt_model *model = open_rough(&TINY);
    float *first = malloc(TOKENS * GPT_VOCAB * sizeof *first);
    assert_non_null(first);
    gpt_forward(model, input_of(&b), (gpt_place){1, 0, 0}, 1.0);
    memcpy(first, model->logits, TOKENS * GPT_VOCAB * sizeof *first);
    b.tokens[15] = 200;
    gpt_forward(model, input_of(&b), (gpt_place){1, 0, 0}, 1.0);
    for (size_t n = 0; n < TOKENS; n++)
        assert_int_equal(memcmp(first + n * GPT_VOCAB, model->logits + n * GPT_VOCAB, GPT_VOCAB * sizeof *first) != 0, n == 15);
    free(first);
    gpt_close(model);
}

/* ---- rows left out ----------------------------------------------------------------------------------------------------------- */

/* The values of forward that belong to samples, copied as they are made. */
typedef struct recorder {
    float **copies; /* [value_count] of the whole batch; NULL: not of samples */
    const uint32_t *row_ids;
    size_t compared;
} recorder;

static void copy_made(void *listener, const gpt_model *model, int op)
{
    recorder *r = listener;
    for (int k = 0; k < model->program.ops[op].out_count; k++) {
        int value = model->program.ops[op].out[k];
        const gpt_value *v = &model->program.values[value];
        size_t bytes = v->rows * v->columns * sizeof(float);
        if (!v->per_sample) continue;
        r->copies[value] = malloc(bytes);
        assert_non_null(r->copies[value]);
        memcpy(r->copies[value], v->data, bytes);
    }
}

static void compare_made(void *listener, const gpt_model *model, int op)
{
    recorder *r = listener;
    for (int k = 0; k < model->program.ops[op].out_count; k++) {
        int value = model->program.ops[op].out[k];
        const gpt_value *v = &model->program.values[value];
        if (!v->per_sample) continue;
        size_t each = v->rows * v->columns / model->shape.whole;
        assert_int_equal(gpt_value_count(v, &model->shape), each * model->shape.B);
        for (size_t b = 0; b < model->shape.B; b++) {
            if (memcmp((const float *)v->data + b * each, r->copies[value] + r->row_ids[b] * each, each * sizeof(float)) != 0)
                fail_msg("%s.%s of row %u differs when others are left out", v->module, v->name, r->row_ids[b]);
            r->compared++;
        }
    }
}

static void test_program__rows_that_stay_have_the_bits_they_had_in_the_whole_batch(void **state)
{
    (void)state;
    tiny_batch b = make_batch();
    gpt_model *model = open_rough(&TINY);
    const uint32_t kept[2] = {2, 0};
    int32_t tokens[22], targets[22], positions[22];
    float weights[22], key_mask[22];
    recorder r = {.copies = calloc((size_t)model->program.value_count, sizeof *r.copies), .row_ids = kept};
    assert_non_null(r.copies);
    for (size_t i = 0; i < 22; i++) {
        size_t from = kept[i / 11] * 11 + i % 11;
        tokens[i] = b.tokens[from];
        targets[i] = b.targets[from];
        positions[i] = b.positions[from];
        weights[i] = b.weights[from];
        key_mask[i] = b.key_mask[from];
    }
    model->heard = copy_made;
    model->listener = &r;
    gpt_forward(model, input_of(&b), (gpt_place){4, 1, 2}, 1.0);
    model->heard = compare_made;
    gpt_input fewer = {.tokens = tokens,
                       .targets = targets,
                       .weights = weights,
                       .key_mask = key_mask,
                       .positions = positions,
                       .rows = 2,
                       .row_ids = kept};
    gpt_forward(model, fewer, (gpt_place){4, 1, 2}, 1.0);
    assert_true(r.compared > 100);
    model->heard = NULL;
    gpt_backward(model, fewer, (gpt_place){4, 1, 2});
    for (size_t i = 0; i < model->parameter_count; i++) assert_false(is_bad(model->gradients[i]));
    for (int i = 0; i < model->program.value_count; i++) free(r.copies[i]);
    free(r.copies);
    gpt_close(model);
}

/* ---- changing it ------------------------------------------------------------------------------------------------------------- */

/* What an alteration puts where. */
typedef struct change {
    gpt_kind kind;
    const char *module, *value;
    double x;
    gpt_trigger trigger;
} change;

static void put_in(void *ctx, gpt_program *program, const gpt_config *config)
{
    (void)config;
    for (const change *c = ctx; c->module; c++) {
        gpt_op op = GPT_OP(c->kind, c->module, "put_in");
        op.x = c->x;
        op.y = 4.0;
        op.trigger = c->trigger;
        assert_true(gpt_splice(program, gpt_find_value(program, c->module, c->value), &op, "changed") >= 0);
    }
}

static gpt_config altered(change *changes)
{
    gpt_config config = TINY;
    config.alter = put_in;
    config.alter_ctx = changes;
    return config;
}

static void test_program__an_operator_that_changes_nothing_changes_no_bit_wherever_it_is_put(void **state)
{
    (void)state;
    tiny_batch b = make_batch();
    gpt_model *plain = open_rough(&TINY);
    step(plain, input_of(&b), (gpt_place){1, 0, 0});
    for (int i = 0; i < plain->program.value_count; i++) {
        const gpt_value *v = &plain->program.values[i];
        if (v->role != ROLE_ACTIVATION) continue;
        change changes[2] = {{.kind = OP_MUL_NUMBER, .module = v->module, .value = v->name, .x = 1.0}};
        gpt_config config = altered(changes);
        gpt_model *changed = open_rough(&config);
        step(changed, input_of(&b), (gpt_place){1, 0, 0});
        if (changed->loss != plain->loss ||
            memcmp(changed->gradients, plain->gradients, plain->parameter_count * sizeof *plain->gradients) != 0)
            fail_msg("times 1 behind %s.%s changes the step", v->module, v->name);
        gpt_close(changed);
    }
    gpt_close(plain);
}

/* The slope of the loss along signs within one tensor, by the five-point formula. */
static double slope(gpt_model *model, gpt_input input, const gpt_tensor *t)
{
    const double h = 0.02;
    double loss[4];
    float *p = model->parameters + t->offset, *start = malloc(t->count * sizeof *start);
    assert_non_null(start);
    memcpy(start, p, t->count * sizeof *p);
    for (int k = 0; k < 4; k++) {
        const double at[4] = {-2.0 * h, -h, h, 2.0 * h};
        for (size_t i = 0; i < t->count; i++) p[i] = (float)((double)start[i] + (i % 3 ? at[k] : -at[k]) / sqrt((double)t->count));
        gpt_load_weights(model);
        gpt_forward(model, input, (gpt_place){1, 0, 0}, 1.0);
        loss[k] = model->loss;
    }
    memcpy(p, start, t->count * sizeof *p);
    free(start);
    return (loss[0] - 8.0 * loss[1] + 8.0 * loss[2] - loss[3]) / (12.0 * h);
}

static void test_program__what_is_put_in_has_a_backward_form_that_is_right(void **state)
{
    (void)state;
    tiny_batch b = make_batch();
    change changes[] = {
        {.kind = OP_SIGMOID, .module = "h.0.mlp", .value = "output"}, /* joins a sum */
        {.kind = OP_MUL_NUMBER, .module = "h.0", .value = "middle", .x = 0.75},
        {.kind = OP_MUL_NUMBER, .module = "h.0", .value = "output", .x = 1.25}, /* sums, read twice */
        {.kind = OP_EXP, .module = "h.1.attn", .value = "probabilities"},
        {.kind = OP_SQUARE, .module = "h.1.ln_2", .value = "output"},
        {.kind = OP_GELU, .module = "h.1.attn", .value = "qkv"},
        {.kind = OP_MUL_NUMBER, .module = "", .value = "embedded", .x = 2.0},
        {.kind = OP_SIGMOID, .module = "lm_head", .value = "logits"},
        {0},
    };
    gpt_config config = altered(changes);
    config.dropout = 0.0f;
    gpt_model *model = open_rough(&config);
    float *gradient = malloc(model->parameter_count * sizeof *gradient);
    assert_non_null(gradient);
    step(model, input_of(&b), (gpt_place){1, 0, 0});
    memcpy(gradient, model->gradients, model->parameter_count * sizeof *gradient);
    for (size_t k = 0; k < model->tensor_count; k++) {
        const gpt_tensor *t = &model->tensors[k];
        double found = 0.0, expected = slope(model, input_of(&b), t);
        for (size_t i = 0; i < t->count; i++)
            found += (i % 3 ? 1.0 : -1.0) * (double)gradient[t->offset + i] / sqrt((double)t->count);
        if (!(fabs(found - expected) <= 1e-4 + 2e-3 * fabs(expected)))
            fail_msg("%s.%s: slope %.8g, measured %.8g", t->module, t->name, found, expected);
    }
    free(gradient);
    gpt_close(model);
}

static void test_program__a_number_waits_for_its_step_and_rank(void **state)
{
    (void)state;
    tiny_batch b = make_batch();
    change changes[2] = {{.kind = OP_MUL_NUMBER,
                          .module = "h.1.mlp",
                          .value = "gelu",
                          .x = 1e38,
                          .trigger = {.set = true, .step_first = 5, .step_last = 6, .rank = 1, .idle = 1.0}}};
    gpt_config config = altered(changes);
    gpt_model *model = open_rough(&config);
    for (int64_t at = 4; at <= 7; at++) {
        for (int32_t rank = 0; rank < 2; rank++) {
            gpt_forward(model, input_of(&b), (gpt_place){at, 0, rank}, 1.0);
            assert_int_equal(is_bad((float)model->loss), rank == 1 && (at == 5 || at == 6));
        }
    }
    gpt_op grows = GPT_OP(OP_MUL_NUMBER, "m", "mul");
    grows.x = 3.0;
    grows.grows = true;
    assert_true(gpt_op_number(&grows, (gpt_place){4, 0, 0}) == 81.0);
    gpt_close(model);
}

/* ---- inserting, removing, and mistakes --------------------------------------------------------------------------------------- */

/* By hand what a splice does not: an operator of two inputs, a value of its own, and one operator less. */
static void by_hand(void *ctx, gpt_program *program, const gpt_config *config)
{
    (void)ctx;
    (void)config;
    int logits = gpt_find_value(program, "lm_head", "logits"), per_row = gpt_value_per_row(program, logits, "lm_head", "largest");
    int offset = gpt_value_like(program, logits, "lm_head", "offset"), at = gpt_producer(program, logits) + 1;
    gpt_op most = GPT_OP(OP_ROW_MAX, "lm_head", "amax"), minus = GPT_OP(OP_SUB, "lm_head", "sub");
    assert_int_equal(program->values[per_row].columns, 1);
    assert_int_equal(program->values[per_row].ndim, 2);
    most.in[0] = minus.in[0] = logits;
    most.out[0] = minus.in[1] = per_row;
    minus.out[0] = offset;
    minus.spread = SPREAD_ROW;
    most.in_count = most.out_count = minus.out_count = 1;
    minus.in_count = 2;
    assert_int_equal(gpt_insert_op(program, at, &most), at);
    assert_int_equal(gpt_insert_op(program, at + 1, &minus), at + 1);
    gpt_replace_input(program, at + 2, logits, offset);
    gpt_insert_op(program, program->backward, &minus); /* makes the value a second time; so out with it again */
    assert_false(gpt_program_sound(program));
    gpt_remove_op(program, program->backward - 1);
    assert_true(gpt_program_sound(program));
}

static void test_program__softmax_does_not_mind_an_offset_that_was_put_in_by_hand(void **state)
{
    (void)state;
    tiny_batch b = make_batch();
    gpt_config config = TINY;
    config.alter = by_hand;
    gpt_model *plain = open_rough(&TINY), *changed = open_rough(&config);
    step(plain, input_of(&b), (gpt_place){1, 0, 0});
    step(changed, input_of(&b), (gpt_place){1, 0, 0});
    assert_true(fabs(plain->loss - changed->loss) <= 1e-5);
    for (size_t i = 0; i < plain->parameter_count; i++) assert_true(fabsf(plain->gradients[i] - changed->gradients[i]) <= 1e-4f);
    gpt_close(plain);
    gpt_close(changed);
}

static void wrong(void *ctx, gpt_program *program, const gpt_config *config)
{
    gpt_op op = GPT_OP(OP_COPY, "m", "copy");
    int which = *(const int *)ctx, loss = program->loss, tokens = gpt_find_value(program, "", "loss_weights");
    (void)config;
    op.in_count = op.out_count = 1;
    op.in[0] = which == 0 ? program->value_count : which == 1 ? loss : tokens;
    op.out[0] = which == 2 ? loss : gpt_value_one(program, ROLE_ACTIVATION, "m", "v");
    if (which == 3) gpt_splice(program, -1, &op, "v");
    else if (which == 4) gpt_remove_op(program, program->op_count);
    else gpt_insert_op(program, 0, &op);
}

static void test_program__a_mistake_in_a_change_keeps_the_model_from_opening(void **state)
{
    (void)state;
    for (int which = 0; which < 5; which++) { /* no such value, not made yet, made twice, nothing to splice, nothing to remove */
        gpt_config config = TINY;
        config.alter = wrong;
        config.alter_ctx = &which;
        assert_null(gpt_open(&config));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_program__is_heard_once_an_operator_in_order_and_keeps_what_is_still_to_be_read),
        cmocka_unit_test(test_program__names_every_operator_and_finds_its_way_back),
        cmocka_unit_test(test_program__a_sample_without_a_key_is_nan_from_its_softmax_on),
        cmocka_unit_test(test_program__a_masked_key_is_not_seen_by_others),
        cmocka_unit_test(test_program__rows_that_stay_have_the_bits_they_had_in_the_whole_batch),
        cmocka_unit_test(test_program__an_operator_that_changes_nothing_changes_no_bit_wherever_it_is_put),
        cmocka_unit_test(test_program__what_is_put_in_has_a_backward_form_that_is_right),
        cmocka_unit_test(test_program__a_number_waits_for_its_step_and_rank),
        cmocka_unit_test(test_program__softmax_does_not_mind_an_offset_that_was_put_in_by_hand),
        cmocka_unit_test(test_program__a_mistake_in_a_change_keeps_the_model_from_opening),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
