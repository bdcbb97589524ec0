#include "ckpt/companions.h"

#include <stddef.h>
#include <string.h>

#include "ckpt/scan.h"

static int fits_one(const char *const *patterns, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (fb_ckpt_name_fits(patterns[i], name)) return 1;
    }
    return 0;
}

#define FITS(patterns, name) fits_one(patterns, sizeof(patterns) / sizeof(patterns)[0], name)

int fb_is_companion(const char *name)
{
    static const char *const bases[] = {
        "tokenizer.model",
        "tokenizer.model.v*",
        "spiece.model",
        "sentencepiece.bpe.model",
        "source.spm",
        "target.spm", /* tokenizers */
        "events.out.tfevents.*",
        "*.wandb",
        "*.profile", /* logs */
        "*.png",
        "*.jpg",
        "*.jpeg",
        "*.gif",
        "*.pdf",
        "*.svg",
        "*.mp4", /* pictures */
        "*.pyc",
        "*.so",
        "*.lock",
        ".DS_Store",
        "*.swp", /* programs */
        "*.parquet",
        "*.arrow", /* data */
    };
    const char *slash = strrchr(name, '/');
    return FITS(bases, slash ? slash + 1 : name);
}

int fb_promises_numbers(const char *base)
{
    static const char *const patterns[] = {"*.pt",  "*.pth", "*.ckpt", "*.bin",         "*.distcp", "*.gguf",
                                           "*.npy", "*.npz", "*.pkl",  "*.safetensors", "*.msgpack"};
    return FITS(patterns, base);
}

int fb_promises_one_format(const char *base)
{
    static const char *const patterns[] = {"*.pt", "*.pth", "*.gguf", "*.npy", "*.npz"};
    return FITS(patterns, base);
}
