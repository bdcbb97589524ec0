/*
 * torch.save since 1.6: a zip archive with one folder in it, NAME/.
 *
 *   NAME/data.pkl            the object; a tensor in it refers to a storage by key and says how many elements it has
 *   NAME/data/KEY            the elements of one storage, nothing else, stored
 *   NAME/version             a decimal number; TorchScript has it as NAME/.data/version
 *   NAME/byteorder           "little" or "big"; missing before torch 2.1, which is little
 *   NAME/.format_version, NAME/.storage_alignment, NAME/.data/serialization_id      written since, not needed to read
 *
 * TorchScript adds NAME/code/, which is text and not looked at, and NAME/constants.pkl with storages in NAME/constants/. NAME is
 * what stands in front of the first slash of the first entry of the directory, as in torch's own reader. Valid only if every
 * storage that an object refers to is a member of exactly elements * element size bytes. Source:
 * caffe2/serialize/inline_container.cc and torch/serialization.py of PyTorch; files of 2.13.
 *
 * Any zip archive whose first member is no array comes here: what it is, only its directory tells.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/order.h"
#include "ckpt/torch_object.h"
#include "ckpt/zip.h"

enum { PARTS = 2, SMALL_MAX = 64, VERSION_MAX = 10 };
static const uint64_t PICKLE_BYTES_MAX = 1u << 30;

/* An object of the archive: its pickle, what it means, and the folder of its storages. */
typedef struct part {
    uint8_t *bytes;
    fb_pickle *pickle;
    fb_torch_object *object;
    uint64_t extents; /* handed out so far of those in memory */
} part;

/* A storage that an object refers to, and the member that it is. */
typedef struct place {
    const fb_zip_member *member;
    const fb_torch_storage *storage;
} place;

typedef struct state {
    const char *path;
    uint64_t begin; /* of the archive in the file */
    fb_zip *zip;
    char *top; /* "NAME/" */
    size_t top_bytes;
    int swapped;
    part parts[PARTS];
    place *places;
    uint32_t *order; /* places by position in the file */
    uint64_t count, next;
    fb_ckpt_remark *remarks; /* about members */
    uint64_t remark_count, remark_room;
    uint64_t object_remarks; /* of data.pkl */
    int object_remarks_known;
    /* The archive turned out to hold arrays: all calls go there. */
    const fb_ckpt_reader *other;
    void *other_state;
} state;

static const char *const pickles[PARTS] = {"data.pkl", "constants.pkl"};
static const char *const folders[PARTS] = {"data/", "constants/"};

/* ---- what kind of archive is it? --------------------------------------------------------------------------------------------- */

static int torch_zip_detect(const uint8_t *head, size_t head_bytes, uint64_t file_bytes)
{
    (void)file_bytes;
    return head_bytes >= 4 && memcmp(head, "PK\3\4", 4) == 0;
}

