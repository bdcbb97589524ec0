/* See places.h. */
#include "places.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "os/os.h"

enum { NUMBER_BYTES = 12 };

static uint32_t hash(const char *name)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 16777619u;
    return h;
}

/* The slot that holds the name, or the free one where it would go. The table is never more than half full. */
static uint32_t slot_of(const places *p, const char *name)
{
    uint32_t at = hash(name) & (p->slots - 1);
    while (p->slot[at] != FB_FLOW_NONE && strcmp(p->names[p->slot[at]], name) != 0) at = (at + 1) & (p->slots - 1);
    return at;
}

uint32_t places_find(const places *p, const char *name)
{
    return p->slots ? p->slot[slot_of(p, name)] : FB_FLOW_NONE;
}

/* Room for so many places that read so many others in all. */
static fb_status make_room(places *p, size_t lines, size_t inputs, fb_error *err)
{
    p->slots = 16;
    while (p->slots < 2 * lines) p->slots *= 2;
    p->names = fb_calloc(lines, sizeof *p->names);
    p->known = fb_calloc(lines, sizeof *p->known);
    p->made_by = fb_calloc(lines, sizeof *p->made_by);
    p->producer = fb_calloc(lines, sizeof *p->producer);
    p->flags = fb_calloc(lines, sizeof *p->flags);
    p->first = fb_calloc(lines + 1, sizeof *p->first);
    p->inputs = fb_calloc(inputs, sizeof *p->inputs);
    p->slot = fb_calloc(p->slots, sizeof *p->slot);
    if (!p->names || !p->known || !p->made_by || !p->producer || !p->flags || !p->first || !p->inputs || !p->slot)
        return fb_fail(err, FB_E_NOMEM, "read the boundaries: no memory for %zu of them", lines);
    memset(p->slot, 0xff, p->slots * sizeof *p->slot);
    return FB_OK;
}

static void point(places *p)
{
    p->flow.tensors = p->count;
    p->flow.producer = p->producer;
    p->flow.flags = p->flags;
    p->flow.first = p->first;
    p->flow.inputs = p->inputs;
}

/* The next place, without what it reads: an entry, or made by a node of its own. */
static void add(places *p, char *name, int is_entry, uint32_t flags, uint8_t known)
{
    uint32_t place = p->count++;
    p->names[place] = name;
    p->slot[slot_of(p, name)] = place;
    p->flags[place] = flags;
    p->known[place] = known;
    p->producer[place] = is_entry ? FB_FLOW_NONE : p->flow.nodes;
    if (is_entry) return;
    p->made_by[p->flow.nodes++] = place;
    p->first[p->flow.nodes] = p->first[p->flow.nodes - 1];
}

static void reads(places *p, uint32_t place)
{
    p->inputs[p->first[p->flow.nodes]++] = place;
}

/* ---- a file ------------------------------------------------------------------------------------------------------------------ */

typedef struct line {
    const char *path;
    unsigned long long number;
    char *name, *rest;
    int has_colon, is_entry;
    uint32_t flags;
    uint8_t known;
} line;

#define BLANKS " \t\r"

static int is_word(const char *word, size_t bytes, const char *text)
{
    return strlen(text) == bytes && strncmp(word, text, bytes) == 0;
}

static fb_status take_flag(line *l, const char *word, size_t bytes, fb_error *err)
{
    if (is_word(word, bytes, "!state")) {
        l->is_entry = 1;
        l->flags |= FB_FLOW_STATE;
    } else if (is_word(word, bytes, "!entry")) {
        l->is_entry = 1;
    } else if (is_word(word, bytes, "!mask")) {
        l->flags |= FB_FLOW_MASK;
    } else if (is_word(word, bytes, "!good")) {
        l->known = PLACE_GOOD;
    } else if (is_word(word, bytes, "!untestable")) {
        l->known = PLACE_UNTESTABLE;
    } else {
        return fb_fail(err, FB_E_USAGE, "%s:%llu: expected !state, !entry, !mask, !good or !untestable, found '%.*s'", l->path,
                       l->number, bytes < 40 ? (int)bytes : 40, word);
    }
    return FB_OK;
}

/* Flags first, in a pass of their own that cuts nothing: they say whether there is a node at all. */
static fb_status take_flags(line *l, fb_error *err)
{
    fb_status status = FB_OK;
    size_t bytes = 0;
    for (const char *at = l->rest; status == FB_OK && *(at += strspn(at, BLANKS)); at += bytes) {
        bytes = strcspn(at, BLANKS);
        if (*at == '!') status = take_flag(l, at, bytes, err);
        else if (!l->has_colon)
            status = fb_fail(err, FB_E_USAGE, "%s:%llu: '%.*s' stands after '%.80s'; what a boundary reads stands after '%.80s:'",
                             l->path, l->number, bytes < 40 ? (int)bytes : 40, at, l->name, l->name);
    }
    if (status == FB_OK && l->is_entry && l->has_colon)
        status = fb_fail(err, FB_E_USAGE, "%s:%llu: '%.80s' is an entry, which reads nothing, and has a ':'", l->path, l->number,
                         l->name);
    return status;
}

