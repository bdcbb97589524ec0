/*
 * A parser for one kind of literal:
 *
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *   {'descr': [('x', '<f4'), ('', '|V4'), ('pair', '<f8', (2,)), ('inner', [('y', '>f2')], (3,))], ...}
 *
 * Texts, integers (with the L of Python 2), True, False, tuples, lists. Nothing is evaluated. A list of fields may hold lists of
 * fields: they lie on a stack of our own. Source: numpy/lib/format.py (descr_to_dtype, _read_array_header) and NumPy's dtype.descr.
 */
#include "ckpt/npy_header.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/text.h"

enum { DEPTH_MAX = 32, FIELDS_MAX = 4096, TEXT_MAX = 4096 };

/* A list of fields that is not closed yet. */
typedef struct frame {
    const char *name; /* of the field whose format this list is; "" for the outermost */
    uint64_t at;      /* bytes of the record so far */
    uint32_t first;   /* field that comes first in it */
    uint64_t place;   /* of its bracket in the text */
} frame;

typedef struct parser {
    const char *text;
    size_t bytes, at;
    int latin1;
    const fb_npy_source *source;
    fb_npy_header *out;
    fb_error *err;
    frame stack[DEPTH_MAX];
    int depth;
    char word[TEXT_MAX + 8]; /* the text that was read last */
    size_t word_bytes;
} parser;

typedef struct dims {
    uint64_t size[FB_CKPT_DIMS_MAX];
    int32_t count;
    int is_tuple;
} dims;

#define CORRUPT(p, place, ...) fb_fail_at((p)->err, (p)->source->base + (place), __VA_ARGS__)

static fb_status no_memory(const parser *p)
{
    return fb_fail(p->err, FB_E_NOMEM, FB_NPY_SAY "no memory", FB_NPY_WHO(p->source));
}

static fb_status limit(const parser *p, const char *what, unsigned long long most)
{
    return fb_fail(p->err, FB_E_LIMIT, FB_NPY_SAY "more than %llu %s", FB_NPY_WHO(p->source), most, what);
}

/* ---- pieces of the literal -------------------------------------------------------------------------------------------------- */

static char peek(parser *p)
{
    while (p->at < p->bytes && (p->text[p->at] == ' ' || p->text[p->at] == '\n' || p->text[p->at] == '\t')) p->at++;
    return p->at < p->bytes ? p->text[p->at] : '\0';
}

static int take(parser *p, char c)
{
    if (peek(p) != c || p->at == p->bytes) return 0;
    p->at++;
    return 1;
}

static fb_status expect(parser *p, char c, const char *where)
{
    if (take(p, c)) return FB_OK;
    if (p->at == p->bytes) return CORRUPT(p, p->at, FB_NPY_SAY "'%c' was due %s, the header ends", FB_NPY_WHO(p->source), c, where);
    return CORRUPT(p, p->at, FB_NPY_SAY "'%c' was due %s, found the byte 0x%02x", FB_NPY_WHO(p->source), c, where,
                   (unsigned)(uint8_t)p->text[p->at]);
}

/* A backslash was taken: what it stands for, or -1. */
static int64_t escaped(parser *p)
{
    static const char names[] = "\\'\"nrt", values[] = "\\'\"\n\r\t";
    char c = p->at < p->bytes ? p->text[p->at++] : '\0';
    const char *place = c ? strchr(names, c) : NULL;
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code = 0;
    if (place) return values[place - names];
    if (digits == 0) return -1;
    for (int i = 0; i < digits; i++) {
        static const char hex[] = "0123456789abcdef";
        char d = p->at < p->bytes ? p->text[p->at++] : '\0';
        const char *digit = d ? strchr(hex, d >= 'A' && d <= 'F' ? d - 'A' + 'a' : d) : NULL;
        if (!digit) return -1;
        code = code << 4 | (uint32_t)(digit - hex);
    }
    return code;
}

