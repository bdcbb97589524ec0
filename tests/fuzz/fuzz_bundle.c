/*
 * The texts of a bundle on any bytes. First byte: which text, and whether its own hash is put right first, since otherwise hardly
 * an input would come past it. What is accepted is written again, and what was written is read to the same text.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "bundle/part.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds) abort();
}

static void try_part(const char *text, size_t bytes)
{
    fb_part part, second;
    char *first_text, *second_text;
    size_t first_bytes, second_bytes;
    if (fb_part_parse(&part, text, bytes, "input", NULL) != FB_OK) return;
    for (uint32_t i = 0; i < part.tensor_count; i++)
        require(fb_part_find(&part, part.tensors[i].part, part.tensors[i].name) == &part.tensors[i]);
    require(fb_part_text(&part, &first_text, &first_bytes, NULL) == FB_OK);
    require(fb_part_parse(&second, first_text, first_bytes, "again", NULL) == FB_OK);
    require(fb_part_text(&second, &second_text, &second_bytes, NULL) == FB_OK);
    require(first_bytes == second_bytes && memcmp(first_text, second_text, first_bytes) == 0);
    fb_free(first_text);
    fb_free(second_text);
    fb_part_release(&part);
    fb_part_release(&second);
}

static void try_manifest(const char *text, size_t bytes)
{
    fb_manifest manifest, second;
    char *again;
    size_t again_bytes;
    if (fb_manifest_parse(&manifest, text, bytes, "input", NULL) != FB_OK) return;
    require(manifest.part_count > 0 && manifest.part_count <= (uint32_t)manifest.world);
    require(fb_manifest_text(&manifest, &again, &again_bytes, NULL) == FB_OK);
    require(fb_manifest_parse(&second, again, again_bytes, "again", NULL) == FB_OK);
    require(second.part_count == manifest.part_count && second.world == manifest.world && second.step == manifest.step);
    fb_free(again);
    fb_manifest_release(&manifest);
    fb_manifest_release(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;
    size_t bytes;
    if (size == 0) return 0;
    bytes = size - 1;
    text = malloc(bytes + 64);
    require(text != NULL);
    memcpy(text, data + 1, bytes);
    if (data[0] & 2) {
        bytes +=
            (size_t)snprintf(text + bytes, 64, ",\n  \"self\": \"0x%016llx\"\n}\n", (unsigned long long)fb_hash64(text, bytes, 0));
    }
    if (data[0] & 1) try_manifest(text, bytes);
    else try_part(text, bytes);
    free(text);
    return 0;
}
