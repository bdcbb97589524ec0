/* What the scenarios of `firstbad drill` and the faults of `firstbad drill --all` share: settings, a command, and folders. */
#ifndef CLI_DRILL_SHARED_H
#define CLI_DRILL_SHARED_H

#include "os/os.h"

typedef struct drill_settings {
    int32_t ranks;
    const char *trainer, *precision;
    char dir[FB_OS_PATH_MAX];
    int oversubscribe; /* the launcher knows that option */
    /* of --all */
    int32_t seeds, jobs;
} drill_settings;

enum { DRILL_WORDS = 64 };

/* A command, word by word. Start with zeros. */
typedef struct drill_words {
    char *at[DRILL_WORDS + 1]; /* ends with NULL */
    int count;
    size_t used;
    char text[3 * FB_OS_PATH_MAX]; /* the words' bytes */
} drill_words;

/* Each blank parts two words. 0 when there is no room. */
int drill_add_words(drill_words *words, const char *text);
/* A path may hold blanks: it is one word. 0 when there is no room. */
int drill_add_path(drill_words *words, const char *path);

/* Take a folder away with all that is in it. */
void drill_remove(const char *path);

#endif
