/* See attach.h. */
#include "attach.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "base/status.h"

#define START_FILE "bootstrap/sitecustomize.py"

#ifndef FB_LIBDIR
#define FB_LIBDIR "lib" /* below the install prefix */
#endif
#ifdef __APPLE__
#define LIBRARY_FILE "libfirstbad.dylib"
#else
#define LIBRARY_FILE "libfirstbad.so"
#endif

enum { SITECUSTOMIZE_BYTES_MAX = 1 << 20, NOTE_BYTES_MAX = 1 << 16, NOTES_READ_MAX = 4096 };

/* ---- where things are -------------------------------------------------------------------------------------------------------- */

static int is_there(const fb_os *os, const char *path)
{
    fb_os_info info;
    return os->stat(os->ctx, path, &info) >= 0;
}

/* folder/name, without links in it, when folder/name/below is there. */
static int take(char out[FB_OS_PATH_MAX], const fb_os *os, const char *folder, const char *name, const char *below)
{
    char path[FB_OS_PATH_MAX], file[FB_OS_PATH_MAX];
    if (fb_os_join(path, sizeof path, folder, name, NULL) != FB_OK) return 0;
    if (fb_os_join(file, sizeof file, path, below, NULL) != FB_OK || !is_there(os, file)) return 0;
    if (os->realpath(os->ctx, path, out, FB_OS_PATH_MAX) >= 0) return 1;
    out[0] = '\0';
    return 0;
}

/* The folder that this program lies in, or 0. */
static int own_folder(char out[FB_OS_PATH_MAX], const fb_os *os)
{
    int64_t n = os->readlink(os->ctx, "/proc/self/exe", out, FB_OS_PATH_MAX);
    char *slash = n < 0 ? NULL : strrchr(out, '/');
    if (!slash) return 0;
    *slash = '\0';
    return 1;
}

/* In the wheel the tool lies in the package, in a folder of its own; `make install` and the build tree have theirs beside it. */
static void find_beside(attach *out, const fb_os *os, const char *own)
{
    static const char *const packages[] = {"..", "../" FB_LIBDIR "/firstbad/python/firstbad", "python/firstbad",
                                           "../python/firstbad"};
    static const char *const libraries[] = {".", "../" FB_LIBDIR};
    for (size_t i = 0; !out->package[0] && i < sizeof packages / sizeof *packages; i++)
        (void)take(out->package, os, own, packages[i], START_FILE);
    for (size_t i = 0; !out->library[0] && i < sizeof libraries / sizeof *libraries; i++) {
        char folder[FB_OS_PATH_MAX];
        if (take(folder, os, own, libraries[i], LIBRARY_FILE) &&
            fb_os_join(out->library, sizeof out->library, folder, LIBRARY_FILE, NULL) != FB_OK)
            out->library[0] = '\0';
    }
}

void attach_find(attach *out, const fb_os *os)
{
    const char *given = getenv("FIRSTBAD_PYTHON");
    char own[FB_OS_PATH_MAX];
    memset(out, 0, sizeof *out);
    if (own_folder(own, os)) find_beside(out, os, own);
    if (given && *given) {
        out->package[0] = '\0';
        if (!take(out->package, os, given, "firstbad", START_FILE) && !take(out->package, os, given, ".", START_FILE))
            (void)snprintf(out->why, sizeof out->why, "FIRSTBAD_PYTHON names %.300s, and there is no firstbad/" START_FILE " in it",
                           given);
    } else if (!out->package[0]) {
        (void)snprintf(out->why, sizeof out->why,
                       "the Python package of firstbad was not found beside this tool; name its folder with "
                       "FIRSTBAD_PYTHON, or install with pip");
    }
}

/* ---- the folder -------------------------------------------------------------------------------------------------------------- */

