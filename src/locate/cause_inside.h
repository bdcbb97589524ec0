/*
 * What the files cause_*.c share: one judgement under way, numbers and formats, operators by name, and the questions that are asked
 * of an operator. Nothing outside of them includes this.
 *
 *   cause.c          which rule, which class
 *   cause_number.c   limits of formats, rounding, numbers as text
 *   cause_op.c       operators by name
 *   cause_operand.c  which element of an input an element of the output was made of; which sample it belongs to
 *   cause_terms.c    sums: linear, matmul, sum, norm and their backward forms, term by term in FP64
 *   cause_domain.c   arguments outside of a domain, named
 *   cause_slope.c    slopes that are infinite, by the autograd node that ran a kernel
 *   cause_inner.c    numbers inside of an operator that leave the format although its result does not
 *   cause_scalar.c   numbers beside the tensors that a kernel's format cannot hold, and what is not known of them
 *   cause_class.c    operators in the loss, the optimizer, the batch: which class the same 0/0 has there
 *   cause_entry.c    where no operator is blamed
 *   cause_say.c      sentences
 */
#ifndef FB_LOCATE_CAUSE_INSIDE_H
#define FB_LOCATE_CAUSE_INSIDE_H

#include "locate/cause.h"

/* Operators; a backward form has the kind of its forward one and look.backward set. */
enum {
    FB_OP_OTHER = 0,
    FB_OP_ADD,
    FB_OP_SUB,
    FB_OP_MUL,
    FB_OP_DIV,
    FB_OP_EXP,
    FB_OP_LOG,
    FB_OP_LOG1P,
    FB_OP_SQRT,
    FB_OP_RSQRT,
    FB_OP_RECIPROCAL,
    FB_OP_SQUARE,
    FB_OP_POW,
    FB_OP_SIGMOID,
    FB_OP_GELU,
    FB_OP_DROPOUT,
    FB_OP_SOFTMAX,
    FB_OP_LOG_SOFTMAX,
    FB_OP_ATTENTION, /* fused: softmax inside */
    FB_OP_SUM,
    FB_OP_MEAN,
    FB_OP_VAR,
    FB_OP_NORM,
    FB_OP_EMBEDDING,
    FB_OP_LAYER_NORM, /* fused: mean, variance, epsilon inside; RMS norm and batch norm too */
    FB_OP_LINEAR,
    FB_OP_ADDMM,
    FB_OP_MATMUL,
    FB_OP_NLL,
    FB_OP_ADDCDIV, /* x + value * a / b */
    FB_OP_COPY,    /* gives some of what it reads, as it is, its opposite, or 0 */
    FB_OP_EMPTY,   /* gives memory that nobody has written */
    FB_OP_COLLECTIVE
};

/* What is wrong with an argument. */
enum {
    FB_DOMAIN_NONE = 0,
    FB_DOMAIN_FULL_ROW,     /* every score of the row is -Inf */
    FB_DOMAIN_ZERO_BY_ZERO, /* 0/0 */
    FB_DOMAIN_BY_ZERO,      /* x/0 */
    FB_DOMAIN_LOG_ZERO,     /* log 0 */
    FB_DOMAIN_LOG_NEGATIVE,
    FB_DOMAIN_SQRT_NEGATIVE,
    FB_DOMAIN_SQRT_SLOPE,    /* the slope of sqrt at 0 */
    FB_DOMAIN_INF_MINUS_INF, /* of intended infinities */
    FB_DOMAIN_ZERO_TIMES_INF,
    FB_DOMAIN_TOO_FEW,     /* mean or deviation over too few elements */
    FB_DOMAIN_ALL_IGNORED, /* no label counts */
    FB_DOMAIN_INDEX,       /* no row of that number in the table */
    FB_DOMAIN_NUMBER,      /* the operator was built with a number that is none */
    FB_DOMAIN_BEYOND,      /* finite in mathematics, beyond FP64 as well */
    FB_DOMAIN_SAME_ROW,    /* the deviation of a row in which all are equal, without an epsilon */
    FB_DOMAIN_SLOPE        /* the slope of what the autograd node stands for is infinite there */
};

