#include "ckpt/piece.h"

#include <string.h>
#include <zlib.h>

#include "base/alloc.h"

static const fb_ckpt_tensor *tensor_of(const fb_ckpt_tiles *tiles, uint64_t tile)
{
    return &tiles->extent->tensors[tiles->order ? tiles->order[tile] : tile];
}

/* Extents were checked before, so nothing can fail now. */
static void job_of(const fb_ckpt_pass_state *pass, uint64_t tile, fb_ckpt_job *job)
{
    const fb_ckpt_tensor *tensor = tensor_of(pass->tiles, tile);
    (void)fb_ckpt_job_init(job, pass->reading->kernel, pass->tiles->extent, tensor, fb_ckpt_wants(pass->reading->scan, tensor), "",
                           NULL);
    if (job->how == FB_CKPT_PASS_OVER) job->bytes = 0;
}

/* ---- planning --------------------------------------------------------------------------------------------------------------- */

static uint64_t cut(uint64_t begin, uint64_t end, uint64_t grain)
{
    return begin + (end - begin) / grain * grain;
}

/* A piece that ends between tiles ends at an element of the grid. */
static uint64_t cut_gap(const fb_ckpt_tiles *tiles, uint64_t begin, uint64_t end)
{
    uint64_t at;
    if (!tiles->gap || end <= tiles->gap_at) return end;
    at = cut(tiles->gap_at, end, fb_format_part_bytes(tiles->gap) * tiles->gap->parts);
    return at > begin ? at : end;
}

int fb_ckpt_piece_plan(fb_ckpt_pass_state *pass, uint64_t room, fb_ckpt_piece *piece)
{
    const fb_ckpt_tiles *tiles = pass->tiles;
    uint64_t left = tiles->extent->bytes - pass->planned, tile = pass->next_tile, looked = 0, in_tile = 0;
    fb_ckpt_job job;
    if (left == 0 && tile == tiles->count) return 0;
    piece->begin = pass->planned;
    piece->end = piece->begin + (left < room ? left : room);
    piece->first_tile = tile;
    for (; tile < tiles->count; tile++) {
        job_of(pass, tile, &job);
        if (job.bytes == 0) continue;
        if (job.offset_bytes >= piece->end) break;
        if (looked == FB_CKPT_TILES_MAX) {
            piece->end = job.offset_bytes;
            break;
        }
        looked++;
        if (job.offset_bytes + job.bytes > piece->end) {
            piece->end = cut(job.offset_bytes, piece->end, job.grain_bytes);
            in_tile = 1;
            break;
        }
    }
    if (!in_tile && piece->end < tiles->extent->bytes) piece->end = cut_gap(tiles, piece->begin, piece->end);
    piece->next_tile = tile;
    pass->planned = piece->end;
    pass->next_tile = tile;
    return 1;
}

/* ---- judging ---------------------------------------------------------------------------------------------------------------- */

static void judge_part(fb_ckpt_piece *piece, const fb_ckpt_job *job, uint64_t tile, const uint8_t *data, uint64_t begin,
                       uint64_t end)
{
    fb_ckpt_part *part = &piece->parts[piece->part_count];
    uint64_t first = (begin - job->offset_bytes) / job->unit_bytes, units = (end - begin) / job->unit_bytes;
    fb_stream *stream = NULL;
    part->tile = tile;
    part->has_stream = 0;
    fb_ckpt_counts_init(&part->counts);
    if ((job->wants & FB_CKPT_WANT_STATS) && job->format) {
        stream = &piece->streams[piece->part_count];
        fb_stream_init(stream, job->kernel, job->format, 1);
        part->has_stream = 1;
    }
    fb_ckpt_judge(job, data + (begin - piece->begin), first, units, &part->counts, stream);
    if (stream || part->counts.zero || part->counts.first_index != FB_NO_INDEX) piece->part_count++;
}

static void judge_gap(const fb_ckpt_pass_state *pass, fb_ckpt_piece *piece, const uint8_t *data, uint64_t begin, uint64_t end)
{
    const fb_ckpt_tiles *tiles = pass->tiles;
    fb_ckpt_job job;
    if (!tiles->gap || end <= tiles->gap_at) return;
    if (begin < tiles->gap_at) begin = tiles->gap_at;
    fb_ckpt_job_gap(&job, pass->reading->kernel, tiles->extent, tiles->gap, tiles->gap_at);
    judge_part(piece, &job, FB_NO_INDEX, data, begin, end);
}

