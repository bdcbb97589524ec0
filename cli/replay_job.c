/* See replay_job.h. */
#include "replay_job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach.h"
#include "base/alloc.h"
#include "base/status.h"

enum { LAUNCHER_WORDS = 4, OWN_VARIABLES = 17, LOOK_MS = 500, GRACE_MS = 5000 };

__attribute__((format(printf, 2, 3))) static void note(replay_job *job, const char *format, ...)
{
    va_list args;
    if (job->notes.count == FB_REPORT_NOTES_MAX) return;
    va_start(args, format);
    (void)vsnprintf(job->notes.text[job->notes.count++], FB_REPORT_TEXT_MAX, format, args);
    va_end(args);
}

/* ---- which command ----------------------------------------------------------------------------------------------------------- */

/* The words are not written to: exec takes them without const for reasons of history. */
static void add_word(replay_job *job, const char *word)
{
    job->argv[job->argument_count++] = (char *)word;
}

static void add_mpirun(replay_job *job)
{
    (void)snprintf(job->world_text, sizeof job->world_text, "%d", fb_bundle_world(job->bundle));
    add_word(job, "mpirun");
    if (is_open_mpi("mpirun")) add_word(job, "--oversubscribe"); /* there may be fewer cores here than there were */
    add_word(job, "-n");
    add_word(job, job->world_text);
}

/* What stood in front of the trainer's words when the run was started, if that is a launcher. */
static int add_recorded_launcher(replay_job *job, const char *const *command)
{
    int prefix = launch_prefix(&job->launch, command), has_launcher = 0;
    for (int i = 0; i < prefix; i++) has_launcher |= is_launcher(job->launch.words[i]);
    for (int i = 0; has_launcher && i < prefix; i++) add_word(job, job->launch.words[i]);
    return has_launcher;
}

static fb_status read_launch(replay_job *job, fb_error *err)
{
    char run[FB_OS_PATH_MAX];
    int32_t attempt = 0;
    int64_t step;
    if (!job->place.folder[0] || !fb_report_case_id(job->place.id, &attempt, &step)) return FB_OK;
    (void)snprintf(run, sizeof run, "%s", job->place.folder);
    for (int up = 0; up < 2; up++) { /* RUN/cases/CASE */
        char *slash = strrchr(run, '/');
        if (!slash) return FB_OK;
        *slash = '\0';
    }
    return launch_read(&job->launch, run, attempt, err);
}

static fb_status recorded_command(replay_job *job, fb_error *err)
{
    const char *cwd = NULL;
    const char *const *command = fb_bundle_command(job->bundle, &cwd);
    size_t count = 0;
    fb_status status;
    if (!command || !command[0])
        return fb_fail(err, FB_E_NOTFOUND, "start the trainer on %s: the bundle records no command; give it after --",
                       job->bundle_folder);
    while (command[count]) count++;
    if (job->options->alone && is_launcher(command[0]))
        return fb_fail(err, FB_E_USAGE,
                       "start the trainer alone: its recorded command begins with %s; give the command of one process after --",
                       command[0]);
    if ((status = read_launch(job, err)) != FB_OK) return status;
    job->argv = fb_calloc(count + job->launch.count + LAUNCHER_WORDS + 1, sizeof *job->argv);
    if (!job->argv) return fb_fail(err, FB_E_NOMEM, "start the trainer: no memory for its %zu words", count);
    if (fb_bundle_world(job->bundle) > 1 && !job->options->alone && !is_launcher(command[0])) {
        if (!add_recorded_launcher(job, command)) add_mpirun(job);
    }
    job->launcher_words = job->argument_count;
    for (size_t i = 0; i < count; i++) add_word(job, command[i]);
    if (!job->launcher_words && !job->options->alone) job->launcher_words = 1; /* it may begin with a launcher itself */
    if (!cwd) return FB_OK;
    if (access(cwd, X_OK) == 0) (void)snprintf(job->cwd, sizeof job->cwd, "%s", cwd);
    else note(job, "started in this folder, because the one it was started in is not here: %s", cwd);
    return FB_OK;
}

