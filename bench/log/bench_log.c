/*
 * What a record costs. Shows: one 400-byte record appended, against a bare write() of the same bytes and an SQLite insert (WAL,
 * synchronous=NORMAL, prepared, one transaction each); a pulse; and a freeze against a bare pwrite() + fdatasync() into space set
 * aside in the same way. Peers are interleaved call by call, so that all meet the same disk and the same noise. Run it with
 * bench/log/run.sh [FOLDER]; FOLDER is on the file system to measure.
 */
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "log/layout.h"
#include "log/log.h"

enum { ROUNDS = 9, CALLS = 20000, FREEZE_ROUNDS = 15, RECORD_BYTES = 400, FROZEN_BYTES = 1500 };
enum { WRITE, APPEND, PULSE, SQLITE, SERIES };

static const char *const names[SERIES] = {"write()", "fb_log_append", "fb_log_pulse", "sqlite insert"};
static double sample[SERIES][CALLS];
static double medians[SERIES][ROUNDS], p99s[SERIES][ROUNDS];

static void stop(const char *what)
{
    fprintf(stderr, "bench_log: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *values, size_t count, double q)
{
    qsort(values, count, sizeof *values, by_value);
    return values[(size_t)((double)(count - 1) * q)];
}

/* ---- peers ------------------------------------------------------------------------------------------------------------------ */

static sqlite3 *db;
static sqlite3_stmt *insert;

static void open_sqlite(const char *dir)
{
    static const char schema[] = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
                                 "CREATE TABLE record (step INTEGER PRIMARY KEY, l1 BLOB)";
    char path[512];
    snprintf(path, sizeof path, "%s/peer.db", dir);
    if (sqlite3_open(path, &db) != SQLITE_OK || sqlite3_exec(db, schema, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(db, "INSERT INTO record (l1) VALUES (?)", -1, &insert, NULL) != SQLITE_OK) {
        fprintf(stderr, "bench_log: sqlite: %s\n", sqlite3_errmsg(db));
        exit(1);
    }
}

static void insert_sqlite(const void *data, int bytes)
{
    sqlite3_bind_blob(insert, 1, data, bytes, SQLITE_STATIC);
    if (sqlite3_step(insert) != SQLITE_DONE) stop("sqlite insert");
    sqlite3_reset(insert);
}

static int open_peer(const char *dir, const char *name)
{
    char path[512];
    int fd;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) stop(path);
    return fd;
}

/* ---- append ----------------------------------------------------------------------------------------------------------------- */

static fb_log *open_log(const char *dir, int number)
{
    char path[512];
    fb_log *log;
    fb_error err;
    snprintf(path, sizeof path, "%s/r%05d.log", dir, number);
    if (fb_log_create(&log, fb_os_posix(), path, 42 + (uint64_t)number, &err) != FB_OK) {
        fprintf(stderr, "bench_log: %s\n", err.message);
        exit(1);
    }
    return log;
}

static void measure_append(const char *dir, int round)
{
    static unsigned char data[RECORD_BYTES];
    fb_log *log = open_log(dir, round);
    int fd = open_peer(dir, "peer.bin");
    for (int i = 0; i < CALLS; i++) {
        double t0, t1, t2, t3, t4;
        memset(data, i, sizeof data);
        t0 = now_us();
        if (write(fd, data, sizeof data) != (ssize_t)sizeof data) stop("write");
        t1 = now_us();
        if (fb_log_append(log, 1, data, sizeof data, 0, NULL) != FB_OK) stop("append");
        t2 = now_us();
        if (fb_log_pulse(log, data, 48, NULL) != FB_OK) stop("pulse");
        t3 = now_us();
        insert_sqlite(data, sizeof data);
        t4 = now_us();
        sample[WRITE][i] = t1 - t0;
        sample[APPEND][i] = t2 - t1;
        sample[PULSE][i] = t3 - t2;
        sample[SQLITE][i] = t4 - t3;
    }
    for (int s = 0; s < SERIES; s++) {
        medians[s][round] = quantile(sample[s], CALLS, 0.5);
        p99s[s][round] = quantile(sample[s], CALLS, 0.99);
    }
    fb_log_close(log);
    close(fd);
}

/* ---- freeze ----------------------------------------------------------------------------------------------------------------- */

/* Quiet: nothing else waits for the disk. Busy: STEPS_BEFORE records were appended since the last sync, to log and peer alike. */
enum { QUIET, BUSY, STATES, STEPS_BEFORE = 100 };
static const char *const state_names[STATES] = {"nothing else unsynced", "100 records unsynced"};
static double bare[STATES][FREEZE_ROUNDS * FB_LOG_FROZEN_SLOTS], frozen[STATES][FREEZE_ROUNDS * FB_LOG_FROZEN_SLOTS];

static void append_steps(fb_log *log, int fd)
{
    static const unsigned char data[RECORD_BYTES];
    if (lseek(fd, 0, SEEK_END) < 0) stop("lseek");
    for (int i = 0; i < STEPS_BEFORE; i++) {
        if (fb_log_append(log, 1, data, sizeof data, 0, NULL) != FB_OK) stop("append");
        if (write(fd, data, sizeof data) != (ssize_t)sizeof data) stop("write");
    }
}

static void measure_freeze(const char *dir, int round, int state)
{
    static unsigned char data[FROZEN_BYTES], zeros[FB_LOG_APPEND_OFFSET];
    fb_log *log = open_log(dir, 100 + round * STATES + state);
    int fd = open_peer(dir, "peer.bin");
    memset(data, 7, sizeof data);
    if (pwrite(fd, zeros, sizeof zeros, 0) != (ssize_t)sizeof zeros || fsync(fd) != 0) stop("peer.bin");
    for (int i = 0; i < FB_LOG_FROZEN_SLOTS; i++) {
        int at = round * FB_LOG_FROZEN_SLOTS + i;
        if (state == BUSY) append_steps(log, fd);
        /* In turn first and second: the disk may be slower for one of two. */
        for (int turn = 0; turn < 2; turn++) {
            double t0 = now_us();
            if (turn == i % 2) {
                off_t offset = FB_LOG_FROZEN_OFFSET + i * FB_LOG_FROZEN_BYTES;
                if (pwrite(fd, data, sizeof data, offset) != (ssize_t)sizeof data) stop("pwrite");
                if (fdatasync(fd) != 0) stop("fdatasync");
                bare[state][at] = now_us() - t0;
            } else {
                if (fb_log_freeze(log, 2, data, sizeof data, NULL, NULL) != FB_OK) stop("freeze");
                frozen[state][at] = now_us() - t0;
            }
        }
    }
    fb_log_close(log);
    close(fd);
}

/* ---- report ----------------------------------------------------------------------------------------------------------------- */

static double median_ratio(int s, int peer)
{
    double ratios[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) ratios[r] = medians[s][r] / medians[peer][r];
    return quantile(ratios, ROUNDS, 0.5);
}

static void report_freeze(int state)
{
    size_t count = sizeof bare[0] / sizeof bare[0][0];
    double bare_us = quantile(bare[state], count, 0.5), frozen_us = quantile(frozen[state], count, 0.5);
    printf("first-bad record, durable; %s\n", state_names[state]);
    printf("%-28s %10.1f %10.1f %10s\n", "pwrite() + fdatasync()", bare_us, quantile(bare[state], count, 0.99), "x bare");
    printf("%-28s %10.1f %10.1f %10.2f\n", "fb_log_freeze", frozen_us, quantile(frozen[state], count, 0.99), frozen_us / bare_us);
}

int main(int argc, char **argv)
{
    const char *dir = argc > 1 ? argv[1] : ".";
    open_sqlite(dir);
    for (int r = 0; r < ROUNDS; r++) measure_append(dir, r);
    for (int r = 0; r < FREEZE_ROUNDS * STATES; r++) measure_freeze(dir, r / STATES, r % STATES);
    printf("%-28s %10s %10s %10s %10s\n", "one record of 400 bytes", "median us", "p99 us", "x write", "x sqlite");
    for (int s = 0; s < SERIES; s++) {
        double to_write = median_ratio(s, WRITE), to_sqlite = median_ratio(s, SQLITE);
        printf("%-28s %10.2f %10.2f %10.2f %10.3f\n", names[s], quantile(medians[s], ROUNDS, 0.5), quantile(p99s[s], ROUNDS, 0.5),
               to_write, to_sqlite);
    }
    for (int state = 0; state < STATES; state++) report_freeze(state);
    sqlite3_finalize(insert);
    sqlite3_close(db);
    return 0;
}
