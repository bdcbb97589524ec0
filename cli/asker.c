/* See asker.h. */
#include "asker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash_stream.h"
#include "base/status.h"
#include "cli.h"
#include "os/os.h"
#include "process.h"
#include "scan_show.h"

enum { LOG_BYTES_MAX = 256 << 20, SHOWN_NAMES = 3, NAME_COLUMNS = 60, GRACE_MS = 3000, WAIT_MS = 3600000 };
enum { EXIT_MASK = 2, EXIT_CANNOT_TELL = 125, EXIT_STOPS = 126 };

static const char LOG_HEAD[] = "# firstbad bisect 1";

const char *asker_phase_name(int32_t phase)
{
    static const char *const names[] = {"", "reproduce", "entry", "halve", "chain", "witness", "repeat"};
    return phase >= 0 && phase < (int32_t)(sizeof names / sizeof *names) ? names[phase] : "";
}

static const char *const SEEN_NAMES[] = {"not", "finite", "-inf", "untestable", "bad"};
enum { SEEN_NAMES_COUNT = sizeof SEEN_NAMES / sizeof *SEEN_NAMES };

const char *asker_seen_name(int32_t seen)
{
    return seen >= 0 && seen < SEEN_NAMES_COUNT ? SEEN_NAMES[seen] : "";
}

static const char *ask_word(int32_t about)
{
    return about == FB_ASK_ALL_BAD ? "all_bad" : "any_bad";
}

/* Which command answers, in one word: words may hold line ends. */
static fb_status name_command(asker *a, fb_error *err)
{
    fb_hash_stream *hash = fb_hash_stream_new();
    if (!hash) return fb_fail(err, FB_E_NOMEM, "name the command of a log: no memory");
    for (char *const *word = a->options->command; *word; word++) fb_hash_stream_add(hash, *word, strlen(*word) + 1);
    (void)snprintf(a->command_line, sizeof a->command_line, "# command 0x%016llx\n",
                   (unsigned long long)fb_hash_stream_digest(hash));
    fb_hash_stream_free(hash);
    return FB_OK;
}

/* ---- open and close ---------------------------------------------------------------------------------------------------------- */

/* Answers of another program would be told as this one's. */
static fb_status take_head(asker *a, const char *path, size_t bytes, fb_error *err)
{
    size_t head = sizeof LOG_HEAD - 1, named = strlen(a->command_line);
    if (bytes <= head || strncmp(a->old, LOG_HEAD, head) != 0 || a->old[head] != '\n' || strlen(a->old) != bytes)
        return fb_fail(err, FB_E_USAGE, "resume %s: it does not begin with '%s', so it is no log of this command", path, LOG_HEAD);
    /* A line that was cut by the end of the machine holds half an answer. */
    if (a->old[bytes - 1] != '\n')
        return fb_fail(err, FB_E_USAGE, "resume %s: its last line is cut; remove that line and resume again", path);
    a->old_at = a->old + head + 1;
    if (strncmp(a->old_at, a->command_line, named) != 0)
        return fb_fail(err, FB_E_USAGE,
                       "resume %s: line 2 is not '%.*s', so its answers are those of another command; --log FILE begins anew", path,
                       (int)named - 1, a->command_line);
    a->old_at += named;
    a->old_line = 2;
    return FB_OK;
}

static fb_status open_log(asker *a, fb_error *err)
{
    const char *path = a->options->log ? a->options->log : a->options->resume;
    size_t bytes = 0;
    fb_status status;
    if (!path) return FB_OK;
    if ((status = name_command(a, err)) != FB_OK) return status;
    if (a->options->resume) {
        if ((status = fb_os_read_file(fb_os_posix(), path, LOG_BYTES_MAX, &a->old, &bytes, err)) != FB_OK) return status;
        if ((status = take_head(a, path, bytes, err)) != FB_OK) return status;
    }
    if (!(a->log = fopen(path, a->options->resume ? "ae" : "wxe"))) {
        if (errno == EEXIST) return fb_fail(err, FB_E_EXISTS, "write --log %s: it exists; --resume %s goes on with it", path, path);
        return fb_fail_os(err, errno, "write to %s", path);
    }
    if (!a->options->resume && (fprintf(a->log, "%s\n%s", LOG_HEAD, a->command_line) < 0 || fflush(a->log) != 0))
        return fb_fail_os(err, errno, "write to %s", path);
    return FB_OK;
}