void fb_ckpt_piece_judge(const fb_ckpt_pass_state *pass, fb_ckpt_piece *piece, const uint8_t *data)
{
    const fb_ckpt_tiles *tiles = pass->tiles;
    uint64_t at = piece->begin;
    piece->part_count = 0;
    piece->status = FB_OK;
    if (pass->wants_crc) piece->crc32 = (uint32_t)crc32_z(0, data, (size_t)(piece->end - piece->begin));
    for (uint64_t tile = piece->first_tile; tile < tiles->count && at < piece->end; tile++) {
        fb_ckpt_job job;
        uint64_t end;
        job_of(pass, tile, &job);
        if (job.bytes == 0) continue;
        if (job.offset_bytes >= piece->end) break;
        if (job.offset_bytes > at) {
            judge_gap(pass, piece, data, at, job.offset_bytes);
            at = job.offset_bytes;
        }
        end = job.offset_bytes + job.bytes < piece->end ? job.offset_bytes + job.bytes : piece->end;
        judge_part(piece, &job, tile, data, at, end);
        at = end;
    }
    if (at < piece->end) judge_gap(pass, piece, data, at, piece->end);
}

/* ---- committing ------------------------------------------------------------------------------------------------------------- */

static fb_status add_range(fb_ckpt_ranges *ranges, uint64_t begin, uint64_t end, const char *path, fb_error *err)
{
    if (ranges->count && ranges->ends[2 * ranges->count - 1] == begin) {
        ranges->ends[2 * ranges->count - 1] = end;
        return FB_OK;
    }
    if (ranges->count == ranges->room) {
        uint64_t room = ranges->room ? 2 * ranges->room : 16;
        uint64_t *grown = fb_realloc(ranges->ends, (size_t)room * 2 * sizeof *grown);
        if (!grown) return fb_fail(err, FB_E_NOMEM, "scan %s: no memory to note where it is bad", path);
        ranges->ends = grown;
        ranges->room = room;
    }
    ranges->ends[2 * ranges->count] = begin;
    ranges->ends[2 * ranges->count + 1] = end;
    ranges->count++;
    return FB_OK;
}

static fb_status take_gap(fb_ckpt_pass_state *pass, const fb_ckpt_piece *piece, const fb_ckpt_part *part, fb_error *err)
{
    fb_ckpt_counts_add(&pass->gaps, &part->counts);
    if (!pass->tiles->bad || part->counts.first_index == FB_NO_INDEX) return FB_OK;
    return add_range(pass->tiles->bad, piece->begin, piece->end, pass->reading->file->path, err);
}

static void begin_tile(fb_ckpt_pass_state *pass, const fb_ckpt_job *job)
{
    if (pass->current_begun) return;
    pass->current_begun = 1;
    fb_ckpt_counts_init(&pass->current);
    if (pass->current_stream && job->format) fb_stream_init(pass->current_stream, job->kernel, job->format, 1);
}

static void finish_tile(fb_ckpt_pass_state *pass, const fb_ckpt_job *job)
{
    int has_stream = pass->current_stream && job->how != FB_CKPT_PASS_OVER && job->format;
    uint64_t stored = job->how == FB_CKPT_PLAIN ? job->units : FB_NO_INDEX; /* a mask has no blocks */
    begin_tile(pass, job);
    fb_ckpt_tensor_done(pass->reading, pass->tiles->extent, job, stored, &pass->current, has_stream ? pass->current_stream : NULL);
    pass->current_begun = 0;
}

/* The parts of one tile. 1 when FB_CKPT_FIRST has what it wants. */
static int take_parts(fb_ckpt_pass_state *pass, fb_ckpt_piece *piece, uint64_t tile, const fb_ckpt_job *job)
{
    for (uint32_t i = 0; i < piece->part_count; i++) {
        const fb_ckpt_part *part = &piece->parts[i];
        if (part->tile != tile) continue;
        begin_tile(pass, job);
        fb_ckpt_counts_add(&pass->current, &part->counts);
        if (part->has_stream) fb_stream_merge(pass->current_stream, &piece->streams[i]);
    }
    if (!pass->current_begun || !fb_ckpt_is_decided(pass->reading->scan, job->tensor, &pass->current)) return 0;
    finish_tile(pass, job);
    return 1;
}

static void commit_tiles(fb_ckpt_pass_state *pass, fb_ckpt_piece *piece)
{
    for (uint64_t tile = piece->first_tile; tile <= piece->next_tile && tile < pass->tiles->count; tile++) {
        fb_ckpt_job job;
        job_of(pass, tile, &job);
        if (take_parts(pass, piece, tile, &job) || pass->reading->scan->done) return;
        if (tile < piece->next_tile) finish_tile(pass, &job);
        if (pass->reading->scan->done) return;
    }
}

fb_status fb_ckpt_piece_commit(fb_ckpt_pass_state *pass, fb_ckpt_piece *piece, fb_error *err)
{
    fb_status status;
    if (pass->wants_crc) pass->crc32 = (uint32_t)crc32_combine(pass->crc32, piece->crc32, (z_off_t)(piece->end - piece->begin));
    for (uint32_t i = 0; i < piece->part_count; i++) {
        if (piece->parts[i].tile != FB_NO_INDEX) continue;
        if ((status = take_gap(pass, piece, &piece->parts[i], err)) != FB_OK) return status;
    }
    commit_tiles(pass, piece);
    return fb_ckpt_poll(pass->reading, err);
}
