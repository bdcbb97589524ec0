/*
 * A ledger record as a row of named fields, the same for SQLite and for JSON lines. Rows of one table have the same fields in the
 * same order, whatever the record says, so that a row of nothing (an all-zero record) gives the table's columns.
 */
#ifndef CLI_EXPORT_ROWS_H
#define CLI_EXPORT_ROWS_H

#include "log/log.h"

enum { EXPORT_RUN, EXPORT_SITES, EXPORT_STEPS, EXPORT_FINDINGS, EXPORT_VERDICTS, EXPORT_EVENTS, EXPORT_PROOFS, EXPORT_TABLES };
enum { EXPORT_INTEGER, EXPORT_REAL, EXPORT_TEXT, EXPORT_BOOL, EXPORT_JSON };
enum { EXPORT_FIELDS_MAX = 80, EXPORT_SCRATCH_BYTES = 8192 };

typedef struct export_field {
    const char *name;
    int type;  /* EXPORT_INTEGER, ...; EXPORT_JSON is text that is JSON already */
    int known; /* 0: NULL */
    int64_t integer;
    double real;
    const char *text; /* text_bytes of it */
    uint32_t text_bytes;
} export_field;

typedef struct export_row {
    int table;
    uint32_t count;
    export_field fields[EXPORT_FIELDS_MAX];
    char scratch[EXPORT_SCRATCH_BYTES]; /* text that was made for this row */
    uint32_t scratch_used;
} export_row;

/* Where a record came from: the first fields of every row. */
typedef struct export_origin {
    int32_t attempt, rank, frozen;
    uint64_t sequence, time_unix_ns;
} export_origin;

/* Name of a table: "steps", ... */
const char *export_table_name(int table);
/* The columns of a table: a row without values. */
void export_empty_row(export_row *row, int table);

typedef int (*export_fn)(void *ctx, export_row *row); /* 0, or a code that ends the export */

/* Each row that a record makes: one, or one a pair for the RUN record. *bad is raised for a record that does not decode. */
int export_record(const fb_log_record *record, const export_origin *origin, export_row *row, export_fn fn, void *ctx,
                  uint64_t *bad);

#endif
