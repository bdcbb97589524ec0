/* See launcher.h. */
#include "launcher.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/status.h"
#include "process.h"

enum { LAUNCH_BYTES_MAX = 4 << 20, VERSION_MS = 10000 };

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int is_launcher(const char *word)
{
    static const char *const names[] = {"mpirun", "mpiexec",  "mpiexec.hydra", "orterun", "prterun",   "prun",
                                        "srun",   "torchrun", "aprun",         "jsrun",   "deepspeed", "accelerate"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(last_part(word), names[i]) == 0) return 1;
    }
    return 0;
}

int is_open_mpi(const char *word)
{
    char option[] = "--version", text[4096];
    char *const words[] = {(char *)word, option, NULL}; /* exec takes them without const for reasons of history */
    return process_capture(words, text, sizeof text, VERSION_MS) == 0 && (strstr(text, "Open MPI") || strstr(text, "OpenRTE"));
}

/* "-x FIRSTBAD_DIR", and "-x FIRSTBAD_RUN_ID=r1". */
static int is_export(char *const *at)
{
    return (strcmp(at[0], "-x") == 0 || strcmp(at[0], "--x") == 0) && at[1] && strncmp(at[1], "FIRSTBAD_", 9) == 0;
}

static size_t add_exports(char **out, size_t n, const char *const *names)
{
    static char option[] = "-x";
    for (; *names; names++) {
        out[n++] = option;
        out[n++] = (char *)*names;
    }
    return n;
}

fb_status launch_carry(char ***out, size_t *out_count, char *const *argv, size_t words, const char *const *names, fb_error *err)
{
    size_t count = 0, parts = 1, named = 0, first = 0, n = 0;
    while (argv[count]) count++;
    while (names[named]) named++;
    if (words > count) words = count;
    while (first < words && argv[first] && !is_launcher(argv[first])) first++;
    if (first == words || !argv[first] || !is_open_mpi(argv[first])) first = count;
    for (size_t i = first; i < words && argv[i]; i++) parts += strcmp(argv[i], ":") == 0;
    if (!(*out = fb_calloc(count + 2 * named * parts + 1, sizeof **out)))
        return fb_fail(err, FB_E_NOMEM, "start the trainer: no memory for its %zu words", count);
    for (size_t i = 0; i < count; i++) {
        if (i > first && i < words && is_export(argv + i)) {
            i++;
            continue;
        }
        (*out)[n++] = argv[i];
        /* Each part between colons is a program of its own, with its own variables. */
        if (i == first || (i > first && i < words && strcmp(argv[i], ":") == 0)) n = add_exports(*out, n, names);
    }
    *out_count = n;
    return FB_OK;
}

int launch_prefix(const launch *from, const char *const *command)
{
    size_t own = 0, before;
    while (command[own]) own++;
    if (!from->words || own == 0 || own > from->count) return -1;
    before = from->count - own;
    /* The launcher may have found the program in PATH, and its path is then another. */
    if (strcmp(last_part(from->words[before]), last_part(command[0])) != 0) return -1;
    for (size_t i = 1; i < own; i++) {
        if (strcmp(from->words[before + i], command[i]) != 0) return -1;
    }
    return (int)before;
}

/* ---- launch.json ------------------------------------------------------------------------------------------------------------- */

/* Words in order into out->text, which is as long as the file: decoding makes none longer. */
static fb_status take_words(launch *out, fb_json_reader *reader, size_t room, size_t *used, fb_error *err)
{
    fb_json_token token;
    fb_status status;
    if (fb_json_next(reader, &token, err) != FB_OK || token.type != FB_JSON_ARRAY) return FB_E_CORRUPT;
    while ((status = fb_json_next(reader, &token, err)) == FB_OK && token.type == FB_JSON_STRING) {
        size_t bytes;
        if ((status = fb_json_decode(&token, out->text + *used, room - *used, &bytes, err)) != FB_OK) return status;
        if (strlen(out->text + *used) != bytes) return FB_E_CORRUPT; /* a NUL inside a word */
        out->words[out->count++] = out->text + *used;
        *used += bytes + 1;
    }
    return status == FB_OK && token.type == FB_JSON_ARRAY_END ? FB_OK : FB_E_CORRUPT;
}

static fb_status take_file(launch *out, const char *data, size_t bytes, fb_error *err)
{
    fb_json_reader reader;
    fb_json_token token;
    size_t used = 0;
    fb_status status;
    fb_json_read(&reader, data, bytes);
    if (fb_json_next(&reader, &token, err) != FB_OK || token.type != FB_JSON_OBJECT) return FB_E_CORRUPT;
    while ((status = fb_json_next(&reader, &token, err)) == FB_OK && token.type == FB_JSON_KEY) {
        if (fb_json_is(&token, "command") && out->count == 0) {
            status = take_words(out, &reader, bytes + 1, &used, err);
        } else if (fb_json_is(&token, "cwd")) {
            if ((status = fb_json_next(&reader, &token, err)) == FB_OK && token.type == FB_JSON_STRING)
                status = fb_json_decode(&token, out->cwd, sizeof out->cwd, NULL, err);
            else if (status == FB_OK) status = fb_json_skip_rest(&reader, &token, err);
        } else {
            status = fb_json_skip(&reader, err);
        }
        if (status != FB_OK) return status;
    }
    return status == FB_OK && token.type == FB_JSON_OBJECT_END ? FB_OK : FB_E_CORRUPT;
}

fb_status launch_read(launch *out, const char *run_folder, int32_t attempt, fb_error *err)
{
    char path[FB_OS_PATH_MAX], name[64], *data = NULL;
    size_t bytes = 0;
    fb_status status = FB_OK;
    memset(out, 0, sizeof *out);
    (void)snprintf(name, sizeof name, "ledger/a%d/launch.json", attempt);
    if (fb_os_join(path, sizeof path, run_folder, name, NULL) != FB_OK) return FB_OK;
    if (fb_os_read_file(fb_os_posix(), path, LAUNCH_BYTES_MAX, &data, &bytes, NULL) != FB_OK) return FB_OK;
    out->text = fb_calloc(bytes + 1, 1);
    out->words = fb_calloc(bytes / 2 + 2, sizeof *out->words); /* a word takes two quotes at least */
    if (!out->text || !out->words) {
        launch_release(out);
        status = fb_fail(err, FB_E_NOMEM, "read %s: no memory", path);
    } else if (take_file(out, data, bytes, NULL) != FB_OK || out->count == 0) {
        launch_release(out);
    }
    fb_free(data);
    return status;
}

void launch_release(launch *from)
{
    fb_free(from->words);
    fb_free(from->text);
    memset(from, 0, sizeof *from);
}
