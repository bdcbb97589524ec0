/*
 * How an operator is called before people. In backward a framework runs kernels within nodes: a division within the node of a
 * square root. The node is what stands in the program, so it comes first, and the kernel second.
 */
#ifndef FB_LOCATE_OP_TITLE_H
#define FB_LOCATE_OP_TITLE_H

#include <stddef.h>

typedef struct fb_op_title {
    char shown[64];  /* "sqrt"; the kernel itself where no node ran it */
    char kernel[64]; /* "div"; "" where that says no more */
} fb_op_title;

/* "aten.div.Tensor", "aten::div" -> "div"; "aten._softmax.default" -> "softmax"; other names are as they were. Returns out. */
const char *fb_op_plain(char *out, size_t room, const char *op);
/* op, node: NULL or "" where there is none. */
void fb_op_title_of(fb_op_title *out, const char *op, const char *node);
/* "sqrt (div)", "softmax": the two in one, for a text that says elsewhere that it is backward. Returns out. */
const char *fb_op_title_text(char *out, size_t room, const char *op, const char *node);

#endif
