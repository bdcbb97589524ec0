/*
 * The reader of locate.json on any bytes: it ends, stays inside, keeps what it says within its bounds, and frees what it took.
 */
#include <stdlib.h>
#include <string.h>

#include "locate/locate_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(int holds)
{
    if (!holds) abort();
}

static void check_links(const fb_locate_links *links)
{
    require(links->count <= FB_LOCATE_LINKS_MAX && links->count <= links->total);
    for (uint32_t i = 0; i < links->count; i++) {
        const fb_locate_link *link = &links->items[i];
        require(memchr(link->op, 0, sizeof link->op) && memchr(link->module, 0, sizeof link->module));
        require(memchr(link->source, 0, sizeof link->source) && memchr(link->tensor, 0, sizeof link->tensor));
        require(link->boundary >= 0 && link->boundary <= FB_CHECKPOINT && link->made >= -1 && link->reads >= -1);
    }
}

static void check_file(const fb_locate_file *f)
{
    char why[64];
    check_links(&f->candidates);
    check_links(&f->chain);
    check_links(&f->swallowed);
    check_links(&f->later);
    require(f->found >= FB_LOCATED_NOTHING && f->found <= FB_LOCATED_UNDECIDED);
    require(f->location.ndim >= 0 && f->location.ndim <= FB_DIMS_MAX && f->location.shape_ndim >= 0 &&
            f->location.shape_ndim <= FB_DIMS_MAX);
    require(f->evidence.count <= FB_EVIDENCE_FILES_MAX);
    require(f->minimise.kept_count <= FB_LOCATE_ROWS_MAX && f->minimise.sample_count <= FB_LOCATE_ROWS_MAX);
    for (uint32_t i = 0; i < f->minimise.span_count; i++) require(f->minimise.spans[i][0] >= 0 && f->minimise.spans[i][2] >= 0);
    for (uint32_t i = 0; i < f->replay.difference_count; i++) require(strlen(f->replay.differences[i]) < 1024);
    require(memchr(f->cause.explanation, 0, sizeof f->cause.explanation) != NULL);
    require(fb_cause_class_of(f->cause.class_number) != NULL);
    (void)fb_locate_chain_whole(f, why, sizeof why);
    require(memchr(why, 0, sizeof why) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fb_locate_file file;
    if (fb_locate_parse(&file, data, bytes, NULL) == FB_OK) check_file(&file);
    fb_locate_file_release(&file);
    return 0;
}
