/* `firstbad bisect --boundaries FILE -- COMMAND`: the search for any program, in any language, that answers with an exit code. */
#ifndef CLI_BISECT_ANY_H
#define CLI_BISECT_ANY_H

#include <stdint.h>

typedef struct bisect_any_options {
    const char *boundaries; /* file; NULL: `count` numbers */
    uint32_t count;
    const char *finding; /* name; NULL: the last place */
    const char *log, *resume;
    int groups; /* 1: the command takes several names at once */
    int sweep, json;
    uint32_t probes_max; /* with groups: places a run; 0: any number */
    uint32_t runs_max;   /* 0: no bound */
    char *const *command;
} bisect_any_options;

/* Returns the exit code of the command. */
int bisect_any(const bisect_any_options *options);

#endif
