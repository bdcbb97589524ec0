/*
 * Operators by name. Kernels, PyTorch's dispatcher and its autograd name the same operator differently: "softmax",
 * "aten::_softmax", "SoftmaxBackward0", "aten::_softmax_backward_data". A name is brought into one form first and looked up then;
 * docs/format/operators.md is this table for people. One that is not known gets the rules that need no knowledge of it.
 */
#include <string.h>

#include "locate/cause_inside.h"

static const struct {
    const char *name;
    int32_t kind;
} names[] = {
    {"add", FB_OP_ADD},
    {"accumulate", FB_OP_ADD},
    {"accumulate_grad", FB_OP_ADD},
    {"add_number", FB_OP_ADD},
    {"sub", FB_OP_SUB},
    {"rsub", FB_OP_OTHER},
    {"mul", FB_OP_MUL},
    {"mul_number", FB_OP_MUL},
    {"scale", FB_OP_MUL},
    {"unscale", FB_OP_MUL},
    {"div", FB_OP_DIV},
    {"true_divide", FB_OP_DIV},
    {"exp", FB_OP_EXP},
    {"expm1", FB_OP_EXP},
    {"log", FB_OP_LOG},
    {"log2", FB_OP_LOG},
    {"log10", FB_OP_LOG},
    {"log1p", FB_OP_LOG1P},
    {"sqrt", FB_OP_SQRT},
    {"rsqrt", FB_OP_RSQRT},
    {"reciprocal", FB_OP_RECIPROCAL},
    {"square", FB_OP_SQUARE},
    {"pow", FB_OP_POW},
    {"sigmoid", FB_OP_SIGMOID},
    {"gelu", FB_OP_GELU},
    {"dropout", FB_OP_DROPOUT},
    {"native_dropout", FB_OP_DROPOUT},
    {"softmax", FB_OP_SOFTMAX},
    {"safe_softmax", FB_OP_OTHER},
    {"log_softmax", FB_OP_LOG_SOFTMAX},
    {"scaled_dot_product_attention", FB_OP_ATTENTION},
    {"scaled_dot_product_attention_math", FB_OP_ATTENTION},
    {"scaled_dot_product_efficient_attention", FB_OP_ATTENTION},
    {"scaled_dot_product_flash_attention", FB_OP_ATTENTION},
    {"scaled_dot_product_flash_attention_for_cpu", FB_OP_ATTENTION},
    {"scaled_dot_product_cudnn_attention", FB_OP_ATTENTION},
    {"sum", FB_OP_SUM},
    {"row_sum", FB_OP_SUM},
    {"mean", FB_OP_MEAN},
    {"row_mean", FB_OP_MEAN},
    {"var", FB_OP_VAR},
    {"row_var", FB_OP_VAR},
    {"std", FB_OP_VAR},
    {"var_mean", FB_OP_VAR},
    {"std_mean", FB_OP_VAR},
    {"norm", FB_OP_NORM},
    {"linalg_vector_norm", FB_OP_NORM},
    {"frobenius_norm", FB_OP_NORM},
    {"embedding", FB_OP_EMBEDDING},
    {"layer_norm", FB_OP_LAYER_NORM},
    {"native_layer_norm", FB_OP_LAYER_NORM},
    {"rms_norm", FB_OP_LAYER_NORM},
    {"fused_rms_norm", FB_OP_LAYER_NORM},
    {"linear", FB_OP_LINEAR},
    {"addmm", FB_OP_ADDMM},
    {"baddbmm", FB_OP_OTHER},
    {"matmul", FB_OP_MATMUL},
    {"mm", FB_OP_MATMUL},
    {"bmm", FB_OP_MATMUL},
    {"unsafe_view_mm", FB_OP_MATMUL},
    {"scores", FB_OP_MATMUL},
    {"heads", FB_OP_MATMUL},
    {"nll", FB_OP_NLL},
    {"nll_loss", FB_OP_NLL},
    {"nll_loss_forward", FB_OP_NLL},
    {"nll_loss_nd", FB_OP_NLL},
    {"cross_entropy", FB_OP_NLL},
    {"cross_entropy_loss", FB_OP_NLL},
    {"addcdiv", FB_OP_ADDCDIV},
    {"copy", FB_OP_COPY},
    {"clone", FB_OP_COPY},
    {"cast", FB_OP_COPY},
    {"to_copy", FB_OP_COPY},
    {"contiguous", FB_OP_COPY},
    {"cat", FB_OP_COPY},
    {"neg", FB_OP_COPY},
    {"abs", FB_OP_COPY},
    {"relu", FB_OP_COPY},
    {"where", FB_OP_COPY},
    {"clamp", FB_OP_COPY},
    {"masked_fill", FB_OP_COPY},
    {"empty", FB_OP_EMPTY},
    {"empty_like", FB_OP_EMPTY},
    {"empty_strided", FB_OP_EMPTY},
    {"new_empty", FB_OP_EMPTY},
    {"new_empty_strided", FB_OP_EMPTY},
    {"all_reduce", FB_OP_COLLECTIVE},
    {"allreduce", FB_OP_COLLECTIVE},
    {"reduce_scatter", FB_OP_COLLECTIVE},
    {"reduce_scatter_tensor", FB_OP_COLLECTIVE},
    {"all_gather", FB_OP_COLLECTIVE},
    {"all_gather_into_tensor", FB_OP_COLLECTIVE},
    {"broadcast", FB_OP_COLLECTIVE},
    {"reduce", FB_OP_COLLECTIVE},
};