static fb_status take_inputs(places *p, line *l, fb_error *err)
{
    char *save = NULL;
    for (char *word = strtok_r(l->rest, BLANKS, &save); word; word = strtok_r(NULL, BLANKS, &save)) {
        uint32_t input;
        if (word[0] == '!') continue;
        input = places_find(p, word);
        if (input == FB_FLOW_NONE || input + 1 == p->count)
            return fb_fail(err, FB_E_USAGE, "%s:%llu: '%.80s' reads '%.80s', which does not stand above it", l->path, l->number,
                           l->name, word);
        reads(p, input);
    }
    return FB_OK;
}

/* The name, whether ':' follows it, and the rest of the line. Returns 0 for a line with nothing on it. */
static int take_name(line *l, char *text)
{
    size_t bytes;
    l->name = text + strspn(text, BLANKS);
    if (!*l->name || *l->name == '#') return 0;
    bytes = strcspn(l->name, BLANKS);
    l->rest = l->name + bytes + (l->name[bytes] != '\0');
    l->name[bytes] = '\0';
    l->has_colon = bytes > 1 && l->name[bytes - 1] == ':';
    if (l->has_colon) l->name[bytes - 1] = '\0';
    return 1;
}

static fb_status check_name(const places *p, const line *l, fb_error *err)
{
    for (const char *c = l->name; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return fb_fail(err, FB_E_USAGE, "%s:%llu: the name holds a control character", l->path, l->number);
    }
    if (l->name[0] == '!') return fb_fail(err, FB_E_USAGE, "%s:%llu: expected a name before '%.40s'", l->path, l->number, l->name);
    if (places_find(p, l->name) != FB_FLOW_NONE)
        return fb_fail(err, FB_E_USAGE, "%s:%llu: there is a boundary '%.80s' above already", l->path, l->number, l->name);
    if (p->count == PLACES_COUNT_MAX)
        return fb_fail(err, FB_E_LIMIT, "%s:%llu: more than %d boundaries", l->path, l->number, PLACES_COUNT_MAX);
    return FB_OK;
}

static fb_status take_line(places *p, line *l, fb_error *err)
{
    uint32_t before = p->flow.nodes ? p->made_by[p->flow.nodes - 1] : 0, place = p->count;
    fb_status status = check_name(p, l, err);
    if (status == FB_OK) status = take_flags(l, err);
    if (status != FB_OK) return status;
    add(p, l->name, l->is_entry, l->flags, l->known);
    if (l->has_colon) return take_inputs(p, l, err);
    for (uint32_t i = before; !l->is_entry && i < place; i++) reads(p, i);
    return FB_OK;
}

static fb_status take_lines(places *p, const char *path, fb_error *err)
{
    fb_status status = FB_OK;
    unsigned long long number = 0;
    char *text = p->text;
    if (strncmp(text, "\xef\xbb\xbf", 3) == 0) text += 3; /* the mark that some editors put before UTF-8 is no part of a name */
    while (status == FB_OK && text) {
        line l = {path, ++number, NULL, NULL, 0, 0, 0, PLACE_ASK};
        char *end = strchr(text, '\n');
        if (end) *end = '\0';
        if (take_name(&l, text)) status = take_line(p, &l, err);
        text = end ? end + 1 : NULL;
    }
    return status;
}

fb_status places_read(places *p, const char *path, fb_error *err)
{
    size_t bytes = 0, lines = 1, words = 1;
    fb_status status;
    memset(p, 0, sizeof *p);
    if ((status = fb_os_read_file(fb_os_posix(), path, PLACES_BYTES_MAX, &p->text, &bytes, err)) != FB_OK) return status;
    if (strlen(p->text) != bytes)
        return fb_fail(err, FB_E_USAGE, "read boundaries from %s: it holds a NUL byte at offset %zu", path, strlen(p->text));
    for (size_t i = 0; i < bytes; i++) {
        if (p->text[i] == '\n') lines++;
        if (p->text[i] == ' ' || p->text[i] == '\t') words++;
    }
    /* A bare line reads one place made by a node, and an entry is read by at most one bare line. */
    if ((status = make_room(p, lines, words + 2 * lines, err)) != FB_OK) return status;
    if ((status = take_lines(p, path, err)) != FB_OK) return status;
    point(p);
    if (p->count == 0) return fb_fail(err, FB_E_USAGE, "read boundaries from %s: there is none in it", path);
    return FB_OK;
}

fb_status places_number(places *p, uint32_t count, fb_error *err)
{
    fb_status status;
    memset(p, 0, sizeof *p);
    if (count > PLACES_COUNT_MAX) return fb_fail(err, FB_E_LIMIT, "take --count: more than %d boundaries", PLACES_COUNT_MAX);
    if (!(p->text = fb_calloc(count, NUMBER_BYTES))) return fb_fail(err, FB_E_NOMEM, "name %u boundaries: no memory", count);
    if ((status = make_room(p, count, count, err)) != FB_OK) return status;
    for (uint32_t i = 0; i < count; i++) {
        char *name = p->text + (size_t)i * NUMBER_BYTES;
        (void)snprintf(name, NUMBER_BYTES, "%u", i + 1);
        add(p, name, 0, 0, PLACE_ASK);
        if (i) reads(p, i - 1);
    }
    point(p);
    return FB_OK;
}

void places_release(places *p)
{
    fb_free(p->names);
    fb_free(p->known);
    fb_free(p->made_by);
    fb_free(p->producer);
    fb_free(p->flags);
    fb_free(p->first);
    fb_free(p->inputs);
    fb_free(p->slot);
    fb_free(p->text);
    memset(p, 0, sizeof *p);
}
