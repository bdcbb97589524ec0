/*
 * Threads that judge pieces. Each takes the next piece of the plan, reads it into a buffer and judges it; the thread that asked for
 * the scan does the same, and besides commits what is judged, in order. All that callers are told comes from that one thread.
 *
 * There are more buffers than threads, so that nobody waits for the one whose piece is due. The one that was given back last is
 * taken first: unless a digest is made, which needs the bytes until their turn comes, each thread stays with one buffer, which
 * stays in its cache.
 */
#include <string.h>

#include "base/alloc.h"
#include "ckpt/piece.h"
#include "os/threads.h"

enum { THREADS_MAX = 64, SLOTS_A_THREAD = 3 };

typedef struct slot {
    fb_ckpt_piece piece;
    uint8_t *data; /* NULL: no longer needed */
    int judged;
} slot;

struct fb_ckpt_crew {
    fb_monitor monitor;
    fb_thread threads[THREADS_MAX];
    int thread_count;
    slot *slots; /* a ring */
    uint64_t slot_count;
    size_t room;
    uint8_t **idle; /* buffers; as many as slots */
    /* Under the monitor. */
    uint64_t idle_count;
    int quit;
    fb_ckpt_pass_state *pass; /* NULL: nothing to do */
    uint64_t taken, committed;
    int inside; /* threads that are at a piece */
};

static void release(struct fb_ckpt_crew *crew)
{
    for (uint64_t i = 0; crew->slots && i < crew->slot_count; i++) fb_free(crew->slots[i].piece.streams);
    for (uint64_t i = 0; i < crew->idle_count; i++) fb_free(crew->idle[i]);
    fb_free(crew->idle);
    fb_free(crew->slots);
    fb_free(crew);
}

void fb_ckpt_crew_close(struct fb_ckpt_crew *crew)
{
    if (!crew) return;
    fb_monitor_enter(&crew->monitor);
    crew->quit = 1;
    fb_monitor_tell(&crew->monitor);
    fb_monitor_leave(&crew->monitor);
    for (int i = 0; i < crew->thread_count; i++) fb_thread_join(&crew->threads[i]);
    fb_monitor_release(&crew->monitor);
    release(crew);
}

/* ---- work ------------------------------------------------------------------------------------------------------------------- */

/* Under the monitor. */
static void give_back(struct fb_ckpt_crew *crew, slot *s)
{
    if (s->data) crew->idle[crew->idle_count++] = s->data;
    s->data = NULL;
}

/* Under the monitor: the next piece and a buffer for it, or NULL. */
static slot *take(struct fb_ckpt_crew *crew)
{
    slot *s;
    if (!crew->pass || crew->taken - crew->committed == crew->slot_count) return NULL;
    s = &crew->slots[crew->taken % crew->slot_count];
    if (!fb_ckpt_piece_plan(crew->pass, crew->room, &s->piece)) return NULL;
    s->judged = 0;
    s->data = crew->idle[--crew->idle_count]; /* each piece that is not committed holds one at most */
    crew->taken++;
    crew->inside++;
    return s;
}

static void work_on(const fb_ckpt_pass_state *pass, slot *s)
{
    const fb_ckpt_file *file = pass->reading->file;
    uint64_t offset = pass->tiles->extent->offset_bytes + s->piece.begin;
    size_t bytes = (size_t)(s->piece.end - s->piece.begin);
    int64_t got = fb_os_pread_full(file->os, file->fd, s->data, bytes, offset);
    if (got == (int64_t)bytes) {
        fb_ckpt_piece_judge(pass, &s->piece, s->data);
        return;
    }
    if (got < 0) {
        s->piece.status =
            fb_fail_os(&s->piece.error, (int)-got, "read checkpoint %s at offset %llu", file->path, (unsigned long long)offset);
    } else {
        s->piece.status = fb_fail_at(&s->piece.error, offset + (uint64_t)got,
                                     "read checkpoint %s: it became shorter while it was read", file->path);
    }
}

/* Under the monitor at entry and at exit. */
static void do_one(struct fb_ckpt_crew *crew, slot *s)
{
    const fb_ckpt_pass_state *pass = crew->pass;
    fb_monitor_leave(&crew->monitor);
    work_on(pass, s);
    fb_monitor_enter(&crew->monitor);
    if (!fb_ckpt_file_wants_all(pass->reading->file)) give_back(crew, s);
    s->judged = 1;
    crew->inside--;
}

static void worker(void *arg)
{
    struct fb_ckpt_crew *crew = arg;
    fb_monitor_enter(&crew->monitor);
    while (!crew->quit) {
        slot *s = take(crew);
        if (!s) {
            (void)fb_monitor_wait(&crew->monitor, -1);
            continue;
        }
        do_one(crew, s);
        fb_monitor_tell(&crew->monitor);
    }
    fb_monitor_leave(&crew->monitor);
}

/* ---- the pass --------------------------------------------------------------------------------------------------------------- */

