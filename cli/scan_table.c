/*
 * --stats: two lines a tensor, name and shape above, numbers and a picture of its exponents below. All pictures share one axis, so
 * that a tensor which lives elsewhere is seen at once. Where the terminal is narrow, the numbers go on in a further line.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli.h"
#include "report/report.h"
#include "scan_show.h"

enum { PICTURE_MIN = 9, PICTURE_MAX = 24, CELL_BYTES = 96, BINS = 256, BIN_OF_ONE = 127, BIN_LAST = 254, MARGIN = 2, WIDE = 90 };
/* A file may name as many formats as it has tensors, and each sum is a pass over all of them. */
enum { SUMS_MAX = 64 };

enum { CELL_MIN, CELL_MAX, CELL_LARGEST, CELL_NORM, CELL_ZERO, CELL_SUBNORMAL, CELL_HEADROOM, CELL_PICTURE, CELLS };

static const char *const cell_names[CELLS] = {"min", "max", "largest", "norm", "zero", "subnorm", "headroom", ""};
/* The picture takes what is left of a line, where that is enough for one. */
static const int cell_columns[CELLS] = {9, 9, 8, 8, 7, 7, 14, PICTURE_MIN};

/* The exponents that one column of every picture stands for. */
typedef struct axis {
    int first, per_column, columns;
} axis;

typedef struct table {
    const scan_style *style;
    axis axis;
    int dtype_columns, shape_columns, name_columns;
    int marked; /* a row was marked */
} table;

/* ---- the picture ------------------------------------------------------------------------------------------------------------- */

static int picture_columns(int columns)
{
    int left = columns - MARGIN;
    for (int i = 0; i < CELL_PICTURE; i++) left -= cell_columns[i] + 1;
    return left < PICTURE_MIN || left > PICTURE_MAX ? PICTURE_MAX : left;
}

static axis find_axis(const scan_list *rows, int columns)
{
    axis found = {0, 1, 0};
    int low = BINS, high = -1;
    for (size_t i = 0; i < rows->count; i++) {
        const scan_row *row = scan_row_at(rows, i);
        if (!row->bin_count) continue;
        if (row->first_bin < low) low = row->first_bin;
        if (row->first_bin + row->bin_count - 1 > high) high = row->first_bin + row->bin_count - 1;
    }
    if (high < low) return found;
    found.first = low;
    found.per_column = (high - low) / picture_columns(columns) + 1;
    found.columns = (high - low) / found.per_column + 1;
    return found;
}

/* Columns up to the last that is not empty: no blanks at the end of a line. */
static int filled(const double columns[PICTURE_MAX])
{
    int last = PICTURE_MAX;
    while (last > 0 && !(columns[last - 1] > 0)) last--;
    return last;
}

/* Heights are linear, against the fullest column; what is there at all is seen. */
static void draw(const scan_row *row, const axis *where, int unicode, char *out, size_t room)
{
    static const char *const blocks[] = {" ", "\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588"};
    static const char *const letters[] = {" ", ".", ":", "-", "=", "+", "*", "#", "@"};
    double columns[PICTURE_MAX] = {0}, highest = 0;
    size_t used = 0;
    for (int32_t i = 0; i < row->bin_count; i++) {
        int column = (row->first_bin + i - where->first) / where->per_column;
        if (column < 0 || column >= PICTURE_MAX) continue;
        columns[column] += (double)row->bins[i];
        if (columns[column] > highest) highest = columns[column];
    }
    out[0] = '\0';
    for (int i = 0, last = filled(columns); i < last; i++) {
        int level = columns[i] > 0 ? 1 + (int)(columns[i] / highest * 7.0) : 0;
        used += (size_t)snprintf(out + used, room - used, "%s", unicode ? blocks[level] : letters[level]);
    }
}

