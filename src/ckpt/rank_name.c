#include "ckpt/rank_name.h"

#include <string.h>

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int fb_rank_name(const char *pattern, const char *name, uint64_t *numbers)
{
    for (; *pattern; pattern++) {
        int count = 0;
        if (*pattern == '*' && pattern[1] == '\0') return 1;
        if (*pattern != '#') {
            if (*pattern != *name++) return 0;
            continue;
        }
        for (*numbers = 0; is_digit(*name) && count < 10; count++) *numbers = *numbers * 10 + (uint64_t)(*name++ - '0');
        if (count == 0 || count == 10) return 0;
        numbers++;
    }
    return *name == '\0';
}

static int ends_with(const char *text, size_t bytes, const char *end)
{
    size_t n = strlen(end);
    return bytes >= n && memcmp(text + bytes - n, end, n) == 0;
}

/* Does a number that begins here name a rank or a shard? masked: the number before this one did, and one '_' stands between. */
static int is_rank(const char *name, size_t at, size_t end, int masked)
{
    static const char *const before[] = {"rank_", "rank", "rng_state_", "random_states_", "_tp", "_pp", "_dp"};
    if (masked) return 1;
    if (strncmp(name + end, "-of-", 4) == 0 && at > 0 && name[at - 1] == '-') return 1;
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        if (ends_with(name, at, before[i])) return 1;
    }
    return 0;
}

int fb_rank_family(const char *name, char *family, size_t room)
{
    size_t used = 0, at = 0, last_end = 0;
    int found = 0;
    while (name[at]) {
        size_t end = at;
        while (is_digit(name[end])) end++;
        if (used + 2 > room) return 0;
        if (end == at) {
            family[used++] = name[at++];
            continue;
        }
        if (is_rank(name, at, end, last_end > 0 && at == last_end + 1 && name[last_end] == '_')) {
            family[used++] = '#';
            found = 1;
            last_end = end;
            at = end;
            continue;
        }
        if (used + (end - at) + 1 > room) return 0;
        memcpy(family + used, name + at, end - at);
        used += end - at;
        at = end;
    }
    if (used >= room) return 0;
    family[used] = '\0';
    return found;
}
