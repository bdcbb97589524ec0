/* The flax reader against any bytes: any_reader.h says what must hold. */
#include "any_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_reader(&fb_ckpt_flax, data, bytes);
    return 0;
}
