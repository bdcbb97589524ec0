#include "ckpt/companions.h"

#include <stddef.h>
#include <string.h>

#include "ckpt/known.h"
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

/* Of these, the names whose formats all begin with bytes that are known. */
static int promises_one_format(const char *base)
{
    static const char *const patterns[] = {"*.pt", "*.pth", "*.gguf", "*.npy", "*.npz"};
    return FITS(patterns, base);
}

const char *fb_broken_promise(const char *base, uint64_t file_bytes, const uint8_t *head, size_t head_bytes)
{
    static const char pointer[] = "version https://git-lfs.github.com/spec/";
    if (!fb_promises_numbers(base)) return NULL;
    if (file_bytes == 0) return "is empty: the save did not finish";
    if (head_bytes >= sizeof pointer && memcmp(head, pointer, sizeof pointer - 1) == 0)
        return "is a pointer of Git LFS, and not the file itself: fetch it with `git lfs pull`";
    if (promises_one_format(base) && !fb_ckpt_reader_find(head, head_bytes, file_bytes) && !fb_ckpt_known(head, head_bytes))
        return "does not begin as such a file does: it is torn, or something else";
    return NULL;
}
