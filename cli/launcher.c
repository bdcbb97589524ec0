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

int is_open_mpi(void)
{
    char mpirun[] = "mpirun", option[] = "--version", text[4096];
    char *const words[] = {mpirun, option, NULL};
    return process_capture(words, text, sizeof text, VERSION_MS) == 0 && (strstr(text, "Open MPI") || strstr(text, "OpenRTE"));
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
