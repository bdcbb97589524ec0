/* Formats that are named and not read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ckpt/known.h"
#include "ckpt/reader.h"

static const struct {
    const char *head;
    size_t bytes;
    const char *says;
} files[] = {
    {"\x89HDF\r\n\x1a\n\0\0\0\0", 12, "HDF5"},
    {"PYTORCH1\0\0\0\0", 12, "PyTorch"},
    {"tjgg\1\0\0\0\0\0\0\0", 12, "GGML"},
    {"\x0c\xdb\x3a\x2a\0\0\0\0\0\0\0\0", 12, "OCDBT"},
    {"\x08\x07\x12\x07pytorch", 11, "ONNX"},
    {"{\"chunks\": [2], \"zarr_format\": 2}", 33, "zarr"},
    {"model_checkpoint_path: \"model.ckpt-1\"", 37, "TensorFlow checkpoint"},
    {"\x1f\x8b\x08\0\0\0\0\0\0\0\0\0", 12, "gzip"},
    {"\x28\xb5\x2f\xfd\0\0\0\0\0\0\0\0", 12, "zstd"},
};

static void test_known__formats_that_are_not_read_are_named(void **ignored)
{
    uint8_t tar[512] = {0};
    (void)ignored;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        const uint8_t *head = (const uint8_t *)files[i].head;
        const char *name = fb_ckpt_known(head, files[i].bytes);
        const fb_ckpt_reader *reader;
        assert_non_null(name);
        assert_non_null(strstr(name, files[i].says));
        assert_null(fb_ckpt_known(head, 1)); /* one byte says nothing */
        /* No reader takes them for its own, but GGUF's its forerunners, to say so itself. */
        reader = fb_ckpt_reader_find(head, files[i].bytes, 1000);
        if (strcmp(files[i].says, "GGML") == 0) assert_ptr_equal(reader, &fb_ckpt_gguf);
        else assert_null(reader);
    }
    memcpy(tar + 257, "ustar", 5);
    assert_non_null(strstr(fb_ckpt_known(tar, sizeof tar), "tar archive"));
}

static void test_known__text_and_noise_are_not(void **ignored)
{
    uint8_t noise[512];
    (void)ignored;
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (uint8_t)(i * 37 + 11);
    assert_null(fb_ckpt_known(noise, sizeof noise));
    assert_null(fb_ckpt_known((const uint8_t *)"step loss\n1 2.5\n", 16));
    assert_null(fb_ckpt_known((const uint8_t *)"{\"a\": 1}", 8));
    assert_null(fb_ckpt_known(noise, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known__formats_that_are_not_read_are_named),
        cmocka_unit_test(test_known__text_and_noise_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