/* A text between quotes, as UTF-8, into p->word. */
static fb_status read_text(parser *p, const char *what)
{
    size_t begin;
    char quote = peek(p);
    const char *fault;
    if (quote == 'u' && p->at + 1 < p->bytes) { /* Python 2 */
        p->at++;
        quote = p->text[p->at];
    }
    if (quote != '\'' && quote != '"')
        return CORRUPT(p, p->at, FB_NPY_SAY "%s must be a text between quotes", FB_NPY_WHO(p->source), what);
    begin = p->at++;
    for (p->word_bytes = 0; p->at < p->bytes && p->text[p->at] != quote;) {
        int64_t code = (uint8_t)p->text[p->at++];
        int utf8 = code >= 0x80 && !p->latin1; /* a byte of a character, as it is */
        size_t length = 1;
        if (p->word_bytes > TEXT_MAX) return limit(p, "bytes in one text", TEXT_MAX);
        if (code == '\\' && (code = escaped(p)) < 0)
            return CORRUPT(p, p->at, FB_NPY_SAY "an escape in %s has no meaning", FB_NPY_WHO(p->source), what);
        if (utf8) p->word[p->word_bytes] = (char)code;
        else length = fb_ckpt_text_put(p->word + p->word_bytes, (uint32_t)code);
        if (length == 0) return CORRUPT(p, p->at, FB_NPY_SAY "an escape in %s is no character", FB_NPY_WHO(p->source), what);
        p->word_bytes += length;
    }
    if (p->at == p->bytes) return CORRUPT(p, begin, FB_NPY_SAY "%s has no closing quote", FB_NPY_WHO(p->source), what);
    p->at++;
    p->word[p->word_bytes] = '\0';
    fault = fb_ckpt_text_fault(p->word, p->word_bytes);
    if (fault) return CORRUPT(p, begin, FB_NPY_SAY "%s %s", FB_NPY_WHO(p->source), what, fault);
    return FB_OK;
}

static fb_status read_integer(parser *p, uint64_t *value)
{
    size_t begin;
    (void)peek(p);
    begin = p->at;
    *value = 0;
    while (p->at < p->bytes && p->text[p->at] >= '0' && p->text[p->at] <= '9') {
        if (__builtin_mul_overflow(*value, 10u, value) || __builtin_add_overflow(*value, (uint64_t)(p->text[p->at] - '0'), value) ||
            *value > INT64_MAX)
            return CORRUPT(p, begin, FB_NPY_SAY "a dimension above 2^63 - 1", FB_NPY_WHO(p->source));
        p->at++;
    }
    if (p->at == begin)
        return CORRUPT(p, begin, FB_NPY_SAY "a dimension must be an integer from 0 to 2^63 - 1", FB_NPY_WHO(p->source));
    if (p->at < p->bytes && p->text[p->at] == 'L') p->at++;
    return FB_OK;
}

/* (3, 4), (3,), (), or 3. */
static fb_status read_dims(parser *p, dims *d)
{
    int comma = 0;
    fb_status status;
    d->count = 0;
    d->is_tuple = take(p, '(');
    if (!d->is_tuple) {
        d->count = 1;
        return read_integer(p, &d->size[0]);
    }
    while (peek(p) != ')') {
        if (d->count > 0 && !comma) return expect(p, ')', "after a dimension");
        if (d->count == FB_CKPT_DIMS_MAX) return limit(p, "dimensions", FB_CKPT_DIMS_MAX);
        if ((status = read_integer(p, &d->size[d->count])) != FB_OK) return status;
        d->count++;
        comma = take(p, ',');
    }
    d->is_tuple = d->count != 1 || comma; /* in Python, (3) is 3 */
    return expect(p, ')', "after a shape");
}

/* ---- number formats --------------------------------------------------------------------------------------------------------- */

typedef struct known {
    char letter;
    uint64_t bytes;
    int32_t dtype;
} known;