static int ends_with(const char *text, const char *end)
{
    size_t bytes = strlen(text), end_bytes = strlen(end);
    return bytes >= end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

/* Members NAME/data.pkl, whatever NAME is; arrays. */
static void count_kinds(const fb_zip *zip, uint64_t *objects, uint64_t *arrays)
{
    *objects = *arrays = 0;
    for (uint64_t i = 0; i < fb_zip_count(zip); i++) {
        const char *name = fb_zip_member_at(zip, i)->name, *slash = strchr(name, '/');
        if (slash && strcmp(slash + 1, pickles[0]) == 0) ++*objects;
        if (ends_with(name, ".npy")) ++*arrays;
    }
}

static fb_status refuse_kind(const state *s, fb_error *err)
{
    const char *what = "it holds neither an object of torch (data.pkl) nor arrays (.npy)";
    if (fb_zip_find(s->zip, "config.json") && fb_zip_find(s->zip, "metadata.json")) {
        what = "it is a Keras archive, whose weights are in HDF5; save them as safetensors or npz to have them scanned";
    }
    return fb_fail(err, FB_E_UNSUPPORTED, "read zip archive %s: %s", s->path, what);
}

/* ---- names of members -------------------------------------------------------------------------------------------------------- */

static const fb_zip_member *find(const state *s, const char *folder, const char *name)
{
    char text[4096 + 1];
    if (s->top_bytes + strlen(folder) + strlen(name) >= sizeof text) return NULL; /* no member's name is longer */
    (void)snprintf(text, sizeof text, "%s%s%s", s->top, folder, name);
    return fb_zip_find(s->zip, text);
}

/* The name as torch knows it, without the folder. */
static const char *short_name(const state *s, const fb_zip_member *m)
{
    return m->name + s->top_bytes;
}

static fb_status take_top(state *s, fb_error *err)
{
    const char *name = fb_zip_member_at(s->zip, 0)->name, *slash = strchr(name, '/');
    if (!slash) {
        return fb_fail_at(err, fb_zip_member_at(s->zip, 0)->header_bytes_at,
                          "read torch archive %s: its first member, %.200s, lies in no folder, and torch would not find the object",
                          s->path, name);
    }
    s->top_bytes = (size_t)(slash - name) + 1;
    s->top = fb_calloc(s->top_bytes + 1, 1);
    if (!s->top) return fb_fail(err, FB_E_NOMEM, "read torch archive %s: no memory", s->path);
    memcpy(s->top, name, s->top_bytes);
    for (uint64_t i = 0; i < fb_zip_count(s->zip); i++) { /* torch refuses these as well: whose they are, nobody can say */
        const fb_zip_member *m = fb_zip_member_at(s->zip, i);
        if (strncmp(m->name, s->top, s->top_bytes) != 0) {
            return fb_fail_at(err, m->header_bytes_at, "read torch archive %s: member %.200s lies outside the folder %s", s->path,
                              m->name, s->top);
        }
    }
    if (find(s, "", pickles[0])) return FB_OK;
    return fb_fail_at(err, fb_zip_member_at(s->zip, 0)->header_bytes_at,
                      "read torch archive %s: no %sdata.pkl; torch looks for it in the folder of the first member alone", s->path,
                      s->top);
}

/* ---- small members ----------------------------------------------------------------------------------------------------------- */

/* Content of a member that is a few letters, without white space at its end. "" and *there 0 when it is missing. */
static fb_status read_small(state *s, const char *name, char text[SMALL_MAX + 1], int *there, fb_error *err)
{
    const fb_zip_member *m = find(s, "", name);
    uint8_t *data;
    size_t bytes;
    fb_status status;
    text[0] = '\0';
    *there = m != NULL;
    if (!m) return FB_OK;
    if (m->bytes > SMALL_MAX) {
        return fb_fail_at(err, m->data_at, "read torch archive %s: %s has %llu bytes instead of a few", s->path, name,
                          (unsigned long long)m->bytes);
    }
    if ((status = fb_zip_load(s->zip, m, SMALL_MAX, &data, err)) != FB_OK) return status;
    bytes = (size_t)m->bytes;
    while (bytes > 0 && (data[bytes - 1] == '\n' || data[bytes - 1] == '\r' || data[bytes - 1] == ' ')) bytes--;
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    fb_free(data);
    return FB_OK;
}

static fb_status check_version(state *s, fb_error *err)
{
    char text[SMALL_MAX + 1];
    int there, number = 0;
    fb_status status = read_small(s, "version", text, &there, err);
    if (status == FB_OK && !there) status = read_small(s, ".data/version", text, &there, err);
    if (status != FB_OK) return status;
    if (!there)
        return fb_fail_at(err, s->begin, "read torch archive %s: no version member, which every torch writes: it is incomplete",
                          s->path);
    for (const char *c = text; *c && number <= VERSION_MAX; c++)
        number = *c >= '0' && *c <= '9' ? 10 * number + (*c - '0') : VERSION_MAX + 1;
    if (number >= 1 && number <= VERSION_MAX) return FB_OK;
    return fb_fail(err, FB_E_UNSUPPORTED, "read torch archive %s: a container whose version is not 1 to %d", s->path, VERSION_MAX);
}

static fb_status check_format_version(state *s, fb_error *err)
{
    char text[SMALL_MAX + 1];
    int there;
    fb_status status = read_small(s, ".format_version", text, &there, err);
    if (status != FB_OK || !there || strcmp(text, "1") == 0) return status;
    return fb_fail(err, FB_E_UNSUPPORTED, "read torch archive %s: a newer format than this build knows (.format_version is not 1)",
                   s->path);
}

static fb_status take_byteorder(state *s, fb_error *err)
{
    char text[SMALL_MAX + 1];
    int there;
    fb_status status = read_small(s, "byteorder", text, &there, err);
    if (status != FB_OK || !there || strcmp(text, "little") == 0) return status;
    s->swapped = strcmp(text, "big") == 0;
    if (s->swapped) return FB_OK;
    return fb_fail_at(err, find(s, "", "byteorder")->data_at, "read torch archive %s: the byte order is neither little nor big",
                      s->path);
}

/* ---- objects and storages ---------------------------------------------------------------------------------------------------- */

static fb_status open_part(state *s, part *p, const fb_zip_member *m, const fb_ckpt_options *options, fb_error *err)
{
    uint64_t bytes_max = options->header_bytes_max ? options->header_bytes_max : PICKLE_BYTES_MAX, used = 0;
    fb_pickle_limits limits;
    fb_status status = fb_zip_load(s->zip, m, bytes_max, &p->bytes, err);
    memset(&limits, 0, sizeof limits);
    limits.bytes_max = bytes_max;
    if (status == FB_OK) status = fb_pickle_parse(&p->pickle, p->bytes, m->bytes, m->data_at, s->path, &limits, &used, err);
    if (status != FB_OK) return status;
    if (used != m->bytes) {
        return fb_fail_at(err, m->data_at + used, "read torch archive %s: %llu bytes follow the object in %.200s", s->path,
                          (unsigned long long)(m->bytes - used), m->name);
    }
    return fb_torch_object_open(&p->object, p->pickle, s->path, err);
}

static fb_status place_storage(state *s, place *at, const char *folder, const fb_torch_storage *storage, fb_error *err)
{
    const fb_zip_member *m = find(s, folder, storage->key);
    uint64_t due;
    if (!m) {
        return fb_fail_at(err, find(s, "", pickles[0])->data_at,
                          "read torch archive %s: storage %s%.200s is missing: it is incomplete", s->path, folder, storage->key);
    }
    if (__builtin_mul_overflow(storage->elements, (uint64_t)storage->element_bytes, &due) ||
        (storage->element_bytes && due != m->bytes)) {
        return fb_fail_at(
            err, m->data_at, "read torch archive %s: storage %s%.200s has %llu bytes, %llu elements of %u bytes are due", s->path,
            folder, storage->key, (unsigned long long)m->bytes, (unsigned long long)storage->elements, storage->element_bytes);
    }
    at->member = m;
    at->storage = storage;
    return FB_OK;
}

static int by_position(const void *ctx, uint32_t a, uint32_t b)
{
    const state *s = ctx;
    uint64_t x = s->places[a].member->data_at, y = s->places[b].member->data_at;
    return x < y ? -1 : x > y;
}

static fb_status place_all(state *s, fb_error *err)
{
    uint64_t total = 0;
    for (int i = 0; i < PARTS; i++) total += s->parts[i].object ? fb_torch_storages(s->parts[i].object) : 0;
    if (total > fb_zip_count(s->zip)) { /* before memory is asked for: keys are different, so one of them has no member */
        return fb_fail_at(err, find(s, "", pickles[0])->data_at,
                          "read torch archive %s: it refers to %llu storages, and has %llu members", s->path,
                          (unsigned long long)total, (unsigned long long)fb_zip_count(s->zip));
    }
    s->places = fb_calloc((size_t)total + 1, sizeof *s->places);
    s->order = fb_calloc((size_t)total + 1, sizeof *s->order);
    if (!s->places || !s->order) {
        return fb_fail(err, FB_E_NOMEM, "read torch archive %s: no memory for %llu storages", s->path, (unsigned long long)total);
    }
    for (int i = 0; i < PARTS; i++) {
        const fb_torch_object *object = s->parts[i].object;
        for (uint64_t n = 0; object && n < fb_torch_storages(object); n++) {
            fb_status status = place_storage(s, &s->places[s->count], folders[i], fb_torch_storage_at(object, n), err);
            if (status != FB_OK) return status;
            s->order[s->count] = (uint32_t)s->count;
            s->count++;
        }
    }
    fb_ckpt_sort(s->order, s->count, by_position, s);
    for (uint64_t i = 1; i < s->count; i++) {
        if (by_position(s, s->order[i - 1], s->order[i]) == 0) { /* no two members begin at one place, empty ones neither */
            return fb_fail_at(err, s->places[s->order[i]].member->data_at,
                              "read torch archive %s: two storages are the member %.200s", s->path,
                              s->places[s->order[i]].member->name);
        }
    }
    return FB_OK;
}

/* ---- members that nothing refers to ------------------------------------------------------------------------------------------ */

static int known_member(const char *name)
{
    static const char *const known[] = {
        "data.pkl",           "constants.pkl",          "version",      "byteorder", ".format_version",
        ".storage_alignment", ".data/serialization_id", ".data/version"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(name, known[i]) == 0) return 1;
    }
    return strncmp(name, "code/", 5) == 0; /* one note tells of all of it */
}

