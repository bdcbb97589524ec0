/*
 * The record log: an append-only file of checksummed records with one writer, made so that what was acknowledged is never lost.
 * Bytes and rules of validity: docs/format/ledger.md. Why it is as it is: docs/design/log.md.
 *
 *   writer  fb_log_create, [fb_log_append | fb_log_pulse | fb_log_freeze], fb_log_close
 *   reader  fb_log_reader_open, [fb_log_reader_next | _frozen | _pulse | _tail], fb_log_reader_close
 *
 * Three places in a file, by what they survive:
 *   append  one record a step, one write. Survives the death of the process; with `sync` also power loss.
 *   pulse   what the writer is doing now, overwritten each time. Survives the death of the process; for post-mortems.
 *   frozen  the first-bad record: 16 slots whose blocks were written at create, so that a full disk cannot refuse them. Durable on
 *           return, written once, never changed.
 *
 * Threads: one call at a time on one log; the caller has the lock. After fork the child may only call fb_log_close: every other
 * call returns FB_E_FORKED and touches nothing. No call after create takes memory.
 */
#ifndef FB_LOG_LOG_H
#define FB_LOG_LOG_H

#include "base/status.h"
#include "os/os.h"

enum {
    FB_LOG_PAYLOAD_MAX = 65536, /* bytes of an appended payload */
    FB_LOG_PULSE_PAYLOAD_MAX = 192,
    FB_LOG_FROZEN_PAYLOAD_MAX = 8152, /* a slot of 8 KiB less the record header */
    FB_LOG_FROZEN_SLOTS = 16
};

/* ---- writer ----------------------------------------------------------------------------------------------------------------- */

typedef struct fb_log fb_log;

/**
 * Create a log; it must not exist.
 * os       kept, not copied: it must outlive the log.
 * path     UTF-8; its folder must exist. Copied.
 * file_id  random, or unique in another way: it seeds every checksum, so that blocks of another file are no records of this one.
 * On FB_OK head, pulse slots and set-aside slots (140 KiB) are on the disk and the name is in its folder, durably.
 * Errors: FB_E_EXISTS (a second writer; the file is untouched), FB_E_IO (what was created is removed), FB_E_NOMEM, FB_E_LIMIT.
 */
fb_status fb_log_create(fb_log **out, const fb_os *os, const char *path, uint64_t file_id, fb_error *err);

/**
 * Append one record.
 * type     the caller's; kept as it is.
 * payload  `bytes` bytes, borrowed; may be NULL when bytes is 0.
 * sync     not 0: FB_OK means that this record and all before it survive power loss (an fdatasync: milliseconds).
 * Errors: FB_E_LIMIT (more than FB_LOG_PAYLOAD_MAX, nothing written), FB_E_IO, FB_E_FORKED, FB_E_USAGE.
 * FB_E_IO from the write: the record is lost and counted (fb_log_lost); what was written before stays readable, and so does what
 * comes after, since the next record goes to the place of the lost one. FB_E_IO from the sync: the record is in the file and
 * readers see it, but it may not survive power loss. After a failed sync every later `sync` fails too: the system drops its memory
 * of what it could not write, so a later success would promise what nobody checked. fb_log_freeze is not affected.
 */
fb_status fb_log_append(fb_log *log, uint16_t type, const void *payload, uint32_t bytes, int sync, fb_error *err);

/* Make what was appended so far durable, as fb_log_append does with `sync`. */
fb_status fb_log_sync(fb_log *log, fb_error *err);

/**
 * Say what the writer is doing now: replaces the pulse before. One write, not synced.
 * Errors: FB_E_LIMIT (over FB_LOG_PULSE_PAYLOAD_MAX bytes), FB_E_IO (the pulse before stays readable), FB_E_FORKED, FB_E_USAGE.
 */
fb_status fb_log_pulse(fb_log *log, const void *payload, uint32_t bytes, fb_error *err);

/**
 * Freeze a record into set-aside space. FB_OK acknowledges it: it is durable, was read back equal, and nothing changes it any more.
 * slot    out, may be NULL: which slot, 0 .. FB_LOG_FROZEN_SLOTS - 1.
 * A slot whose write, sync or reading back failed is given up, and the next one tried, up to three for one call; a reader may then
 * find the record more than once, under the same sequence number.
 * Errors: FB_E_LIMIT (payload over FB_LOG_FROZEN_PAYLOAD_MAX, or all slots used), FB_E_IO, FB_E_CORRUPT, FB_E_FORKED, FB_E_USAGE.
 * Cost: one write, one fdatasync, two small reads.
 */