static int ends_with(const char *text, size_t bytes, const char *tail)
{
    size_t n = strlen(tail);
    return bytes > n && memcmp(text + bytes - n, tail, n) == 0;
}

static const char *after_last(const char *text, const char *mark)
{
    for (const char *at = strstr(text, mark); at; at = strstr(text, mark)) text = at + strlen(mark);
    return text;
}

/* "LogSoftmaxBackward0" -> "log_softmax_backward", "Log1PBackward0" -> "log1p_backward": words of an autograd node begin with a
 * capital, but
   not after a digit, and a number follows the last. */
static size_t snake(char *out, size_t room, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; name[i] && n + 2 < room; i++) {
        char c = name[i];
        int capital = c >= 'A' && c <= 'Z';
        if (capital && i > 0 && name[i - 1] != '_' && !(name[i - 1] >= '0' && name[i - 1] <= '9')) out[n++] = '_';
        out[n++] = capital ? (char)(c - 'A' + 'a') : c;
    }
    while (n > 0 && out[n - 1] >= '0' && out[n - 1] <= '9' && ends_with(out, n - 1, "_backward")) n--;
    out[n] = '\0';
    return n;
}

size_t fb_op_stem(char *out, size_t room, const char *op, int32_t *backward)
{
    char name[96];
    const char *from = after_last(after_last(op ? op : "", "::"), "aten.");
    size_t n;
    *backward = 0;
    n = snake(name, sizeof name, from);
    /* "softmax.default", "sum.dim_IntList": the overload says nothing about the arithmetic. */
    for (size_t i = 0; i < n; i++) {
        if (name[i] == '.') n = i;
    }
    while (n > 0 && name[n - 1] == '_') n--; /* in place */
    if (ends_with(name, n, "_backward_data")) n -= strlen("_data");
    if (ends_with(name, n, "_backward")) {
        n -= strlen("_backward");
        *backward = 1;
    }
    name[n] = '\0';
    from = name;
    while (*from == '_') from++;
    out[0] = '\0';
    fb_say(out, room, "%s", from);
    return strlen(out);
}

int32_t fb_op_kind(const char *op, int32_t *backward)
{
    char name[96];
    (void)fb_op_stem(name, sizeof name, op, backward);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i].name, name) == 0) return names[i].kind;
    }
    return FB_OP_OTHER;
}

int fb_op_number(const fb_witness *w, const char *name, double *value)
{
    for (uint32_t i = 0; i < w->attribute_count; i++) {
        const char *called = w->attributes[i].name ? w->attributes[i].name : "";
        if (name ? strcmp(called, name) == 0 : w->attribute_count == 1 || strcmp(called, "other") == 0) {
            *value = w->attributes[i].value;
            return 1;
        }
    }
    return 0;
}
