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
/* 1: mpirun is Open MPI's, which wants --oversubscribe where there are more ranks than cores. */
int is_open_mpi(void);

#endif
