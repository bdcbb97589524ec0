/*
 * Child processes of the tool: start, signal, wait. What the library leaves to the tool by design: it never forks.
 *
 *   process_start, then process_wait_forwarding (for `run`)
 *               or process_wait_ms, process_kill_group (for `drill`)
 *
 * A child leads a process group of its own. A signal that reaches us is passed on to that group, and the terminal's own signals
 * reach us alone, so that one Ctrl-C is one SIGINT for the job. The terminal is handed to the child's group when it asks for it by
 * reading.
 */
#ifndef CLI_PROCESS_H
#define CLI_PROCESS_H

#include <stddef.h>
#include <sys/types.h>

#include "firstbad/firstbad.h"

typedef struct process {
    pid_t pid; /* 0: none */
    int ended;
    int status; /* of waitpid, when ended */
} process;

/**
 * Start argv[0], found in PATH. When we die, the child gets SIGTERM.
 * env     set in the child beside our own environment; a NULL value takes the variable away.
 * output  descriptor for its standard output and error; -1: ours.
 * Returns 0, or the errno that kept it from starting (ENOENT: no such command).
 */
int process_start(process *child, char *const argv[], const fb_pair *env, size_t env_count, int output);

/* 0 when there is such a command in PATH, or the errno that starting it would give. */
int process_find(const char *command);

/* Wait for the end, passing on SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and stopping and going on with the child. */
void process_wait_forwarding(process *child);
/* From before process_start on, signals to pass on are held back until process_wait_forwarding. */
void process_hold_signals(void);

/* 1 when it ended within the time; ms 0 only looks. 0 at once after process_interrupted. */
int process_wait_ms(process *child, int64_t ms);
/* Have it end: SIGTERM to its group, SIGKILL after `grace_ms`; a second after the child has ended, SIGKILL to what is left of its
   group. Returns when it is gone, at the latest after twice that time and a second. */
void process_end(process *child, int64_t grace_ms);
void process_kill_group(const process *child, int signal_number);

/* From here on SIGINT, SIGTERM, SIGHUP and SIGQUIT are remembered instead of ending us, and SIGPIPE is an error of the write. */
void process_catch_interrupts(void);
/* The signal that came since, or 0. */
int process_interrupted(void);

/* The exit code a shell would give: its own, or 128 + the signal that ended it. */
int process_exit_code(const process *child);
/* The signal that ended it, or 0. */
int process_exit_signal(const process *child);

/* From here on standard input is empty, ours and that of what we start: a command that reads would
 * wait for ever behind a terminal. */
void process_no_input(void);
/* What a command printed last, out of a file that is open for reading, on our standard error. */
void process_show_tail(int fd);

/* Standard output of a short command, its last line end cut; -1 when it fails, says too much, or takes longer than `ms`. */
int process_capture(char *const argv[], char *out, size_t room, int64_t ms);

int64_t process_now_ms(void);
void process_sleep_ms(int64_t ms);

#endif
