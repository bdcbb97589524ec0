/* data.c: see data.h. */
#include "data.h"
#include "rng.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int dataset_open(dataset *data, const char *path, size_t block)
{
    int saved = 0;
    long size = -1;
    FILE *file = fopen(path, "rb");
    *data = (dataset){NULL, 0};
    if (!file) return -1;
    if (fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET) != 0) saved = errno;
    else if ((size_t)size < block + 2) saved = EINVAL;
    else if (!(data->bytes = malloc((size_t)size))) saved = ENOMEM;
    else if (fread(data->bytes, 1, (size_t)size, file) != (size_t)size) saved = EIO;
    data->count = (size_t)size;
    fclose(file);
    if (!saved) return 0;
    dataset_close(data);
    errno = saved;
    return -1;
}

void dataset_close(dataset *data)
{
    free(data->bytes);
    *data = (dataset){NULL, 0};
}

int batch_open(batch *b, size_t micro_steps, size_t rows, size_t columns)
{
    size_t windows = micro_steps * rows;
    *b = (batch){.micro_steps = micro_steps, .rows = rows, .columns = columns};
    b->tokens = calloc(windows * columns, sizeof *b->tokens);
    b->targets = calloc(windows * columns, sizeof *b->targets);
    b->weights = calloc(windows * columns, sizeof *b->weights);
    b->key_mask = calloc(windows * columns, sizeof *b->key_mask);
    b->positions = calloc(windows * columns, sizeof *b->positions);
    b->offsets = calloc(windows, sizeof *b->offsets);
    return b->tokens && b->targets && b->weights && b->key_mask && b->positions && b->offsets ? 0 : -1;
}

void batch_close(batch *b)
{
    free(b->tokens);
    free(b->targets);
    free(b->weights);
    free(b->key_mask);
    free(b->positions);
    free(b->offsets);
    *b = (batch){0};
}

void batch_blank(batch *b, size_t at)
{
    b->tokens[at] = ' ';
    b->targets[at] = GPT_IGNORE;
    b->weights[at] = 0.0f;
    b->key_mask[at] = 1.0f;
}

/* Where window w of the step begins, or -1. Draw k of a row lies behind those of all rows before it. */
static int64_t draw_window(const batch *b, uint64_t begins, const rng_stream *stream, size_t row, left_out *out)
{
    for (uint64_t draw = 0; draw < BATCH_DRAWS_MAX; draw++) {
        uint32_t words[2];
        rng_draw(stream, 2 * (draw * b->rows + row), words, 2);
        int64_t offset = (int64_t)(((uint64_t)words[0] << 32 | words[1]) % begins);
        if (!out || !out->is || !out->is(out->ctx, offset)) return offset;
        out->count++;
    }
    return -1;
}

int batch_draw_without(batch *b, const dataset *data, uint64_t seed, int64_t step, int32_t rank, left_out *out)
{
    uint64_t begins = data->count - b->columns, hash = 0xcbf29ce484222325u;
    for (size_t w = 0; w < b->micro_steps * b->rows; w++) {
        rng_stream stream = {seed, RNG_DATA, 0, (uint32_t)(w / b->rows), (uint32_t)step, (uint32_t)rank};
        if ((b->offsets[w] = draw_window(b, begins, &stream, w % b->rows, out)) < 0) return -1;
        const uint8_t *text = data->bytes + b->offsets[w];
        for (size_t t = 0; t < b->columns; t++) {
            b->tokens[w * b->columns + t] = text[t];
            b->targets[w * b->columns + t] = text[t + 1];
            b->weights[w * b->columns + t] = b->key_mask[w * b->columns + t] = 1.0f;
            b->positions[w * b->columns + t] = (int32_t)t;
            hash = ((hash ^ text[t]) * 0x100000001b3u ^ text[t + 1]) * 0x100000001b3u;
        }
    }
    b->fingerprint = hash;
    return 0;
}

void batch_draw(batch *b, const dataset *data, uint64_t seed, int64_t step, int32_t rank)
{
    (void)batch_draw_without(b, data, seed, step, rank, NULL); /* with nothing to leave out it cannot fail */
}
