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
    if (!file)
        return -1;
    if (fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET) != 0)
        saved = errno;
    else if ((size_t)size < block + 2)
        saved = EINVAL;
    else if (!(data->bytes = malloc((size_t)size)))
        saved = ENOMEM;
    else if (fread(data->bytes, 1, (size_t)size, file) != (size_t)size)
        saved = EIO;
    data->count = (size_t)size;
    fclose(file);
    if (!saved)
        return 0;
    dataset_close(data);
    errno = saved;
    return -1;
}

void dataset_close(dataset *data)
{
    free(data->bytes);
    *data = (dataset){NULL, 0};
}

int batch_open(batch *b, size_t rows, size_t columns)
{
    *b = (batch){.rows = rows, .columns = columns};
    b->tokens = calloc(rows * columns, sizeof *b->tokens);
    b->targets = calloc(rows * columns, sizeof *b->targets);
    b->offsets = calloc(rows, sizeof *b->offsets);
    return b->tokens && b->targets && b->offsets ? 0 : -1;
}

void batch_close(batch *b)
{
    free(b->tokens);
    free(b->targets);
    free(b->offsets);
    *b = (batch){0};
}

void batch_draw(batch *b, const dataset *data, uint64_t seed, gpt_place place)
{
    rng_stream stream = {seed, RNG_DATA, 0, (uint32_t)place.micro_step, (uint32_t)place.step, (uint32_t)place.rank};
    uint64_t windows = data->count - b->columns, hash = 0xcbf29ce484222325u;
    for (size_t r = 0; r < b->rows; r++) {
        uint32_t words[2];
        rng_draw(&stream, 2 * r, words, 2);
        b->offsets[r] = (int64_t)(((uint64_t)words[0] << 32 | words[1]) % windows);
        const uint8_t *text = data->bytes + b->offsets[r];
        for (size_t t = 0; t < b->columns; t++) {
            b->tokens[r * b->columns + t] = text[t];
            b->targets[r * b->columns + t] = text[t + 1];
            hash = ((hash ^ text[t]) * 0x100000001b3u ^ text[t + 1]) * 0x100000001b3u;
        }
    }
    b->fingerprint = hash;
}