static void draw_axis(const axis *where, char *out, size_t room)
{
    char low[16], high[16];
    int last = where->first + where->per_column * where->columns - 1 - BIN_OF_ONE, gap;
    if (last > BIN_LAST - BIN_OF_ONE) last = BIN_LAST - BIN_OF_ONE;
    out[0] = '\0';
    if (!where->columns) return;
    (void)snprintf(low, sizeof low, "2^%d", where->first - BIN_OF_ONE);
    (void)snprintf(high, sizeof high, "2^%d", last);
    gap = where->columns - (int)strlen(low) - (int)strlen(high);
    if (gap < 2) (void)snprintf(out, room, "%s..", low);
    else (void)snprintf(out, room, "%s%*s%s", low, gap, "", high);
}

/* ---- cells ------------------------------------------------------------------------------------------------------------------- */

static void percent(uint64_t part, uint64_t whole, char *out)
{
    double share = whole ? 100.0 * (double)part / (double)whole : 0;
    if (!part) (void)snprintf(out, CELL_BYTES, "0 %%");
    else if (part == whole) (void)snprintf(out, CELL_BYTES, "100 %%");
    else if (share < 0.01) (void)snprintf(out, CELL_BYTES, "<0.01 %%");
    else (void)snprintf(out, CELL_BYTES, "%.*f %%", share > 99.99 ? 3 : 2, share > 99.999 ? 99.999 : share);
}

static void number(double value, int known, char *out)
{
    if (!known) (void)snprintf(out, CELL_BYTES, "-");
    else if (!fb_json_is_number(value)) (void)snprintf(out, CELL_BYTES, "> FP64");
    else (void)snprintf(out, CELL_BYTES, "%.3g", value);
}

static void headroom(const scan_row *row, char *out)
{
    double binades, factor;
    char times[32];
    if (!scan_headroom(row, &binades, &factor)) {
        (void)snprintf(out, CELL_BYTES, "-");
        return;
    }
    if (factor < 1000) (void)snprintf(times, sizeof times, "%.3g", factor);
    else if (fb_json_is_number(factor)) (void)snprintf(times, sizeof times, "%.0e", factor);
    else (void)snprintf(times, sizeof times, "2^%.0f", binades);
    (void)snprintf(out, CELL_BYTES, "2^%.1f x%s", binades, times);
}

static void fill_cells(const scan_row *row, const table *t, char cells[CELLS][CELL_BYTES])
{
    number(row->min, row->finite > 0, cells[CELL_MIN]);
    number(row->max, row->finite > 0, cells[CELL_MAX]);
    number(row->abs_max, row->finite > 0, cells[CELL_LARGEST]);
    number(row->norm, row->finite > 0, cells[CELL_NORM]);
    percent(row->zero, row->elements, cells[CELL_ZERO]);
    percent(row->subnormal, row->elements, cells[CELL_SUBNORMAL]);
    headroom(row, cells[CELL_HEADROOM]);
    draw(row, &t->axis, t->style->unicode, cells[CELL_PICTURE], CELL_BYTES);
}

/* Numbers stand at the right of their columns, the picture at the left of its own. */
static void print_cells(const table *t, const char cells[CELLS][CELL_BYTES])
{
    int used = 0;
    for (int i = 0; i < CELLS; i++) {
        int padding = cell_columns[i] - scan_width(cells[i]);
        if (!*cells[i]) continue;
        if (used && used + 1 + cell_columns[i] > t->style->columns) {
            putchar('\n');
            used = 0;
        }
        if (!used) used = printf("%*s", MARGIN, "");
        else used += printf(" ");
        if (i == CELL_PICTURE) printf("%s", cells[i]);
        else printf("%*s%s", padding > 0 ? padding : 0, "", cells[i]);
        used += cell_columns[i];
    }
    putchar('\n');
}

/* ---- rows -------------------------------------------------------------------------------------------------------------------- */

