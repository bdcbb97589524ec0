/* The command line that starts a trainer again: words out of launch.json, out of a bundle, and the launcher in front of them. */
#ifndef CLI_LAUNCHER_H
#define CLI_LAUNCHER_H

#include "os/os.h"

/* What `firstbad run` recorded. words: NULL-terminated; NULL: nothing was recorded. */
typedef struct launch {
    char **words;
    size_t count;
    char *text; /* words point into it */
    char cwd[FB_OS_PATH_MAX];
} launch;

/* launch.json of this attempt in a run folder. A file that is not there, or is torn, leaves `out` empty. Errors: FB_E_NOMEM. */
fb_status launch_read(launch *out, const char *run_folder, int32_t attempt, fb_error *err);
void launch_release(launch *from);

/* How many words of a launch stand in front of the trainer's own command; -1: it does not end with that command. */
int launch_prefix(const launch *from, const char *const *command);
/* 1: the word starts programs on several ranks: mpirun, mpiexec, srun, torchrun, ... */
int is_launcher(const char *word);
/* 1: this launcher is Open MPI's. It wants --oversubscribe where there are more ranks than cores, and hands a variable to other
   nodes only when `-x NAME` says so. */
int is_open_mpi(const char *word);

/**
 * Have a launcher hand variables on to all nodes: a copy of `argv` with `-x NAME` for each of `names` behind the first launcher
 * among its first `words`, where that is Open MPI's; other launchers hand everything on. What it says of FIRSTBAD_ variables itself
 * is left away: those were of another run. Errors: FB_E_NOMEM.
 */
fb_status launch_carry(char ***out, size_t *out_count, char *const *argv, size_t words, const char *const *names, fb_error *err);

#endif