static fb_status given_command(replay_job *job, fb_error *err)
{
    size_t count = 0;
    while (job->options->command[count]) count++;
    if (count == 0) return fb_fail(err, FB_E_USAGE, "start the trainer: there is no command after --");
    if (!(job->argv = fb_calloc(count + 1, sizeof *job->argv))) return fb_fail(err, FB_E_NOMEM, "start the trainer: no memory");
    for (size_t i = 0; i < count; i++) add_word(job, job->options->command[i]);
    job->launcher_words = 1;
    note(job, "started by the command that was given, not by the one that was recorded");
    return FB_OK;
}

/* A rank that does not hear of the replay trains, and all others wait for it. */
static fb_status carry(replay_job *job, fb_error *err)
{
    const replay_options *options = job->options;
    const char *names[7] = {"FIRSTBAD_REPLAY", "FIRSTBAD_REPLAY_OUT", "FIRSTBAD_REPLAY_PARTS"};
    size_t n = 3;
    char **argv = NULL;
    fb_status status;
    if (options->times) names[n++] = "FIRSTBAD_REPLAY_TIMES";
    if (options->strategy) names[n++] = "FIRSTBAD_REPLAY_STRATEGY";
    if (options->probes) names[n++] = "FIRSTBAD_REPLAY_PROBES";
    status = launch_carry(&argv, &job->argument_count, job->argv, job->launcher_words, names, err);
    if (status != FB_OK) return status;
    fb_free(job->argv);
    job->argv = argv;
    return FB_OK;
}

static fb_status open_bundle(replay_job *job, fb_error *err)
{
    fb_error why;
    fb_status status = fb_bundle_open(&job->bundle, job->bundle_folder, &why);
    if (status == FB_E_NOTFOUND && !job->options->minimal)
        return fb_fail(err, status, "replay case %s: %.800s; without a bundle nothing can be replayed", job->place.id, why.message);
    if (status != FB_OK && err) *err = why;
    return status;
}

fb_status replay_job_open(replay_job *job, const replay_options *options, fb_error *err)
{
    const char *id;
    fb_status status;
    memset(job, 0, sizeof *job);
    job->options = options;
    if ((status = case_find(&job->place, options->dir, options->name, err)) != FB_OK) return status;
    (void)snprintf(job->bundle_folder, sizeof job->bundle_folder, "%s", job->place.bundle);
    if (options->minimal && (status = case_minimal_bundle(&job->place, job->bundle_folder, err)) != FB_OK) return status;
    if ((status = open_bundle(job, err)) != FB_OK) return status;
    id = fb_bundle_case_id(job->bundle);
    if (id && *id) (void)snprintf(job->place.id, sizeof job->place.id, "%.63s", id);
    if (job->place.report && job->place.report->injected_text[0])
        note(job, "the guard planted this fault itself (%.200s), and plants none in a replay", job->place.report->injected_text);
    status = options->command ? given_command(job, err) : recorded_command(job, err);
    return status == FB_OK ? carry(job, err) : status;
}

/* ---- run --------------------------------------------------------------------------------------------------------------------- */

/* What an outer run or shell says to trainers is not said to this one. The kernel that scans is a matter of this machine. */
static int is_ours(const char *variable)
{
    return strncmp(variable, "FIRSTBAD_", 9) == 0 && strncmp(variable, "FIRSTBAD_KERNEL=", 16) != 0;
}

typedef struct variables {
    fb_pair *pairs;
    char *names; /* of those that are taken away */
    size_t count;
} variables;

