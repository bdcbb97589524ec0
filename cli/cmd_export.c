/*
 * firstbad export: the evidence of all ranks as SQLite tables, or as JSON lines. A file is written under a name of its own and put
 * in place when it is whole, so that an export that fails leaves nothing, and an existing file is replaced with --force only.
 */
#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json_write.h"
#include "cli.h"
#include "export_rows.h"
#include "report/ledgers.h"
#include "report/report.h"

static const char help[] =
    "usage: firstbad export --sqlite FILE [RUN] [--attempt N] [--dir DIR] [--force]\n"
    "       firstbad export --jsonl FILE|- [RUN] [--attempt N] [--dir DIR] [--force]\n\n"
    "Writes every record of every rank: runs, sites, steps, findings, verdicts, events and proofs. What is not\n"
    "known is NULL. firstbad-export(1) lists the tables.\n\n"
    "  RUN            a run id or the path of a run folder; without one, the newest run\n"
    "  --sqlite FILE  one table a kind of record\n"
    "  --jsonl FILE   one JSON object a line; - is standard output\n"
    "  --attempt N    only this launch of the run\n"
    "  --dir DIR      the folder that holds runs (default firstbad-runs, or FIRSTBAD_DIR)\n"
    "  --force        replace an existing FILE\n\n"
    "Exit codes: 0 written, 2 wrong use, 3 something could not be read or written.\n";

typedef struct export_sink {
    FILE *lines; /* JSON lines */
    fb_json json;
    sqlite3 *db; /* or SQLite */
    sqlite3_stmt *insert[EXPORT_TABLES];
    export_row row;
    uint64_t rows, bad, unreadable;
} export_sink;

/* ---- JSON lines -------------------------------------------------------------------------------------------------------------- */

static void json_value(fb_json *json, const export_field *field)
{
    if (!field->known) fb_json_null(json);
    else if (field->type == EXPORT_INTEGER) fb_json_int(json, field->integer);
    else if (field->type == EXPORT_BOOL) fb_json_bool(json, (int)field->integer);
    else if (field->type == EXPORT_REAL) fb_json_double(json, field->real);
    else if (field->type == EXPORT_JSON) fb_json_raw(json, field->text, field->text_bytes);
    else fb_json_string_bytes(json, field->text, field->text_bytes);
}

static int line_row(export_sink *sink, const export_row *row)
{
    fb_json *json = &sink->json;
    fb_error err;
    fb_json_reset(json);
    fb_json_object_begin(json);
    fb_json_key_string(json, "table", export_table_name(row->table));
    for (uint32_t i = 0; i < row->count; i++) {
        fb_json_key(json, row->fields[i].name);
        json_value(json, &row->fields[i]);
    }
    fb_json_object_end(json);
    if (fb_json_finish(json, &err) != FB_OK) return cli_fail(&err);
    if (fwrite(fb_json_text(json), 1, json->used, sink->lines) == json->used && fputc('\n', sink->lines) != EOF) return 0;
    cli_error("write JSON lines: %s", strerror(errno));
    return CLI_UNREADABLE;
}

/* ---- SQLite ------------------------------------------------------------------------------------------------------------------ */

static int sqlite_fail(sqlite3 *db, const char *what)
{
    cli_error("%s: %s", what, sqlite3_errmsg(db));
    return CLI_UNREADABLE;
}

static const char *column_type(int type)
{
    return type == EXPORT_REAL ? "REAL" : type == EXPORT_TEXT || type == EXPORT_JSON ? "TEXT" : "INTEGER";
}

static int prepare_table(export_sink *sink, int table)
{
    char create[8192], insert[4096];
    size_t c, n;
    export_empty_row(&sink->row, table);
    c = (size_t)snprintf(create, sizeof create, "CREATE TABLE %s (", export_table_name(table));
    n = (size_t)snprintf(insert, sizeof insert, "INSERT INTO %s VALUES (", export_table_name(table));
    for (uint32_t i = 0; i < sink->row.count; i++) {
        c += (size_t)snprintf(create + c, sizeof create - c, "%s\"%s\" %s", i ? ", " : "", sink->row.fields[i].name,
                              column_type(sink->row.fields[i].type));
        n += (size_t)snprintf(insert + n, sizeof insert - n, "%s?", i ? "," : "");
    }
    (void)snprintf(create + c, sizeof create - c, ")");
    (void)snprintf(insert + n, sizeof insert - n, ")");
    if (sqlite3_exec(sink->db, create, NULL, NULL, NULL) != SQLITE_OK) return sqlite_fail(sink->db, "create a table");
    if (sqlite3_prepare_v2(sink->db, insert, -1, &sink->insert[table], NULL) != SQLITE_OK)
        return sqlite_fail(sink->db, "prepare a table");
    return 0;
}

