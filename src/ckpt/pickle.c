/*
 * The interpreter of pickles: a stack, marks, a memo, and nothing that could run. An opcode is a row of a table; a row that is not
 * there is an error. What an opcode would import or call becomes a node that says so.
 *
 * Stricter than CPython, which no honest writer notices: nothing is taken from below the last mark; text longer than the pickle is
 * refused before it is looked at; a frame must lie inside the pickle; state on an object that takes none, or twice on one, and
 * items set on anything but a dict or an object are refused, since a loader and we could then mean different numbers.
 * Opcodes and their operands: CPython, Lib/pickletools.py. Tried against it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/pickle_graph.h"

enum {
    MEMO_PAGE = 64, /* entries; small, so that indices far apart cost little: 80 MB for the highest index of the default limit */
    GLOBAL_BYTES_MAX = 1024,
    GLOBALS_MAX = 65536 /* with the line above 64 MiB of names: two texts of the memo make a new name in five bytes */
};

static const fb_pickle_limits defaults = {1u << 30, 200000000, 50000000, 1000000, 10000, 20000000, 64u << 20};

typedef struct machine {
    fb_pickle *graph;
    const char *path;
    fb_pickle_limits limits;
    const uint8_t *data;
    uint64_t bytes, at; /* at: the next byte */
    uint64_t op_at;     /* the opcode that is being done */
    uint32_t *stack;
    uint64_t depth, stack_room;
    uint64_t fence; /* the stack above the last mark begins here */
    uint64_t *marks;
    uint64_t mark_count, mark_room;
    uint32_t **memo; /* pages, by index / MEMO_PAGE */
    uint64_t memo_pages, memo_count;
    fb_node none, yes, no, empty; /* each exists once */
    int cut;                      /* the input is longer than what may be read of it */
    int stopped;
    fb_error *err; /* NULL, or the caller's */
} machine;

typedef fb_status (*action)(machine *m, uint32_t arg);

/* ---- errors, bytes, stack --------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static fb_status refuse(machine *m, fb_status code, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)fb_fail_at(m->err, m->graph->base + m->op_at, "read the pickle in %s: %s", m->path, text);
    if (m->err) m->err->code = code;
    return code;
}

static fb_status no_memory(machine *m)
{
    return refuse(m, FB_E_NOMEM, "no memory for %llu nodes", (unsigned long long)m->graph->node_count);
}

/* The code for an input that is too short. */
static fb_status short_of(const machine *m)
{
    return m->cut ? FB_E_LIMIT : FB_E_CORRUPT;
}

/* The next `bytes` bytes, or NULL with the error told. */
static const uint8_t *take(machine *m, uint64_t bytes, fb_status *status)
{
    const uint8_t *data = m->data + m->at;
    *status = FB_OK;
    if (bytes > m->bytes - m->at) {
        *status = refuse(m, short_of(m), "an opcode wants %llu bytes where %llu are left", (unsigned long long)bytes,
                         (unsigned long long)(m->bytes - m->at));
        return NULL;
    }
    m->at += bytes;
    return data;
}

/* An unsigned little-endian operand of `width` bytes. */
static fb_status take_number(machine *m, uint32_t width, uint64_t *value)
{
    fb_status status;
    const uint8_t *data = take(m, width, &status);
    *value = 0;
    if (!data) return status;
    for (uint32_t i = 0; i < width; i++) *value |= (uint64_t)data[i] << (8 * i);
    return FB_OK;
}

static fb_status push(machine *m, fb_node node)
{
    if (!node) return no_memory(m);
    if (m->depth >= m->limits.stack_max)
        return refuse(m, FB_E_LIMIT, "more than %llu values on the stack", (unsigned long long)m->limits.stack_max);
    if (!fb_pickle_grow((void **)&m->stack, &m->stack_room, m->depth + 1, sizeof *m->stack)) return no_memory(m);
    m->stack[m->depth++] = node;
    return FB_OK;
}

static fb_status need(machine *m, uint64_t values)
{
    if (m->depth - m->fence >= values) return FB_OK;
    return refuse(m, FB_E_CORRUPT, "opcode 0x%02x needs %llu values and the stack has %llu", m->data[m->op_at],
                  (unsigned long long)values, (unsigned long long)(m->depth - m->fence));
}

static fb_node top(const machine *m, uint64_t below)
{
    return m->stack[m->depth - 1 - below];
}

