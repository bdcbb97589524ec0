/*
 * The second copy of the newest committed checkpoint of a folder. A pin is planned in the record that commits, made after it, and
 * the older pins go last, so at every moment a committed checkpoint that has a pin has it whole.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "registry/keep.h"
#include "registry/tree.h"
#include "registry/usable.h"

enum { SLOTS_MAX = 10000 };
static const uint64_t MARGIN_BYTES = 64 << 20;
static const int64_t LOCK_WAIT_NS = 10 * (int64_t)1000000000;
static const uint64_t LOCK_PAUSE_NS = 10000000;
static const char DEAD[] = ".dead";

int fb_newer(const fb_rec_ckpt *a, const fb_rec_ckpt *b)
{
    if (a->attempt != b->attempt) return a->attempt > b->attempt ? 1 : -1;
    return a->step == b->step ? 0 : a->step > b->step ? 1 : -1;
}

int fb_belongs(const fb_rec_ckpt *rec, const char *dir)
{
    return fb_place_in(rec->origin.bytes ? rec->origin : rec->path, dir);
}

fb_text fb_pin_of(const fb_rec_ckpt *rec)
{
    return rec->origin.bytes ? rec->path : rec->pin_path;
}

int fb_pin_is_there(const fb_os *os, const fb_rec_ckpt *rec)
{
    fb_text pin = fb_pin_of(rec);
    fb_os_info info;
    if (pin.bytes == 0 || os->lstat(os->ctx, pin.data, &info) != 0) return 0;
    if (info.kind != FB_OS_FILE) return info.kind == FB_OS_FOLDER;
    /* A link shares the inode with the original: written into there, it is written into here. */
    if (rec->pin == FB_PIN_LINK || rec->pin == FB_PIN_RENAMED) return fb_place_is_same(rec, &info);
    return info.size_bytes == rec->bytes;
}

/* ---- planning --------------------------------------------------------------------------------------------------------------- */

/* DIR/.firstbad/pins/0a1b2c3d-: what pins of this home begin with. */
static fb_status own_prefix(char *out, size_t room, const char *dir, const char *home, fb_error *err)
{
    char name[32];
    (void)snprintf(name, sizeof name, "pins/%08x-", (unsigned)(fb_hash64(home, strlen(home), 0) >> 32));
    return fb_place_below(out, room, dir, name, err);
}

static int has_prefix(fb_text text, const char *prefix)
{
    size_t n = strlen(prefix);
    return text.bytes >= n && memcmp(text.data, prefix, n) == 0;
}

static fb_text name_of(const fb_rec_ckpt *rec)
{
    return rec->origin.bytes ? rec->origin : rec->path;
}

/* Is this part of a step committed, by itself or by what stands for it, and pinned, where `os` is given to look? */
static int part_is_kept(const fb_os *os, const fb_registry_table *table, const fb_rec_ckpt *part)
{
    fb_text name = name_of(part);
    for (uint64_t i = 0; i < table->count; i++) {
        const fb_rec_ckpt *rec = &table->rows[i].rec;
        fb_text own = name_of(rec);
        if (rec->state != FB_CKPT_COMMITTED || fb_newer(rec, part) != 0 || rec->rank != part->rank) continue;
        if (own.bytes != name.bytes || memcmp(own.data, name.data, name.bytes) != 0) continue;
        if (!os || fb_pin_is_there(os, rec)) return 1;
    }
    return 0;
}

/* What several ranks saved of one step is one checkpoint: `latest` gives it when all of its parts will do, and so it is the one to
 * keep
   from then on, not when its first part was committed. */
static int has_every_part(const fb_os *os, const fb_registry_table *table, const fb_rec_ckpt *rec)
{
    for (uint64_t i = 0; i < table->count; i++) {
        const fb_rec_ckpt *part = &table->rows[i].rec;
        if (fb_newer(part, rec) == 0 && part->rank != rec->rank && !part_is_kept(os, table, part)) return 0;
    }
    return fb_step_is_told(table, rec);
}

/* The newest committed step of a folder, by attempt and step: a row of it. NULL if there is none.
 * From the end, where the newest are. */