static const known numbers[] = {
    {'f', 2, FB_F16}, {'f', 4, FB_F32}, {'f', 8, FB_F64}, {'c', 8, FB_C64}, {'c', 16, FB_C128}, {'b', 1, FB_BOOL},
    {'i', 1, FB_I8},  {'i', 2, FB_I16}, {'i', 4, FB_I32}, {'i', 8, FB_I64}, {'u', 1, FB_U8},    {'u', 2, FB_U16},
    {'u', 4, FB_U32}, {'u', 8, FB_U64}, {'M', 8, FB_I64}, {'m', 8, FB_I64}, /* times: NaT is an integer */
};

static fb_status unsupported_format(const parser *p, char letter)
{
    switch (letter) {
    case 'O':
        return fb_fail(p->err, FB_E_UNSUPPORTED,
                       FB_NPY_SAY
                       "it holds Python objects, which NumPy stores as a pickle; save its numbers as arrays of their own",
                       FB_NPY_WHO(p->source));
    case 'f':
    case 'c':
        return fb_fail(p->err, FB_E_UNSUPPORTED,
                       FB_NPY_SAY
                       "%s is a long double, whose bytes differ from machine to machine; save it as float64 or complex128",
                       FB_NPY_WHO(p->source), p->word);
    default:
        return fb_fail(p->err, FB_E_UNSUPPORTED, FB_NPY_SAY "the number format %.64s is not known to this build",
                       FB_NPY_WHO(p->source), p->word);
    }
}

static void set_bytes(fb_npy_format *f, char letter, uint64_t bytes)
{
    f->bytes = f->parts = bytes;
    f->dtype = FB_U8;
    if (letter == 'V') {
        f->dtype = 0;
        f->parts = 1;
        f->unscanned = bytes == 1 || bytes == 2
                           ? "the number format was lost: bfloat16 or float8 saved by NumPy; save it as float32"
                           : "its bytes have no number format";
    }
}

/* p->word holds it. */
static fb_status read_format(parser *p, fb_npy_format *f)
{
    const char *s = p->word;
    char order = *s == '<' || *s == '>' || *s == '|' || *s == '=' ? *s++ : '=', letter = *s;
    uint64_t bytes = 0;
    int digits = 0;
    memset(f, 0, sizeof *f);
    f->name = fb_pool_text(&p->out->pool, p->word, p->word_bytes);
    if (!f->name) return no_memory(p);
    if (letter) s++;
    for (; *s >= '0' && *s <= '9' && digits < 18; digits++) bytes = bytes * 10 + (uint64_t)(*s++ - '0');
    if (letter == 'O') return unsupported_format(p, letter);
    if (letter == '?' && digits == 0) {
        letter = 'b';
        bytes = 1;
        digits = 1;
    }
    if (digits == 0 || (*s && !(*s == '[' && (letter == 'M' || letter == 'm')))) return unsupported_format(p, '?');
    f->parts = 1;
    f->bytes = bytes;
    if (letter == 'S' || letter == 'a' || letter == 'V') {
        set_bytes(f, letter, bytes);
        return FB_OK;
    }
    if (letter == 'U') { /* at most 10^18, so that it does not overflow */
        f->parts = bytes;
        f->bytes = bytes * 4;
        f->dtype = FB_U32;
        return FB_OK;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (numbers[i].letter == letter && numbers[i].bytes == bytes) f->dtype = numbers[i].dtype;
    }
    if (f->dtype == 0) return unsupported_format(p, (letter == 'f' || letter == 'c') && bytes >= 10 ? letter : '?');
    f->swapped = order == '>' && bytes > 1;
    return FB_OK;
}

/* ---- fields ----------------------------------------------------------------------------------------------------------------- */