/* What stands on the stack from there on; a stack that never held anything is no array. */
static const uint32_t *values_from(const machine *m, uint64_t from)
{
    return m->stack ? m->stack + from : NULL;
}

static fb_status make(machine *m, uint8_t kind, fb_node *node)
{
    *node = 0;
    if (m->graph->node_count >= m->limits.nodes_max)
        return refuse(m, FB_E_LIMIT, "more than %llu values", (unsigned long long)m->limits.nodes_max);
    *node = fb_graph_add(m->graph, kind, m->op_at);
    return *node ? FB_OK : no_memory(m);
}

static fb_status make_fixed(machine *m, uint8_t kind, const uint32_t *children, uint64_t count, fb_node *node)
{
    *node = 0;
    if (m->graph->node_count >= m->limits.nodes_max)
        return refuse(m, FB_E_LIMIT, "more than %llu values", (unsigned long long)m->limits.nodes_max);
    *node = fb_graph_add_fixed(m->graph, kind, m->op_at, children, count);
    return *node ? FB_OK : no_memory(m);
}

static fb_status append(machine *m, fb_node to, const uint32_t *children, uint64_t count)
{
    return fb_graph_append(m->graph, to, children, count) ? FB_OK : no_memory(m);
}

/* Leave the last mark: what stood above it begins at *from, and is still there until the stack is pushed on. */
static fb_status pop_mark(machine *m, uint64_t *from, uint64_t *count)
{
    if (m->mark_count == 0) return refuse(m, FB_E_CORRUPT, "opcode 0x%02x needs a mark and there is none", m->data[m->op_at]);
    *from = m->fence;
    *count = m->depth - m->fence;
    m->depth = m->fence;
    m->mark_count--;
    m->fence = m->mark_count ? m->marks[m->mark_count - 1] : 0;
    return FB_OK;
}

/* ---- values ----------------------------------------------------------------------------------------------------------------- */

static fb_status op_constant(machine *m, uint32_t which)
{
    fb_node *node = which == 'N' ? &m->none : which == 0x88 ? &m->yes : which == 0x89 ? &m->no : &m->empty;
    fb_status status = FB_OK;
    if (!*node) {
        status = make(m, which == 'N' ? FB_PICKLE_NONE : which == ')' ? FB_PICKLE_TUPLE : FB_PICKLE_BOOL, node);
        if (status == FB_OK && which == 0x88) m->graph->nodes[*node].v.i = 1;
    }
    return status == FB_OK ? push(m, *node) : status;
}

static fb_status push_int(machine *m, int64_t value)
{
    fb_node node;
    fb_status status = make(m, FB_PICKLE_INT, &node);
    if (status != FB_OK) return status;
    m->graph->nodes[node].v.i = value;
    return push(m, node);
}

/* BININT (4: signed), BININT1, BININT2. */
static fb_status op_int(machine *m, uint32_t width)
{
    uint64_t value;
    fb_status status = take_number(m, width, &value);
    if (status != FB_OK) return status;
    return push_int(m, width == 4 ? (int32_t)(uint32_t)value : (int64_t)value);
}

static fb_status push_place(machine *m, uint8_t kind, uint64_t at, uint64_t bytes)
{
    fb_node node;
    fb_status status = make(m, kind, &node);
    if (status != FB_OK) return status;
    m->graph->nodes[node].v.text.at = (uint32_t)at;
    m->graph->nodes[node].v.text.bytes = (uint32_t)bytes;
    return push(m, node);
}

/* LONG1, LONG4: two's complement of any length. What fits is a number whatever its length. */
static fb_status op_long(machine *m, uint32_t width)
{
    uint64_t bytes, value = 0, kept;
    const uint8_t *data;
    uint8_t sign;
    fb_status status = take_number(m, width, &bytes);
    if (status != FB_OK) return status;
    if (width == 4 && bytes > INT32_MAX) return refuse(m, FB_E_CORRUPT, "an integer of a negative number of bytes");
    if (!(data = take(m, bytes, &status))) return status;
    if (bytes == 0) return push_int(m, 0);
    sign = data[bytes - 1] & 0x80 ? 0xff : 0;
    for (kept = bytes; kept > 1 && data[kept - 1] == sign && (data[kept - 2] & 0x80) == (sign & 0x80);) kept--;
    if (kept > 8) return push_place(m, FB_PICKLE_BIGINT, m->at - bytes, bytes);
    for (uint64_t i = 0; i < 8; i++) value |= (uint64_t)(i < kept ? data[i] : sign) << (8 * i);
    return push_int(m, (int64_t)value);
}