static fb_status add_remark(state *s, const char *name, const char *text, fb_error *err)
{
    if (s->remark_count == s->remark_room) {
        uint64_t room = s->remark_room ? 2 * s->remark_room : 8;
        fb_ckpt_remark *grown = fb_realloc(s->remarks, (size_t)room * sizeof *grown);
        if (!grown)
            return fb_fail(err, FB_E_NOMEM, "read torch archive %s: no memory for %llu remarks", s->path, (unsigned long long)room);
        s->remarks = grown;
        s->remark_room = room;
    }
    s->remarks[s->remark_count++] = (fb_ckpt_remark){FB_CKPT_REMARK_NOTE, name, text, 0.0};
    return FB_OK;
}

static const char *about_member(const state *s, const fb_zip_member *m)
{
    const char *name = short_name(s, m);
    if (strncmp(name, folders[0], strlen(folders[0])) == 0 ||
        (s->parts[1].object && strncmp(name, folders[1], strlen(folders[1])) == 0)) {
        return "is a storage that no object refers to, and was not looked at";
    }
    return "is no part of what torch.save writes, and was not looked at";
}

static int referenced(const state *s, const fb_zip_member *m)
{
    uint64_t low = 0, high = s->count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        uint64_t at = s->places[s->order[middle]].member->data_at;
        if (at == m->data_at) return 1;
        if (at < m->data_at) low = middle + 1;
        else high = middle;
    }
    return 0;
}