static fb_status put_start(const attach *from, const fb_os *os, const char *folder, fb_error *err)
{
    char path[FB_OS_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    fb_status status = fb_os_join(path, sizeof path, from->package, START_FILE, err);
    if (status == FB_OK) status = fb_os_read_file(os, path, SITECUSTOMIZE_BYTES_MAX, &text, &bytes, err);
    if (status == FB_OK) status = fb_os_put_new(os, folder, "sitecustomize.py", text, bytes, err);
    fb_free(text);
    return status == FB_E_EXISTS ? FB_OK : status;
}

static fb_status put_facts(const attach *from, const fb_os *os, const char *folder, const fb_pair *env, size_t env_count,
                           fb_error *err)
{
    const char *library = getenv("FIRSTBAD_LIBRARY");
    fb_json json;
    fb_status status;
    if (!library || !*library) library = from->library;
    fb_json_init(&json, 1);
    fb_json_object_begin(&json);
    fb_json_key_string(&json, "schema", "firstbad.attach/1");
    fb_json_key_string(&json, "package", from->package);
    fb_json_key(&json, "environment");
    fb_json_object_begin(&json);
    for (size_t i = 0; i < env_count; i++) {
        if (env[i].value && strncmp(env[i].key, "FIRSTBAD_", 9) == 0) fb_json_key_string(&json, env[i].key, env[i].value);
    }
    if (library && *library) fb_json_key_string(&json, "FIRSTBAD_LIBRARY", library);
    fb_json_object_end(&json);
    fb_json_object_end(&json);
    status = fb_json_finish(&json, err);
    if (status == FB_OK) status = fb_os_put_new(os, folder, "run.json", fb_json_text(&json), json.used, err);
    fb_json_release(&json);
    return status == FB_E_EXISTS ? FB_OK : status;
}

/* An empty entry would be the current folder, so a variable that is empty counts as not set. */
static char *in_front(const char *folder)
{
    const char *before = getenv("PYTHONPATH");
    size_t more = before ? strlen(before) : 0, room = strlen(folder) + more + 2;
    char *path = fb_calloc(room, 1);
    if (path) (void)snprintf(path, room, more ? "%s:%s" : "%s%s", folder, more ? before : "");
    return path;
}

void attach_write(attach *out, const fb_os *os, const char *ledger, const fb_pair *env, size_t env_count)
{
    char folder[FB_OS_PATH_MAX];
    fb_error err;
    if (!out->package[0]) return;
    if (strchr(ledger, ':')) {
        (void)snprintf(out->why, sizeof out->why,
                       "the run folder has ':' in its path, which parts the entries of PYTHONPATH; "
                       "choose another with --dir");
        return;
    }
    if (fb_os_join(folder, sizeof folder, ledger, "python", &err) != FB_OK || fb_os_mkdirs(os, folder, &err) != FB_OK ||
        put_start(out, os, folder, &err) != FB_OK || put_facts(out, os, folder, env, env_count, &err) != FB_OK) {
        (void)snprintf(out->why, sizeof out->why, "%s", err.message);
        return;
    }
    out->path = in_front(folder);
    if (out->path) (void)snprintf(out->folder, sizeof out->folder, "%s", folder);
    else (void)snprintf(out->why, sizeof out->why, "no memory for PYTHONPATH");
}

void attach_release(attach *out)
{
    fb_free(out->path);
    out->path = NULL;
}

/* ---- who came by ------------------------------------------------------------------------------------------------------------- */

typedef struct visit {
    attach_seen *seen;
    const fb_os *os;
    const char *folder;
} visit;

/* Keeps "error" and "command" of a note that has an error. One that is torn counts as a process that imported torch. */
static void read_note(visit *v, const char *name)
{
    char path[FB_OS_PATH_MAX], *text = NULL, error[sizeof v->seen->error] = "", command[sizeof v->seen->command] = "";
    size_t bytes = 0;
    fb_json_reader reader;
    fb_json_token token;
    char *into = NULL;
    if (fb_os_join(path, sizeof path, v->folder, name, NULL) != FB_OK ||
        fb_os_read_file(v->os, path, NOTE_BYTES_MAX, &text, &bytes, NULL) != FB_OK)
        return;
    fb_json_read(&reader, text, bytes);
    while (fb_json_next(&reader, &token, NULL) == FB_OK && token.type != FB_JSON_END) {
        if (token.type == FB_JSON_KEY && token.depth == 1)
            into = fb_json_is(&token, "error") ? error : fb_json_is(&token, "command") ? command : NULL;
        else if (token.type == FB_JSON_STRING && into && fb_json_decode(&token, into, sizeof error, NULL, NULL) != FB_OK)
            (void)snprintf(into, sizeof error, "see %.200s", name); /* hook.py cuts what it writes, so nobody else did */
    }
    fb_free(text);
    if (!error[0]) return;
    if (v->seen->failed++ == 0) {
        memcpy(v->seen->error, error, sizeof error);
        memcpy(v->seen->command, command, sizeof command);
    }
}

static int64_t look_at(void *arg, const char *name)
{
    visit *v = arg;
    size_t n = strlen(name);
    if (strcmp(name, "__pycache__") == 0) v->seen->python = 1;
    if (strncmp(name, "pid-", 4) != 0 || n < 9 || strcmp(name + n - 5, ".json") != 0) return 0;
    v->seen->python = 1;
    if (v->seen->imported++ < NOTES_READ_MAX) read_note(v, name);
    return 0;
}

void attach_look(attach_seen *out, const fb_os *os, const char *folder)
{
    visit v = {out, os, folder};
    memset(out, 0, sizeof *out);
    if (folder[0]) (void)os->list(os->ctx, folder, look_at, &v);
}

/* "python", "python3", "python3.11", "pypy3", with or without a folder. */
static int is_python(const char *word)
{
    const char *name = strrchr(word, '/');
    name = name ? name + 1 : word;
    if (strncmp(name, "python", 6) != 0 && strncmp(name, "pypy", 4) != 0) return 0;
    name += name[1] == 'y' && name[2] == 't' ? 6 : 4;
    return name[strspn(name, "0123456789.")] == '\0';
}

int attach_names_python(const char *word)
{
    static const char *const launchers[] = {"torchrun", "accelerate", "deepspeed"};
    const char *name = strrchr(word, '/');
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        if (strcmp(name ? name + 1 : word, launchers[i]) == 0) return 1;
    }
    return is_python(word);
}

const char *attach_blinded(char *const *command)
{
    while (*command && !is_python(*command)) command++;
    if (!*command) return NULL;
    for (command++; *command && (*command)[0] == '-' && (*command)[1] && (*command)[1] != '-'; command++) {
        for (const char *letter = *command + 1; *letter; letter++) {
            if (*letter == 'I') return "-I";
            if (*letter == 'E') return "-E";
            if (*letter == 'S') return "-S";
            if (*letter == 'c' || *letter == 'm') return NULL; /* the program begins */
            if (*letter == 'W' || *letter == 'X') {            /* what follows is theirs */
                if (!letter[1] && command[1]) command++;
                break;
            }
        }
    }
    return NULL;
}