static fb_status op_float(machine *m, uint32_t arg)
{
    fb_node node;
    fb_status status;
    uint64_t bits = 0;
    const uint8_t *data = take(m, 8, &status);
    (void)arg;
    if (!data) return status;
    for (int i = 0; i < 8; i++) bits = bits << 8 | data[i];
    if ((status = make(m, FB_PICKLE_FLOAT, &node)) != FB_OK) return status;
    m->graph->nodes[node].v.bits = bits;
    return push(m, node);
}

enum { SIGNED_LENGTH = 0x100 };

static fb_status push_text(machine *m, uint8_t kind, uint32_t arg)
{
    uint64_t bytes;
    fb_status status = take_number(m, arg & 0xff, &bytes);
    if (status != FB_OK) return status;
    if (arg & SIGNED_LENGTH && bytes > INT32_MAX) return refuse(m, FB_E_CORRUPT, "a text of a negative number of bytes");
    if (!take(m, bytes, &status)) return status;
    if (kind == FB_PICKLE_TEXT && bytes > m->limits.text_max)
        return refuse(m, FB_E_LIMIT, "a text of %llu bytes, more than %llu", (unsigned long long)bytes,
                      (unsigned long long)m->limits.text_max);
    return push_place(m, kind, m->at - bytes, bytes);
}

static fb_status op_text(machine *m, uint32_t arg)
{
    return push_text(m, FB_PICKLE_TEXT, arg);
}

static fb_status op_bytes(machine *m, uint32_t arg)
{
    return push_text(m, FB_PICKLE_BYTES, arg);
}

/* ---- lines of text: protocol 0, of which Python 2 used two in protocol 2 as well --------------------------------------------- */

static fb_status take_line(machine *m, uint64_t bytes_max, const char **line, uint64_t *bytes)
{
    uint64_t left = m->bytes - m->at;
    const uint8_t *end = memchr(m->data + m->at, '\n', (size_t)(left <= bytes_max ? left : bytes_max + 1));
    if (!end && left <= bytes_max) return refuse(m, short_of(m), "a line has no end");
    if (!end) return refuse(m, FB_E_LIMIT, "a line of more than %llu bytes", (unsigned long long)bytes_max);
    *line = (const char *)m->data + m->at;
    *bytes = (uint64_t)(end - (m->data + m->at));
    m->at += *bytes + 1;
    return FB_OK;
}

static fb_status take_decimal(machine *m, int64_t *value, const char **line, uint64_t *bytes)
{
    uint64_t i = 0, magnitude = 0;
    int negative;
    fb_status status = take_line(m, 64, line, bytes);
    if (status != FB_OK) return status;
    negative = *bytes > 0 && (*line)[0] == '-';
    i = (uint64_t)negative;
    if (*bytes > i && (*line)[*bytes - 1] == 'L') --*bytes;
    if (*bytes == i) return refuse(m, FB_E_CORRUPT, "a number without digits");
    for (; i < *bytes; i++) {
        if ((*line)[i] < '0' || (*line)[i] > '9') return refuse(m, FB_E_CORRUPT, "a number with something else than digits");
        if (__builtin_mul_overflow(magnitude, 10u, &magnitude) ||
            __builtin_add_overflow(magnitude, (uint64_t)((*line)[i] - '0'), &magnitude))
            return refuse(m, FB_E_UNSUPPORTED, "a number in decimal that needs more than 64 bits");
    }
    if (magnitude > (uint64_t)INT64_MAX) return refuse(m, FB_E_UNSUPPORTED, "a number in decimal that needs more than 64 bits");
    *value = negative ? -(int64_t)magnitude : (int64_t)magnitude;
    return FB_OK;
}

/* INT, LONG: Python 2 wrote an int of more than 32 bits so in every protocol. "00" and "01" are False and True. */
static fb_status op_decimal(machine *m, uint32_t is_int)
{
    const char *line = "";
    uint64_t bytes = 0;
    int64_t value = 0;
    fb_status status = take_decimal(m, &value, &line, &bytes);
    if (status != FB_OK) return status;
    if (is_int && bytes == 2 && line[0] == '0' && (line[1] == '0' || line[1] == '1'))
        return op_constant(m, line[1] == '1' ? 0x88 : 0x89);
    return push_int(m, value);
}

