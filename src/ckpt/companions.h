/* What the name of a file beside a checkpoint says: that it holds no state of training, or that it must. */
#ifndef FB_CKPT_COMPANIONS_H
#define FB_CKPT_COMPANIONS_H

#include <stddef.h>
#include <stdint.h>

/* 1: a file that is known to hold no state of training, whatever its bytes: a tokenizer, an event
 * file, a picture. name: with folders. */
int fb_is_companion(const char *name);
/* 1: by its name it holds numbers, so an empty one is a save that did not finish, and text in it is something else. */
int fb_promises_numbers(const char *base);
/* How the bytes of a file break what its name promises, as the end of a sentence that begins with its name: "is empty: ...". NULL:
   they do not, or it promises nothing. head: the first FB_CKPT_HEAD_BYTES, or the whole file. */
const char *fb_broken_promise(const char *base, uint64_t file_bytes, const uint8_t *head, size_t head_bytes);

#endif
