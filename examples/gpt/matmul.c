/*
 * matmul.c: a tile of 6 rows by 16 columns stays in registers while k runs. Sixteen columns are one AVX-512 register, two of AVX2,
 * four of SSE2: the type below is a vector of the compiler, split to fit. No operand is packed: at the sizes of this trainer both
 * fit in the second-level cache.
 */
#include "matmul.h"
#include "clones.h"

enum { TILE_ROWS = 6, TILE_COLUMNS = 16 };

typedef float tile_row __attribute__((vector_size(64), aligned(4), may_alias));

/* Always inlined with a constant `rows`, so that the loop over rows is unrolled and `sum` lives in registers. */
GPT_INLINE void tile(size_t rows, float *out, size_t out_row, matrix a, const float *b, size_t b_row, size_t K, bool accumulate)
{
    tile_row sum[TILE_ROWS];
    for (size_t r = 0; r < rows; r++) sum[r] = accumulate ? *(const tile_row *)(out + r * out_row) : (tile_row){0};
    for (size_t k = 0; k < K; k++) {
        tile_row bk = *(const tile_row *)(b + k * b_row);
        for (size_t r = 0; r < rows; r++) sum[r] += a.data[r * a.row + k * a.col] * bk;
    }
    for (size_t r = 0; r < rows; r++) *(tile_row *)(out + r * out_row) = sum[r];
}

/* The columns that are left when N is not a multiple of 16. */
GPT_INLINE void edge(float *out, size_t out_row, matrix a, const float *b, size_t b_row, size_t M, size_t N, size_t K,
                     bool accumulate)
{
    for (size_t m = 0; m < M; m++) {
        for (size_t n = 0; n < N; n++) {
            float sum = accumulate ? out[m * out_row + n] : 0.0f;
            for (size_t k = 0; k < K; k++) sum += a.data[m * a.row + k * a.col] * b[k * b_row + n];
            out[m * out_row + n] = sum;
        }
    }
}

GPT_CLONES void matmul(float *out, size_t out_row, matrix a, const float *b, size_t b_row, size_t M, size_t N, size_t K,
                       bool accumulate)
{
    size_t whole = N - N % TILE_COLUMNS;
    for (size_t n = 0; n < whole; n += TILE_COLUMNS) {
        size_t m = 0;
        for (; m + TILE_ROWS <= M; m += TILE_ROWS)
            tile(TILE_ROWS, out + m * out_row + n, out_row, (matrix){a.data + m * a.row, a.row, a.col}, b + n, b_row, K,
                 accumulate);
        for (; m + 2 <= M; m += 2)
            tile(2, out + m * out_row + n, out_row, (matrix){a.data + m * a.row, a.row, a.col}, b + n, b_row, K, accumulate);
        for (; m < M; m++)
            tile(1, out + m * out_row + n, out_row, (matrix){a.data + m * a.row, a.row, a.col}, b + n, b_row, K, accumulate);
    }
    if (whole < N) edge(out + whole, out_row, a, b + whole, b_row, M, N - whole, K, accumulate);
}

void transpose(float *out, const float *in, size_t in_row, size_t M, size_t N)
{
    for (size_t m = 0; m < M; m++)
        for (size_t n = 0; n < N; n++) out[n * M + m] = in[m * in_row + n];
}
