/*
 * Formats that are known by sight and not read by this build, for a message that says more than "unknown".
 */
#ifndef FB_CKPT_KNOWN_H
#define FB_CKPT_KNOWN_H

#include <stddef.h>
#include <stdint.h>

/**
 * head  the first bytes of a file, up to 512 of them.
 * Returns NULL, or what it is, to be put behind "it is ": "an HDF5 file (Keras, h5py)". Lives for ever.
 */
const char *fb_ckpt_known(const uint8_t *head, size_t bytes);

#endif
