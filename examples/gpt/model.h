/*
 * model.h: a decoder-only transformer with byte tokens, as GPT-2 has it: token and position embeddings, blocks of layer norm before
 * attention and before the MLP, a last layer norm, and a head. The head is not tied to the token embedding: one tensor is then one
 * place, and a bad gradient of the head cannot be mistaken for one of the embedding.
 *
 * All parameters lie in one flat array in the order of gpt_tensor, and so do their gradients and moments: the collective, the clip
 * and the optimizer see one array, the checks see one view a tensor.
 *
 * Calling order: gpt_open; then gpt_load_weights after each change of the parameters, gpt_forward, gpt_backward; gpt_close.
 */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include "program.h"

enum { GPT_VOCAB = 256, GPT_LAYERS_MAX = 1024 };

/*
 * Places along the dataflow, which order what the guard reports: tokens 0, wte and wpe 1 and 2, their sum 3, then so many a block.
 * Tensors and activations have places of their own, between each other.
 */
enum { GPT_PLACE_EMBEDDED = 3, GPT_PLACE_BLOCKS = 4, GPT_BLOCK_PLACES = 24 };

typedef struct gpt_config {
    size_t layers, heads, channels, block; /* L, NH, C, T */
    size_t batch;                          /* B: rows of one micro-step */
    float dropout;
    precision format;
    float activation_gain; /* fault switch: see gpt_forward; 1 is off */
    uint64_t seed;
    /* Called when the program is built and before its memory is laid out; a fault changes the program here. NULL: nobody does. */
    void (*alter)(void *ctx, gpt_program *program, const struct gpt_config *config);
    void *alter_ctx;
} gpt_config;

/* One parameter tensor. `module` and `name` make its name: "h.3.mlp" and "c_fc.weight". */
typedef struct gpt_tensor {
    char module[24], name[16];
    int32_t position; /* place along the dataflow, growing from the tokens to the loss; activations are counted in */
    int32_t ndim;
    size_t shape[2];
    size_t offset, count; /* in floats, within the flat arrays */
} gpt_tensor;

/* Tensors of a block, in the order in which they lie and are used. */
typedef enum block_tensor {
    LN_1_WEIGHT,
    LN_1_BIAS,
    C_ATTN_WEIGHT,
    C_ATTN_BIAS,
    ATTN_PROJ_WEIGHT,
    ATTN_PROJ_BIAS,
    LN_2_WEIGHT,
    LN_2_BIAS,
    C_FC_WEIGHT,
    C_FC_BIAS,
    MLP_PROJ_WEIGHT,
    MLP_PROJ_BIAS,
    BLOCK_TENSORS
} block_tensor;

/* A named activation, for checks of the forward pass. */
typedef struct gpt_activation {
    char module[GPT_MODULE_MAX], name[GPT_NAME_MAX];
    int32_t position;
    float *data;
    size_t count; /* of the samples that run */
    int value;    /* index in the program */
} gpt_activation;

/* Called in the forward pass when an activation is there and before the next layer reads it; it may look, and it may change it. */
typedef void gpt_watch(void *watcher, size_t index, const gpt_activation *activation);

struct gpt_model;

/*
 * Called after each operator ran, its outputs rounded, and after gpt_watch heard of those that are activations. What it changes in
 * an output is carried on. model->shape says where it happens.
 */
typedef void gpt_heard(void *listener, const struct gpt_model *model, int op);

typedef struct gpt_model {
    gpt_config config;
    gpt_tensor *tensors; /* tensor_count of them */
    size_t tensor_count, parameter_count;
    float *parameters; /* FP32, also where the format is smaller: the optimizer's master copy */
    float *weights;    /* the same, rounded to the format; what forward and backward use. In fp32 it is `parameters` itself */
    float *gradients;  /* FP32 sums over the micro-steps since they were set to 0 */
    gpt_program program;
    gpt_run_shape shape;                                    /* of the last gpt_forward */
    float *embedded, *logits;                               // (B,T,C) (B,T,V)
    float *d_logits;                                        // (B,T,V), there from backward until the next forward
    int tokens, positions, key_mask, targets, loss_weights; /* values of the batch */
    float *ones;                                            /* (B,T) of 1: weights and key mask that were not given */
    int32_t *first_positions;                               // (B,T) 0, 1, ..., T-1 in each row
    gpt_activation *activations;                            /* activation_count of them, along the dataflow */
    size_t activation_count;
    int *activation_of; /* [program.value_count] index into activations, or -1 */
    gpt_watch *watch;   /* NULL: nobody looks */
    void *watcher;
    gpt_heard *heard; /* NULL: nobody listens */
    void *listener;
    float *scratch;
    double loss;
    float *memory; /* the one allocation behind all arrays above that are not another's */
} gpt_model;

/* NULL when memory is short or the shape is impossible (channels not divisible by heads). Parameters are drawn from the seed. */
gpt_model *gpt_open(const gpt_config *config);
void gpt_close(gpt_model *model);

/* Round the parameters into `weights`. */
void gpt_load_weights(gpt_model *model);

/* What one micro-step reads. What may be NULL stands last, so that it may be left out. */
typedef struct gpt_input {
    const int32_t *tokens, *targets; // (B,T)
    const float *weights;            // (B,T) of the loss; NULL: all 1
    const float *key_mask;           // (B,T) 1: this key is seen, 0: it is not; NULL: all are
    const int32_t *positions;        // (B,T) in [0, T); NULL: 0, 1, ..., T-1
    size_t rows;                     /* samples in the arrays above; 0: all of config.batch */
    const uint32_t *row_ids;         // (rows) which sample of the whole batch each is, for dropout; NULL: 0, 1, ...
} gpt_input;

/*
 * Leaves the mean loss over valid targets in model->loss. The fault switch multiplies what the middle block's MLP adds to the
 * stream by activation_gain to the power of the step: growth as a diverging run has it, which passes 65504 after some steps and
 * becomes Inf in fp16. The gradient of the loss, which backward begins with, is d_loss (loss scale over accumulation).
 */
void gpt_forward(gpt_model *model, gpt_input input, gpt_place place, double d_loss);

/* After gpt_forward, with the same input and place. Adds to model->gradients. */
void gpt_backward(gpt_model *model, gpt_input input, gpt_place place);

/*
 * Give every value its memory, and say how many floats that takes from `memory` on (NULL: only count). What is there before the
 * program keeps its place, and so do activations that are not internal; of the others, those whose lives do not overlap share.
 * SIZE_MAX when memory for the bookkeeping is short.
 */
size_t gpt_lay_out_values(gpt_model *model, float *memory);

/* The list of operators of a model of this shape, before anybody alters it. False when memory is short; release it either way. */
bool gpt_program_build(gpt_program *program, const gpt_config *config, const gpt_tensor *tensors, size_t tensor_count);

#endif