static void measure_columns(table *t, const scan_list *rows)
{
    int dtype = 5, shape = 5;
    char text[64];
    for (size_t i = 0; i < rows->count; i++) {
        const scan_row *row = scan_row_at(rows, i);
        int columns = row->dtype ? scan_width(row->dtype) : 0;
        if (columns > dtype) dtype = columns;
        columns = scan_width(scan_dims(row->shape.dims, row->shape.ndim, text, sizeof text));
        if (columns > shape) shape = columns;
    }
    t->dtype_columns = dtype < 14 ? dtype : 14;
    t->shape_columns = shape < 26 ? shape : 26;
    t->name_columns = t->style->columns - MARGIN - t->dtype_columns - t->shape_columns - 2;
    if (t->name_columns < 12) { /* very narrow: the shape goes first */
        t->shape_columns = 0;
        t->name_columns = t->style->columns - MARGIN - t->dtype_columns - 1;
    }
}

static void print_name(const table *t, const char *mark, const char *name, const char *dtype, const char *shape)
{
    char fitted[FB_CKPT_NAME_MAX * 4], kind[64];
    int padding;
    scan_fit_name(name, t->name_columns, fitted, sizeof fitted);
    scan_fit_name(dtype, t->dtype_columns, kind, sizeof kind);
    padding = t->name_columns - scan_width(fitted);
    printf("%s%s%*s", mark, fitted, padding > 0 ? padding : 0, "");
    padding = t->dtype_columns - scan_width(kind);
    if (!t->shape_columns || !*shape) printf(" %s\n", kind);
    else printf(" %s%*s %s\n", kind, padding > 0 ? padding : 0, "", shape);
}

/* A cast to FP8 saturates, so an overflow shows there as many elements at the maximum and never as Inf. */
static void print_saturation(const table *t, const scan_row *row)
{
    static const char told[] = ": a cast that saturates hides an overflow there";
    char share[CELL_BYTES];
    if (!row->at_max || fb_dtype_bytes(row->limit_dtype, 1) != 1 || row->limit_dtype == FB_F8_E8M0) return;
    percent(row->at_max, row->elements, share);
    printf("%*s%s at the format's maximum%s\n", MARGIN + 4, "", share, t->style->columns < WIDE ? "" : told);
}

/* Of a folder, the file that the next rows are from. */
static void print_file(const table *t, const scan_row *before, const scan_row *row)
{
    char fitted[FB_CKPT_NAME_MAX * 4];
    if (!row->file || (before && before->file && strcmp(before->file, row->file) == 0)) return;
    scan_fit_name(row->file, t->style->columns, fitted, sizeof fitted);
    printf("%s\n", fitted);
}

static void print_row(table *t, const scan_row *row)
{
    char cells[CELLS][CELL_BYTES], shape[64];
    uint64_t bad = row->nan + row->pos_inf + row->neg_inf;
    scan_dims(row->shape.dims, row->shape.ndim, shape, 27);
    if (bad) t->marked = 1;
    print_name(t, bad ? "* " : "  ", row->name ? row->name : "?", row->dtype ? row->dtype : "?", shape);
    if (!row->measured) {
        printf("%*s%s\n", MARGIN + 4, "",
               row->unscanned   ? "not looked at"
               : !row->elements ? "empty"
               : row->floating  ? "not measured"
                                : "holds no floating-point number");
        return;
    }
    fill_cells(row, t, cells);
    print_cells(t, (const char(*)[CELL_BYTES])cells);
    print_saturation(t, row);
}

/* ---- the sum by format ------------------------------------------------------------------------------------------------------- */

static void add_row(scan_row *sum, const scan_row *row, uint64_t bins[BINS])
{
    if (row->finite) {
        if (!sum->finite || row->min < sum->min) sum->min = row->min;
        if (!sum->finite || row->max > sum->max) sum->max = row->max;
        if (row->abs_max > sum->abs_max) sum->abs_max = row->abs_max;
        sum->norm = hypot(sum->norm, row->norm);
    }
    sum->finite += row->finite;
    sum->zero += row->zero;
    sum->subnormal += row->subnormal;
    for (int32_t i = 0; i < row->bin_count; i++) bins[row->first_bin + i] += row->bins[i];
}