/* ---- containers ------------------------------------------------------------------------------------------------------------- */

static fb_status op_empty(machine *m, uint32_t kind)
{
    fb_node node;
    fb_status status = make(m, (uint8_t)kind, &node);
    return status == FB_OK ? push(m, node) : status;
}

static fb_status op_tuple_of(machine *m, uint32_t count)
{
    fb_node node;
    fb_status status = need(m, count);
    if (status != FB_OK) return status;
    if ((status = make_fixed(m, FB_PICKLE_TUPLE, &m->stack[m->depth - count], count, &node)) != FB_OK) return status;
    m->depth -= count;
    return push(m, node);
}

/* TUPLE, LIST, DICT, FROZENSET: of what stands above the mark. */
static fb_status op_gather(machine *m, uint32_t kind)
{
    fb_node node;
    uint64_t from = 0, count = 0;
    fb_status status = pop_mark(m, &from, &count);
    if (status != FB_OK) return status;
    if (kind == FB_PICKLE_DICT && count % 2)
        return refuse(m, FB_E_CORRUPT, "a dict of %llu keys and values", (unsigned long long)count);
    if (kind == FB_PICKLE_TUPLE && count) status = make_fixed(m, FB_PICKLE_TUPLE, values_from(m, from), count, &node);
    else if (kind == FB_PICKLE_TUPLE) return op_constant(m, ')');
    else if ((status = make(m, (uint8_t)kind, &node)) == FB_OK) status = append(m, node, values_from(m, from), count);
    return status == FB_OK ? push(m, node) : status;
}

/* The container that takes what is added to `node`: itself, or for an object the one that gathers. */
static fb_status target_of(machine *m, fb_node node, uint8_t kind, fb_node *target)
{
    int32_t is = fb_pickle_kind(m->graph, node);
    fb_status status = FB_OK;
    *target = node;
    if (is == kind) return FB_OK;
    if (is != FB_PICKLE_CALL) return refuse(m, FB_E_CORRUPT, "items are added to a value that takes none (kind %d)", is);
    *target = *fb_graph_call_part(m->graph, node, FB_CALL_ITEMS);
    if (*target && fb_pickle_kind(m->graph, *target) != (kind == FB_PICKLE_DICT ? FB_PICKLE_DICT : FB_PICKLE_LIST))
        return refuse(m, FB_E_UNSUPPORTED, "an object that is a list and a dict at once");
    if (!*target && (status = make(m, kind == FB_PICKLE_DICT ? FB_PICKLE_DICT : FB_PICKLE_LIST, target)) == FB_OK)
        *fb_graph_call_part(m->graph, node, FB_CALL_ITEMS) = *target;
    return status;
}

/* SETITEM, APPEND: arg is what is added to. */
static fb_status op_add_one(machine *m, uint32_t kind)
{
    uint64_t count = kind == FB_PICKLE_DICT ? 2 : 1;
    fb_node target;
    fb_status status = need(m, count + 1);
    if (status != FB_OK) return status;
    if ((status = target_of(m, top(m, count), (uint8_t)kind, &target)) != FB_OK) return status;
    m->depth -= count;
    return append(m, target, &m->stack[m->depth], count);
}

/* SETITEMS, APPENDS, ADDITEMS. */
static fb_status op_add_many(machine *m, uint32_t kind)
{
    uint64_t from = 0, count = 0;
    fb_node target;
    fb_status status = pop_mark(m, &from, &count);
    if (status != FB_OK || (status = need(m, 1)) != FB_OK) return status;
    if (kind == FB_PICKLE_DICT && count % 2) return refuse(m, FB_E_CORRUPT, "%llu keys and values", (unsigned long long)count);
    if ((status = target_of(m, top(m, 0), (uint8_t)kind, &target)) != FB_OK) return status;
    return append(m, target, values_from(m, from), count);
}

/* ---- stack and memo --------------------------------------------------------------------------------------------------------- */

static fb_status op_mark(machine *m, uint32_t arg)
{
    (void)arg;
    if (m->mark_count >= m->limits.marks_max)
        return refuse(m, FB_E_LIMIT, "more than %llu marks", (unsigned long long)m->limits.marks_max);
    if (!fb_pickle_grow((void **)&m->marks, &m->mark_room, m->mark_count + 1, sizeof *m->marks)) return no_memory(m);
    m->marks[m->mark_count++] = m->depth;
    m->fence = m->depth;
    return FB_OK;
}

