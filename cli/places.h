/*
 * The places that `firstbad bisect` may ask a command about, read from a file: the dataflow of any program, written by hand or by
 * the program itself. One place a line, in the order in which the program computes them:
 *
 *     # a comment
 *     weights !state           an entry that belongs to the state: bad here means bad before the program began
 *     batch   !entry           any other entry
 *     h.0                      a bare line reads the place before it, and the entries that stand between the two
 *     h.0.mask: !mask          a name and ':' say what is read; here nothing. -Inf may be intended in it
 *     h.1: h.0 h.0.mask
 *     h.2      !good           known to be finite: never asked
 *     h.3      !untestable     cannot be looked at: never asked
 *
 * Names hold no blank and no control character. What is read must stand above. Blank lines are passed over.
 */
#ifndef CLI_PLACES_H
#define CLI_PLACES_H

#include "search/flow.h"

enum { PLACES_BYTES_MAX = 64 << 20, PLACES_COUNT_MAX = 1000000 };
enum { PLACE_ASK = 0, PLACE_GOOD = 1, PLACE_UNTESTABLE = 2 };

/* Place i is tensor i of the flow. */
typedef struct places {
    uint32_t count;
    char **names;
    uint8_t *known;    /* [count] PLACE_* */
    uint32_t *made_by; /* [nodes] the place that a node makes */
    fb_flow flow;
    /* what flow points at */
    uint32_t *producer, *flags, *inputs;
    uint64_t *first;
    char *text;            /* names point into it */
    uint32_t *slot, slots; /* a table from names to places */
} places;

/* Errors: FB_E_USAGE with file, line and what was expected; those of reading a file; FB_E_NOMEM. Release in any case. */
fb_status places_read(places *p, const char *path, fb_error *err);
/* A chain of places named "1" to "count". */
fb_status places_number(places *p, uint32_t count, fb_error *err);
/* FB_FLOW_NONE: there is none of this name. */
uint32_t places_find(const places *p, const char *name);
/* Accepts a zeroed struct. */
void places_release(places *p);

#endif
