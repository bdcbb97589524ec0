/* See process.h. */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "report/report.h"

static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP};
enum { PASSED_ON = sizeof passed_on / sizeof *passed_on, REST_MS = 1000 };

int64_t process_now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void process_sleep_ms(int64_t ms)
{
    struct timespec wait = {ms / 1000, (long)(ms % 1000) * 1000000L};
    (void)nanosleep(&wait, NULL);
}

static int executable(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) return errno;
    if (S_ISDIR(info.st_mode) || faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) != 0) return EACCES;
    return 0;
}

/* As execvp looks: a name with a slash is a path; elsewhere the first executable file wins, and
 * EACCES is told when there was none. */
int process_find(const char *command)
{
    const char *at = getenv("PATH");
    int worst = ENOENT;
    if (strchr(command, '/')) return executable(command);
    if (!*command) return ENOENT;
    for (at = at ? at : "/usr/local/bin:/usr/bin:/bin"; at;) {
        const char *end = strchr(at, ':');
        char path[4096];
        int n = (int)(end ? end - at : (ptrdiff_t)strlen(at));
        int why;
        (void)snprintf(path, sizeof path, "%.*s%s%s", n, at, n ? "/" : "", command);
        if ((why = executable(path)) == 0) return 0;
        if (why == EACCES) worst = EACCES;
        at = end ? end + 1 : NULL;
    }
    return worst;
}

/* ---- start ------------------------------------------------------------------------------------------------------------------- */

static void set_environment(const fb_pair *env, size_t env_count)
{
    for (size_t i = 0; i < env_count; i++) {
        if (env[i].value) (void)setenv(env[i].key, env[i].value, 1);
        else (void)unsetenv(env[i].key);
    }
}

/* In the child: never returns. What keeps the command from running goes to the parent as an errno through `report`. */
static void become(char *const argv[], const fb_pair *env, size_t env_count, int output, int report, pid_t parent)
{
    sigset_t none;
    int why;
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127); /* we died before the line above */
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    set_environment(env, env_count);
    if (output >= 0 && (dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0)) goto failed;
    (void)execvp(argv[0], argv);
failed:
    why = errno;
    while (write(report, &why, sizeof why) < 0 && errno == EINTR) continue;
    _exit(127);
}

int process_start(process *child, char *const argv[], const fb_pair *env, size_t env_count, int output)
{
    int report[2], why = 0;
    pid_t parent = getpid();
    memset(child, 0, sizeof *child);
    if (pipe2(report, O_CLOEXEC) != 0) return errno;
    child->pid = fork();
    if (child->pid == 0) become(argv, env, env_count, output, report[1], parent);
    if (child->pid < 0) why = errno;
    else (void)setpgid(child->pid, child->pid); /* both sides do it: whoever comes second fails, and that is fine */
    (void)close(report[1]);
    while (child->pid > 0 && read(report[0], &why, sizeof why) < 0 && errno == EINTR) continue;
    (void)close(report[0]);
    if (child->pid > 0 && why != 0) {
        while (waitpid(child->pid, &child->status, 0) < 0 && errno == EINTR) continue;
        child->pid = 0;
    }
    if (why != 0) child->pid = 0;
    return why;
}

/* ---- wait, passing signals on ------------------------------------------------------------------------------------------------ */

static volatile sig_atomic_t forward_to; /* process group, 0: none */

static void pass_on(int number)
{
    int saved = errno;
    if (forward_to) (void)kill(-(pid_t)forward_to, number);
    errno = saved;
}

static void signal_set(sigset_t *set)
{
    (void)sigemptyset(set);
    for (size_t i = 0; i < PASSED_ON; i++) (void)sigaddset(set, passed_on[i]);
}

void process_hold_signals(void)
{
    sigset_t set;
    signal_set(&set);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
}

/* What was ignored when we started, as under nohup, stays ignored, by the child too. */
static void install(int number)
{
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = pass_on;
    action.sa_flags = SA_RESTART;
    (void)sigfillset(&action.sa_mask);
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler == SIG_IGN) return;
    (void)sigaction(number, &action, NULL);
}

