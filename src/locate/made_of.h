/*
 * What a tensor of the row is made of, read off the dataflow alone: is this denominator a count? Views, casts and copies are looked
 * through. Pure, and bounded: after FB_MADE_STEPS tensors it gives up, and says that it does not know.
 */
#ifndef FB_LOCATE_MADE_OF_H
#define FB_LOCATE_MADE_OF_H

#include "locate/row.h"
#include "locate/witness.h"

enum { FB_MADE_STEPS = 512 };

typedef struct fb_made {
    int32_t is;      /* FB_MADE_* of witness.h */
    int32_t unseen;  /* 1: an entry of it may have been computed by the program before the tape begins */
    uint32_t entry;  /* it is this entry, as it is or seen otherwise; FB_FLOW_NONE: an operator made it */
    uint32_t summed; /* what was summed up; FB_FLOW_NONE: there is no sum */
    uint32_t of;     /* the first entry of the batch that it was counted or summed up from; FB_FLOW_NONE */
    uint32_t by;     /* node of the comparison that says what counts; FB_FLOW_NONE */
} fb_made;

void fb_made_of(const fb_row *row, uint32_t tensor, fb_made *made);

#endif
