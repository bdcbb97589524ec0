/*
 * The names that torch.save writes, and what they are to us: functions that rebuild tensors, classes of storages, number formats.
 */
#ifndef FB_CKPT_TORCH_NAMES_H
#define FB_CKPT_TORCH_NAMES_H

#include "ckpt/reader.h"

/* What a call builds, by the name that is called. */
enum {
    FB_TORCH_OTHER = 1,
    FB_TORCH_TENSOR,      /* (storage, offset, size, stride, ...) */
    FB_TORCH_TENSOR_V3,   /* (untyped storage, offset, size, stride, requires_grad, hooks, dtype, ...) */
    FB_TORCH_QTENSOR,     /* (storage, offset, size, stride, quantiser, ...) */
    FB_TORCH_SPARSE,      /* (layout, (indices, values, size, ...)) or (layout, (crow, col, values, size)) */
    FB_TORCH_FROM_TYPE,   /* (function, type, arguments, state) */
    FB_TORCH_FIRST,       /* what it builds is its first argument: Parameter and the like */
    FB_TORCH_NO_DATA,     /* on the meta device: nothing was stored */
    FB_TORCH_WRAPPER,     /* a subclass around other tensors, which lie in its state if anywhere */
    FB_TORCH_OLD_TENSOR,  /* a class, called without arguments; the state is (storage, offset, size, stride) */
    FB_TORCH_DICT,        /* OrderedDict and its kin */
    FB_TORCH_ARRAY,       /* numpy: state (version, shape, dtype, fortran, bytes) */
    FB_TORCH_SCALAR,      /* numpy: (dtype, bytes) */
    FB_TORCH_FROM_BUFFER, /* numpy: (bytes, dtype, shape, order) */
    FB_TORCH_NUMPY_DTYPE, /* (text, align, copy), state (version, byte order, ...) */
    FB_TORCH_ENCODE,      /* (text, "latin1"): how protocol 2 writes bytes */
    FB_TORCH_BYTEARRAY,
    FB_TORCH_BYTES_IO,
    FB_TORCH_C_ARRAY, /* array.array from bytes */
    FB_TORCH_GETATTR
};

/* module_and_name as fb_pickle_text gives a GLOBAL. */
int fb_torch_callee(const char *module_and_name, uint64_t bytes);

typedef struct fb_torch_format {
    const char *name;    /* "float32", as torch writes it */
    const char *storage; /* "FloatStorage", or NULL when only untyped storages hold it */
    int32_t dtype;       /* FB_*; FB_TORCH_COMPLEX32; 0: elements do not lie in bytes of their own */
    uint32_t bytes;
    int32_t floating;
} fb_torch_format;

/* Two F16, for which the scanner has no format of its own: read as a block of two lanes. */
enum { FB_TORCH_COMPLEX32 = 1000 };

/* NULL when unknown. Of a storage class ("torch FloatStorage"; untyped: U8) and of a format ("torch float32"). */
const fb_torch_format *fb_torch_storage_format(const char *module_and_name, uint64_t bytes, int *untyped);
const fb_torch_format *fb_torch_dtype_format(const char *module_and_name, uint64_t bytes);

#endif
