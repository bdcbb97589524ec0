/*
 * npz archives, against any bytes. An input that is no archive is taken for the bytes of one array and put into two, stored and
 * deflated, so that damage reaches the array instead of the archive's own checks; both must then get the same verdict.
 */
#include "support/check_extents.h"
#include "support/make_zip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes >= 2 && data[0] == 'P' && data[1] == 'K') {
        (void)check_reader(&fb_ckpt_npz, data, bytes, 0, bytes);
        (void)check_scan("memory.npz", data, bytes);
    } else {
        made_zip stored, deflated;
        made_zip_begin(&stored);
        made_zip_add(&stored, "x.npy", data, bytes, 0);
        made_zip_end(&stored);
        made_zip_begin(&deflated);
        made_zip_add(&deflated, "x.npy", data, bytes, 1);
        made_zip_end(&deflated);
        check_that(check_reader(&fb_ckpt_npz, stored.data, stored.bytes, 0, stored.bytes) ==
                   check_reader(&fb_ckpt_npz, deflated.data, deflated.bytes, 0, deflated.bytes));
        {
            fb_ckpt_summary a = check_scan("memory.npz", stored.data, stored.bytes);
            fb_ckpt_summary b = check_scan("memory.npz", deflated.data, deflated.bytes);
            check_that(a.outcome == b.outcome && a.bad == b.bad && a.tensors == b.tensors && a.first_index == b.first_index);
        }
        made_zip_free(&stored);
        made_zip_free(&deflated);
    }
    return 0;
}
