/*
 * The thread that reads checkpoints back while training goes on, and the queue before it. It writes to the registry and never to
 * the ledger, which has one writer: verdicts wait here until the run's own thread fetches them.
 *
 * Calling order: open, [add, forget, hold, doubted, reread, release, fetch, poll, wait], wait, close. All of it from the run's own
 * thread; the thread of the verifier sees nothing but this struct. In a child made by fork: abandon, and nothing else.
 */
#ifndef FB_GUARD_VERIFIER_H
#define FB_GUARD_VERIFIER_H

#include "firstbad/firstbad.h"
#include "os/os.h"

enum {
    FB_VERIFIER_RESULTS = 32, /* verdicts that are kept for who polls */
    FB_VERIFIER_DOUBTS = 64   /* checkpoints that are read again after a case; further ones stay suspect until somebody asks */
};

typedef struct fb_verifier fb_verifier;

/* home: folder of the run. Starts the thread. FB_E_NOMEM, FB_E_LIMIT. */
fb_status fb_verifier_open(fb_verifier **out, const fb_os *os, const char *home, fb_error *err);

/* Read this one back; the registry has it as suspect already. path: absolute. gated: as recorded
 * there. FB_E_LIMIT: the queue is full. */
fb_status fb_verifier_add(fb_verifier *verifier, const char *path, int64_t step, int gated, fb_error *err);

/* Somebody is about to write to `path`: what waits under this name will not be read. */
void fb_verifier_forget(fb_verifier *verifier, const char *path);

/* A taint was recorded: what waits and was saved at `step` or later is judged as it is, without waiting for the end of a doubt. */
void fb_verifier_release(fb_verifier *verifier, int64_t step);

/* A case opened: what waits and was saved after `step_verified` waits on, until fb_verifier_reread. Returns 1, with path and step,
 * when
   one of these is being read now: the registry must be told of it before its verdict is there. */
int fb_verifier_hold(fb_verifier *verifier, int64_t step_verified, char path[FB_OS_PATH_MAX], int64_t *step);
/* This one is in doubt, and is to be read again when the doubt ends. */
void fb_verifier_doubted(fb_verifier *verifier, const char *path, int64_t step);
/* The doubt ended: the update was provably withheld. */
void fb_verifier_reread(fb_verifier *verifier);

/* The oldest verdict that was not fetched yet, for the ledger; it stays for who polls. 0: there is none. */
int fb_verifier_fetch(fb_verifier *verifier, fb_checkpoint_result *out);
/* The oldest verdict that was fetched and not polled. 0: there is none. */
int fb_verifier_poll(fb_verifier *verifier, fb_checkpoint_result *out);

enum { FB_VERIFIER_LATE = 0, FB_VERIFIER_IDLE = 1, FB_VERIFIER_FETCH = 2 };
/* Wait until nothing is left to do (IDLE), until verdicts are there to be fetched (FETCH), or until the time is over (LATE). What
 * is
   held by a doubt is nothing to do. ms negative: no limit. */
int fb_verifier_wait(fb_verifier *verifier, int64_t ms);

/* End the thread after the one it is reading, and free. Accepts NULL. */
void fb_verifier_close(fb_verifier *verifier);
/* In a child made by fork: free the memory, touch no lock. Accepts NULL. */
void fb_verifier_abandon(fb_verifier *verifier);

#endif