static fb_status make_environment(const replay_job *job, variables *v, fb_error *err)
{
    const replay_options *options = job->options;
    size_t ours = 0, bytes = 1, used = 0;
    for (char **at = environ; *at; at++) {
        if (is_ours(*at)) ours++, bytes += strlen(*at) + 1;
    }
    v->pairs = fb_calloc(ours + OWN_VARIABLES, sizeof *v->pairs);
    v->names = fb_calloc(bytes, 1);
    if (!v->pairs || !v->names) return fb_fail(err, FB_E_NOMEM, "start the trainer: no memory for its environment");
    for (char **at = environ; *at; at++) {
        size_t n = strcspn(*at, "=");
        if (!is_ours(*at)) continue;
        memcpy(v->names + used, *at, n);
        v->pairs[v->count++] = (fb_pair){v->names + used, NULL};
        used += n + 1;
    }
    v->pairs[v->count++] = (fb_pair){"FIRSTBAD_REPLAY", job->bundle_folder};
    v->pairs[v->count++] = (fb_pair){"FIRSTBAD_REPLAY_OUT", job->out};
    v->pairs[v->count++] = (fb_pair){"FIRSTBAD_REPLAY_PARTS", options->parts};
    if (options->times) v->pairs[v->count++] = (fb_pair){"FIRSTBAD_REPLAY_TIMES", options->times};
    if (options->strategy) v->pairs[v->count++] = (fb_pair){"FIRSTBAD_REPLAY_STRATEGY", options->strategy};
    if (options->probes) v->pairs[v->count++] = (fb_pair){"FIRSTBAD_REPLAY_PROBES", options->probes};
    /* Open MPI refuses to run as root unless told twice; in a container everybody is root. */
    if (geteuid() == 0 && !getenv("OMPI_ALLOW_RUN_AS_ROOT")) v->pairs[v->count++] = (fb_pair){"OMPI_ALLOW_RUN_AS_ROOT", "1"};
    if (geteuid() == 0 && !getenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"))
        v->pairs[v->count++] = (fb_pair){"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"};
    return FB_OK;
}

/* A trainer in Python hears of the replay as it hears of a run. One that does not leaves no locate.json, and that is told. */
static void attach_python(const replay_job *job, variables *v, attach *attached)
{
    const fb_os *os = fb_os_posix();
    attach_find(attached, os);
    attach_write(attached, os, job->out, v->pairs, v->count);
    if (attached->path) v->pairs[v->count++] = (fb_pair){"PYTHONPATH", attached->path};
}

static fb_status start(replay_job *job, int output, fb_error *err)
{
    variables v = {NULL, NULL, 0};
    attach attached = {.path = NULL};
    int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), why = 0;
    fb_status status = make_environment(job, &v, err);
    if (status == FB_OK) attach_python(job, &v, &attached);
    if (status == FB_OK && job->cwd[0] && chdir(job->cwd) != 0) status = fb_fail_os(err, errno, "change to folder %s", job->cwd);
    if (status == FB_OK) why = process_start(&job->child, job->argv, v.pairs, v.count, output);
    if (why)
        status = fb_fail(err, FB_E_ORDER, "start %s: %s", job->argv[0], why == ENOENT ? "there is no such command" : strerror(why));
    if (here >= 0) {
        if (job->cwd[0] && fchdir(here) != 0 && status == FB_OK)
            status = fb_fail_os(err, errno, "change back to the folder before");
        (void)close(here);
    }
    attach_release(&attached);
    fb_free(v.pairs);
    fb_free(v.names);
    return status;
}

/* On a terminal one line that counts seconds, taken away at the end. */
static void wait_for(replay_job *job)
{
    int show = job->options->show && isatty(STDERR_FILENO);
    int64_t begun = process_now_ms();
    while (!process_wait_ms(&job->child, LOOK_MS) && !process_interrupted()) {
        if (show)
            fprintf(stderr, "\rcase %s: the trainer runs its step again, %lld s ", job->place.id,
                    (long long)((process_now_ms() - begun) / 1000));
    }
    if (show) fprintf(stderr, "\r%79s\r", "");
    if (!job->child.ended) process_end(&job->child, GRACE_MS);
    job->seconds = (double)(process_now_ms() - begun) / 1000;
}

static int has_folder(const char *path, const char *name)
{
    size_t bytes = strlen(name);
    for (const char *at = strstr(path, name); at; at = strstr(at + 1, name)) {
        if (at > path && at[-1] == '/' && (at[bytes] == '/' || !at[bytes])) return 1;
    }
    return 0;
}