static fb_status add_field(parser *p, const fb_npy_field *field)
{
    fb_npy_header *h = p->out;
    if (h->field_count == FIELDS_MAX) return limit(p, "fields", FIELDS_MAX);
    if (h->field_count == h->field_room) {
        uint32_t room = h->field_room ? h->field_room * 2 : 8;
        fb_npy_field *grown = fb_realloc(h->fields, room * sizeof *grown);
        if (!grown) return no_memory(p);
        h->fields = grown;
        h->field_room = room;
    }
    h->fields[h->field_count++] = *field;
    return FB_OK;
}

static int may_be_bad(const fb_npy_format *f)
{
    return f->dtype >= FB_F64 && f->dtype <= FB_C128;
}

static const char *join(parser *p, const char *outer, const char *inner)
{
    char text[2 * TEXT_MAX + 16];
    int length = snprintf(text, sizeof text, "%s%s%s", outer, *outer ? "." : "", inner);
    return fb_pool_text(&p->out->pool, text, length > 0 ? (size_t)length : 0);
}

/* Bytes of `count` items of `bytes`, added to the list that is open. */
static fb_status advance(parser *p, uint64_t bytes, const dims *d, uint64_t *count)
{
    frame *f = &p->stack[p->depth - 1];
    *count = 1;
    for (int32_t i = 0; i < d->count; i++) {
        if (__builtin_mul_overflow(*count, d->size[i], count))
            return CORRUPT(p, p->at, FB_NPY_SAY "a field has more than 2^64 items", FB_NPY_WHO(p->source));
    }
    if (__builtin_mul_overflow(bytes, *count, &bytes) || __builtin_add_overflow(f->at, bytes, &f->at))
        return CORRUPT(p, p->at, FB_NPY_SAY "a record has more than 2^64 bytes", FB_NPY_WHO(p->source));
    return FB_OK;
}

/* The rest of a tuple after its format: nothing, or a shape. */
static fb_status read_tail(parser *p, dims *d)
{
    fb_status status;
    d->count = 0;
    if (take(p, ',') && peek(p) != ')') {
        if ((status = read_dims(p, d)) != FB_OK) return status;
        (void)take(p, ',');
    }
    return expect(p, ')', "after a field");
}

/* A field of numbers: p->word holds its format. */
static fb_status read_leaf(parser *p, const char *name)
{
    fb_npy_field field;
    const frame *f = &p->stack[p->depth - 1];
    dims d;
    int padding;
    fb_status status;
    memset(&field, 0, sizeof field);
    if ((status = read_format(p, &field.format)) != FB_OK || (status = read_tail(p, &d)) != FB_OK) return status;
    field.offset_bytes = f->at;
    if ((status = advance(p, field.format.bytes, &d, &field.count)) != FB_OK) return status;
    padding = *name == '\0' && field.format.dtype == 0;
    if (padding || field.count == 0 || (field.format.dtype && !may_be_bad(&field.format))) return FB_OK;
    field.name = join(p, f->name, name);
    if (field.name && strlen(field.name) > TEXT_MAX) return limit(p, "bytes in the name of a field", TEXT_MAX);
    field.ndim = d.count;
    if (d.count) {
        uint64_t *copy = fb_pool_take(&p->out->pool, (size_t)d.count * sizeof *copy);
        if (!copy) return no_memory(p);
        memcpy(copy, d.size, (size_t)d.count * sizeof *copy);
        field.dims = copy;
    }
    return field.name ? add_field(p, &field) : no_memory(p);
}

/* name.x -> name[i].x */
static const char *numbered(parser *p, const char *name, size_t prefix, uint64_t i)
{
    char text[2 * TEXT_MAX + 16];
    int length = snprintf(text, sizeof text, "%.*s[%llu]%s", (int)prefix, name, (unsigned long long)i, name + prefix);
    return fb_pool_text(&p->out->pool, text, length > 0 ? (size_t)length : 0);
}

