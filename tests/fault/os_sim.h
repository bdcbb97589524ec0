/*
 * A table of system calls over a simulated machine: a disk whose power can be cut, whose space can run out, and whose k-th call can
 * fail. Nothing here touches the real system, so a test may cut the power a hundred thousand times.
 *
 * What a program sees is the cache; what survives is the disk. A write goes to the cache and waits; fsync or fdatasync of that file
 * carries what waits to the disk. A new, linked, renamed or removed name waits in the same way for the fsync of its folder. At a
 * power cut each waiting write meets its own fate, whatever the order in which they were made: lost, kept, torn at any byte, torn
 * by sectors, garbled, or only the length of the file remains. Names are kept up to a point in the order in which they were made,
 * as a journal does. A failed fsync throws what waited away and a later one succeeds without it, as Linux does: the cache still
 * shows it.
 *
 * Assumed of the disk: bytes outside a write are not harmed by it, unless a test asks for OS_SIM_RUINED, in which all 4 KiB blocks
 * that the write touches become noise.
 */
#ifndef FB_TESTS_FAULT_OS_SIM_H
#define FB_TESTS_FAULT_OS_SIM_H

#include "os/os.h"

typedef struct os_sim os_sim;

os_sim *os_sim_new(void); /* one folder, "/" ; the test stops the process when memory is gone */
void os_sim_free(os_sim *sim);
const fb_os *os_sim_os(os_sim *sim);

/* ---- faults ---- */

enum { OS_SIM_SHORT = -1 }; /* instead of an errno: reads and writes move half of what was asked; other calls succeed */

/* Fail the k-th call from now (1: the next), and all after it if `for_good`, with this errno (> 0) or OS_SIM_SHORT. k = 0: none. */
void os_sim_fail(os_sim *sim, uint64_t k, int with_errno, int for_good);
/* Power cut at the k-th call from now: it still reaches the cache (a sync reaches nothing), fails, and so does every later call. */
void os_sim_cut(os_sim *sim, uint64_t k);
/* Calls since os_sim_fail, os_sim_cut or os_sim_new. Clocks, getpid and hostname cannot fail and are not counted. */
uint64_t os_sim_calls(const os_sim *sim);
/* Name of the k-th of those calls, for messages: "pwrite". "" if there was none. */
const char *os_sim_call_name(const os_sim *sim, uint64_t k);
/* Bytes that all files together may take, in blocks of 4 KiB. A write beyond gets what fits, and the next one ENOSPC. */
void os_sim_capacity(os_sim *sim, uint64_t bytes);
/* 1: the file system can share blocks between files; at first it cannot. */
void os_sim_clones(os_sim *sim, int on);
void os_sim_set_pid(os_sim *sim, int64_t pid);

/* ---- power ---- */

enum {
    OS_SIM_LOST = 0,
    OS_SIM_KEPT = 1,
    OS_SIM_PREFIX = 2,  /* the first `value` bytes reach the disk */
    OS_SIM_SUFFIX = 3,  /* all but the first `value` bytes do */
    OS_SIM_SECTORS = 4, /* those 512-byte sectors do whose bit in `value` is set (by sector number modulo 64) */
    OS_SIM_GARBLED = 5, /* noise, seeded by `value`, in the place of its bytes */
    OS_SIM_LENGTH = 6,  /* the file has its new length, with zeros for bytes */
    OS_SIM_RUINED = 7   /* as garbled, and all 4 KiB blocks that it touches with it, as far as the file reaches */
};

typedef struct os_sim_fate {
    int kind;
    uint64_t value;
} os_sim_fate;

/* The fate of a waiting write; index 0 is the newest. bytes: its size. */
typedef os_sim_fate (*os_sim_fate_fn)(void *arg, size_t index, size_t bytes);

size_t os_sim_waiting_writes(const os_sim *sim);
size_t os_sim_waiting_names(const os_sim *sim);
/* The machine after the power came back, as a new one: the first `names_kept` of the waiting name changes, and each write's fate.
 * */
os_sim *os_sim_after_power_cut(const os_sim *sim, os_sim_fate_fn fate, void *arg, size_t names_kept);

/* A repeatable random number from a seed that moves on (SplitMix64). */
uint64_t os_sim_random(uint64_t *seed);

#endif
