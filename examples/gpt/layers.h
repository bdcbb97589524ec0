/*
 * layers.h: the layers of the transformer, forward and backward. Each is a plain function of arrays; shapes stand beside the names.
 *
 * B batch, T time (positions), C channels, NH heads, HS = C / NH, V vocabulary, N = B * T rows. Every output is rounded to `format`
 * (precision.h). A backward function writes the gradient of its input (d_in) and adds to those of its parameters, which are FP32
 * until the micro-step is over. `scratch` is memory for a transposed operand; its size is said where it is needed.
 */
#ifndef GPT_LAYERS_H
#define GPT_LAYERS_H

#include "precision.h"
#include "rng.h"

#include <stdint.h>

/* A token outside [0, V) has no embedding. Its row becomes NaN: made-up numbers would hide what the
 * input check is about to report. */
void embedding_forward(precision format, float *out, const int32_t *tokens, const float *wte, const float *wpe, size_t B, size_t T,
                       size_t C, size_t V);
void embedding_backward(float *d_wte, float *d_wpe, const float *d_out, const int32_t *tokens, size_t B, size_t T, size_t C,
                        size_t V);

void layer_norm_forward(precision format, float *out, float *mean, float *rstd, const float *in, const float *weight,
                        const float *bias, size_t N, size_t C);
void layer_norm_backward(precision format, float *d_in, float *d_weight, float *d_bias, const float *d_out, const float *in,
                         const float *weight, const float *mean, const float *rstd, size_t N, size_t C);

/* out(N,O) = in(N,C) weight(O,C)^T + bias(O); bias may be NULL. scratch: O * C floats. */
void linear_forward(precision format, float *out, const float *in, const float *weight, const float *bias, size_t N, size_t C,
                    size_t O, float *scratch);
void linear_backward(precision format, float *d_in, float *d_weight, float *d_bias, const float *d_out, const float *in,
                     const float *weight, size_t N, size_t C, size_t O);

/*
 * Causal multi-head attention. qkv(B,T,3C) holds query, key and value side by side; att(B,NH,T,T) receives the probabilities before
 * dropout. scratch: attention_scratch(T, HS) floats.
 */
typedef struct attention_shape {
    size_t B, T, C, NH;
} attention_shape;
size_t attention_scratch(size_t T, size_t HS);
void attention_forward(precision format, float *out, float *att, const float *qkv, attention_shape shape, float probability,
                       const rng_stream *stream, float *scratch);
void attention_backward(precision format, float *d_qkv, const float *d_out, const float *att, const float *qkv,
                        attention_shape shape, float probability, const rng_stream *stream, float *scratch);

void gelu_forward(precision format, float *out, const float *in, size_t n);
void gelu_backward(precision format, float *d_in, const float *d_out, const float *in, size_t n);

/* out = a + b, and a += b: a residual branch joining its stream. */
void residual_forward(precision format, float *out, const float *a, const float *b, size_t n);
void residual_backward(precision format, float *d_stream, const float *d_branch, size_t n);

/*
 * Cross-entropy of the targets that are not `ignore`, as their mean weighted by `weights`, computed in FP32 from logits of any
 * format, and with it the gradient of the logits times d_loss (loss scale over accumulation). weights(N) may be NULL: all 1.
 * No valid target at all is 0/0, and the loss is NaN, as in torch. A target outside [0, V) that is not `ignore` has no probability:
 * its loss and gradient are NaN.
 */
typedef struct loss_targets {
    const int32_t *targets; // (N)
    const float *weights;   // (N)
    int32_t ignore;
} loss_targets;
double cross_entropy(precision format, float *d_logits, const float *logits, loss_targets of, double d_loss, size_t N, size_t V);

#endif
