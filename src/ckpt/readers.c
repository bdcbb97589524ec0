/* The list of formats that this build reads. */
#include "ckpt/reader.h"

const fb_ckpt_reader *fb_ckpt_reader_find(const uint8_t *head, size_t head_bytes, uint64_t file_bytes)
{
    /* In the order in which they are asked. Formats with a magic number come first; those that only look plausible, last: the
     * length
       of a safetensors header is any eight bytes, and a bare pickle shows two. */
    static const fb_ckpt_reader *const readers[] = {
        &fb_ckpt_npy,          &fb_ckpt_gguf,        &fb_ckpt_npz,    &fb_ckpt_torch_zip,
        &fb_ckpt_torch_legacy, &fb_ckpt_safetensors, &fb_ckpt_pickle, &fb_ckpt_flax,
    };
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        if (readers[i]->detect && readers[i]->detect(head, head_bytes, file_bytes)) return readers[i];
    }
    return NULL;
}

const char *fb_ckpt_outcome_name(int32_t outcome)
{
    switch (outcome) {
    case FB_CKPT_CLEAN: return "clean";
    case FB_CKPT_UNSUPPORTED: return "unsupported";
    case FB_CKPT_LIMIT: return "limit";
    case FB_CKPT_UNREADABLE: return "unreadable";
    case FB_CKPT_NON_FINITE: return "non_finite";
    default: return "?";
    }
}
