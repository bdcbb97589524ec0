#include "report/ledgers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "report/inside.h"

typedef struct listing {
    fb_ledger_ref *refs;
    uint64_t count, room;
    int32_t attempt; /* whose ledgers are being listed; 0: attempts are */
    fb_error *err;
} listing;

static int64_t add(listing *found, int32_t attempt, int32_t rank)
{
    void *array = found->refs;
    if (fb_grow(&array, found->count, &found->room, sizeof *found->refs, found->err) != FB_OK) return 1;
    found->refs = array;
    found->refs[found->count].attempt = attempt;
    found->refs[found->count++].rank = rank;
    return 0;
}

static int64_t visit(void *arg, const char *name)
{
    listing *found = arg;
    int64_t number = found->attempt ? fb_numbered_name(name, "r", ".log", 5) : fb_numbered_name(name, "a", "", 1);
    if (number < 0 || (found->attempt == 0 && number == 0)) return 0;
    return found->attempt ? add(found, found->attempt, (int32_t)number) : add(found, (int32_t)number, -1);
}

static int compare(const void *a, const void *b)
{
    const fb_ledger_ref *x = a, *y = b;
    if (x->attempt != y->attempt) return x->attempt < y->attempt ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static fb_status list_folder(const fb_os *os, const char *run_folder, const char *name, listing *found, fb_error *err)
{
    char path[FB_OS_PATH_MAX];
    fb_status status = fb_os_join(path, sizeof path, run_folder, name, err);
    int64_t listed;
    if (status != FB_OK) return status;
    listed = os->list(os->ctx, path, visit, found);
    if (listed > 0) return FB_E_NOMEM;
    if (listed < 0 && listed != -ENOENT) return fb_fail_os(err, (int)-listed, "list %s", path);
    return FB_OK;
}

fb_status fb_ledgers_list(const fb_os *os, const char *run_folder, int32_t attempt, fb_ledger_ref **refs, uint64_t *count,
                          fb_error *err)
{
    listing attempts = {NULL, 0, 0, 0, err}, ledgers = {NULL, 0, 0, 0, err};
    fb_status status = list_folder(os, run_folder, "ledger", &attempts, err);
    *refs = NULL;
    *count = 0;
    for (uint64_t i = 0; status == FB_OK && i < attempts.count; i++) {
        char name[48];
        if (attempt && attempts.refs[i].attempt != attempt) continue;
        ledgers.attempt = attempts.refs[i].attempt;
        (void)snprintf(name, sizeof name, "ledger/a%d", ledgers.attempt);
        status = list_folder(os, run_folder, name, &ledgers, err);
    }
    if (status == FB_OK && ledgers.count == 0)
        status = fb_fail(err, FB_E_NOTFOUND, "read the ledgers of %s: there is none", run_folder);
    fb_free(attempts.refs);
    if (status != FB_OK) {
        fb_free(ledgers.refs);
        return status;
    }
    if (ledgers.refs) qsort(ledgers.refs, (size_t)ledgers.count, sizeof *ledgers.refs, compare);
    *refs = ledgers.refs;
    *count = ledgers.count;
    return FB_OK;
}

fb_status fb_ledgers_walk(const fb_os *os, const char *run_folder, const fb_ledger_ref *ref, fb_ledgers_fn fn, void *ctx,
                          fb_log_tail *tail, int *ended, fb_error *err)
{
    char name[64], path[FB_OS_PATH_MAX];
    fb_log_reader *reader = NULL;
    fb_log_record record;
    fb_status status;
    *ended = 0;
    (void)snprintf(name, sizeof name, "ledger/a%d/r%05d.log", ref->attempt, ref->rank);
    if ((status = fb_os_join(path, sizeof path, run_folder, name, err)) != FB_OK) return status;
    if ((status = fb_log_reader_open(&reader, os, path, err)) != FB_OK) return status;
    for (uint32_t i = 0; i < FB_LOG_FROZEN_SLOTS && !*ended; i++) {
        if (fb_log_reader_frozen(reader, i, &record, NULL) == FB_OK) *ended = fn(ctx, ref, &record, 1) != 0;
    }
    while (!*ended && (status = fb_log_reader_next(reader, &record, err)) == FB_OK) *ended = fn(ctx, ref, &record, 0) != 0;
    if (status == FB_E_NOTFOUND) status = FB_OK;
    if (status == FB_OK && tail && !*ended) status = fb_log_reader_tail(reader, tail, err);
    fb_log_reader_close(reader);
    return status;
}
