#include "scan/scan_finite_math.h"

#include "scan/scan_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;
/* All below is written under the lock, `owner` also read without it: a child must not touch a lock that a lost thread may hold. */
static _Atomic long owner; /* process that started the workers; 0: none yet */
static int workers, busy;
static void (*job)(void *);
static void *job_arg;
static int seats, running; /* workers that may still join the job; workers inside it */

int fb_pool_width(void)
{
    static _Atomic int width;
    int known = atomic_load_explicit(&width, memory_order_relaxed);
    cpu_set_t set;
    if (known) return known;
    CPU_ZERO(&set);
    known = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    if (known < 1) known = 1;
    if (known > FB_POOL_THREADS_MAX) known = FB_POOL_THREADS_MAX;
    atomic_store_explicit(&width, known, memory_order_relaxed);
    return known;
}

static void *worker_main(void *unused)
{
    (void)pthread_mutex_lock(&lock);
    for (;;) {
        void (*work)(void *);
        void *arg;
        while (!seats) (void)pthread_cond_wait(&wake, &lock);
        seats--;
        running++;
        work = job;
        arg = job_arg;
        (void)pthread_mutex_unlock(&lock);
        work(arg);
        (void)pthread_mutex_lock(&lock);
        if (--running == 0) (void)pthread_cond_signal(&idle);
    }
    return unused;
}

/* Under the lock. Fewer workers than wanted is no error. */
static void hire(int wanted)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    if (workers >= wanted) return;
    if (pthread_attr_init(&attributes) != 0) return;
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    while (workers < wanted) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, worker_main, NULL) != 0) break;
        workers++;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
}

/* 1 when the pool is ours for this job. */
static int claim(int threads, void (*work)(void *arg), void *arg)
{
    long self = (long)getpid(), before = atomic_load(&owner);
    int claimed = 0;
    if (before != 0 && before != self) return 0;
    if (pthread_mutex_trylock(&lock) != 0) return 0;
    if (!busy) {
        atomic_store(&owner, self);
        hire(threads - 1);
        if (workers) {
            claimed = busy = 1;
            job = work;
            job_arg = arg;
            seats = workers < threads - 1 ? workers : threads - 1;
            (void)pthread_cond_broadcast(&wake);
        }
    }
    (void)pthread_mutex_unlock(&lock);
    return claimed;
}

void fb_pool_run(int threads, void (*work)(void *arg), void *arg)
{
    if (threads > FB_POOL_THREADS_MAX) threads = FB_POOL_THREADS_MAX;
    if (threads < 2 || !claim(threads, work, arg)) {
        work(arg);
        return;
    }
    work(arg);
    (void)pthread_mutex_lock(&lock);
    seats = 0; /* who has not come yet need not come */
    while (running) (void)pthread_cond_wait(&idle, &lock);
    busy = 0;
    (void)pthread_mutex_unlock(&lock);
}
