/* A program of a stranger: C11 and C++17 at once, on the installed headers. It looks at four numbers, one of which is a NaN. */
#include <firstbad/firstbad.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    const uint32_t bits[4] = {0x3f800000u, 0x40000000u, 0x7fc00001u, 0xbf800000u};
    float numbers[4];
    fb_view view;
    fb_scan_result result = FB_SCAN_RESULT_INIT;
    fb_error err;

    if (fb_abi_version() != FB_ABI_VERSION) return 1;
    memcpy(numbers, bits, sizeof numbers);
    memset(&view, 0, sizeof view);
    view.data = numbers;
    view.count = 4;
    view.dtype = FB_F32;
    view.device = -1;
    if (fb_scan(&view, &result, &err) != FB_OK) {
        printf("fb_scan: %s\n", err.message);
        return 1;
    }
    if (result.nan != 1 || result.first_index != 2 || result.first_bits != bits[2]) return 1;
    printf("firstbad %s found the NaN at %d\n", fb_version(), (int)result.first_index);
    return 0;
}