/* Foreground means: the terminal's current group is ours. */
static int give_terminal(pid_t group, pid_t from)
{
    sigset_t set, before;
    int done;
    if (!isatty(STDIN_FILENO) || tcgetpgrp(STDIN_FILENO) != from) return 0;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTTOU);
    (void)sigprocmask(SIG_BLOCK, &set, &before);
    done = tcsetpgrp(STDIN_FILENO, group) == 0;
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return done;
}

/* The child stopped. One that asked for the terminal gets it; after Ctrl-Z we stop as well, and go on together. */
static void follow_stop(const process *child, int number)
{
    if ((number == SIGTTIN || number == SIGTTOU) && give_terminal(child->pid, getpgrp())) {
        (void)kill(-child->pid, SIGCONT);
        return;
    }
    if (number != SIGTSTP && number != SIGTTIN && number != SIGTTOU) return; /* somebody's SIGSTOP: theirs to undo */
    int had_terminal = give_terminal(getpgrp(), child->pid);
    struct sigaction plain, before;
    memset(&plain, 0, sizeof plain);
    plain.sa_handler = SIG_DFL;
    (void)sigaction(SIGTSTP, &plain, &before);
    (void)raise(SIGTSTP);
    (void)sigaction(SIGTSTP, &before, NULL);
    if (had_terminal) (void)give_terminal(child->pid, getpgrp());
    (void)kill(-child->pid, SIGCONT);
}

void process_wait_forwarding(process *child)
{
    sigset_t set;
    forward_to = (sig_atomic_t)child->pid;
    for (size_t i = 0; i < PASSED_ON; i++) install(passed_on[i]);
    signal_set(&set);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
    for (;;) {
        int status;
        pid_t got = waitpid(child->pid, &status, WUNTRACED);
        if (got < 0 && errno == EINTR) continue;
        if (got == child->pid && WIFSTOPPED(status)) {
            follow_stop(child, WSTOPSIG(status));
            continue;
        }
        child->status = got == child->pid ? status : 0;
        break;
    }
    child->ended = 1;
    forward_to = 0;
    (void)give_terminal(getpgrp(), child->pid);
}

/* ---- wait, by the clock ------------------------------------------------------------------------------------------------------ */

static volatile sig_atomic_t interrupted;

static void note_interrupt(int number)
{
    if (number != SIGPIPE) interrupted = number;
}

/* A handler, and not SIG_IGN for SIGPIPE: what is ignored stays ignored in a child, what is handled does not. */
void process_catch_interrupts(void)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
        struct sigaction action, before;
        memset(&action, 0, sizeof action);
        action.sa_handler = note_interrupt;
        (void)sigemptyset(&action.sa_mask);
        if (sigaction(caught[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN) continue;
        (void)sigaction(caught[i], &action, NULL);
    }
}

int process_interrupted(void)
{
    return (int)interrupted;
}

static int wait_ms(process *child, int64_t ms, int heed)
{
    int64_t until = process_now_ms() + ms;
    for (int64_t nap = 1; !child->ended; nap = nap < 10 ? nap + 1 : 10) {
        int status;
        pid_t got = waitpid(child->pid, &status, WNOHANG);
        if (got == child->pid) {
            child->status = status;
            child->ended = 1;
        } else if ((heed && interrupted) || process_now_ms() >= until) {
            return 0;
        } else {
            process_sleep_ms(nap);
        }
    }
    return 1;
}

int process_wait_ms(process *child, int64_t ms)
{
    return wait_ms(child, ms, 1);
}

/* What the child started may outlive it: a shell is gone at once, and an mpirun below it still has ranks to end. It gets a moment,
   and is killed then. The number of a group is nobody else's as long as there is anybody in it. */
static void end_rest(const process *child)
{
    int64_t until = process_now_ms() + REST_MS;
    while (kill(-child->pid, 0) == 0 && process_now_ms() < until) process_sleep_ms(5);
    (void)kill(-child->pid, SIGKILL);
}

