/*
 * The proof at run time that checks are alive in the library as it was built and linked: a compiler flag, a patched binary or a
 * broken kernel that lets one code pass is found here, before training depends on it.
 */
#include "scan/scan_finite_math.h"

#include "base/status.h"
#include "scan/scan_fpenv.h"
#include "scan/scan_pass.h"

/* Odd, so that vector loops and tails both run. */
enum { ROOM = 71 };

/* A second definition of "bad", on purpose not taken from the format table. */
static int must_be_bad(int32_t dtype, uint64_t code)
{
    switch (dtype) {
    case FB_F64:
    case FB_C128: return (code & UINT64_C(0x7ff0000000000000)) == UINT64_C(0x7ff0000000000000);
    case FB_F32:
    case FB_C64: return (code & 0x7f800000u) == 0x7f800000u;
    case FB_F16: return (code & 0x7c00u) == 0x7c00u;
    case FB_BF16: return (code & 0x7f80u) == 0x7f80u;
    case FB_F8_E4M3FN: return code == 0x7f || code == 0xff;
    case FB_F8_E5M2: return (code & 0x7cu) == 0x7cu;
    case FB_F8_E4M3FNUZ:
    case FB_F8_E5M2FNUZ: return code == 0x80;
    default: return code == 0xff; /* E8M0 */
    }
}

static void put(uint8_t *data, size_t bytes, size_t i, uint64_t code)
{
    uint32_t code32 = (uint32_t)code;
    uint16_t code16 = (uint16_t)code;
    uint8_t code8 = (uint8_t)code;
    switch (bytes) {
    case 1: memcpy(data + i, &code8, 1); break;
    case 2: memcpy(data + 2 * i, &code16, 2); break;
    case 4: memcpy(data + 4 * i, &code32, 4); break;
    default: memcpy(data + 8 * i, &code, 8); break;
    }
}

static fb_status try_code(const fb_kernel *kernel, const fb_format *format, uint64_t code, size_t at, fb_error *err)
{
    uint8_t data[ROOM * 8];
    size_t bytes = fb_format_part_bytes(format), i, n = (size_t)ROOM / format->parts;
    uint64_t bad, found;
    fb_tally tally;
    for (i = 0; i < ROOM; i++) put(data, bytes, i, format->max_bits); /* the neighbours that look worst and are fine */
    put(data, bytes, at, code);
    fb_tally_init(&tally, NULL);
    fb_pass_block(kernel, format, data, 0, n, FB_COUNTS, &tally);
    bad = tally.nan + tally.pos_inf + tally.neg_inf;
    found = fb_pass_locate(kernel, format, 0, data, n);
    if (must_be_bad(format->dtype, code)) {
        if (bad == 1 && found == at / format->parts && tally.first_index == found && tally.first_bits == code) return FB_OK;
        return fb_fail(err, FB_E_SELFTEST,
                       "scan self-test: kernel %s does not find %s 0x%llx at element %zu: this build cannot guard "
                       "anything; build without flags that assume finite numbers",
                       kernel->name, format->name, (unsigned long long)code, at / format->parts);
    }
    if (bad == 0 && found == n) return FB_OK;
    return fb_fail(err, FB_E_SELFTEST, "scan self-test: kernel %s calls the finite number %s 0x%llx non-finite", kernel->name,
                   format->name, (unsigned long long)code);
}

/* Codes around the limits of F64 and F32, signalling NaN among them: the first and last of each kind, and finite neighbours. */
static fb_status try_limits(const fb_kernel *kernel, const fb_format *format, uint64_t infinity, fb_error *err)
{
    uint64_t sign = UINT64_C(1) << (format->part_bits - 1);
    uint64_t codes[8] = {0};
    size_t i;
    fb_status status;
    codes[0] = infinity;
    codes[1] = infinity + 1;                     /* signalling NaN with the smallest payload */
    codes[2] = sign - 1;                         /* the last NaN */
    codes[3] = infinity + (sign - infinity) / 2; /* the default quiet NaN */
    codes[4] = infinity - 1;                     /* largest finite */
    codes[5] = 0;
    codes[6] = 1; /* smallest subnormal */
    codes[7] = infinity / 2;
    for (i = 0; i < 8 * 2 * 4; i++) {
        uint64_t code = codes[i % 8] | (i / 8 % 2 ? sign : 0);
        if ((status = try_code(kernel, format, code, i * 37 % (ROOM - 1), err)) != FB_OK) return status;
    }
    return FB_OK;
}

static fb_status try_format(const fb_kernel *kernel, const fb_format *format, fb_error *err)
{
    uint64_t code, last = format->part_bits == 8 ? 0xff : 0xffff;
    fb_status status;
    if (format->part_bits == 64) return try_limits(kernel, format, UINT64_C(0x7ff) << 52, err);
    if (format->part_bits == 32) return try_limits(kernel, format, UINT64_C(0xff) << 23, err);
    for (code = 0; code <= last; code++) {
        /* All non-finite codes of both sizes, all codes of 8 bits, and of 16 bits a finite one in 256. */
        if (last == 0xffff && !must_be_bad(format->dtype, code) && code % 256 != 0xff) continue;
        if ((status = try_code(kernel, format, code, (size_t)(code * 7 % (ROOM - 1)), err)) != FB_OK) return status;
    }
    return FB_OK;
}

fb_status fb_scan_selftest(fb_error *err)
{
    static const int32_t dtypes[] = {FB_F64,         FB_F32,         FB_F16,     FB_BF16, FB_F8_E4M3FN, FB_F8_E5M2,
                                     FB_F8_E4M3FNUZ, FB_F8_E5M2FNUZ, FB_F8_E8M0, FB_C64,  FB_C128};
    const fb_kernel *kernel = fb_kernel_get(err);
    fb_fpenv modes;
    fb_status status = FB_OK;
    size_t i;
    if (!kernel) return FB_E_USAGE;
    modes = fb_fpenv_enter();
    for (i = 0; i < sizeof dtypes / sizeof dtypes[0] && status == FB_OK; i++)
        status = try_format(kernel, fb_format_of(dtypes[i]), err);
    fb_fpenv_leave(modes);
    return status;
}
