/*
 * Archives of torch.save, against any bytes. An input that is no archive is taken for the object, data.pkl, and put into an archive
 * with a version and four storages of 40 bytes, so that damage reaches the object instead of the archive's own checks.
 */
#include "support/check_extents.h"
#include "support/make_zip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { STORAGES = 4, STORAGE_BYTES = 40 };

static void wrap(made_zip *z, const uint8_t *data, size_t bytes)
{
    static const char *const names[STORAGES] = {"archive/data/0", "archive/data/1", "archive/data/2", "archive/data/3"};
    uint8_t storage[STORAGE_BYTES];
    made_zip_begin(z);
    made_zip_add(z, "archive/data.pkl", data, bytes, 0);
    made_zip_add(z, "archive/version", "3\n", 2, 0);
    for (size_t i = 0; i < STORAGES; i++) {
        for (size_t k = 0; k < STORAGE_BYTES; k++) storage[k] = (uint8_t)(k % 4 == 3 ? 0x3f : i);
        if (i) memset(storage + 8 * i, 0xff, 4); /* a NaN in most formats */
        made_zip_add(z, names[i], storage, i == 3 ? 16 : STORAGE_BYTES, 0);
    }
    made_zip_end(z);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    made_zip z;
    if (bytes >= 2 && data[0] == 'P' && data[1] == 'K') {
        (void)check_reader(&fb_ckpt_torch_zip, data, bytes, 0, bytes);
        (void)check_scan("memory.pt", data, bytes);
        return 0;
    }
    wrap(&z, data, bytes);
    (void)check_reader(&fb_ckpt_torch_zip, z.data, z.bytes, 0, z.bytes);
    (void)check_scan("memory.pt", z.data, z.bytes);
    made_zip_free(&z);
    if (bytes >= 2 && data[0] == 0x80) (void)check_reader(&fb_ckpt_pickle, data, bytes, 0, bytes);
    return 0;
}