/* Run and case are taken from the bundle, or from the folder that is written into, which may have been renamed. */
static int is_other(const char *told, const char *expected, const char *out)
{
    return told[0] && expected[0] && strcmp(told, expected) != 0 && !has_folder(out, told);
}

/* It must be of what was replayed: a result that was left over, or copied, would be told as this one's. */
static fb_status check_result(const replay_job *job, fb_error *err)
{
    const fb_locate_file *file = &job->file;
    const char *run_id = fb_bundle_run_id(job->bundle), *case_id = fb_bundle_case_id(job->bundle);
    if (file->step != fb_bundle_step(job->bundle))
        return fb_fail(err, FB_E_CORRUPT, "read %s/locate.json: it is of step %lld, and the bundle of step %lld", job->out,
                       (long long)file->step, (long long)fb_bundle_step(job->bundle));
    if (is_other(file->run_id, run_id, job->out) || is_other(file->case_id, case_id, job->out))
        return fb_fail(err, FB_E_CORRUPT,
                       "read %s/locate.json: it is of run %.80s, case %.60s, and the bundle of run %.80s, case %.60s", job->out,
                       file->run_id[0] ? file->run_id : "unknown", file->case_id[0] ? file->case_id : "unknown",
                       run_id[0] ? run_id : "unknown", case_id[0] ? case_id : "unknown");
    return FB_OK;
}

static fb_status read_result(replay_job *job, fb_error *err)
{
    fb_error why;
    fb_status status = fb_locate_read(&job->file, fb_os_posix(), job->out, &why);
    if (status == FB_E_NOTFOUND)
        return fb_fail(err, FB_E_ORDER,
                       "replay case %s: %s ended with 0 and left no locate.json in %s; a trainer that can be replayed asks "
                       "fb_replay_asked when it starts, and its launcher hands the FIRSTBAD_REPLAY variables on",
                       job->place.id, job->argv[0], job->out);
    if (status != FB_OK) return fb_fail(err, status, "read %s/locate.json: %.800s", job->out, why.message);
    job->has_file = 1;
    return check_result(job, err);
}

static fb_status judge_end(replay_job *job, fb_error *err)
{
    job->code = process_exit_code(&job->child);
    job->signal = process_exit_signal(&job->child);
    if (process_interrupted())
        return fb_fail(err, FB_E_ORDER, "replay case %s: stopped by signal %d after %.0f s; the output of %s is in %s",
                       job->place.id, process_interrupted(), job->seconds, job->argv[0], job->log);
    if (job->signal)
        return fb_fail(err, FB_E_ORDER, "replay case %s: signal %d ended %s; its output is in %s", job->place.id, job->signal,
                       job->argv[0], job->log);
    if (job->code)
        return fb_fail(err, FB_E_ORDER, "replay case %s: %s ended with code %d; its output is in %s", job->place.id, job->argv[0],
                       job->code, job->log);
    return read_result(job, err);
}

fb_status replay_job_run(replay_job *job, fb_error *err)
{
    int output = -1;
    fb_status status = case_new_replay(&job->place, job->out, err);
    if (status == FB_OK) status = fb_os_join(job->log, sizeof job->log, job->out, "output.log", err);
    if (status != FB_OK) return status;
    if ((output = open(job->log, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666)) < 0)
        return fb_fail_os(err, errno, "make %s", job->log);
    if ((status = start(job, output, err)) == FB_OK) {
        wait_for(job);
        status = judge_end(job, err);
        if (status != FB_OK && !process_interrupted()) process_show_tail(output);
    }
    (void)close(output);
    return status;
}

void replay_job_close(replay_job *job)
{
    fb_locate_file_release(&job->file);
    fb_bundle_close(job->bundle);
    case_release(&job->place);
    launch_release(&job->launch);
    fb_free(job->argv);
    memset(job, 0, sizeof *job);
}