/* A file that has lost its name is gone when we are, however we end. */
static int nameless_file(void)
{
    const char *base = getenv("TMPDIR");
    char path[FB_OS_PATH_MAX];
    int fd;
    (void)snprintf(path, sizeof path, "%.3000s/firstbad-bisect-XXXXXX", base && *base ? base : "/tmp");
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) (void)unlink(path);
    return fd;
}

fb_status asker_open(asker *a, const asker_options *options, const places *p, fb_error *err)
{
    memset(a, 0, sizeof *a);
    a->options = options;
    a->places = p;
    a->output = nameless_file();
    for (uint32_t i = 0; i < p->count; i++) a->names_room += strlen(p->names[i]) + 1;
    if (a->output < 0) return fb_fail_os(err, errno, "make a file for what the command prints");
    a->names = fb_calloc(a->names_room + 1, 1);
    a->left = fb_calloc(p->count, sizeof *a->left);
    if (!a->names || !a->left) return fb_fail(err, FB_E_NOMEM, "ask about %u boundaries: no memory", p->count);
    return open_log(a, err);
}

void asker_close(asker *a)
{
    if (a->log) (void)fclose(a->log);
    if (a->output > 0) (void)close(a->output);
    fb_free(a->old);
    fb_free(a->names);
    fb_free(a->left);
    memset(a, 0, sizeof *a);
}

/* ---- one run ----------------------------------------------------------------------------------------------------------------- */

/* Join the names of the places, one a line. */
static const char *join(asker *a, const uint32_t *tensors, uint32_t count, char between)
{
    size_t used = 0;
    a->names[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        const char *name = a->places->names[tensors[i]];
        size_t n = strlen(name);
        if (i) a->names[used++] = between;
        memcpy(a->names + used, name, n + 1);
        used += n;
    }
    return a->names;
}

static fb_status cannot_start(const asker *a, int why, uint32_t count, fb_error *err)
{
    if (why == E2BIG)
        return fb_fail(
            err, FB_E_LIMIT,
            "ask about %u boundaries at once: their names are more than the system hands on; --probes N asks about fewer", count);
    return fb_fail(err, FB_E_ORDER, "start %s: %s", a->options->command[0], strerror(why));
}

/* Run it to its end: *code, or why the search stops. */
static fb_status run(asker *a, const uint32_t *tensors, uint32_t count, int32_t about, int *code, fb_error *err)
{
    fb_pair env[2] = {{"FIRSTBAD_BOUNDARY", join(a, tensors, count, '\n')}, {"FIRSTBAD_ASK", ask_word(about)}};
    process child;
    int why;
    if (ftruncate(a->output, 0) != 0 || lseek(a->output, 0, SEEK_SET) != 0)
        return fb_fail_os(err, errno, "empty the file for what the command prints");
    if ((why = process_start(&child, a->options->command, env, 2, a->output)) != 0) return cannot_start(a, why, count, err);
    a->runs++;
    while (!process_wait_ms(&child, WAIT_MS) && !process_interrupted()) continue;
    if (process_interrupted()) {
        process_end(&child, GRACE_MS);
        return fb_fail(err, FB_E_ORDER, "stopped by signal %d, after %u answers", process_interrupted(), a->asked - 1);
    }
    *code = process_exit_code(&child);
    if (process_exit_signal(&child))
        return fb_fail(err, FB_E_ORDER,
                       "run %s: signal %d ended it, which is no answer (0 finite, 1 not finite, 125 cannot be told)",
                       a->options->command[0], process_exit_signal(&child));
    if (*code >= EXIT_STOPS)
        return fb_fail(err, FB_E_ORDER, "run %s: exit code %d is no answer (0 finite, 1 not finite, 125 cannot be told)%s",
                       a->options->command[0], *code,
                       *code == 127   ? "; a shell gives it when a command was not found"
                       : *code == 126 ? "; a shell gives it when a command cannot be executed"
                                      : "");
    return FB_OK;
}

/* Ask the command about places of which nothing is known. */
static fb_status ask(asker *a, const uint32_t *tensors, uint32_t count, int32_t about, int32_t *seen, fb_error *err)
{
    int code = 0;
    int is_mask = count == 1 && about == FB_ASK_EACH && (a->places->flags[tensors[0]] & FB_FLOW_MASK);
    fb_status status = run(a, tensors, count, about, &code, err);
    if (status != FB_OK) {
        process_show_tail(a->output);
        return status;
    }
    *seen = code == 0                      ? FB_SEEN_FINITE
            : code == EXIT_CANNOT_TELL     ? FB_SEEN_UNTESTABLE
            : code == EXIT_MASK && is_mask ? FB_SEEN_NEG_INF
                                           : FB_SEEN_BAD;
    return FB_OK;
}

