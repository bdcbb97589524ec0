#include "registry/table.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/status.h"

void fb_registry_table_release(fb_registry_table *table)
{
    for (uint64_t i = 0; i < table->count; i++) fb_free(table->rows[i].texts);
    fb_free(table->rows);
    fb_free(table->buckets);
    memset(table, 0, sizeof *table);
}

static int same_path(const fb_registry_row *row, uint64_t key, const char *path, uint32_t bytes)
{
    return row->key == key && row->rec.path.bytes == bytes && memcmp(row->path, path, bytes) == 0;
}

/* The bucket that holds the path, or the empty one where it would go. */
static uint64_t bucket_of(const fb_registry_table *table, uint64_t key, const char *path, uint32_t bytes)
{
    uint64_t at = key & (table->bucket_count - 1);
    while (table->buckets[at] && !same_path(&table->rows[table->buckets[at] - 1], key, path, bytes)) {
        at = (at + 1) & (table->bucket_count - 1);
    }
    return at;
}

const fb_registry_row *fb_registry_table_find(const fb_registry_table *table, const char *path, uint32_t path_bytes)
{
    uint64_t at;
    if (table->bucket_count == 0) return NULL;
    at = bucket_of(table, fb_hash64(path, path_bytes, 0), path, path_bytes);
    return table->buckets[at] ? &table->rows[table->buckets[at] - 1] : NULL;
}

static int is_text(const fb_text *text, const char *path, size_t bytes)
{
    return bytes && text->bytes == bytes && memcmp(text->data, path, bytes) == 0;
}

const fb_registry_row *fb_registry_table_pinned(const fb_registry_table *table, const char *path)
{
    size_t bytes = strlen(path);
    for (uint64_t i = 0; i < table->count; i++) {
        if (is_text(&table->rows[i].rec.pin_path, path, bytes)) return &table->rows[i];
    }
    return NULL;
}

const fb_registry_row *fb_registry_table_aside(const fb_registry_table *table, const char *path)
{
    size_t bytes = strlen(path);
    for (uint64_t i = 0; i < table->count; i++) {
        if (is_text(&table->rows[i].rec.aside, path, bytes)) return &table->rows[i];
    }
    return NULL;
}

/* Room for one row more, in rows and buckets. */
static int grow(fb_registry_table *table)
{
    if (table->count == table->room) {
        uint64_t room = table->room ? table->room * 2 : 16;
        fb_registry_row *rows = fb_realloc(table->rows, (size_t)room * sizeof *rows);
        if (!rows) return 0;
        table->rows = rows;
        table->room = room;
    }
    if (2 * (table->count + 1) > table->bucket_count) {
        uint64_t bucket_count = table->bucket_count ? table->bucket_count * 2 : 32;
        uint64_t *buckets = fb_calloc((size_t)bucket_count, sizeof *buckets);
        if (!buckets) return 0;
        fb_free(table->buckets);
        table->buckets = buckets;
        table->bucket_count = bucket_count;
        for (uint64_t i = 0; i < table->count; i++) {
            const fb_registry_row *row = &table->rows[i];
            table->buckets[bucket_of(table, row->key, row->path, row->rec.path.bytes)] = i + 1;
        }
    }
    return 1;
}

enum { TEXTS = 6 };

static void texts_of(fb_rec_ckpt *rec, fb_text *out[TEXTS])
{
    out[0] = &rec->path;
    out[1] = &rec->tensor;
    out[2] = &rec->aside;
    out[3] = &rec->pin_path;
    out[4] = &rec->origin;
    out[5] = &rec->note;
}

/* All texts of a record in one block, and the record's pointers turned to them. NULL without memory. */
static char *keep_texts(fb_rec_ckpt *rec)
{
    fb_text *texts[TEXTS];
    size_t used = 0, room = TEXTS;
    char *block;
    texts_of(rec, texts);
    for (int i = 0; i < TEXTS; i++) room += texts[i]->bytes;
    block = fb_calloc(room, 1);
    if (!block) return NULL;
    for (int i = 0; i < TEXTS; i++) {
        if (texts[i]->bytes) memcpy(block + used, texts[i]->data, texts[i]->bytes);
        texts[i]->data = block + used;
        used += (size_t)texts[i]->bytes + 1;
    }
    return block;
}

fb_status fb_registry_table_put(fb_registry_table *table, const fb_rec_ckpt *rec, uint64_t sequence, uint64_t time_ns,
                                fb_error *err)
{
    uint64_t key = fb_hash64(rec->path.data, rec->path.bytes, 0);
    fb_rec_ckpt kept = *rec;
    char *texts = keep_texts(&kept);
    fb_registry_row *row;
    uint64_t at;
    if (!texts || !grow(table)) {
        fb_free(texts);
        return fb_fail(err, FB_E_NOMEM, "read the registry: no memory for %llu checkpoints", (unsigned long long)table->count + 1);
    }
    at = bucket_of(table, key, kept.path.data, kept.path.bytes);
    if (table->buckets[at] == 0) {
        table->buckets[at] = ++table->count;
        table->rows[table->count - 1].texts = NULL;
    }
    row = &table->rows[table->buckets[at] - 1];
    fb_free(row->texts);
    row->rec = kept;
    row->texts = texts;
    row->path = kept.path.data;
    row->key = key;
    row->sequence = sequence;
    row->time_ns = time_ns;
    return FB_OK;
}