static const fb_registry_row *newest_committed(const fb_registry_table *table, const char *dir)
{
    const fb_registry_row *best = NULL;
    for (uint64_t i = table->count; i-- > 0;) {
        const fb_registry_row *row = &table->rows[i];
        if (row->rec.state != FB_CKPT_COMMITTED || !fb_belongs(&row->rec, dir)) continue;
        if (best && fb_newer(&row->rec, &best->rec) <= 0) continue;
        if (has_every_part(NULL, table, &row->rec)) best = row;
    }
    return best;
}

/* Promised to a row that still matters, and perhaps not made yet. */
static int is_promised(const fb_registry_store *store, const fb_registry_row *best, const char *slot)
{
    for (uint64_t i = 0; i < store->table.count; i++) {
        const fb_rec_ckpt *rec = &store->table.rows[i].rec;
        if (has_prefix(fb_pin_of(rec), slot) && (!best || fb_newer(rec, &best->rec) >= 0)) return 1;
    }
    return 0;
}

fb_status fb_pin_slot(const fb_registry_store *store, const fb_place *place, char *path, size_t room, fb_error *err)
{
    const fb_os *os = store->os;
    const fb_registry_row *best = newest_committed(&store->table, place->dir);
    char prefix[FB_OS_PATH_MAX], slot[FB_OS_PATH_MAX + 16];
    fb_status status = own_prefix(prefix, sizeof prefix, place->dir, store->home, err);
    if (status != FB_OK) return status;
    for (int i = 0; i < SLOTS_MAX; i++) {
        fb_os_info info;
        int64_t got;
        (void)snprintf(slot, sizeof slot, "%s%d", prefix, i);
        got = os->lstat(os->ctx, slot, &info);
        if (got == 0) continue;
        if (got != -ENOENT && got != -ENOTDIR) return fb_fail_os(err, (int)-got, "look at %s", slot);
        (void)snprintf(slot, sizeof slot, "%s%d/", prefix, i);
        if (!is_promised(store, best, slot)) return fb_os_join(path, room, slot, place->name, err);
    }
    return fb_fail(err, FB_E_LIMIT, "pin %s: more than %d pins are there", place->path, SLOTS_MAX);
}

/* The same bytes were kept already, when the same save is committed a second time. */
static const fb_registry_row *kept_already(const fb_registry_store *store, const fb_place *place, const fb_rec_ckpt *rec)
{
    for (uint64_t i = 0; i < store->table.count; i++) {
        const fb_registry_row *row = &store->table.rows[i];
        fb_text origin = row->rec.origin;
        if (row->rec.state != FB_CKPT_COMMITTED || row->rec.digest != rec->digest || fb_newer(&row->rec, rec) != 0) continue;
        if (origin.bytes && strcmp(origin.data, place->path) == 0 && fb_pin_is_there(store->os, &row->rec)) return row;
    }
    return NULL;
}

void fb_pin_plan(const fb_registry_store *store, const fb_place *place, int links, fb_rec_ckpt *rec, char path[FB_OS_PATH_MAX])
{
    const fb_registry_row *kept = kept_already(store, place, rec);
    if (kept) {
        (void)snprintf(path, FB_OS_PATH_MAX, "%s", kept->path);
        rec->pin = kept->rec.pin;
    } else if (fb_pin_slot(store, place, path, FB_OS_PATH_MAX, NULL) == FB_OK) {
        rec->pin = links ? FB_PIN_LINK : FB_PIN_REFLINK;
    } else {
        path[0] = '\0';
        rec->pin = FB_PIN_IMPOSSIBLE;
        rec->note = fb_registry_words("no pin: there is no place for one beside the checkpoint");
    }
    rec->pin_path = fb_registry_words(path);
}

/* ---- rows for what stays ---------------------------------------------------------------------------------------------------- */

