/*
 * Worker threads, started at the first large array and kept: starting one costs 55 us, as much as reading 2 MB. They do nothing but
 * scan, hold no lock while they work, and receive no signals. After fork the child has none and works on the calling thread.
 */
#ifndef FB_SCAN_POOL_H
#define FB_SCAN_POOL_H

#include <stddef.h>
#include <stdint.h>

enum { FB_POOL_THREADS_MAX = 64 };

/* Threads that the process may run on, at most FB_POOL_THREADS_MAX. Asked once. */
int fb_pool_width(void);

/*
 * Call work(arg) on the calling thread and on up to threads - 1 workers at once, and return when all of these calls have returned.
 * work takes its share from a counter in arg until nothing is left, so it is right with any number of callers. The pool serves one
 * call at a time; another that comes meanwhile, or one that cannot get workers, runs on its own thread alone.
 */
void fb_pool_run(int threads, void (*work)(void *arg), void *arg);

#endif