typedef struct fb_domain {
    int32_t what;            /* FB_DOMAIN_* */
    const char *attribute;   /* FB_DOMAIN_NUMBER: its name; never NULL then */
    const char *of, *point;  /* FB_DOMAIN_SLOPE: of what, and where: "sqrt", "0"; never NULL then */
    int32_t input;           /* whose element it is; -1: none */
    uint64_t at;             /* that element */
    double value, numerator; /* it; and the numerator of a division */
    int64_t low, high;       /* FB_DOMAIN_INDEX: [low, high) was allowed */
    uint64_t row, terms;     /* FB_DOMAIN_FULL_ROW, _SAME_ROW, _TOO_FEW: which row, of how many elements */
} fb_domain;

/* A sum of products, or of numbers. */
typedef struct fb_terms {
    uint64_t count;
    double sum, absolute;        /* of terms, of their magnitudes; the operator's value is sum * scale (a root for a norm) */
    double scale;                /* 1; 1/count for a mean */
    double largest, left, right; /* the term of largest magnitude, and its factors */
    uint64_t largest_at;         /* which term it is */
    double partial;              /* the partial sum of largest magnitude, term after term */
    uint64_t partial_after;      /* after so many terms */
    double above, below;         /* sums of the terms above 0 and below it: no partial sum in any order is farther from 0 */
    int32_t root;                /* 1: the operator's value is the root of the sum */
    int32_t products;            /* 1: of two factors; 2: squares; 0: numbers */
    int32_t zero_times_inf;      /* a term is 0 * Inf */
    const fb_witness_tensor *x, *y;
    const fb_witness_tensor *extra; /* the last term is not of x and y but of this, a bias; NULL: there is none */
} fb_terms;

typedef struct fb_look {
    const fb_cause_facts *facts;
    const fb_witness *w;
    const fb_witness_tensor *out;
    uint64_t at;    /* the bad element */
    int32_t format; /* of the output */
    int32_t kind, backward;
    int32_t exact_known, module_known;
    double exact, module_exact;
    fb_domain domain;
    fb_terms terms;
    int32_t has_terms;
    int32_t by_number; /* 1: the cause's value is a number that the operator was given, and not its result */
    fb_cause *cause;
} fb_look;

/* ---- numbers ----------------------------------------------------------------------------------------------------------------- */

enum { FB_NUMBER_BYTES = 40 };
int fb_number_is_neg_inf(double x);
int fb_number_is_inf(double x);
/* Largest finite number of a format; 0 when it has none. */
double fb_number_limit(int32_t format);
/* Magnitudes from here on round to something that is not finite. +Inf for FP64, 0 when the format is unknown. */
double fb_number_edge(int32_t format);
/* 1: a finite x stays finite in the format. */
int fb_number_fits(int32_t format, double x);
/* A finite x as the format rounds it; x itself where the format is not known. It must fit. */
double fb_number_rounded(int32_t format, double x);
/* FB_F16, FB_BF16 or FB_F32, the first that holds x; 0: none of them. */
int32_t fb_number_needs(double x);
const char *fb_number_format(int32_t format); /* "fp16", "bf16", "fp32" ...; "?" */
/* x in six digits, or NaN, +Inf, -Inf. Returns out. */
const char *fb_number_text(char out[FB_NUMBER_BYTES], double x);
/* Append to a text that is NUL-terminated; what does not fit is cut. */
__attribute__((format(printf, 3, 4))) void fb_say(char *text, size_t room, const char *format, ...);
/* 1: text holds the word, in any case of letters. */
int fb_text_has(const char *text, const char *word);

/* ---- operators --------------------------------------------------------------------------------------------------------------- */

