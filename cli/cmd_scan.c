/*
 * firstbad scan: is every number in these checkpoints finite? Each path is read, shown, and forgotten before the next one.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli.h"
#include "process.h"
#include "scan_options.h"
#include "scan_sha256.h"
#include "scan_show.h"

/* Entries kept of each kind. A person reads the first few; a program is given more, and told of the rest. */
enum { LIST_TEXT = 20, LIST_JSON = 10000 };

static int asked_to_stop(void *ctx)
{
    (void)ctx;
    return process_interrupted() != 0;
}

/* Interrupts end the scan in good order; a reader of our output that went away ends us at once, as it ends other tools. */
static void catch_interrupts(void)
{
    struct sigaction action;
    process_catch_interrupts();
    if (sigaction(SIGPIPE, NULL, &action) != 0 || action.sa_handler == SIG_IGN) return;
    action.sa_handler = SIG_DFL;
    (void)sigaction(SIGPIPE, &action, NULL);
}

/* As the C library reads the environment: the first of these that is set decides about characters. */
static int is_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return 0;
}

static int is_folder(const fb_os *os, const char *path)
{
    fb_os_info info;
    return os->stat(os->ctx, path, &info) >= 0 && info.kind == FB_OS_FOLDER;
}

/* A link to a folder is often `latest`: who wrote the checkpoint may tell by the folder's own name which step it is. */
static const char *follow(const fb_os *os, const char *path, char real[FB_OS_PATH_MAX])
{
    char text[8];
    if (!is_folder(os, path) || readlink(path, text, sizeof text) < 0) return path;
    return os->realpath(os->ctx, path, real, FB_OS_PATH_MAX) >= 0 ? real : path;
}

/* Read one checkpoint. 0 after a message; what is wrong with the checkpoint itself is part of the result. */
static int read_one(scan_result *result, const scan_options *given, const fb_os *os)
{
    fb_ckpt_options options;
    fb_ckpt_sink sink = scan_result_sink(result);
    scan_bar bar;
    scan_sha256 *sha = NULL;
    int64_t begun;
    int good = 1;
    memset(&options, 0, sizeof options);
    options.legal = *given->allow ? given->allow : NULL;
    options.threads = given->threads;
    options.stop = asked_to_stop;
    options.flags = FB_CKPT_FOLLOW;
    if (!given->digest || strcmp(given->digest, "xxh3") != 0) options.flags |= FB_CKPT_NO_DIGEST;
    if (given->stats) options.flags |= FB_CKPT_STATS;
    if (given->first) options.flags |= FB_CKPT_FIRST;
    if (given->crc) options.flags |= FB_CKPT_CRC;
    if (given->digest && strcmp(given->digest, "sha256") == 0) {
        sha = scan_sha256_new(result);
        if (!sha) {
            cli_error("scan %s: no memory for SHA-256", result->path);
            return 0;
        }
        options.tap = scan_sha256_tap;
        options.tap_ctx = sha;
    }
    scan_bar_begin(&bar, result->path, !given->quiet);
    result->bar = &bar;
    begun = os->monotonic_ns(os->ctx);
    result->status = fb_ckpt_scan_path(os, result->target, &options, &sink, &result->summary, &result->err);
    result->seconds = (double)(os->monotonic_ns(os->ctx) - begun) / 1e9;
    scan_bar_end(&bar);
    result->bar = NULL;
    result->stopped_at_first = given->first && result->summary.bad > 0;
    if (sha && result->status == FB_OK && !result->stopped_at_first) good = scan_sha256_finish(sha);
    scan_sha256_free(sha);
    if (!result->no_memory) return good;
    cli_error("scan %s: no memory for what was found; what is shown would not be all", result->path);
    return 0;
}

static int show_one(const scan_result *result, const scan_options *given, const scan_style *style)
{
    if (given->json) {
        if (result->status != FB_OK) (void)cli_fail(&result->err);
        return scan_show_json(result);
    }
    if (result->status == FB_OK || result->summary.bad) return scan_show_text(result, style);
    (void)cli_fail(&result->err);
    return 0;
}

/* The exit code of one path; *stop is set when the rest is not to be tried. */
static int scan_one(const char *path, const scan_options *given, const scan_style *style, const fb_os *os, int *stop)
{
    scan_result result;
    char real[FB_OS_PATH_MAX];
    int code, failed;
    scan_result_init(&result, path, given->all ? 0 : given->json ? LIST_JSON : LIST_TEXT);
    result.folder = is_folder(os, path);
    result.target = follow(os, path, real);
    result.several = given->path_count > 1;
    result.stats = given->stats;
    result.digest = given->digest;
    if (!read_one(&result, given, os)) {
        code = CLI_UNREADABLE;
    } else if (process_interrupted()) {
        code = 128 + process_interrupted();
        *stop = 1;
    } else {
        code = scan_exit_code(&result);
        if ((failed = show_one(&result, given, style)) != 0) {
            code = failed;
            *stop = 1;
        }
    }
    scan_result_release(&result);
    return code;
}

/* Something bad is graver than something unreadable: it will not go away with another copy. */
static int gravest(int a, int b)
{
    static const int order[] = {CLI_BAD, CLI_USAGE, CLI_UNREADABLE, CLI_UNDECIDED};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        if (a == order[i] || b == order[i]) return order[i];
    }
    return a ? a : b;
}

int fb_cmd_scan(int argc, char **argv)
{
    scan_options given;
    scan_style style;
    const fb_os *os = fb_os_posix();
    int code = CLI_CLEAN, stop = 0;
    if (!scan_options_parse(&given, argc, argv, &code)) {
        scan_options_release(&given);
        return code;
    }
    code = CLI_CLEAN;
    memset(&style, 0, sizeof style);
    style.columns = cli_columns(stdout);
    style.colour = cli_colour(stdout);
    style.unicode = is_utf8();
    style.by_headroom = given.by_headroom;
    style.quiet = given.quiet;
    catch_interrupts();
    for (int i = 0; i < given.path_count && !stop; i++) {
        int one = scan_one(given.paths[i], &given, &style, os, &stop);
        code = stop ? one : gravest(code, one);
    }
    if (process_interrupted()) cli_error("scan: ended by signal %d; what was not shown was not judged", process_interrupted());
    scan_options_release(&given);
    return code;
}
