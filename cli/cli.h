/*
 * What the commands of the tool share: exit codes, errors, options, and what the terminal can show.
 */
#ifndef FB_CLI_H
#define FB_CLI_H

#include <stdio.h>

#include "base/status.h"

/* Exit codes of every command; `run` passes the job's own code through, or returns CLI_HALTED. */
enum { CLI_CLEAN = 0, CLI_BAD = 1, CLI_USAGE = 2, CLI_UNREADABLE = 3, CLI_UNDECIDED = 4, CLI_HALTED = 86 };

#define CLI_DIR_DEFAULT "firstbad-runs"

int fb_cmd_run(int argc, char **argv);
int fb_cmd_why(int argc, char **argv);
int fb_cmd_scan(int argc, char **argv);
int fb_cmd_ckpt(int argc, char **argv);
int fb_cmd_drill(int argc, char **argv);
int fb_cmd_replay(int argc, char **argv);
int fb_cmd_bisect(int argc, char **argv);
int fb_cmd_export(int argc, char **argv);

/* One line "firstbad: ..." on standard error; what a terminal could take for a command is shown as '?'. */
__attribute__((format(printf, 1, 2))) void cli_error(const char *format, ...);
/* The same for an error of the library; returns the exit code that belongs to it. */
int cli_fail(const fb_error *err);

/* Columns to write for: the terminal's, from 40 to 100; COLUMNS where there is no terminal; 100 otherwise. */
int cli_columns(FILE *out);
/* 1 when colour may be used on this stream: a terminal, and NO_COLOR is not set. */
int cli_colour(FILE *out);
/* Write text and see that it went out: 0, or CLI_UNREADABLE after a message. */
int cli_print(const char *text);
/* See that all that was printed went out: 0, or CLI_UNREADABLE after a message. */
int cli_flush(void);

/* An option: "--name" sets *flag to 1, or "--name VALUE" and "--name=VALUE" set *value. One of the two is NULL. */
typedef struct cli_option {
    const char *name;
    int *flag;
    const char **value;
} cli_option;

/**
 * Read options and words of a command. argv[0] is the command's name. "--help" prints `help` and ends with 0; "--" ends the
 * options.
 * options      terminated by a NULL name.
 * words        room for words_max words; *word_count on return.
 * exit_code    set when the command should end at once.
 * Returns 1 to go on, 0 to end with *exit_code.
 */
int cli_parse(int argc, char **argv, const cli_option *options, const char *help, const char **words, int words_max,
              int *word_count, int *exit_code);

/* Take "-- COMMAND..." off the arguments: the command, ending with NULL, or NULL when there is no "--". */
char **cli_split_command(int *argc, char **argv);

/* A whole number of `low` or more, or 0 after a message. */
int cli_number(const char *option, const char *text, long long low, long long *value);

#endif
