/* Elements of any format as doubles: exact for every float format and for integers up to 2^53. */
#ifndef FB_LOCATE_VALUES_H
#define FB_LOCATE_VALUES_H

#include "firstbad/firstbad.h"

/* 1: fb_values_read can read the format. Complex numbers are two, and formats of less than a byte are not read. */
int fb_values_readable(int32_t dtype);
/* data: contiguous, any alignment. out: [count]. Payloads of NaN are not kept, signs are. */
void fb_values_read(int32_t dtype, const void *data, uint64_t count, double *out);
/* FB_KIND_*; FB_KIND_NONE: finite. */
int32_t fb_values_kind(double value);
/* The largest number that the format rounds to 0, to nearest with ties to even; 0 for a format that is not a float. */
double fb_values_vanish_at(int32_t format);

#endif