/* A record inside the record stands there several times: its fields name.x become name[0].x, and name[1].x, ... follow. */
static fb_status repeat(parser *p, const frame *inner, uint64_t count)
{
    fb_npy_header *h = p->out;
    uint32_t end = h->field_count;
    size_t prefix = strlen(inner->name);
    fb_status status;
    if (count == 0) h->field_count = end = inner->first;
    if (end == inner->first) return FB_OK;
    if (count > FIELDS_MAX) return limit(p, "fields", FIELDS_MAX);
    for (uint64_t i = 1; i < count; i++) {
        for (uint32_t j = inner->first; j < end; j++) {
            fb_npy_field field = h->fields[j];
            field.offset_bytes += i * inner->at;
            if (!(field.name = numbered(p, field.name, prefix, i))) return no_memory(p);
            if ((status = add_field(p, &field)) != FB_OK) return status;
        }
    }
    for (uint32_t j = inner->first; j < end; j++) {
        if (!(h->fields[j].name = numbered(p, h->fields[j].name, prefix, 0))) return no_memory(p);
    }
    return FB_OK;
}

static fb_status open_list(parser *p, const char *name)
{
    frame *f;
    if (p->depth == DEPTH_MAX) return limit(p, "lists of fields inside each other", DEPTH_MAX);
    f = &p->stack[p->depth++];
    f->name = name;
    f->at = 0;
    f->first = p->out->field_count;
    f->place = p->at;
    return expect(p, '[', "for a list of fields");
}

/* The inner list ends; what follows is the rest of the tuple that it is the format of. */
static fb_status close_list(parser *p)
{
    frame inner = p->stack[--p->depth];
    dims d;
    uint64_t count, offset;
    fb_status status;
    if (p->depth == 0) {
        p->out->record_bytes = inner.at;
        return FB_OK;
    }
    offset = p->stack[p->depth - 1].at;
    if ((status = read_tail(p, &d)) != FB_OK || (status = advance(p, inner.at, &d, &count)) != FB_OK) return status;
    for (uint32_t i = inner.first; i < p->out->field_count; i++) p->out->fields[i].offset_bytes += offset;
    return d.count ? repeat(p, &inner, count) : FB_OK;
}

/* 'name', or ('title', 'name'), into p->word. */
static fb_status read_name(parser *p)
{
    fb_status status;
    int titled = take(p, '(');
    if (titled) {
        if ((status = read_text(p, "the title of a field")) != FB_OK) return status;
        if ((status = expect(p, ',', "after the title of a field")) != FB_OK) return status;
    }
    if ((status = read_text(p, "the name of a field")) != FB_OK) return status;
    return titled ? expect(p, ')', "after the name of a field") : FB_OK;
}

static fb_status read_field(parser *p)
{
    const char *name;
    fb_status status = expect(p, '(', "for a field");
    if (status != FB_OK || (status = read_name(p)) != FB_OK) return status;
    if (!(name = fb_pool_text(&p->out->pool, p->word, p->word_bytes))) return no_memory(p);
    if ((status = expect(p, ',', "after the name of a field")) != FB_OK) return status;
    if (peek(p) == '[') {
        name = join(p, p->stack[p->depth - 1].name, name);
        if (!name) return no_memory(p);
        if (strlen(name) > TEXT_MAX) return limit(p, "bytes in the name of a field", TEXT_MAX);
        return open_list(p, name);
    }
    if ((status = read_text(p, "the format of a field")) != FB_OK) return status;
    return read_leaf(p, name);
}

static fb_status read_fields(parser *p)
{
    fb_status status = open_list(p, "");
    while (status == FB_OK && p->depth > 0) {
        int opened = p->depth;
        if (take(p, ']')) {
            status = close_list(p);
        } else {
            status = read_field(p);
        }
        if (status == FB_OK && p->depth <= opened && p->depth > 0 && !take(p, ',') && peek(p) != ']')
            return expect(p, ']', "after a field");
    }
    return status;
}

/* ---- the dictionary --------------------------------------------------------------------------------------------------------- */