static fb_status op_pop_mark(machine *m, uint32_t arg)
{
    uint64_t from = 0, count = 0;
    (void)arg;
    return pop_mark(m, &from, &count);
}

/* POP takes the mark itself when nothing stands above it, as CPython does. */
static fb_status op_pop(machine *m, uint32_t arg)
{
    fb_status status;
    if (m->mark_count && m->depth == m->fence) return op_pop_mark(m, arg);
    if ((status = need(m, 1)) == FB_OK) m->depth--;
    return status;
}

static fb_status op_dup(machine *m, uint32_t arg)
{
    fb_status status = need(m, 1);
    (void)arg;
    return status == FB_OK ? push(m, top(m, 0)) : status;
}

static int grow_pages(machine *m, uint64_t page)
{
    uint64_t count = m->memo_pages ? m->memo_pages * 2 : 16;
    uint32_t **grown;
    if (page < m->memo_pages) return 1;
    if (count <= page) count = page + 1;
    grown = fb_calloc((size_t)count, sizeof *grown);
    if (!grown) return 0;
    if (m->memo_pages) memcpy(grown, m->memo, (size_t)m->memo_pages * sizeof *grown);
    fb_free(m->memo);
    m->memo = grown;
    m->memo_pages = count;
    return 1;
}

static fb_status memo_put(machine *m, uint64_t index)
{
    uint64_t page = index / MEMO_PAGE;
    uint32_t *place;
    fb_status status = need(m, 1);
    if (status != FB_OK) return status;
    if (index > m->limits.memo_max)
        return refuse(m, FB_E_LIMIT, "memo index %llu, more than %llu", (unsigned long long)index,
                      (unsigned long long)m->limits.memo_max);
    if (!grow_pages(m, page)) return no_memory(m);
    if (!m->memo[page] && !(m->memo[page] = fb_calloc(MEMO_PAGE, sizeof **m->memo))) return no_memory(m);
    place = &m->memo[page][index % MEMO_PAGE];
    if (!*place) m->memo_count++;
    *place = top(m, 0);
    return FB_OK;
}

static fb_status memo_get(machine *m, uint64_t index)
{
    uint64_t page = index / MEMO_PAGE;
    fb_node node = page < m->memo_pages && m->memo[page] ? m->memo[page][index % MEMO_PAGE] : 0;
    if (!node) return refuse(m, FB_E_CORRUPT, "memo index %llu was never set", (unsigned long long)index);
    return push(m, node);
}

/* Width 0: the index is a line of digits. */
static fb_status take_index(machine *m, uint32_t width, uint64_t *index)
{
    const char *line = "";
    uint64_t bytes = 0;
    int64_t value = 0;
    fb_status status;
    if (width) return take_number(m, width, index);
    if ((status = take_decimal(m, &value, &line, &bytes)) != FB_OK) return status;
    if (value < 0) return refuse(m, FB_E_CORRUPT, "a memo index below 0");
    *index = (uint64_t)value;
    return FB_OK;
}

static fb_status op_put(machine *m, uint32_t width)
{
    uint64_t index = 0;
    fb_status status = take_index(m, width, &index);
    return status == FB_OK ? memo_put(m, index) : status;
}

static fb_status op_get(machine *m, uint32_t width)
{
    uint64_t index = 0;
    fb_status status = take_index(m, width, &index);
    return status == FB_OK ? memo_get(m, index) : status;
}

static fb_status op_memoize(machine *m, uint32_t arg)
{
    (void)arg;
    return memo_put(m, m->memo_count);
}

/* ---- what would import and call --------------------------------------------------------------------------------------------- */

static fb_status global_of(machine *m, const char *module, uint64_t module_bytes, const char *name, uint64_t name_bytes,
                           fb_node *node)
{
    char text[GLOBAL_BYTES_MAX + 1];
    *node = 0;
    if (module_bytes > GLOBAL_BYTES_MAX || name_bytes > GLOBAL_BYTES_MAX || module_bytes + 1 + name_bytes > GLOBAL_BYTES_MAX)
        return refuse(m, FB_E_LIMIT, "an import whose name has more than %d bytes", GLOBAL_BYTES_MAX);
    memcpy(text, module, (size_t)module_bytes);
    text[module_bytes] = ' ';
    memcpy(text + module_bytes + 1, name, (size_t)name_bytes);
    if (m->graph->global_count >= GLOBALS_MAX) return refuse(m, FB_E_LIMIT, "more than %d different imports", GLOBALS_MAX);
    if (m->graph->node_count >= m->limits.nodes_max)
        return refuse(m, FB_E_LIMIT, "more than %llu values", (unsigned long long)m->limits.nodes_max);
    *node = fb_graph_global(m->graph, text, module_bytes + 1 + name_bytes, m->op_at);
    return *node ? FB_OK : no_memory(m);
}

