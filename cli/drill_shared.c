/* See drill_shared.h. */
#include "drill_shared.h"

#include <ftw.h>
#include <stdio.h>
#include <string.h>

int drill_add_path(drill_words *words, const char *path)
{
    size_t bytes = strlen(path) + 1;
    if (bytes > sizeof words->text - words->used || words->count >= DRILL_WORDS) return 0;
    words->at[words->count++] = memcpy(words->text + words->used, path, bytes);
    words->used += bytes;
    return 1;
}

int drill_add_words(drill_words *words, const char *text)
{
    char *save = NULL;
    size_t bytes = strlen(text) + 1;
    if (bytes > sizeof words->text - words->used) return 0;
    char *copy = memcpy(words->text + words->used, text, bytes);
    words->used += bytes;
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        if (words->count >= DRILL_WORDS) return 0;
        words->at[words->count++] = word;
    }
    return 1;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

void drill_remove(const char *path)
{
    (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}
