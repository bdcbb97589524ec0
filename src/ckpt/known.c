#include "ckpt/known.h"

#include <string.h>

typedef struct sign {
    size_t at, bytes;
    const char *mark, *name;
} sign;

static const sign signs[] = {
    {0, 8, "\x89HDF\r\n\x1a\n", "an HDF5 file (Keras, h5py)"},
    {0, 8, "PYTORCH1", "a container of a PyTorch before its first release of the format, which PyTorch itself refuses"},
    {257, 5, "ustar", "a tar archive (torch before 0.2, among others)"},
    {0, 4, "lmgg", "a GGML file from before GGUF"},
    {0, 4, "fmgg", "a GGML file from before GGUF"},
    {0, 4, "tjgg", "a GGML file from before GGUF"},
    {0, 4, "\x0c\xdb\x3a\x2a", "an OCDBT manifest (Orbax)"},
    {4, 4, "TFL3", "a TensorFlow Lite model"},
    {0, 4, "PAR1", "a Parquet file"},
    {0, 6, "ARROW1", "an Arrow file"},
    {0, 22, "model_checkpoint_path:", "the pointer file of a TensorFlow checkpoint"},
    {0, 2, "\x1f\x8b", "compressed with gzip"},
    {0, 4, "\x28\xb5\x2f\xfd", "compressed with zstd"},
    {0, 6,
     "\xfd"
     "7zXZ\0",
     "compressed with xz"},
    {0, 3, "BZh", "compressed with bzip2"},
    {0, 6, "7z\xbc\xaf\x27\x1c", "a 7-Zip archive"},
};

/* A protobuf message whose first field is a small version, followed by what ModelProto has next:
 * producer, graph or operator set. */
static int is_onnx(const uint8_t *head, size_t bytes)
{
    return bytes > 4 && head[0] == 0x08 && head[1] > 0 && head[1] < 32 && (head[2] == 0x12 || head[2] == 0x3a || head[2] == 0x42);
}

/* The JSON of one array, .zarray or zarr.json: its key stands near the beginning. */
static int is_zarr(const uint8_t *head, size_t bytes)
{
    static const char key[] = "\"zarr_format\"";
    if (bytes == 0 || head[0] != '{') return 0;
    for (size_t i = 0; i + sizeof key - 1 <= bytes; i++) {
        if (memcmp(head + i, key, sizeof key - 1) == 0) return 1;
    }
    return 0;
}

const char *fb_ckpt_known(const uint8_t *head, size_t bytes)
{
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        const sign *s = &signs[i];
        if (s->at <= bytes && s->bytes <= bytes - s->at && memcmp(head + s->at, s->mark, s->bytes) == 0) return s->name;
    }
    if (is_onnx(head, bytes)) return "an ONNX model";
    if (is_zarr(head, bytes)) return "the description of a zarr array";
    return NULL;
}