static fb_status remark_members(state *s, fb_error *err)
{
    int code = 0;
    fb_status status = FB_OK;
    for (uint64_t i = 0; i < fb_zip_count(s->zip) && status == FB_OK; i++) {
        const fb_zip_member *m = fb_zip_member_at(s->zip, i);
        const char *name = short_name(s, m);
        if (known_member(name)) code |= strncmp(name, "code/", 5) == 0;
        else if (!referenced(s, m)) status = add_remark(s, name, about_member(s, m), err);
    }
    if (status == FB_OK && code)
        status = add_remark(s, "code/", "is the program of a TorchScript archive, which loading it would run", err);
    return status;
}

/* ---- the reader -------------------------------------------------------------------------------------------------------------- */

static void torch_zip_close(void *state_)
{
    state *s = state_;
    if (!s) return;
    if (s->other) s->other->close(s->other_state);
    for (int i = 0; i < PARTS; i++) {
        fb_torch_object_close(s->parts[i].object);
        fb_pickle_free(s->parts[i].pickle);
        fb_free(s->parts[i].bytes);
    }
    fb_zip_close(s->zip);
    fb_free(s->top);
    fb_free(s->places);
    fb_free(s->order);
    fb_free(s->remarks);
    fb_free(s);
}

static fb_status open_torch(state *s, const fb_ckpt_options *options, fb_error *err)
{
    fb_status status = take_top(s, err);
    if (status == FB_OK) status = check_version(s, err);
    if (status == FB_OK) status = check_format_version(s, err);
    if (status == FB_OK) status = take_byteorder(s, err);
    for (int i = 0; i < PARTS && status == FB_OK; i++) {
        const fb_zip_member *m = find(s, "", pickles[i]);
        if (m) status = open_part(s, &s->parts[i], m, options, err);
    }
    if (status == FB_OK) status = place_all(s, err);
    if (status == FB_OK) status = remark_members(s, err);
    return status;
}