fb_status fb_keep_row(fb_registry_store *store, const char *path, fb_error *err)
{
    const fb_registry_row *row = fb_registry_table_find(&store->table, path, (uint32_t)strlen(path));
    fb_rec_ckpt rec;
    fb_os_info info;
    if (!row) return FB_OK;
    rec = row->rec;
    if (rec.state == FB_CKPT_QUARANTINED) {
        if (rec.aside.bytes == 0 || store->os->lstat(store->os->ctx, rec.aside.data, &info) != 0) return FB_OK;
        rec.path = rec.aside;
    } else {
        if (rec.origin.bytes || rec.state == 0 || rec.digest == 0 || !fb_pin_is_there(store->os, &rec)) return FB_OK;
        if (store->os->lstat(store->os->ctx, rec.pin_path.data, &info) != 0) return FB_OK;
        rec.path = rec.pin_path;
    }
    rec.origin = row->rec.path;
    rec.aside = rec.pin_path = fb_registry_words("");
    rec.inode = info.inode;
    rec.mtime_ns = info.mtime_ns;
    rec.mark = 0;
    return fb_registry_store_append(store, &rec, NULL, err);
}

/* ---- the lock of pins ------------------------------------------------------------------------------------------------------- */

/* A descriptor, or a negative errno. -EAGAIN: somebody makes a pin for longer than we wait; the next settling looks again. */
static int64_t take_pin_lock(const fb_os *os, const char *prefix)
{
    char path[FB_OS_PATH_MAX];
    int64_t fd, got = -EAGAIN, begin = os->monotonic_ns(os->ctx);
    if (strlen(prefix) + sizeof "lock" > sizeof path) return -ENAMETOOLONG;
    (void)snprintf(path, sizeof path, "%slock", prefix);
    fd = fb_os_open(os, path, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
    if (fd < 0) return fd;
    while ((got = fb_os_lock(os, (int)fd, FB_OS_LOCK)) == -EAGAIN && os->monotonic_ns(os->ctx) - begin < LOCK_WAIT_NS) {
        (void)os->sleep_ns(os->ctx, LOCK_PAUSE_NS);
    }
    if (got == 0) return fd;
    (void)os->close(os->ctx, (int)fd);
    return got;
}

/* ---- making ----------------------------------------------------------------------------------------------------------------- */

static fb_status room_for_copy(const fb_os *os, const char *dir, uint64_t bytes, fb_error *err)
{
    int64_t free = os->free_bytes(os->ctx, dir);
    uint64_t wanted =
        bytes > (UINT64_MAX - MARGIN_BYTES) / 2 ? UINT64_MAX : 2 * bytes + MARGIN_BYTES; /* the next save needs room, too */
    if (free < 0) return fb_fail_os(err, (int)-free, "ask for the free space of %s", dir);
    if ((uint64_t)free >= wanted) return FB_OK;
    return fb_fail(
        err, FB_E_UNSUPPORTED,
        "the trainer may save over this name, so it takes a copy, and %llu bytes are free where %llu are wanted; save under a "
        "name with the step number, or announce each save",
        (unsigned long long)free, (unsigned long long)wanted);
}

/* By the first way that works: the way, and 0 with the reason when none does. */
static int32_t make_pin(const fb_os *os, const fb_place *place, const fb_rec_ckpt *rec, int how, fb_error *why)
{
    const char *pin = rec->pin_path.data;
    uint64_t bytes = 0;
    fb_status status = FB_E_UNSUPPORTED;
    int64_t got;
    fb_place pinned;
#ifdef FB_BREAK_P8_pin
    if (os) return rec->pin;
#endif
    if (fb_place_split(&pinned, rec->pin_path, why) != FB_OK || fb_place_make(os, pinned.dir, why) != FB_OK) return 0;
    if (rec->pin == FB_PIN_LINK) {
        status = fb_tree_twice(os, place->path, pin, FB_TREE_LINK, 0, why);
        if (status == FB_OK) return FB_PIN_LINK;
    }
    if (status != FB_E_UNSUPPORTED || how == FB_PINS_QUICK) return 0;
    status = fb_tree_twice(os, place->path, pin, FB_TREE_CLONE, 0, why);
    if (status == FB_OK) return FB_PIN_REFLINK;
    if (status != FB_E_UNSUPPORTED) return 0;
    if ((status = fb_tree_bytes(os, place->path, &bytes, why)) == FB_OK) status = room_for_copy(os, place->dir, bytes, why);
    if (status == FB_OK) status = fb_tree_twice(os, place->path, pin, FB_TREE_COPY, rec->digest, why);
    if (status == FB_OK) return FB_PIN_COPY;
    got = os->rmdir(os->ctx, pinned.dir); /* empty: no pin came of it */
    (void)got;
    return 0;
}

static int is_about_pin(fb_text note)
{
    static const char begins[] = "no pin: ";
    return note.bytes >= sizeof begins - 1 && memcmp(note.data, begins, sizeof begins - 1) == 0;
}

/* What an operator wrote stays with the record when only its pin changes; what was said of an earlier pin does not. */
static fb_text keep_note(fb_text before, const char *about_pin, char *room, size_t bytes)
{
    if (before.bytes == 0 || is_about_pin(before)) return fb_registry_words(about_pin);
    if (about_pin[0] == '\0') return before;
    (void)snprintf(room, bytes, "%.600s; %s", fb_registry_text(before), about_pin);
    return fb_registry_words(room);
}

/* Put down that a pin was made in another way than planned, elsewhere, or not at all, unless the row has moved on. */
static fb_status record_pin(const fb_os *os, const char *home, const fb_registry_row *row, int32_t pin, const char *pin_path,
                            const char *note, fb_error *err)
{
    fb_registry_store store;
    const fb_registry_row *now;
    fb_rec_ckpt rec;
    char both[1024];
    fb_status status = fb_registry_store_open(&store, os, home, NULL, NULL, err);
    if (status != FB_OK) return status;
    now = fb_registry_table_find(&store.table, row->path, row->rec.path.bytes);
    if (now && now->sequence == row->sequence) {
        rec = now->rec;
        rec.pin = pin;
        rec.pin_path = fb_registry_words(pin_path);
        rec.note = keep_note(rec.note, note, both, sizeof both);
        status = fb_registry_store_append(&store, &rec, NULL, err);
    }
    fb_registry_store_close(&store);
    return status;
}

/* Its slot was given to another, or never was: a new one, recorded before anything is put there. */
static fb_status plan_again(const fb_os *os, const char *home, const fb_registry_row *row, const fb_place *place, fb_rec_ckpt *rec,
                            char path[FB_OS_PATH_MAX], uint64_t *sequence, fb_error *err)
{
    fb_registry_store store;
    const fb_registry_row *now;
    fb_status status = fb_registry_store_open(&store, os, home, NULL, NULL, err);
    if (status != FB_OK) return status;
    now = fb_registry_table_find(&store.table, row->path, row->rec.path.bytes);
    if (!now || now->sequence != row->sequence) status = fb_fail(err, FB_E_ORDER, "pin %s: its record moved on", row->path);
    else status = fb_pin_slot(&store, place, path, FB_OS_PATH_MAX, err);
    if (now && status == FB_OK) {
        *rec = now->rec;
        rec->pin = rec->pin == FB_PIN_LINK || rec->pin == FB_PIN_RENAMED ? FB_PIN_LINK : FB_PIN_REFLINK;
        rec->pin_path = fb_registry_words(path);
        rec->note = keep_note(rec->note, "", NULL, 0);
        status = fb_registry_store_append(&store, rec, sequence, err);
        rec->path = row->rec.path; /* the texts of `now` are gone */
        rec->tensor = rec->aside = rec->origin = rec->note = fb_registry_words("");
    }
    fb_registry_store_close(&store);
    return status;
}

static fb_status pin_one(const fb_os *os, const char *home, const fb_registry_row *row, int how, uint64_t *done, fb_error *err)
{
    char path[FB_OS_PATH_MAX], note[1024];
    fb_registry_row planned = *row;
    fb_place place, slot;
    fb_os_info info;
    fb_error why;
    int32_t made;
    fb_status status = fb_place_split(&place, row->rec.path, err);
    if (status != FB_OK) return status;
    if (os->lstat(os->ctx, place.path, &info) != 0 || !fb_place_is_same(&row->rec, &info))
        return FB_OK; /* not those bytes any more */
    status = row->rec.pin_path.bytes ? fb_place_split(&slot, row->rec.pin_path, err) : FB_OK;
    if (status == FB_OK && (row->rec.pin_path.bytes == 0 || fb_place_taken(os, slot.path))) {
        status = plan_again(os, home, row, &place, &planned.rec, path, &planned.sequence, err);
    }
    if (status != FB_OK) return status;
    fb_error_clear(&why);
    made = make_pin(os, &place, &planned.rec, how, &why);
    if (made) {
        if (done) ++*done;
        if (made == planned.rec.pin) return FB_OK;
        return record_pin(os, home, &planned, made, planned.rec.pin_path.data, "", err);
    }
    if (how == FB_PINS_QUICK) return FB_OK; /* whoever has more time tries the other ways */
    (void)snprintf(note, sizeof note, "no pin: %s", why.message);
    return record_pin(os, home, &planned, FB_PIN_IMPOSSIBLE, "", note, err);
}

static int wants_pin(const fb_os *os, const fb_registry_row *row, const fb_registry_row *best, const char *dir, int how)
{
    const fb_rec_ckpt *rec = &row->rec;
    if (rec->state != FB_CKPT_COMMITTED || rec->origin.bytes || rec->digest == 0 || !fb_belongs(rec, dir)) return 0;
    if (fb_newer(rec, &best->rec) != 0) return 0;
    if (rec->pin == FB_PIN_IMPOSSIBLE || rec->pin_path.bytes == 0) return how == FB_PINS_AGAIN;
    return !fb_pin_is_there(os, rec);
}

/* ---- removing --------------------------------------------------------------------------------------------------------------- */

/* The newest committed step whose pins are there, of all its parts: what is older needs none. */
static const fb_registry_row *newest_pinned(const fb_os *os, const fb_registry_table *table, const char *dir)
{
    const fb_registry_row *best = NULL;
    for (uint64_t i = table->count; i-- > 0;) {
        const fb_registry_row *row = &table->rows[i];
        if (row->rec.state != FB_CKPT_COMMITTED || !fb_belongs(&row->rec, dir)) continue;
        if (best && fb_newer(&row->rec, &best->rec) <= 0) continue;
        if (fb_pin_is_there(os, &row->rec) && has_every_part(os, table, &row->rec)) best = row;
    }
    return best;
}

/*
 * Needed: pins of what is not older than `best`, suspect ones included, which may be committed again; and what stands for a
 * quarantined checkpoint that has no other place yet.
 */
static int is_needed(const fb_os *os, const fb_registry_table *table, const fb_registry_row *best, const char *slot)
{
    for (uint64_t i = 0; i < table->count; i++) {
        const fb_rec_ckpt *rec = &table->rows[i].rec;
        if (!has_prefix(fb_pin_of(rec), slot)) continue;
        if (rec->state == FB_CKPT_QUARANTINED) {
            if (rec->aside.bytes && !fb_place_taken(os, rec->aside.data)) return 1;
        } else if (!best || fb_newer(rec, &best->rec) >= 0) {
            return 1;
        }
    }
    return 0;
}

typedef struct slots {
    char **names; /* of the folders of this home's pins */
    uint64_t count, room;
    const char *tag;
    int failed;
} slots;

static int64_t take_slot(void *arg, const char *name)
{
    slots *s = arg;
    size_t n = strlen(s->tag);
    if (strncmp(name, s->tag, n) != 0 || strcmp(name + n, "lock") == 0) return 0;
    if (s->count == s->room) {
        uint64_t room = s->room ? s->room * 2 : 16;
        char **grown = fb_realloc(s->names, (size_t)room * sizeof *grown);
        s->failed = !grown;
        if (!grown) return 1;
        s->names = grown;
        s->room = room;
    }
    s->names[s->count] = fb_strdup(name);
    s->failed = !s->names[s->count];
    s->count += !s->failed;
    return s->failed;
}

static void release_slots(slots *s)
{
    for (uint64_t i = 0; i < s->count; i++) fb_free(s->names[i]);
    fb_free(s->names);
}

static int is_dead(const char *name)
{
    size_t n = strlen(name);
    return n >= sizeof DEAD && strcmp(name + n - (sizeof DEAD - 1), DEAD) == 0;
}

typedef struct guests {
    const fb_os *os;
    const char *slot;
    int64_t made_ns; /* when the pin was put there */
    char name[256];  /* of the first thing that was found */
    int found;
} guests;

/* What one slot holds is a pin, and perhaps half of one beside it, NAME.part. */
static int64_t take_guest(void *arg, const char *name)
{
    guests *g = arg;
    char path[FB_OS_PATH_MAX];
    const char *longer = strlen(name) > strlen(g->name) ? name : g->name, *shorter = longer == name ? g->name : name;
    size_t n = strlen(shorter);
    if (g->name[0] && (strncmp(longer, shorter, n) != 0 || strcmp(longer + n, ".part") != 0)) g->found = 1;
    if (!g->name[0]) (void)snprintf(g->name, sizeof g->name, "%s", name);
    if (fb_os_join(path, sizeof path, g->slot, name, NULL) != FB_OK || fb_tree_newest_ns(g->os, path) > g->made_ns) g->found = 1;
    return g->found;
}

/*
 * Did somebody else put something there, or write into it? A trainer that saves where it resumed from does. Nobody writes into a
 * pin but through another name of a hard link, and then keeping it costs little.
 */
static int has_guests(const fb_os *os, const char *slot)
{
    guests g;
    fb_os_info info;
    memset(&g, 0, sizeof g);
    if (os->lstat(os->ctx, slot, &info) != 0) return 1;
    g.os = os;
    g.slot = slot;
    g.made_ns = info.mtime_ns;
    return info.kind != FB_OS_FOLDER || os->list(os->ctx, slot, take_guest, &g) < 0 || g.found;
}

/* Under the registry's lock: what is not needed gets a name under which nobody takes it for a pin. */
static int disown(const fb_os *os, const fb_registry_table *table, const char *dir, const char *pins, const slots *s)
{
    const fb_registry_row *best = newest_pinned(os, table, dir);
    int disowned = 0;
    for (uint64_t i = 0; i < s->count; i++) {
        char slot[FB_OS_PATH_MAX], dead[FB_OS_PATH_MAX + 8];
        if (is_dead(s->names[i]) || fb_os_join(slot, sizeof slot - 1, pins, s->names[i], NULL) != FB_OK) continue;
        (void)snprintf(dead, sizeof dead, "%s%s", slot, DEAD);
        (void)snprintf(slot + strlen(slot), 2, "/");
        if (is_needed(os, table, best, slot)) continue;
        slot[strlen(slot) - 1] = '\0';
        if (has_guests(os, slot)) continue;
        disowned += os->rename_new(os->ctx, slot, dead) == 0;
    }
    return disowned;
}

static fb_status list_slots(const fb_os *os, const char *pins, slots *s, fb_error *err)
{
    int64_t got = os->list(os->ctx, pins, take_slot, s);
    if (s->failed) return fb_fail(err, FB_E_NOMEM, "list %s: no memory", pins);
    return got < 0 ? fb_fail_os(err, (int)-got, "list %s", pins) : FB_OK;
}

static fb_status remove_dead(const fb_os *os, const char *pins, const char *tag, uint64_t *done, fb_error *err)
{
    slots s = {NULL, 0, 0, tag, 0};
    fb_status status = list_slots(os, pins, &s, err);
    for (uint64_t i = 0; status == FB_OK && i < s.count; i++) {
        char path[FB_OS_PATH_MAX];
        if (!is_dead(s.names[i])) continue;
        if ((status = fb_os_join(path, sizeof path, pins, s.names[i], err)) == FB_OK) status = fb_tree_remove(os, path, err);
        if (status == FB_OK && done) ++*done;
    }
    release_slots(&s);
    return status;
}

static fb_status remove_older(const fb_os *os, const char *home, const char *dir, const char *prefix, uint64_t *done, fb_error *err)
{
    char pins[FB_OS_PATH_MAX];
    fb_registry_store store;
    const char *tag = strrchr(prefix, '/') + 1;
    slots s = {NULL, 0, 0, tag, 0};
    int disowned = 0;
    fb_status status = fb_place_below(pins, sizeof pins, dir, "pins", err);
    if (status == FB_OK)
        status = remove_dead(os, pins, tag, done, err); /* left by a crash, and in the way of the next of that name */
    if (status == FB_OK) status = list_slots(os, pins, &s, err);
    if (status == FB_OK && s.count > 0) {
        status = fb_registry_store_open(&store, os, home, NULL, NULL, err);
        if (status == FB_OK) {
            disowned = disown(os, &store.table, dir, pins, &s);
            fb_registry_store_close(&store);
        }
    }
    release_slots(&s);
    return status == FB_OK && disowned ? remove_dead(os, pins, tag, done, err) : status;
}

/* ---- both ------------------------------------------------------------------------------------------------------------------- */

static fb_status make_all(const fb_os *os, const char *home, const char *dir, int how, uint64_t *done, fb_error *err)
{
    fb_registry_table table;
    const fb_registry_row *best;
    fb_status status;
    memset(&table, 0, sizeof table);
    status = fb_registry_load(os, home, &table, err);
    best = newest_committed(&table, dir);
    for (uint64_t i = 0; status == FB_OK && best && i < table.count; i++) {
        if (wants_pin(os, &table.rows[i], best, dir, how)) status = pin_one(os, home, &table.rows[i], how, done, err);
    }
    fb_registry_table_release(&table);
    return status;
}

/* No folder for pins can be made: say so in the records, or nobody would know that rotation can take the last one. */
static fb_status all_impossible(const fb_os *os, const char *home, const char *dir, const char *why, fb_error *err)
{
    fb_registry_table table;
    const fb_registry_row *best;
    char note[1024];
    fb_status status;
    memset(&table, 0, sizeof table);
    (void)snprintf(note, sizeof note, "no pin: %s", why);
    status = fb_registry_load(os, home, &table, err);
    best = newest_committed(&table, dir);
    for (uint64_t i = 0; status == FB_OK && best && i < table.count; i++) {
        if (!wants_pin(os, &table.rows[i], best, dir, FB_PINS_ALL)) continue;
        status = record_pin(os, home, &table.rows[i], FB_PIN_IMPOSSIBLE, "", note, err);
    }
    fb_registry_table_release(&table);
    return status;
}

fb_status fb_pins_settle(const fb_os *os, const char *home, const char *folder, int how, uint64_t *done, fb_error *err)
{
    char prefix[FB_OS_PATH_MAX], pins[FB_OS_PATH_MAX], absolute[FB_OS_PATH_MAX], dir[FB_OS_PATH_MAX];
    fb_error why;
    int64_t fd, got;
    fb_status status;
    (void)snprintf(dir, sizeof dir, "%s", folder);
    fb_place_outer(dir);
    got = os->realpath(os->ctx, home, absolute, sizeof absolute);
    if (got < 0) return fb_fail_os(err, (int)-got, "pin checkpoints: find %s", home);
    if ((status = own_prefix(prefix, sizeof prefix, dir, absolute, err)) != FB_OK) return status;
    if ((status = fb_place_below(pins, sizeof pins, dir, "pins", err)) != FB_OK) return status;
    if (fb_place_make(os, pins, &why) != FB_OK) {
        return how == FB_PINS_QUICK ? FB_OK : all_impossible(os, home, dir, why.message, err);
    }
    fd = take_pin_lock(os, prefix);
    if (fd == -EAGAIN) return FB_OK; /* somebody else of this run is at it */
    if (fd < 0) {
        (void)fb_fail_os(&why, (int)-fd, "lock the pins in %s", pins);
        return how == FB_PINS_QUICK ? FB_OK : all_impossible(os, home, dir, why.message, err);
    }
    status = make_all(os, home, dir, how, done, err);
    if (status == FB_OK) status = remove_older(os, home, dir, prefix, done, err);
    (void)fb_os_lock(os, (int)fd, FB_OS_UNLOCK);
    (void)os->close(os->ctx, (int)fd);
    return status;
}