void process_end(process *child, int64_t grace_ms)
{
    if (child->pid <= 0 || child->ended) return;
    process_kill_group(child, SIGTERM);
    if (!wait_ms(child, grace_ms, 0)) process_kill_group(child, SIGKILL);
    if (wait_ms(child, grace_ms, 0)) end_rest(child);
}

void process_kill_group(const process *child, int signal_number)
{
    if (child->pid > 0 && !child->ended) (void)kill(-child->pid, signal_number);
}

int process_exit_signal(const process *child)
{
    return WIFSIGNALED(child->status) ? WTERMSIG(child->status) : 0;
}

int process_exit_code(const process *child)
{
    if (WIFSIGNALED(child->status)) return 128 + WTERMSIG(child->status);
    return WEXITSTATUS(child->status);
}

/* ---- input and output -------------------------------------------------------------------------------------------------------- */

void process_no_input(void)
{
    int nowhere = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nowhere < 0) return;
    (void)dup2(nowhere, STDIN_FILENO); /* the copy is not closed on exec */
    (void)close(nowhere);
}

void process_show_tail(int fd)
{
    enum { BYTES = 2000, LINES = 12 };
    char text[BYTES + 1], *at;
    off_t size = lseek(fd, 0, SEEK_END);
    ssize_t n = pread(fd, text, BYTES, size > BYTES ? size - BYTES : 0);
    int lines = 0;
    if (n <= 0) return;
    text[n] = '\0';
    for (at = text + n; at > text && lines <= LINES; at--) lines += at < text + n && at[-1] == '\n';
    if (lines > LINES) at++;
    fb_text_disarm(at);
    fprintf(stderr, "firstbad: the last that it printed:\n%s%s", at, text[n - 1] == '\n' ? "" : "\n");
}

/* ---- a short command's words ------------------------------------------------------------------------------------------------- */

/* Bytes of the pipe until its end; -1 when there is no room for them or no more time. */
static ssize_t read_until_end(int fd, char *out, size_t room, int64_t until)
{
    size_t used = 0;
    for (;;) {
        struct pollfd poll_fd = {fd, POLLIN, 0};
        int64_t left = until - process_now_ms();
        ssize_t got;
        if (left <= 0 || used + 1 >= room) return -1;
        if (poll(&poll_fd, 1, (int)left) <= 0) continue;
        got = read(fd, out + used, room - 1 - used);
        if (got == 0) return (ssize_t)used;
        if (got > 0) used += (size_t)got;
        else if (errno != EINTR) return -1;
    }
}

/* Its standard error goes nowhere: whether it worked is all that counts. */
int process_capture(char *const argv[], char *out, size_t room, int64_t ms)
{
    int fds[2];
    process child;
    pid_t pid;
    ssize_t used;
    int64_t until = process_now_ms() + ms;
    memset(&child, 0, sizeof child);
    if (pipe2(fds, O_CLOEXEC) != 0) return -1;
    pid = fork();
    if (pid == 0) {
        int nowhere = open("/dev/null", O_RDWR);
        if (nowhere < 0 || dup2(nowhere, STDIN_FILENO) < 0 || dup2(nowhere, STDERR_FILENO) < 0 || dup2(fds[1], STDOUT_FILENO) < 0)
            _exit(127);
        (void)execvp(argv[0], argv);
        _exit(127);
    }
    (void)close(fds[1]);
    used = pid < 0 ? -1 : read_until_end(fds[0], out, room, until);
    (void)close(fds[0]);
    if (pid < 0) return -1;
    child.pid = pid;
    if (used < 0) (void)kill(pid, SIGKILL);
    if (!process_wait_ms(&child, ms)) {
        (void)kill(pid, SIGKILL);
        (void)process_wait_ms(&child, ms);
    }
    if (used < 0 || !child.ended || process_exit_code(&child) != 0) return -1;
    while (used > 0 && (out[used - 1] == '\n' || out[used - 1] == '\r')) used--;
    out[used] = '\0';
    return 0;
}
