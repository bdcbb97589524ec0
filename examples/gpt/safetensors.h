/*
 * safetensors.h: files of the safetensors format: eight bytes of header length, a JSON header, then the tensors' bytes.
 * (https://github.com/huggingface/safetensors, section Format.)
 */
#ifndef GPT_SAFETENSORS_H
#define GPT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

typedef struct tensor_entry {
    char name[72];
    const char *dtype; /* "F32", "F64", "I32", "I64", "U64" */
    int ndim;
    size_t shape[4];
    void *data;
    size_t bytes;
} tensor_entry;

typedef struct file_error {
    char message[512];
} file_error;

/*
 * Write `n` tensors. metadata is the text of a JSON object of strings. The file appears under its name only when all of it is on
 * the
 * disk: it is written beside it, synced, renamed, and the folder is synced. 0, or -1 with a sentence.
 */
int safetensors_write(const char *path, const char *metadata, const tensor_entry *entries, size_t n, file_error *err);

/* The same, over the file that has this name, as torch.save does it: a crash on the way leaves neither the old one nor the new. */
int safetensors_write_over(const char *path, const char *metadata, const tensor_entry *entries, size_t n, file_error *err);

/*
 * Read a file that safetensors_write wrote for these very entries, into their data. The header must be the bytes that we would
 * write: nothing in the file is parsed, sized or trusted, and a file of another model is refused with both metadata in the message.
 */
int safetensors_read(const char *path, const char *metadata, const tensor_entry *entries, size_t n, file_error *err);

#endif
