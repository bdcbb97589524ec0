/* What the name of a file beside a checkpoint says: that it holds no state of training, or that it must. */
#ifndef FB_CKPT_COMPANIONS_H
#define FB_CKPT_COMPANIONS_H

/* 1: a file that is known to hold no state of training, whatever its bytes: a tokenizer, an event
 * file, a picture. name: with folders. */
int fb_is_companion(const char *name);
/* 1: by its name it holds numbers, so an empty one is a save that did not finish, and text in it is something else. */
int fb_promises_numbers(const char *base);
/* 1: of these, the names whose formats all begin with bytes that are known. */
int fb_promises_one_format(const char *base);

#endif