fb_status fb_log_freeze(fb_log *log, uint16_t type, const void *payload, uint32_t bytes, uint32_t *slot, fb_error *err);

/* Appended records that could not be written. 0 for NULL. */
uint64_t fb_log_lost(const fb_log *log);
/* 1 once a sync failed: appended records can no longer be promised to survive power loss. 0 for NULL. */
int fb_log_sync_failed(const fb_log *log);
/* Set-aside slots still free. 0 for NULL. */
uint32_t fb_log_slots_free(const fb_log *log);

/* Sync and close. Accepts NULL. In a forked child it frees memory and touches no file, not even the descriptor it inherited. */
void fb_log_close(fb_log *log);

/* ---- reader ----------------------------------------------------------------------------------------------------------------- */

typedef struct fb_log_reader fb_log_reader;

/* One record. The payload lies in the reader, 8-byte aligned, until the next call of the same function on that reader. */
typedef struct fb_log_record {
    uint16_t type;
    uint16_t reserved;
    uint32_t bytes;        /* of the payload */
    uint64_t sequence;     /* appended: 1, 2, ..., with gaps where records were lost; frozen, pulse: 1, 2, ... of their own */
    uint64_t time_ns;      /* realtime clock of the writer; may go back, and orders nothing */
    uint64_t offset_bytes; /* of the record's header in the file */
    const void *payload;
} fb_log_record;

typedef struct fb_log_info {
    uint64_t file_id;
    uint64_t created_ns;
    uint32_t frozen_slots;
    uint32_t reserved;
} fb_log_info;

/* How the file ends, as far as it was read. */
enum {
    FB_LOG_TAIL_CLEAN = 0,  /* the last record ends where the file ends */
    FB_LOG_TAIL_TORN = 1,   /* a record begins and is not whole: the writer died in it, or is writing it now */
    FB_LOG_TAIL_GARBAGE = 2 /* bytes follow that begin no record */
};

typedef struct fb_log_tail {
    int32_t kind;
    int32_t reserved;
    uint64_t offset_bytes; /* end of the valid prefix */
    uint64_t after_bytes;  /* bytes in the file after it */
    uint64_t records;      /* valid records before it */
    uint64_t lost;         /* records that the writer could not write, by the gaps in the sequence */
} fb_log_tail;

/**
 * Open a log for reading, also while it is being written. The file is hostile input: nothing in it sizes memory, and a bounded
 * buffer (about 140 KiB, taken here) serves a file of any size.
 * Errors: FB_E_NOTFOUND (no such file), FB_E_CORRUPT (no log, or its creation was never finished), FB_E_UNSUPPORTED (a later
 * version), FB_E_IO, FB_E_NOMEM.
 */
fb_status fb_log_reader_open(fb_log_reader **out, const fb_os *os, const char *path, fb_error *err);

fb_status fb_log_reader_info(const fb_log_reader *reader, fb_log_info *info, fb_error *err);

/**
 * The next appended record, from the first on. FB_E_NOTFOUND at the end of the valid prefix, err untouched; called again later it
 * looks again, so that a file which is still written can be followed. FB_E_IO when the system fails to read.
 */
fb_status fb_log_reader_next(fb_log_reader *reader, fb_log_record *record, fb_error *err);

/**
 * The record of set-aside slot `index`.
 * FB_E_NOTFOUND (empty), FB_E_CORRUPT (neither empty nor a record: the power failed before it was acknowledged), FB_E_USAGE (no
 * such slot), FB_E_IO. Slots are filled in order, but one may be given up: look at all FB_LOG_FROZEN_SLOTS.
 */
fb_status fb_log_reader_frozen(fb_log_reader *reader, uint32_t index, fb_log_record *record, fb_error *err);

/* The newest pulse that is whole. FB_E_NOTFOUND when there is none, FB_E_IO. */
fb_status fb_log_reader_pulse(fb_log_reader *reader, fb_log_record *record, fb_error *err);

/* How the file ends after what fb_log_reader_next has given so far; meant for after its FB_E_NOTFOUND. FB_E_IO. */
fb_status fb_log_reader_tail(fb_log_reader *reader, fb_log_tail *tail, fb_error *err);

/* Accepts NULL. */
void fb_log_reader_close(fb_log_reader *reader);

#endif
