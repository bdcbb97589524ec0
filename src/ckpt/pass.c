/* One pass over an extent, by this thread or by several. */
#include <string.h>

#include "base/alloc.h"
#include "ckpt/piece.h"

/* Taken once a scan: a file may have a hundred thousand small extents. */
static fb_status take_streams(fb_ckpt_pass_state *pass, fb_ckpt_piece *piece, fb_error *err)
{
    fb_ckpt_scan *scan = pass->reading->scan;
    if (!(scan->options.flags & FB_CKPT_STATS)) return FB_OK;
    if (!scan->streams) scan->streams = fb_calloc(FB_CKPT_PARTS_MAX + 1, sizeof *scan->streams);
    if (!scan->streams) return fb_fail(err, FB_E_NOMEM, "scan %s: no memory for statistics", pass->reading->file->path);
    piece->streams = scan->streams;
    pass->current_stream = scan->streams + FB_CKPT_PARTS_MAX;
    return FB_OK;
}

void fb_ckpt_scan_release(fb_ckpt_scan *scan)
{
    fb_ckpt_crew_close(scan->crew);
    fb_free(scan->streams);
    scan->crew = NULL;
    scan->streams = NULL;
}

/* Through the window of the file, or the buffer of the source: small extents that lie together cost one read. */
static fb_status by_this_thread(fb_ckpt_pass_state *pass, fb_ckpt_source *source, fb_ckpt_piece *piece, fb_error *err)
{
    const fb_ckpt_extent *extent = pass->tiles->extent;
    fb_status status = FB_OK;
    while (status == FB_OK && !pass->reading->scan->done) {
        const uint8_t *data = NULL;
        size_t got = 0;
        if (pass->planned < extent->bytes) {
            status = fb_ckpt_source_view(source, pass->planned, FB_CKPT_GRAIN_MAX, &data, &got, err);
            if (status != FB_OK) return status;
        }
        if (!fb_ckpt_piece_plan(pass, got, piece)) break;
        fb_ckpt_piece_judge(pass, piece, data);
        status = fb_ckpt_piece_commit(pass, piece, err);
    }
    return status;
}

static fb_status check_crc(const fb_ckpt_pass_state *pass, fb_error *err)
{
    const fb_ckpt_extent *extent = pass->tiles->extent;
    if (!pass->wants_crc || pass->crc32 == extent->crc32) return FB_OK;
    return fb_fail_at(err, extent->offset_bytes, "read checkpoint %s: the checksum of %.200s is %08x, and the file says %08x",
                      pass->reading->file->path, extent->name, (unsigned)pass->crc32, (unsigned)extent->crc32);
}

static void report_gaps(fb_ckpt_pass_state *pass)
{
    const fb_ckpt_tiles *tiles = pass->tiles;
    uint64_t elements;
    if (!tiles->gap || tiles->bad) return; /* flat: whose they are is not known yet */
    elements = (tiles->extent->bytes - tiles->gap_at) / (fb_format_part_bytes(tiles->gap) * tiles->gap->parts);
    fb_ckpt_unreferenced(pass->reading, tiles->extent, tiles->gap, elements, &pass->gaps);
}

fb_status fb_ckpt_pass(fb_ckpt_reading *reading, fb_ckpt_source *source, const fb_ckpt_tiles *tiles, fb_error *err)
{
    fb_ckpt_piece piece;
    fb_ckpt_pass_state pass;
    fb_status status;
    memset(&pass, 0, sizeof pass);
    piece.streams = NULL;
    pass.reading = reading;
    pass.tiles = tiles;
    pass.wants_crc = tiles->extent->has_crc && (reading->scan->options.flags & FB_CKPT_CRC);
    fb_ckpt_counts_init(&pass.gaps);
    status = take_streams(&pass, &piece, err);
    if (status == FB_OK) {
        status = fb_ckpt_crew_pass(&pass, err);
        if (status == FB_E_NOTFOUND) status = by_this_thread(&pass, source, &piece, err);
    }
    if (status == FB_OK && !reading->scan->done) {
        status = fb_ckpt_source_end(source, err);
        if (status == FB_OK) status = check_crc(&pass, err);
        if (status == FB_OK) report_gaps(&pass);
    }
    return status;
}
