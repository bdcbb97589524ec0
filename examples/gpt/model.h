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

#include "precision.h"
#include "rng.h"

#include <stddef.h>
#include <stdint.h>

enum { GPT_VOCAB = 256, GPT_IGNORE = -100, GPT_LAYERS_MAX = 1024 };

typedef struct gpt_config {
    size_t layers, heads, channels, block; /* L, NH, C, T */
    size_t batch;                          /* B: rows of one micro-step */
    float dropout;
    precision format;
    float activation_gain; /* fault switch: see gpt_forward; 1 is off */
    uint64_t seed;
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

/* What forward keeps of one block for backward, and for who wants to look. */
typedef struct block_activations {
    float *ln_1, *ln_1_mean, *ln_1_rstd; // (B,T,C) (B,T) (B,T)
    float *qkv;                          // (B,T,3C)
    float *att;                          // (B,NH,T,T)
    float *heads;                        // (B,T,C)
    float *attn_out;                     // (B,T,C)
    float *middle;                       // (B,T,C) the residual stream after attention
    float *ln_2, *ln_2_mean, *ln_2_rstd; // (B,T,C) (B,T) (B,T)
    float *fc;                           // (B,T,4C)
    float *gelu;                         // (B,T,4C)
    float *mlp_out;                      // (B,T,C)
    float *out;                          // (B,T,C) the residual stream after the MLP
} block_activations;

/* Activations of a block in the order in which they appear; in gpt_model.activations they follow the embedding. */
typedef enum block_activation {
    LN_1_OUT,
    QKV,
    ATT,
    HEADS,
    ATTN_OUT,
    MIDDLE,
    LN_2_OUT,
    FC,
    GELU,
    MLP_OUT,
    BLOCK_OUT,
    BLOCK_ACTIVATIONS
} block_activation;

/* A named activation, for checks of the forward pass. */
typedef struct gpt_activation {
    char module[24], name[16];
    int32_t position;
    float *data;
    size_t count;
} gpt_activation;

/* Called in the forward pass when an activation is there and before the next layer reads it; it may look, and it may change it. */
typedef void gpt_watch(void *watcher, size_t index, const gpt_activation *activation);

typedef struct gpt_model {
    gpt_config config;
    gpt_tensor *tensors; /* tensor_count of them */
    size_t tensor_count, parameter_count;
    float *parameters; /* FP32, also where the format is smaller: the optimizer's master copy */
    float *weights;    /* the same, rounded to the format; what forward and backward use. In fp32 it is `parameters` itself */
    float *gradients;  /* of one micro-step, FP32 sums */
    float *embedded;   // (B,T,C)
    block_activations *blocks;
    float *ln_f, *ln_f_mean, *ln_f_rstd; // (B,T,C) (B,T) (B,T)
    float *logits, *d_logits;            // (B,T,V)
    gpt_activation *activations;         /* activation_count of them, along the dataflow */
    size_t activation_count;
    gpt_watch *watch; /* NULL: nobody looks */
    void *watcher;
    float *d_stream, *d_branch, *d_narrow, *d_wide, *d_hidden; // (B,T,C) (B,T,C) (B,T,C) (B,T,4C) (B,T,4C)
    float *scratch;
    double loss;
    float *memory; /* the one allocation behind all float arrays above */
} gpt_model;

/* NULL when memory is short or the shape is impossible (channels not divisible by heads). Parameters are drawn from the seed. */
gpt_model *gpt_open(const gpt_config *config);
void gpt_close(gpt_model *model);

/* Round the parameters into `weights`. */
void gpt_load_weights(gpt_model *model);

/* What dropout depends on, besides the seed. */
typedef struct gpt_place {
    int64_t step;
    int32_t micro_step;
    int32_t rank;
} gpt_place;

/* What one micro-step reads. */
typedef struct gpt_input {
    const int32_t *tokens, *targets; // (B,T)
    const float *weights;            // (B,T) of the loss; NULL: all 1
} gpt_input;

/*
 * Leaves the mean loss over valid targets in model->loss and the gradient of the logits, times d_loss, in d_logits. The fault
 * switch multiplies what the middle block's MLP adds to the stream by activation_gain to the power of the step: growth as a
 * diverging run has it, which passes 65504 after some steps and becomes Inf in fp16.
 */
void gpt_forward(gpt_model *model, gpt_input input, gpt_place place, double d_loss);

/* After gpt_forward, with the same input and place. Adds to model->gradients. */
void gpt_backward(gpt_model *model, gpt_input input, gpt_place place);

/* For forward and backward. */
float *gpt_block_tensor(const gpt_model *model, float *flat, size_t layer, block_tensor which);
/* The random stream of one dropout site. */
rng_stream gpt_drop_stream(const gpt_model *model, gpt_place place, rng_site site, size_t layer);
float gpt_branch_gain(const gpt_model *model, size_t layer, gpt_place place);

#endif
