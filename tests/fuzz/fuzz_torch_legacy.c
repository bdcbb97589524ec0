/*
 * Files of torch.save before 1.6, against any bytes. What the reader says of a file must not depend on what lies around it.
 */
#include "support/check_extents.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { FRONT = 5 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint8_t *larger = calloc(bytes + 2 * FRONT, 1);
    fb_status alone = check_reader(&fb_ckpt_torch_legacy, data, bytes, 0, bytes);
    check_that(larger != NULL);
    if (bytes) memcpy(larger + FRONT, data, bytes);
    check_that(check_reader(&fb_ckpt_torch_legacy, larger, bytes + 2 * FRONT, FRONT, bytes) == alone);
    free(larger);
    (void)check_scan("memory.pt", data, bytes);
    return 0;
}