static fb_status open_archive(state *s, const fb_ckpt_range *range, const fb_ckpt_options *options, fb_error *err)
{
    uint64_t objects, arrays;
    fb_status status = fb_zip_open(&s->zip, range, err);
    if (status != FB_OK) return status;
    count_kinds(s->zip, &objects, &arrays);
    if (objects > 1 || (objects && arrays)) {
        return fb_fail_at(err, range->offset_bytes, "read zip archive %s: %s, and what is in it depends on who loads it", s->path,
                          objects > 1 ? "it holds several objects of torch" : "it holds an object of torch and arrays of NumPy");
    }
    if (objects) return open_torch(s, options, err);
    if (!arrays) return refuse_kind(s, err);
    s->other = &fb_ckpt_npz;
    return s->other->open(&s->other_state, range, options, err);
}

static fb_status torch_zip_open(void **out, const fb_ckpt_range *range, const fb_ckpt_options *options, fb_error *err)
{
    state *s = fb_calloc(1, sizeof *s);
    fb_status status;
    *out = NULL;
    if (!s) return fb_fail(err, FB_E_NOMEM, "read zip archive %s: no memory", range->file->path);
    s->path = range->file->path;
    s->begin = range->offset_bytes;
    status = open_archive(s, range, options, err);
    if (status != FB_OK) {
        torch_zip_close(s);
        return status;
    }
    *out = s;
    return FB_OK;
}

static fb_status torch_zip_next(void *state_, fb_ckpt_extent *extent, fb_error *err)
{
    state *s = state_;
    const place *at;
    if (s->other) return s->other->next(s->other_state, extent, err);
    for (int i = 0; i < PARTS; i++) {
        if (s->parts[i].object && fb_torch_extent(s->parts[i].object, s->parts[i].extents, extent)) {
            s->parts[i].extents++;
            /* Places in a pickle that was compressed are no places in the file. */
            if (find(s, "", pickles[i])->encoding != FB_CKPT_STORED) extent->offset_bytes = extent->stored_bytes = 0;
            return FB_OK;
        }
    }
    if (s->next == s->count) return FB_E_NOTFOUND;
    at = &s->places[s->order[s->next++]];
    memset(extent, 0, sizeof *extent);
    extent->name = short_name(s, at->member);
    extent->encoding = at->member->encoding;
    extent->swapped = s->swapped;
    extent->offset_bytes = at->member->data_at;
    extent->stored_bytes = at->member->stored_bytes;
    extent->bytes = at->member->bytes;
    extent->crc32 = at->member->crc32;
    extent->has_crc = at->member->crc32 != 0; /* 0: the writer was told to make none */
    extent->tensors = at->storage->tensors;
    extent->tensor_count = at->storage->tensor_count;
    return FB_OK;
}

static int torch_zip_remark(void *state_, uint64_t i, fb_ckpt_remark *remark)
{
    state *s = state_;
    if (s->other) return s->other->remark ? s->other->remark(s->other_state, i, remark) : 0;
    if (i < s->remark_count) {
        *remark = s->remarks[i];
        return 1;
    }
    i -= s->remark_count;
    if (!s->parts[1].object) return fb_torch_remark(s->parts[0].object, i, remark);
    if (!s->object_remarks_known) { /* how many the first object has is only known by asking */
        while (fb_torch_remark(s->parts[0].object, s->object_remarks, remark)) s->object_remarks++;
        s->object_remarks_known = 1;
    }
    if (i < s->object_remarks) return fb_torch_remark(s->parts[0].object, i, remark);
    return fb_torch_remark(s->parts[1].object, i - s->object_remarks, remark);
}

const fb_ckpt_reader fb_ckpt_torch_zip = {
    .format = "torch_zip",
    .detect = torch_zip_detect,
    .open = torch_zip_open,
    .next = torch_zip_next,
    .remark = torch_zip_remark,
    .close = torch_zip_close,
};