/*
 * What is known of some places needs no run. "any": what is known to be finite adds nothing. "all": one that is finite decides.
 * With one that cannot be looked at, the others decide when they say bad (any) or finite (all), and nothing does otherwise.
 */
static fb_status ask_the_rest(asker *a, const fb_question *q, int32_t *seen, fb_error *err)
{
    int32_t decides = q->about == FB_ASK_ALL_BAD ? FB_SEEN_FINITE : FB_SEEN_BAD;
    uint32_t left = 0, hidden = 0, good = 0;
    fb_status status;
    for (uint32_t i = 0; i < q->count; i++) {
        uint8_t known = a->places->known[q->tensors[i]];
        if (known == PLACE_ASK) a->left[left++] = q->tensors[i];
        hidden += known == PLACE_UNTESTABLE;
        good += known == PLACE_GOOD;
    }
    if (good && decides == FB_SEEN_FINITE) {
        *seen = FB_SEEN_FINITE;
        return FB_OK;
    }
    *seen = hidden ? FB_SEEN_UNTESTABLE : FB_SEEN_FINITE;
    if (left == 0) return FB_OK;
    status = ask(a, a->left, left, q->about, seen, err);
    if (status == FB_OK && hidden && *seen != decides) *seen = FB_SEEN_UNTESTABLE;
    return status;
}

/* ---- the log ----------------------------------------------------------------------------------------------------------------- */

/* The next answer of the log that is resumed: 1 when there was one. */
static fb_status take_old(asker *a, const fb_question *q, int32_t *seen, int *taken, fb_error *err)
{
    char *end, head[64], *at = a->old_at;
    int32_t found = 0;
    size_t n = 0;
    *taken = 0;
    if (!at || !*at) return FB_OK;
    a->old_line++;
    end = strchr(at, '\n'); /* open_log saw that the last line has its end */
    *end = '\0';
    for (int32_t i = FB_SEEN_FINITE; i <= FB_SEEN_BAD && !found; i++) {
        n = (size_t)snprintf(head, sizeof head, "%s\t%s\t%s\t", asker_phase_name(q->phase), ask_word(q->about), SEEN_NAMES[i]);
        if (strncmp(at, head, n) == 0) found = i;
    }
    if (!found || strcmp(at + n, join(a, q->tensors, q->count, ' ')) != 0)
        return fb_fail(
            err, FB_E_USAGE,
            "resume %s: line %llu answers another question than is asked here; the boundaries or the options are not those "
            "it was written with",
            a->options->resume, a->old_line);
    a->old_at = end + 1;
    a->taken++;
    *taken = 1;
    *seen = found;
    return FB_OK;
}

static fb_status write_log(asker *a, const fb_question *q, int32_t seen, fb_error *err)
{
    const char *path = a->options->log ? a->options->log : a->options->resume;
    if (!a->log) return FB_OK;
    if (fprintf(a->log, "%s\t%s\t%s\t%s\n", asker_phase_name(q->phase), ask_word(q->about), asker_seen_name(seen),
                join(a, q->tensors, q->count, ' ')) < 0 ||
        fflush(a->log) != 0)
        return fb_fail_os(err, errno, "write to %s", path);
    return FB_OK;
}

static void show(const asker *a, const fb_question *q, int32_t seen)
{
    char text[512], fitted[512];
    size_t used = 0;
    if (q->count > 1)
        used += (size_t)snprintf(text, sizeof text, "%s of %u: ", q->about == FB_ASK_ALL_BAD ? "all" : "any", q->count);
    for (uint32_t i = 0; i < q->count && i < SHOWN_NAMES && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.100s", i ? ", " : "", a->places->names[q->tensors[i]]);
    if (q->count > SHOWN_NAMES && used < sizeof text) (void)snprintf(text + used, sizeof text - used, ", ...");
    scan_fit_name(text, NAME_COLUMNS, fitted, sizeof fitted);
    fprintf(stderr, "%4u  %-9s  %s%*s  %s\n", a->asked, asker_phase_name(q->phase), fitted, NAME_COLUMNS - scan_width(fitted), "",
            asker_seen_name(seen));
}

fb_status asker_answer(void *ctx, const fb_question *question, int32_t *seen, fb_error *err)
{
    asker *a = ctx;
    int taken;
    fb_status status = take_old(a, question, seen, &taken, err);
    a->asked++;
    if (status == FB_OK && !taken) {
        if ((status = ask_the_rest(a, question, seen, err)) == FB_OK) status = write_log(a, question, *seen, err);
    }
    if (status == FB_OK && a->options->show) show(a, question, *seen);
    return status;
}