int32_t fb_op_kind(const char *op, int32_t *backward);
/* The name in its one form, "log_softmax", without what says that it is backward. Returns its bytes. */
size_t fb_op_stem(char *out, size_t room, const char *op, int32_t *backward);
/* The attribute of that name. NULL: the second operand, which is the only attribute or is called "other". 1: there is one. */
int fb_op_number(const fb_witness *w, const char *name, double *value);

/* 1: the shape is known, and multiplies to the count; no dimension is 0. */
int fb_has_shape(const fb_witness_tensor *tensor);
/* Last dimension of a tensor, or its count where the shape is not known or does not multiply to the count. */
uint64_t fb_last_dim(const fb_witness_tensor *tensor);
/* Element of input k that the bad element was made of. way 0 is the usual one; way 1 another that the counts allow. 0: none. */
int fb_operand(const fb_look *look, uint32_t k, int way, double *value, uint64_t *at);
/* Fill row, sample and sample_id of the cause. */
void fb_operand_sample(fb_look *look);
/* Input that holds integers; -1: none. */
int32_t fb_operand_integers(const fb_witness *w);
/* "[1, 4, 0]" of a flat index. Returns out. */
const char *fb_place_text(char *out, size_t room, const fb_witness_tensor *tensor, uint64_t at);

/* The operator's value, from its terms. */
double fb_terms_value(const fb_terms *terms);
/* Fill look->terms. 1: the operator is such a sum, its parts were kept, and they add up to the exact value where that is known. */
int fb_terms_of(fb_look *look);
/* Fill look->domain. 1: something is outside of a domain. */
int fb_domain_of(fb_look *look);
/* A division by 0, or 0 to a negative power, within the node of an operator that has no finite slope there: say it of that. */
void fb_slope_of(fb_look *look);
/* The operator on one element, out of finite operands; 1: known for this kind, its operands kept. */
int fb_value_of(const fb_look *look, double *value);
/* A number inside the operator that the format cannot hold though the result could: its text is added to the explanation. 1: it is
 * too
   large; 2: it is rounding that carries the result over the limit, or a denominator to 0. */
int fb_inner_of(fb_look *look);
/* A number beside the tensors that is finite and that the kernel's format does not hold, and that explains the result: rule, class
 * and
   text. narrow: ask of the result's own format too, and of operators of which it is not known what they do with it. 1: there is
   one. */
int fb_scalar_of(fb_look *look, int narrow);
/* What is not known of what the operator was given, or what of it is no finite number of its format;
 * NULL: all is known, and is one. */
const char *fb_scalar_unknown(const fb_look *look);
/* 1: squares, exponentials and sums of what it was given stay in the format, as far as that can be
 * said of an operator not known. */
int fb_scalar_margin(const fb_look *look);
/* 1: what such an operator computes on the way is known, so that fb_inner_of has looked at all of it. */
int fb_inner_known(const fb_look *look);

/* ---- rules ------------------------------------------------------------------------------------------------------------------- */

void fb_class_of_range(fb_look *look);
void fb_class_of_domain(fb_look *look);
void fb_class_of_nothing(fb_look *look); /* finite in FP64, and arithmetic does not explain it */
void fb_judge_entry(const fb_cause_facts *facts, fb_cause *cause);
void fb_judge_batch(const fb_cause_facts *facts, fb_cause *cause);
void fb_judge_replays(const fb_cause_facts *facts, fb_cause *cause);

/* ---- sentences --------------------------------------------------------------------------------------------------------------- */

void fb_say_domain(fb_look *look);
void fb_say_range(fb_look *look, double exact);
void fb_say_sample(fb_look *look);
void fb_say_witness(fb_look *look);
/* fix and verify of the class. */
void fb_say_cure(const fb_cause_facts *facts, fb_cause *cause);
/* "softmax (forward) in h.7.attn". */
const char *fb_say_place(char *out, size_t room, const fb_witness_place *place);

#define FB_EXPLAIN(cause, ...) fb_say((cause)->explanation, sizeof(cause)->explanation, __VA_ARGS__)

#endif