static fb_status take_global(machine *m, fb_node *node)
{
    const char *module = "", *name = "";
    uint64_t module_bytes = 0, name_bytes = 0;
    fb_status status = take_line(m, GLOBAL_BYTES_MAX, &module, &module_bytes);
    if (status == FB_OK) status = take_line(m, GLOBAL_BYTES_MAX, &name, &name_bytes);
    return status == FB_OK ? global_of(m, module, module_bytes, name, name_bytes, node) : status;
}

static fb_status op_global(machine *m, uint32_t arg)
{
    fb_node node = 0;
    fb_status status = take_global(m, &node);
    (void)arg;
    return status == FB_OK ? push(m, node) : status;
}

static fb_status op_stack_global(machine *m, uint32_t arg)
{
    const char *module, *name;
    uint64_t module_bytes, name_bytes;
    fb_node node = 0;
    fb_status status = need(m, 2);
    (void)arg;
    if (status != FB_OK) return status;
    if (fb_pickle_kind(m->graph, top(m, 1)) != FB_PICKLE_TEXT || fb_pickle_kind(m->graph, top(m, 0)) != FB_PICKLE_TEXT)
        return refuse(m, FB_E_CORRUPT, "an import whose module or name is no text");
    module = fb_pickle_text(m->graph, top(m, 1), &module_bytes);
    name = fb_pickle_text(m->graph, top(m, 0), &name_bytes);
    if ((status = global_of(m, module, module_bytes, name, name_bytes, &node)) != FB_OK) return status;
    m->depth -= 2;
    return push(m, node);
}

static fb_status make_call(machine *m, fb_node callee, fb_node arguments, fb_node keywords, fb_node *node)
{
    uint32_t parts[FB_CALL_PLACES] = {0};
    fb_status status;
    parts[FB_CALL_CALLEE] = callee;
    parts[FB_CALL_ARGUMENTS] = arguments;
    parts[FB_CALL_KEYWORDS] = keywords;
    status = make_fixed(m, FB_PICKLE_CALL, parts, keywords ? FB_CALL_PLACES : FB_CALL_KEYWORDS, node);
    if (status == FB_OK && keywords) m->graph->nodes[*node].flags = FB_PICKLE_WITH_KEYWORDS;
    return status;
}

/* REDUCE, NEWOBJ (2 values: what, arguments), NEWOBJ_EX (3: and keywords). */
static fb_status op_call(machine *m, uint32_t values)
{
    fb_node node;
    fb_status status = need(m, values);
    if (status != FB_OK) return status;
    status = make_call(m, top(m, values - 1), top(m, values - 2), values == 3 ? top(m, 0) : 0, &node);
    if (status != FB_OK) return status;
    m->depth -= values;
    return push(m, node);
}

/* INST and OBJ: instances of the old classes of Python 2. The class is named in two lines, or is the first value above the mark. */
static fb_status op_instance(machine *m, uint32_t named)
{
    uint64_t from = 0, count = 0;
    fb_node callee = 0, arguments, node;
    fb_status status = FB_OK;
    if (named) status = take_global(m, &callee);
    if (status != FB_OK || (status = pop_mark(m, &from, &count)) != FB_OK) return status;
    if (!named && count == 0) return refuse(m, FB_E_CORRUPT, "an object without a class");
    if (!named) {
        callee = m->stack[from++];
        count--;
    }
    if ((status = make_fixed(m, FB_PICKLE_TUPLE, values_from(m, from), count, &arguments)) != FB_OK) return status;
    status = make_call(m, callee, arguments, 0, &node);
    return status == FB_OK ? push(m, node) : status;
}

static fb_status op_build(machine *m, uint32_t arg)
{
    uint32_t *state;
    fb_status status = need(m, 2);
    (void)arg;
    if (status != FB_OK) return status;
    if (fb_pickle_kind(m->graph, top(m, 1)) != FB_PICKLE_CALL)
        return refuse(m, FB_E_CORRUPT, "state is given to a value that takes none (kind %d)", fb_pickle_kind(m->graph, top(m, 1)));
    state = fb_graph_call_part(m->graph, top(m, 1), FB_CALL_STATE);
    if (*state) return refuse(m, FB_E_UNSUPPORTED, "state is given to one object twice, which no writer does");
    *state = top(m, 0);
    m->depth--;
    return FB_OK;
}

