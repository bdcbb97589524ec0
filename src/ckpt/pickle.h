/*
 * A pickle read as data. Nothing is imported and nothing is called: GLOBAL becomes a node with a name in it, REDUCE a node that
 * says "this would have been called with these arguments". What the nodes mean is decided elsewhere (torch_object.h, dcp.h).
 *
 * Nodes form a graph: the memo shares them and can close circles, so whoever walks it marks what was visited and uses a stack of
 * its own. All memory grows with bytes that were really read; all bounds are in fb_pickle_limits.
 */
#ifndef FB_CKPT_PICKLE_H
#define FB_CKPT_PICKLE_H

#include "base/status.h"

typedef struct fb_pickle fb_pickle;
typedef uint32_t fb_node; /* 0: no node */

enum {
    FB_PICKLE_NONE = 1,
    FB_PICKLE_BOOL,
    FB_PICKLE_INT,    /* fits int64 */
    FB_PICKLE_BIGINT, /* does not: its little-endian two's complement bytes are its text */
    FB_PICKLE_FLOAT,
    FB_PICKLE_TEXT,  /* unicode, or a byte string of Python 2 */
    FB_PICKLE_BYTES, /* also bytearray */
    FB_PICKLE_LIST,
    FB_PICKLE_TUPLE,
    FB_PICKLE_DICT, /* children: key, value, key, value, ... in order of insertion */
    FB_PICKLE_SET,
    FB_PICKLE_GLOBAL,     /* text: "module name" with one blank */
    FB_PICKLE_PERSISTENT, /* child 0: the id */
    FB_PICKLE_CALL /* child 0: what would be called (a GLOBAL, or any node); child 1: arguments. What APPEND(S) and SETITEM(S) added
                             to it: fb_pickle_items. What BUILD gave it: fb_pickle_state */
};

typedef struct fb_pickle_limits { /* zeros: the defaults */
    uint64_t bytes_max;           /* of the pickle: 1 GiB */
    uint64_t ops_max;             /* 200,000,000 */
    uint64_t nodes_max;           /* 50,000,000 */
    uint64_t stack_max;           /* 1,000,000 */
    uint64_t marks_max;           /* 10,000 */
    uint64_t memo_max;            /* highest index: 20,000,000 */
    uint64_t text_max;            /* bytes of one text: 64 MiB */
} fb_pickle_limits;

/**
 * Parse one pickle, protocols 1 to 5, from its first byte to STOP. Of protocol 0 what Python 2 also wrote in protocol 2: integers
 * and memo indices in decimal, instances of old classes.
 * data    borrowed, and must outlive *out: texts are kept as places in it.
 * base    offset of data in the file, for errors.
 * limits  NULL: the defaults.
 * used    out: bytes up to and with STOP.
 * Errors: FB_E_CORRUPT (with the offset): an opcode that does not exist, a stack that runs dry, no STOP; FB_E_LIMIT;
 * FB_E_UNSUPPORTED: opcodes that need a registry or buffers from outside (EXT, NEXT_BUFFER), the other text opcodes of protocol 0,
 * state given twice to one object; FB_E_NOMEM.
 * Cost: one pass. Memory: pickle_graph.h has the account; at most 24 bytes for each of the pickle.
 */
fb_status fb_pickle_parse(fb_pickle **out, const uint8_t *data, uint64_t bytes, uint64_t base, const char *path,
                          const fb_pickle_limits *limits, uint64_t *used, fb_error *err);
void fb_pickle_free(fb_pickle *pickle);

fb_node fb_pickle_root(const fb_pickle *pickle);
uint64_t fb_pickle_nodes(const fb_pickle *pickle);                    /* ids run from 1 to this number */
int32_t fb_pickle_kind(const fb_pickle *pickle, fb_node node);        /* 0 for 0 */
uint64_t fb_pickle_at(const fb_pickle *pickle, fb_node node);         /* offset in the file of the opcode that made it */
int64_t fb_pickle_int(const fb_pickle *pickle, fb_node node);         /* INT, BOOL */
uint64_t fb_pickle_float_bits(const fb_pickle *pickle, fb_node node); /* of an IEEE double */
/* TEXT, BYTES, GLOBAL, BIGINT: bytes in the pickle, or in memory of its own; not NUL-terminated. */
const char *fb_pickle_text(const fb_pickle *pickle, fb_node node, uint64_t *bytes);
int fb_pickle_text_is(const fb_pickle *pickle, fb_node node, const char *text);
uint64_t fb_pickle_children(const fb_pickle *pickle, fb_node node);
fb_node fb_pickle_child(const fb_pickle *pickle, fb_node node, uint64_t i); /* 0 beyond the end */
/* CALL: the DICT or LIST that gathers what SETITEM(S) or APPEND(S) added, and what BUILD handed over; 0 when there was nothing. */
fb_node fb_pickle_items(const fb_pickle *pickle, fb_node node);
fb_node fb_pickle_state(const fb_pickle *pickle, fb_node node);
/* Value of a text key in a DICT, or in a CALL of OrderedDict and its kin: the last one that was set.
 * 0: not there. Cost: one pass. */
fb_node fb_pickle_get(const fb_pickle *pickle, fb_node dict, const char *key);
/* Each GLOBAL once, for the list of dangerous imports: number i, or 0. */
fb_node fb_pickle_global(const fb_pickle *pickle, uint64_t i);
/* 1: a program that loaded this import could run code or reach outside, whatever its arguments. Known harmless names of the field
 * give
   0, everything else that is not on the list of torch, numpy and the training frameworks too, but *unknown is set. */
int fb_pickle_dangerous(const char *module_and_name, uint64_t bytes, int *unknown);

#endif
