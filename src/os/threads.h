/*
 * Threads of our own, and what they wait on. One is used for work that must not hold up training: it gets little of a busy
 * processor, and no signal of the program.
 *
 * After a fork there are no threads in the child and a monitor may be held by one that is gone: the caller touches neither there.
 */
#ifndef FB_OS_THREADS_H
#define FB_OS_THREADS_H

#include <pthread.h>
#include <stdint.h>

#include "base/status.h"

typedef struct fb_thread {
    pthread_t id;
    int started;
    int as_we_are; /* 1: of the caller's own priority */
    void (*work)(void *arg);
    void *arg;
} fb_thread;

/**
 * Start a thread that runs work(arg), with all signals blocked and of low priority where the system has such a thing.
 * thread  stays where it is until fb_thread_join.
 * Errors: FB_E_LIMIT when the system gives none.
 */
fb_status fb_thread_start(fb_thread *thread, void (*work)(void *arg), void *arg, fb_error *err);
/* The same, of the caller's own priority: for a thread that the caller waits for. */
fb_status fb_thread_start_as_we_are(fb_thread *thread, void (*work)(void *arg), void *arg, fb_error *err);
/* Wait for its end. One that was not started has ended. */
void fb_thread_join(fb_thread *thread);

/* A lock, and a wait for what it guards to change. */
typedef struct fb_monitor {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
} fb_monitor;

/* FB_E_NOMEM when the system has no room. */
fb_status fb_monitor_init(fb_monitor *monitor, fb_error *err);
void fb_monitor_release(fb_monitor *monitor);
void fb_monitor_enter(fb_monitor *monitor);
void fb_monitor_leave(fb_monitor *monitor);
/* Inside: something changed, for all who wait. */
void fb_monitor_tell(fb_monitor *monitor);
/* Inside: wait until told, or until ms have passed (negative: no limit). May return early: look again. 0 when the time is over. */
int fb_monitor_wait(fb_monitor *monitor, int64_t ms);

#endif
