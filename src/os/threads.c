#include "os/threads.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A tenth of a processor that training keeps busy, and all of one that is idle. Not SCHED_IDLE: on a machine without an idle
 * processor
   the work would never end. */
enum { NICENESS = 10 };

static void *thread_main(void *self)
{
    const fb_thread *thread = self;
#if defined(__linux__) && defined(SYS_gettid)
    /* On Linux a niceness is a thread's own. One that is refused costs nothing but politeness. */
    if (!thread->as_we_are) (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICENESS);
#endif
    thread->work(thread->arg);
    return NULL;
}

static fb_status start(fb_thread *thread, void (*work)(void *arg), void *arg, fb_error *err)
{
    sigset_t all, before;
    int why;
    thread->work = work;
    thread->arg = arg;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    why = pthread_create(&thread->id, NULL, thread_main, thread);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    thread->started = why == 0;
    if (why) return fb_fail(err, FB_E_LIMIT, "start a thread: %s", strerror(why));
    return FB_OK;
}

fb_status fb_thread_start(fb_thread *thread, void (*work)(void *arg), void *arg, fb_error *err)
{
    thread->as_we_are = 0;
    return start(thread, work, arg, err);
}

fb_status fb_thread_start_as_we_are(fb_thread *thread, void (*work)(void *arg), void *arg, fb_error *err)
{
    thread->as_we_are = 1;
    return start(thread, work, arg, err);
}

void fb_thread_join(fb_thread *thread)
{
    if (thread->started) (void)pthread_join(thread->id, NULL);
    thread->started = 0;
}

fb_status fb_monitor_init(fb_monitor *monitor, fb_error *err)
{
    pthread_condattr_t attributes;
    int why = pthread_condattr_init(&attributes);
    if (why == 0) {
        why = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        if (why == 0) why = pthread_cond_init(&monitor->changed, &attributes);
        (void)pthread_condattr_destroy(&attributes);
    }
    if (why == 0) {
        why = pthread_mutex_init(&monitor->mutex, NULL);
        if (why) (void)pthread_cond_destroy(&monitor->changed);
    }
    return why ? fb_fail(err, FB_E_NOMEM, "make a lock: %s", strerror(why)) : FB_OK;
}

void fb_monitor_release(fb_monitor *monitor)
{
    (void)pthread_mutex_destroy(&monitor->mutex);
    (void)pthread_cond_destroy(&monitor->changed);
}

void fb_monitor_enter(fb_monitor *monitor)
{
    (void)pthread_mutex_lock(&monitor->mutex);
}

void fb_monitor_leave(fb_monitor *monitor)
{
    (void)pthread_mutex_unlock(&monitor->mutex);
}

void fb_monitor_tell(fb_monitor *monitor)
{
    (void)pthread_cond_broadcast(&monitor->changed);
}

int fb_monitor_wait(fb_monitor *monitor, int64_t ms)
{
    struct timespec until;
    if (ms < 0) return pthread_cond_wait(&monitor->changed, &monitor->mutex) == 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ms / 1000);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    return pthread_cond_timedwait(&monitor->changed, &monitor->mutex, &until) != ETIMEDOUT;
}