static fb_status op_persistent(machine *m, uint32_t arg)
{
    fb_node node;
    fb_status status = need(m, 1);
    (void)arg;
    if (status != FB_OK || (status = make(m, FB_PICKLE_PERSISTENT, &node)) != FB_OK) return status;
    m->graph->nodes[node].v.run.at = top(m, 0);
    m->depth--;
    return push(m, node);
}

/* ---- control ---------------------------------------------------------------------------------------------------------------- */

static fb_status op_protocol(machine *m, uint32_t arg)
{
    uint64_t version;
    fb_status status = take_number(m, 1, &version);
    (void)arg;
    if (status == FB_OK && version > 5)
        return refuse(m, FB_E_UNSUPPORTED, "protocol %llu, where 5 is the newest known", (unsigned long long)version);
    return status;
}

/* A frame says how much a reader may fetch at once. Nothing depends on it here; one that leaves the pickle is an error all the
 * same,
   since CPython fails on it too. */
static fb_status op_frame(machine *m, uint32_t arg)
{
    uint64_t bytes;
    fb_status status = take_number(m, 8, &bytes);
    (void)arg;
    if (status == FB_OK && bytes > m->bytes - m->at)
        return refuse(m, short_of(m), "a frame of %llu bytes where %llu are left", (unsigned long long)bytes,
                      (unsigned long long)(m->bytes - m->at));
    return status;
}

static fb_status op_stop(machine *m, uint32_t arg)
{
    fb_status status = need(m, 1);
    (void)arg;
    if (status != FB_OK) return status;
    m->graph->root = top(m, 0);
    m->stopped = 1;
    return FB_OK;
}

static fb_status op_unsupported(machine *m, uint32_t arg)
{
    (void)arg;
    return refuse(m, FB_E_UNSUPPORTED, "opcode 0x%02x is not read by this build", m->data[m->op_at]);
}

static const struct opcode {
    action run;
    uint32_t arg;
} opcodes[256] = {
    [0x80] = {op_protocol, 0},
    [0x95] = {op_frame, 0},
    ['.'] = {op_stop, 0},
    ['('] = {op_mark, 0},
    ['0'] = {op_pop, 0},
    ['1'] = {op_pop_mark, 0},
    ['2'] = {op_dup, 0},
    ['N'] = {op_constant, 'N'},
    [0x88] = {op_constant, 0x88},
    [0x89] = {op_constant, 0x89},
    [')'] = {op_constant, ')'},
    ['J'] = {op_int, 4},
    ['K'] = {op_int, 1},
    ['M'] = {op_int, 2},
    [0x8a] = {op_long, 1},
    [0x8b] = {op_long, 4},
    ['I'] = {op_decimal, 1},
    ['L'] = {op_decimal, 0},
    ['G'] = {op_float, 0},
    ['X'] = {op_text, 4},
    [0x8c] = {op_text, 1},
    [0x8d] = {op_text, 8},
    ['U'] = {op_text, 1},
    ['T'] = {op_text, 4 | SIGNED_LENGTH},
    ['C'] = {op_bytes, 1},
    ['B'] = {op_bytes, 4},
    [0x8e] = {op_bytes, 8},
    [0x96] = {op_bytes, 8},
    ['}'] = {op_empty, FB_PICKLE_DICT},
    [']'] = {op_empty, FB_PICKLE_LIST},
    [0x8f] = {op_empty, FB_PICKLE_SET},
    [0x85] = {op_tuple_of, 1},
    [0x86] = {op_tuple_of, 2},
    [0x87] = {op_tuple_of, 3},
    ['t'] = {op_gather, FB_PICKLE_TUPLE},
    ['l'] = {op_gather, FB_PICKLE_LIST},
    ['d'] = {op_gather, FB_PICKLE_DICT},
    [0x91] = {op_gather, FB_PICKLE_SET},
    ['s'] = {op_add_one, FB_PICKLE_DICT},
    ['a'] = {op_add_one, FB_PICKLE_LIST},
    ['u'] = {op_add_many, FB_PICKLE_DICT},
    ['e'] = {op_add_many, FB_PICKLE_LIST},
    [0x90] = {op_add_many, FB_PICKLE_SET},
    ['q'] = {op_put, 1},
    ['r'] = {op_put, 4},
    ['p'] = {op_put, 0},
    [0x94] = {op_memoize, 0},
    ['h'] = {op_get, 1},
    ['j'] = {op_get, 4},
    ['g'] = {op_get, 0},
    ['c'] = {op_global, 0},
    [0x93] = {op_stack_global, 0},
    ['R'] = {op_call, 2},
    [0x81] = {op_call, 2},
    [0x92] = {op_call, 3},
    ['i'] = {op_instance, 1},
    ['o'] = {op_instance, 0},
    ['b'] = {op_build, 0},
    ['Q'] = {op_persistent, 0},
    /* Protocol 0 alone, extensions by number, buffers that lie elsewhere. */
    ['F'] = {op_unsupported, 0},
    ['S'] = {op_unsupported, 0},
    ['V'] = {op_unsupported, 0},
    ['P'] = {op_unsupported, 0},
    [0x82] = {op_unsupported, 0},
    [0x83] = {op_unsupported, 0},
    [0x84] = {op_unsupported, 0},
    [0x97] = {op_unsupported, 0},
    [0x98] = {op_unsupported, 0},
};