static void print_total(table *t, const scan_list *rows, size_t from, unsigned char *done)
{
    const scan_row *first = scan_row_at(rows, from);
    char cells[CELLS][CELL_BYTES], label[128], count[32], elements[32];
    uint64_t bins[BINS] = {0}, tensors = 0;
    scan_row sum;
    memset(&sum, 0, sizeof sum);
    sum.measured = first->measured;
    sum.limit_dtype = first->limit_dtype;
    for (size_t i = from; i < rows->count; i++) {
        const scan_row *row = scan_row_at(rows, i);
        if (done[i] || !row->dtype || row->measured != first->measured || strcmp(row->dtype, first->dtype) != 0) continue;
        done[i] = 1;
        tensors++;
        sum.elements += row->elements;
        add_row(&sum, row, bins);
    }
    (void)snprintf(label, sizeof label, "%s %s, %s element%s", scan_count(tensors, count), tensors == 1 ? "tensor" : "tensors",
                   scan_count(sum.elements, elements), sum.elements == 1 ? "" : "s");
    print_name(t, "  ", label, first->dtype, "");
    if (!sum.measured) return;
    sum.first_bin = 1;
    sum.bin_count = BINS - 2;
    sum.bins = bins + 1;
    fill_cells(&sum, t, cells);
    print_cells(t, (const char(*)[CELL_BYTES])cells);
}

static int print_totals(table *t, const scan_list *rows)
{
    int sums = 0;
    unsigned char *done = fb_calloc(rows->count ? rows->count : 1, 1);
    if (!done) {
        cli_error("sum the statistics: no memory for %zu tensors", rows->count);
        return CLI_UNREADABLE;
    }
    for (size_t i = 0; i < rows->count && sums < SUMS_MAX; i++) {
        const scan_row *row = scan_row_at(rows, i);
        if (done[i] || !row->dtype || !row->elements) continue;
        print_total(t, rows, i, done);
        sums++;
    }
    if (sums == SUMS_MAX) puts("  further formats are not summed");
    fb_free(done);
    return 0;
}

/* ---- order ------------------------------------------------------------------------------------------------------------------- */

typedef struct entry {
    const scan_row *row;
} entry;

static int by_headroom(const void *left, const void *right)
{
    const scan_row *a = ((const entry *)left)->row, *b = ((const entry *)right)->row;
    double room_a, room_b, factor;
    int has_a = scan_headroom(a, &room_a, &factor), has_b = scan_headroom(b, &room_b, &factor);
    if (has_a != has_b) return has_b - has_a;
    if (has_a && room_a < room_b) return -1;
    if (has_a && room_b < room_a) return 1;
    return a < b ? -1 : a > b; /* both lie in one array: the order of the file */
}

int scan_show_table(const scan_result *result, const scan_style *style)
{
    table t = {style, find_axis(&result->rows, style->columns), 0, 0, 0, 0};
    entry *order = fb_calloc(result->rows.count ? result->rows.count : 1, sizeof *order);
    char head[CELLS][CELL_BYTES];
    int code = 0;
    if (!order) {
        cli_error("sort the statistics: no memory for %zu tensors", result->rows.count);
        return CLI_UNREADABLE;
    }
    for (size_t i = 0; i < result->rows.count; i++) order[i].row = scan_row_at(&result->rows, i);
    if (style->by_headroom) qsort(order, result->rows.count, sizeof *order, by_headroom);
    measure_columns(&t, &result->rows);
    for (int i = 0; i < CELL_PICTURE; i++) (void)snprintf(head[i], CELL_BYTES, "%s", cell_names[i]);
    draw_axis(&t.axis, head[CELL_PICTURE], CELL_BYTES);
    putchar('\n');
    print_name(&t, "  ", "tensor", "dtype", "shape");
    print_cells(&t, (const char(*)[CELL_BYTES])head);
    for (size_t i = 0; i < result->rows.count; i++) {
        if (result->folder && !style->by_headroom) print_file(&t, i ? order[i - 1].row : NULL, order[i].row);
        print_row(&t, order[i].row);
    }
    puts("\n  in all, by dtype");
    code = print_totals(&t, &result->rows);
    if (t.marked) printf("  * holds non-finite elements%s\n", style->columns < WIDE ? "" : ", which enter none of its numbers");
    putchar('\n');
    fb_free(order);
    return code ? code : cli_flush();
}