static fb_status read_descr(parser *p)
{
    fb_npy_field field;
    fb_status status;
    if (peek(p) == '[') {
        p->out->structured = 1;
        return read_fields(p);
    }
    memset(&field, 0, sizeof field);
    field.name = "";
    field.count = 1;
    if ((status = read_text(p, "the number format")) != FB_OK || (status = read_format(p, &field.format)) != FB_OK) return status;
    p->out->record_bytes = field.format.bytes;
    return add_field(p, &field);
}

static fb_status read_order(parser *p)
{
    static const char *const words[] = {"False", "True"};
    (void)peek(p);
    for (int i = 0; i < 2; i++) {
        size_t length = strlen(words[i]);
        if (p->bytes - p->at >= length && memcmp(p->text + p->at, words[i], length) == 0) {
            p->out->fortran = i;
            p->at += length;
            return FB_OK;
        }
    }
    return CORRUPT(p, p->at, FB_NPY_SAY "fortran_order must be True or False", FB_NPY_WHO(p->source));
}

static fb_status read_shape(parser *p)
{
    dims d;
    size_t begin = p->at;
    fb_status status = read_dims(p, &d);
    if (status != FB_OK) return status;
    if (!d.is_tuple) return CORRUPT(p, begin, FB_NPY_SAY "the shape must be a tuple", FB_NPY_WHO(p->source));
    p->out->ndim = d.count;
    memcpy(p->out->shape, d.size, (size_t)d.count * sizeof d.size[0]);
    return FB_OK;
}

static fb_status read_entry(parser *p, int *seen)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    static fb_status (*const values[])(parser *) = {read_descr, read_order, read_shape};
    size_t begin = p->at;
    int key = 0;
    fb_status status = read_text(p, "a key");
    if (status != FB_OK) return status;
    while (key < 3 && strcmp(p->word, keys[key]) != 0) key++;
    if (key == 3 || *seen & 1 << key) {
        return CORRUPT(p, begin, FB_NPY_SAY "the key %.64s %s", FB_NPY_WHO(p->source), p->word,
                       key == 3 ? "has no business in the header" : "stands there twice");
    }
    *seen |= 1 << key;
    if ((status = expect(p, ':', "after a key")) != FB_OK) return status;
    return values[key](p);
}

static fb_status read_dictionary(parser *p)
{
    int seen = 0;
    fb_status status = expect(p, '{', "at the begin of the header");
    while (status == FB_OK && peek(p) != '}') {
        if ((status = read_entry(p, &seen)) != FB_OK) return status;
        if (!take(p, ',')) break;
    }
    if (status != FB_OK || (status = expect(p, '}', "at the end of the header")) != FB_OK) return status;
    if (seen != 7) {
        return CORRUPT(p, p->at, FB_NPY_SAY "the header has no %s", FB_NPY_WHO(p->source),
                       !(seen & 1)   ? "descr"
                       : !(seen & 2) ? "fortran_order"
                                     : "shape");
    }
    (void)peek(p);
    if (p->at < p->bytes)
        return CORRUPT(p, p->at, FB_NPY_SAY "something follows the dictionary in the header", FB_NPY_WHO(p->source));
    return FB_OK;
}

fb_status fb_npy_header_read(fb_npy_header *header, const uint8_t *text, size_t bytes, int latin1, const fb_npy_source *source,
                             fb_error *err)
{
    fb_status status;
    parser *p = fb_calloc(1, sizeof *p);
    if (!p) return fb_fail(err, FB_E_NOMEM, FB_NPY_SAY "no memory", FB_NPY_WHO(source));
    p->text = (const char *)text;
    p->bytes = bytes;
    p->latin1 = latin1;
    p->source = source;
    p->out = header;
    p->err = err;
    status = read_dictionary(p);
    fb_free(p);
    return status;
}

void fb_npy_header_release(fb_npy_header *header)
{
    fb_free(header->fields);
    header->fields = NULL;
    fb_pool_release(&header->pool);
}