static int open_sqlite(export_sink *sink, const char *path, const char *file)
{
    if (sqlite3_open(path, &sink->db) != SQLITE_OK) return sqlite_fail(sink->db, file);
    /* The file is not in place before it is whole, so a journal would guard nothing. */
    if (sqlite3_exec(sink->db, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN", NULL, NULL, NULL) != SQLITE_OK) {
        return sqlite_fail(sink->db, file);
    }
    for (int table = 0; table < EXPORT_TABLES; table++) {
        int code = prepare_table(sink, table);
        if (code) return code;
    }
    return 0;
}

static int bind(sqlite3_stmt *statement, int at, const export_field *field)
{
    if (!field->known) return sqlite3_bind_null(statement, at);
    if (field->type == EXPORT_REAL) return sqlite3_bind_double(statement, at, field->real);
    if (field->type == EXPORT_TEXT || field->type == EXPORT_JSON) {
        return sqlite3_bind_text(statement, at, field->text, (int)field->text_bytes, SQLITE_STATIC);
    }
    return sqlite3_bind_int64(statement, at, field->integer);
}

static int table_row(export_sink *sink, const export_row *row)
{
    sqlite3_stmt *statement = sink->insert[row->table];
    for (uint32_t i = 0; i < row->count; i++) {
        if (bind(statement, (int)i + 1, &row->fields[i]) != SQLITE_OK) return sqlite_fail(sink->db, "write a row");
    }
    if (sqlite3_step(statement) != SQLITE_DONE || sqlite3_reset(statement) != SQLITE_OK)
        return sqlite_fail(sink->db, "write a row");
    return 0;
}

static int finish_sqlite(export_sink *sink)
{
    static const char sql[] = "CREATE INDEX steps_by_step ON steps (step, attempt, rank);"
                              "CREATE INDEX findings_by_step ON findings (step, attempt, rank); COMMIT";
    if (sqlite3_exec(sink->db, sql, NULL, NULL, NULL) != SQLITE_OK) return sqlite_fail(sink->db, "finish the database");
    return 0;
}

static void close_sqlite(export_sink *sink)
{
    for (int table = 0; table < EXPORT_TABLES; table++) (void)sqlite3_finalize(sink->insert[table]);
    (void)sqlite3_close(sink->db);
}

/* ---- walking ----------------------------------------------------------------------------------------------------------------- */

static int take_row(void *ctx, export_row *row)
{
    export_sink *sink = ctx;
    sink->rows++;
    return sink->db ? table_row(sink, row) : line_row(sink, row);
}

typedef struct walk {
    export_sink *sink;
    int code;
} walk;

static int take_record(void *ctx, const fb_ledger_ref *ref, const fb_log_record *record, int frozen)
{
    walk *state = ctx;
    export_origin origin = {ref->attempt, ref->rank, frozen, record->sequence, record->time_ns};
    state->code = export_record(record, &origin, &state->sink->row, take_row, state->sink, &state->sink->bad);
    return state->code;
}

static int export_ledgers(export_sink *sink, const fb_os *os, const char *folder, int32_t attempt)
{
    fb_ledger_ref *refs;
    uint64_t count;
    fb_error err;
    walk state = {sink, 0};
    if (fb_ledgers_list(os, folder, attempt, &refs, &count, &err) != FB_OK) return cli_fail(&err);
    for (uint64_t i = 0; i < count && !state.code; i++) {
        fb_log_tail tail = {0, 0, 0, 0, 0, 0};
        int ended;
        if (fb_ledgers_walk(os, folder, &refs[i], take_record, &state, &tail, &ended, &err) != FB_OK) {
            cli_error("%s", err.message);
            sink->unreadable++;
        } else if (!ended && tail.kind != FB_LOG_TAIL_CLEAN) {
            cli_error("the ledger of attempt %d, rank %d ends in %s after %llu records; those are exported", refs[i].attempt,
                      refs[i].rank, tail.kind == FB_LOG_TAIL_TORN ? "a torn record" : "bytes that are no record",
                      (unsigned long long)tail.records);
        }
    }
    fb_free(refs);
    if (sink->bad) cli_error("%llu records could not be decoded and were left out", (unsigned long long)sink->bad);
    return state.code;
}

/* path: NULL for standard output. file: its name for messages. */
static int write_all(export_sink *sink, const fb_os *os, const char *folder, int32_t attempt, const char *path, const char *file,
                     int to_sqlite)
{
    int code;
    if (to_sqlite) {
        code = open_sqlite(sink, path, file);
        if (!code) code = export_ledgers(sink, os, folder, attempt);
        if (!code) code = finish_sqlite(sink);
        close_sqlite(sink);
        return code;
    }
    sink->lines = path ? fopen(path, "wbx") : stdout;
    if (!sink->lines) {
        cli_error("create a file beside %s: %s", file, strerror(errno));
        return CLI_UNREADABLE;
    }
    fb_json_init(&sink->json, 0);
    code = export_ledgers(sink, os, folder, attempt);
    fb_json_release(&sink->json);
    if ((path ? fclose(sink->lines) : fflush(sink->lines)) != 0 && !code) {
        cli_error("write JSON lines: %s", strerror(errno));
        code = CLI_UNREADABLE;
    }
    return code;
}

/* link fails where the name is taken, so a file that appears meanwhile is safe too. */
static int put_in_place(const char *part, const char *file, int force)
{
    if ((force ? rename(part, file) : link(part, file)) == 0) {
        if (!force) (void)unlink(part);
        return 0;
    }
    cli_error("put %s in place: %s%s", file, strerror(errno), errno == EEXIST ? "; --force replaces it" : "");
    (void)unlink(part);
    return CLI_UNREADABLE;
}

typedef struct export_options {
    const char *sqlite, *jsonl, *dir, *attempt, *name;
    int force;
} export_options;

/* --force replaces a file. A folder, and a device such as /dev/null, which root could rename over, is none. */
static int check_target(const char *file, const export_options *given)
{
    struct stat info;
    if (!*file || (given->sqlite && strcmp(file, "-") == 0)) {
        cli_error("export wants the name of a file%s", *file ? "; SQLite cannot be written to standard output, --jsonl - can" : "");
        return CLI_USAGE;
    }
    if (stat(file, &info) != 0) return 0; /* what else may be wrong is told when it is created */
    if (!S_ISREG(info.st_mode)) {
        cli_error("%s is %s and is not replaced%s", file, S_ISDIR(info.st_mode) ? "a folder" : "no regular file",
                  given->sqlite ? "" : "; --jsonl - writes to standard output");
        return CLI_USAGE;
    }
    if (given->force) return 0;
    cli_error("%s is there already; --force replaces it", file);
    return CLI_USAGE;
}

static int to_file(export_sink *sink, const fb_os *os, const char *folder, int32_t attempt, const export_options *given)
{
    const char *file = given->sqlite ? given->sqlite : given->jsonl;
    char part[FB_OS_PATH_MAX];
    int code;
    if (!given->sqlite && strcmp(file, "-") == 0) return write_all(sink, os, folder, attempt, NULL, file, 0);
    if ((code = check_target(file, given)) != 0) return code;
    if (snprintf(part, sizeof part, "%s.%ld.part", file, (long)getpid()) >= (int)sizeof part) {
        cli_error("the name of the file is too long");
        return CLI_USAGE;
    }
    code = write_all(sink, os, folder, attempt, part, file, given->sqlite != NULL);
    if (code) {
        (void)unlink(part);
        return code;
    }
    code = put_in_place(part, file, given->force);
    if (!code) fprintf(stderr, "firstbad: wrote %llu rows to %s\n", (unsigned long long)sink->rows, file);
    return code;
}

int fb_cmd_export(int argc, char **argv)
{
    export_options given = {NULL, NULL, NULL, NULL, NULL, 0};
    const cli_option options[] = {{"--sqlite", NULL, &given.sqlite},   {"--jsonl", NULL, &given.jsonl}, {"--dir", NULL, &given.dir},
                                  {"--attempt", NULL, &given.attempt}, {"--force", &given.force, NULL}, {NULL, NULL, NULL}};
    const fb_os *os = fb_os_posix();
    fb_report_target target;
    export_sink *sink;
    fb_error err;
    long long attempt = 0;
    int words, code;
    if (!cli_parse(argc, argv, options, help, &given.name, 1, &words, &code)) return code;
    if (!given.sqlite == !given.jsonl) {
        cli_error("export wants one of --sqlite FILE and --jsonl FILE; see firstbad export --help");
        return CLI_USAGE;
    }
    if (given.attempt && (!cli_number("--attempt", given.attempt, 1, &attempt) || attempt > INT32_MAX)) return CLI_USAGE;
    if (!given.dir) given.dir = getenv("FIRSTBAD_DIR");
    if (!given.dir || !*given.dir) given.dir = CLI_DIR_DEFAULT;
    if (fb_report_find(os, given.dir, given.name, &target, &err) != FB_OK) return cli_fail(&err);
    sink = fb_calloc(1, sizeof *sink);
    if (!sink) {
        cli_error("export: no memory");
        return CLI_UNREADABLE;
    }
    code = to_file(sink, os, target.folder, (int32_t)attempt, &given);
    if (!code && sink->unreadable) code = CLI_UNREADABLE;
    fb_free(sink);
    return code;
}