static fb_status run(machine *m)
{
    for (uint64_t ops = 0; !m->stopped; ops++) {
        const struct opcode *op;
        fb_status status;
        m->op_at = m->at;
        if (m->at >= m->bytes) return refuse(m, short_of(m), "there is no STOP in %llu bytes", (unsigned long long)m->bytes);
        if (ops >= m->limits.ops_max) return refuse(m, FB_E_LIMIT, "more than %llu opcodes", (unsigned long long)m->limits.ops_max);
        op = &opcodes[m->data[m->at++]];
        if (!op->run) return refuse(m, FB_E_CORRUPT, "0x%02x is no opcode", m->data[m->op_at]);
        if ((status = op->run(m, op->arg)) != FB_OK) return status;
    }
    return FB_OK;
}

static void set_limits(machine *m, const fb_pickle_limits *limits)
{
    if (limits) m->limits = *limits;
    if (!m->limits.bytes_max) m->limits.bytes_max = defaults.bytes_max;
    if (!m->limits.ops_max) m->limits.ops_max = defaults.ops_max;
    if (!m->limits.nodes_max) m->limits.nodes_max = defaults.nodes_max;
    if (!m->limits.stack_max) m->limits.stack_max = defaults.stack_max;
    if (!m->limits.marks_max) m->limits.marks_max = defaults.marks_max;
    if (!m->limits.memo_max) m->limits.memo_max = defaults.memo_max;
    if (!m->limits.text_max) m->limits.text_max = defaults.text_max;
    if (m->limits.bytes_max > UINT32_MAX) m->limits.bytes_max = UINT32_MAX; /* places are kept in 32 bits */
    if (m->limits.memo_max > UINT32_MAX) m->limits.memo_max = UINT32_MAX;
}

static void release(machine *m)
{
    for (uint64_t i = 0; i < m->memo_pages; i++) fb_free(m->memo[i]);
    fb_free(m->memo);
    fb_free(m->marks);
    fb_free(m->stack);
    fb_pickle_free(m->graph);
}

fb_status fb_pickle_parse(fb_pickle **out, const uint8_t *data, uint64_t bytes, uint64_t base, const char *path,
                          const fb_pickle_limits *limits, uint64_t *used, fb_error *err)
{
    machine m;
    fb_status status;
    memset(&m, 0, sizeof m);
    *out = NULL;
    *used = 0;
    m.path = path;
    m.data = data;
    m.bytes = bytes;
    m.err = err;
    set_limits(&m, limits);
    m.graph = fb_calloc(1, sizeof *m.graph);
    if (!m.graph) return fb_fail(err, FB_E_NOMEM, "read the pickle in %s: no memory for %zu bytes", path, sizeof *m.graph);
    m.graph->data = data;
    m.graph->base = base;
    /* A longer input may hold a pickle that ends in time. */
    m.cut = bytes > m.limits.bytes_max;
    if (m.cut) m.bytes = m.limits.bytes_max;
    status = run(&m);
    if (status == FB_OK) {
        *used = m.at;
        *out = m.graph;
        m.graph = NULL;
    }
    release(&m);
    return status;
}
