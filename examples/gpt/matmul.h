/* matmul.h: the one matrix product that forward and backward are made of, and a transpose to bring operands into its form. */
#ifndef GPT_MATMUL_H
#define GPT_MATMUL_H

#include <stdbool.h>
#include <stddef.h>

/* A(M,K): element (m,k) lies at data[m * row + k * col]. With row 1 and col K it is a transposed matrix. */
typedef struct matrix {
    const float *data;
    size_t row, col;
} matrix;

/*
 * out(M,N) = A(M,K) * B(K,N), or += with `accumulate`. Rows of B and out are contiguous and `b_row`, `out_row` floats apart.
 * Each element of out is summed in FP32 over k = 0, 1, ..., K-1 in that order, whatever the blocking, so the result depends neither
 * on the vector width nor on M and N.
 */
void matmul(float *out, size_t out_row, matrix a, const float *b, size_t b_row, size_t M, size_t N, size_t K, bool accumulate);

/* out(N,M) contiguous = in(M,N), whose rows are `in_row` floats apart. */
void transpose(float *out, const float *in, size_t in_row, size_t M, size_t N);

#endif