static fb_status commit(fb_ckpt_pass_state *pass, slot *s, fb_error *err)
{
    uint64_t bytes = s->piece.end - s->piece.begin;
    fb_status status;
    if (s->piece.status != FB_OK) {
        if (err) *err = s->piece.error;
        return s->piece.status;
    }
    if (s->data) fb_ckpt_file_took(pass->reading->file, pass->tiles->extent->offset_bytes + s->piece.begin, s->data, (size_t)bytes);
    if ((status = fb_ckpt_file_worked(pass->reading->file, bytes, err)) != FB_OK) return status;
    return fb_ckpt_piece_commit(pass, &s->piece, err);
}

/* Under the monitor. */
static fb_status lead(struct fb_ckpt_crew *crew, fb_ckpt_pass_state *pass, fb_error *err)
{
    fb_status status = FB_OK;
    while (status == FB_OK && !pass->reading->scan->done) {
        slot *due = &crew->slots[crew->committed % crew->slot_count], *s;
        if (crew->committed < crew->taken && due->judged) {
            fb_monitor_leave(&crew->monitor);
            status = commit(pass, due, err);
            fb_monitor_enter(&crew->monitor);
            give_back(crew, due);
            if (crew->taken - crew->committed == crew->slot_count) fb_monitor_tell(&crew->monitor);
            crew->committed++;
        } else if ((s = take(crew)) != NULL) {
            do_one(crew, s);
        } else if (crew->committed == crew->taken) {
            break;
        } else {
            (void)fb_monitor_wait(&crew->monitor, -1);
        }
    }
    return status;
}

static fb_status make_slots(struct fb_ckpt_crew *crew, int streams, const char *path, fb_error *err)
{
    crew->slots = fb_calloc((size_t)crew->slot_count, sizeof *crew->slots);
    crew->idle = fb_calloc((size_t)crew->slot_count, sizeof *crew->idle);
    if (!crew->slots || !crew->idle) return fb_fail(err, FB_E_NOMEM, "scan %s: no memory for threads", path);
    for (uint64_t i = 0; i < crew->slot_count; i++) {
        slot *s = &crew->slots[i];
        uint8_t *buffer = fb_realloc(NULL, crew->room);
        if (buffer) crew->idle[crew->idle_count++] = buffer;
        if (streams) s->piece.streams = fb_calloc(FB_CKPT_PARTS_MAX, sizeof *s->piece.streams);
        if (!buffer || (streams && !s->piece.streams))
            return fb_fail(err, FB_E_NOMEM, "scan %s: no memory for %zu bytes a thread", path, crew->room);
    }
    return FB_OK;
}

static fb_status open_crew(fb_ckpt_scan *scan, const fb_ckpt_file *file, fb_error *err)
{
    int threads = scan->options.threads < THREADS_MAX ? scan->options.threads : THREADS_MAX;
    struct fb_ckpt_crew *crew = fb_calloc(1, sizeof *crew);
    fb_status status;
    if (!crew) return fb_fail(err, FB_E_NOMEM, "scan %s: no memory for threads", file->path);
    crew->room = file->window_room;
    crew->slot_count = (uint64_t)threads * SLOTS_A_THREAD;
    status = make_slots(crew, (scan->options.flags & FB_CKPT_STATS) != 0, file->path, err);
    if (status == FB_OK) status = fb_monitor_init(&crew->monitor, err);
    if (status != FB_OK) {
        release(crew);
        return status;
    }
    /* Fewer threads than asked for are no error: the work is done all the same. */
    while (crew->thread_count < threads - 1 &&
           fb_thread_start_as_we_are(&crew->threads[crew->thread_count], worker, crew, NULL) == FB_OK)
        crew->thread_count++;
    scan->crew = crew;
    return FB_OK;
}

fb_status fb_ckpt_crew_pass(fb_ckpt_pass_state *pass, fb_error *err)
{
    fb_ckpt_scan *scan = pass->reading->scan;
    const fb_ckpt_file *file = pass->reading->file;
    const fb_ckpt_extent *extent = pass->tiles->extent;
    struct fb_ckpt_crew *crew;
    fb_status status = FB_OK;
    if (scan->options.threads < 2 || extent->encoding != FB_CKPT_STORED || extent->bytes / 4 < file->window_room)
        return FB_E_NOTFOUND;
    if (!scan->crew) status = open_crew(scan, file, err);
    crew = scan->crew;
    if (status != FB_OK || !crew) return status;
    fb_monitor_enter(&crew->monitor);
    crew->pass = pass;
    crew->taken = crew->committed = 0;
    fb_monitor_tell(&crew->monitor);
    status = lead(crew, pass, err);
    crew->pass = NULL;
    while (crew->inside) (void)fb_monitor_wait(&crew->monitor, -1);
    for (; crew->committed < crew->taken; crew->committed++) give_back(crew, &crew->slots[crew->committed % crew->slot_count]);
    fb_monitor_leave(&crew->monitor);
    return status;
}
