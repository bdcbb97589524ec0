/* See replay_show.h. */
#include "replay_show.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli.h"
#include "evidence/site.h"
#include "report/lines.h"
#include "search/minimise.h"

enum { INDENT = 14, SHOWN = 12, CHAIN_SHOWN = 8, PLACE_BYTES = 512 };

/* ---- what it comes to -------------------------------------------------------------------------------------------------------- */

int replay_is_located(const replay_job *job)
{
    int32_t found = job->file.found;
    if (found == FB_LOCATED_OPERATOR) return fb_locate_chain_whole(&job->file, NULL, 0);
    return found == FB_LOCATED_SET || found == FB_LOCATED_ENTRY;
}

int replay_exit_code(const replay_job *job, int asked)
{
    int none = job->file.replay.tried > 0 && job->file.replay.reproduced == 0;
    if (asked == REPLAY_AGAIN) return job->file.replay.tried == 0 ? CLI_UNDECIDED : none ? CLI_CLEAN : CLI_BAD;
    if (replay_is_located(job)) return CLI_BAD;
    return none || job->file.found == FB_LOCATED_NOT_REPRODUCED ? CLI_CLEAN : CLI_UNDECIDED;
}

const char *replay_status(const replay_job *job, int asked)
{
    int code = replay_exit_code(job, asked);
    if (code == CLI_UNDECIDED) return "undecided";
    if (code == CLI_CLEAN) return "not_reproduced";
    return asked == REPLAY_AGAIN ? "reproduced" : "located";
}

/* ---- words ------------------------------------------------------------------------------------------------------------------- */

static const char *direction(int32_t boundary)
{
    switch (boundary) {
    case FB_ENTRY: return "state before the step";
    case FB_INPUT: return "batch";
    case FB_FORWARD: return "forward";
    case FB_LOSS: return "loss";
    case FB_LOCAL_GRAD: return "backward";
    case FB_REDUCED_GRAD: return "reduction";
    case FB_UPDATE: return "update";
    default: return "";
    }
}

/* "h.7.attn softmax", or of an entry "h.7.attn c_fc.weight"; the root module has no name. */
static void name_place(const char *module, const char *what, char *out, size_t room)
{
    (void)snprintf(out, room, "%s%s%s", module, *module && *what ? " " : "", what);
}

static void name_link(const fb_locate_link *link, char *out, size_t room)
{
    name_place(link->module, link->entry || !link->op[0] ? link->tensor : link->op, out, room);
}

static void list_links(const fb_locate_links *links, char *out, size_t room)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < links->count && i < SHOWN && used < room; i++) {
        char name[PLACE_BYTES];
        name_link(&links->items[i], name, sizeof name);
        used += (size_t)snprintf(out + used, room - used, "%s%.200s", i ? ", " : "", name);
    }
    if (links->total > SHOWN && used < room) (void)snprintf(out + used, room - used, " and %u more", links->total - SHOWN);
}

/* "[1, 4, 0, 0]" */
static void write_index(const int64_t *index, int32_t ndim, char *out, size_t room)
{
    size_t used = 0;
    out[0] = '\0';
    for (int32_t i = 0; i < ndim && used < room; i++)
        used += (size_t)snprintf(out + used, room - used, "%s%" PRId64 "%s", i ? ", " : "[", index[i], i + 1 == ndim ? "]" : "");
}

/* Quoted where a shell would cut or expand it. */
static int is_plain(const char *word)
{
    return *word && word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-")] == '\0';
}

/* A word as a shell takes it: in quotes where it would be cut or expanded. Returns how many bytes it takes. */
static size_t add_word(char *out, size_t room, const char *word)
{
    size_t used;
    if (is_plain(word)) return (size_t)snprintf(out, room, "%s", word);
    used = (size_t)snprintf(out, room, "'");
    for (const char *c = word; *c && used < room; c++)
        used += (size_t)snprintf(out + used, room - used, *c == '\'' ? "'\\''" : "%c", *c);
    if (used < room) used += (size_t)snprintf(out + used, room - used, "'");
    return used;
}

static void join_words(char *const *words, size_t count, char *out, size_t room)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < count && used < room; i++) {
        if (i) used += (size_t)snprintf(out + used, room - used, " ");
        if (used < room) used += add_word(out + used, room - used, words[i]);
    }
    if (used >= room && room > 4) memcpy(out + room - 4, "...", 4);
}

/* ---- lines that both commands print ------------------------------------------------------------------------------------------ */

static void say_differences(const replay_job *job, fb_lines *lines)
{
    const char *label = "  differs";
    for (uint32_t i = 0; i < job->file.replay.difference_count; i++, label = "")
        fb_lines_add(lines, label, INDENT, "%s", job->file.replay.differences[i]);
    for (uint32_t i = 0; i < job->notes.count; i++, label = "") fb_lines_add(lines, label, INDENT, "%s", job->notes.text[i]);
}

static void say_faithful(const replay_job *job, fb_lines *lines)
{
    if (job->file.replay.tried)
        fb_lines_add(lines, "  faithful", INDENT, "%s",
                     job->file.replay.faithful ? "yes: every replay ran the same operators on the same bytes"
                                               : "no: see what differs; the run itself may have gone another way");
    say_differences(job, lines);
}

static void say_other_ranks(const replay_job *job, fb_lines *lines)
{
    uint32_t tried = job->file.replay.other_tried, bad = job->file.replay.other_bad;
    char others[48];
    if (tried == 0 || job->file.replay.tried == 0) return;
    if (tried == 1) (void)snprintf(others, sizeof others, "the other rank that was tried");
    else (void)snprintf(others, sizeof others, "all %u other ranks that were tried", tried);
    if (bad == 0)
        fb_lines_add(lines, "  elsewhere", INDENT, "the same batch is clean on %s: this rank's machine is suspect", others);
    else if (bad == tried)
        fb_lines_add(lines, "  elsewhere", INDENT, "the same batch is bad on %s as well: it is not this rank's machine", others);
    else fb_lines_add(lines, "  elsewhere", INDENT, "the same batch is bad on %u of %u other ranks: the ranks differ", bad, tried);
}

static void say_precision(const replay_job *job, fb_lines *lines)
{
    const char *format = job->file.precision[0] ? job->file.precision : "the format of the run";
    if (strcmp(job->file.precision, "fp32") == 0) return;
    if (job->file.replay.persists == 1) fb_lines_add(lines, "  in fp32", INDENT, "still bad: it does not depend on %s", format);
    else if (job->file.replay.persists == 0)
        fb_lines_add(lines, "  in fp32", INDENT, "finite: the range or the rounding of %s is part of it", format);
    else fb_lines_add(lines, "  in fp32", INDENT, "not tried");
}

static void say_end(const replay_job *job, fb_lines *lines)
{
    char command[2048];
    join_words(job->argv, job->argument_count, command, sizeof command);
    if (job->file.notes[0]) fb_lines_add(lines, "  note", INDENT, "%s", job->file.notes);
    fb_lines_add(lines, "  ran", INDENT, "%s", command);
    if (job->cwd[0]) fb_lines_add(lines, "", INDENT, "in %s", job->cwd);
    fb_lines_add(lines, "  results", INDENT, "%s", job->out);
}

/* ---- replay ------------------------------------------------------------------------------------------------------------------ */

static void say_finding(const replay_job *job, fb_lines *lines)
{
    char place[PLACE_BYTES];
    name_place(job->file.finding.module, job->file.finding.tensor, place, sizeof place);
    fb_lines_add(lines, "  finding", INDENT, "%s%s%s, rank %d", direction(job->file.finding.boundary), place[0] ? ", " : "", place,
                 job->file.finding.rank);
}

/* A line that can be pasted, with the command where it was given here. */
static void say_next(const replay_job *job, fb_lines *lines)
{
    char name[FB_OS_PATH_MAX], dir[FB_OS_PATH_MAX] = "", command[2048] = "";
    size_t count = 0;
    (void)add_word(name, sizeof name, job->options->name ? job->options->name : job->place.id);
    if (job->options->dir) (void)add_word(dir, sizeof dir, job->options->dir);
    while (job->options->command && job->options->command[count]) count++;
    join_words(job->options->command, count, command, sizeof command);
    fb_lines_add(lines, "  next", INDENT, "firstbad bisect %s%s%s%s%s", name, dir[0] ? " --dir " : "", dir, count ? " -- " : "",
                 command);
}

static void say_replay(const replay_job *job, fb_lines *lines)
{
    uint32_t k = job->file.replay.reproduced, n = job->file.replay.tried;
    int32_t world = fb_bundle_world(job->bundle);
    const char *head = n == 0 ? "Undecided" : k == 0 ? "Not reproduced" : k == n ? "Reproduced" : "Reproduced, not steadily";
    if (n == 0) fb_lines_add(lines, "", 0, "%s: no replay could be looked at (case %s).", head, job->place.id);
    else
        fb_lines_add(lines, "", 0, "%s: %u of %u, case %s, step %" PRId64 ", %s%d rank%s.", head, k, n, job->place.id,
                     job->file.step, job->options->minimal ? "smallest batch, " : "", world, world == 1 ? "" : "s");
    say_finding(job, lines);
    say_faithful(job, lines);
    if (n && k == 0)
        fb_lines_add(lines, "  meaning", INDENT, "%s",
                     job->file.replay.faithful
                         ? "clean when it runs again: fixed since, or a machine that failed once, or a race"
                         : "this step is clean as it runs now; since it differs from the run, that does not say the run was");
    else if (k && k < n)
        fb_lines_add(lines, "  meaning", INDENT, "the same step is sometimes clean: a race, or memory that nobody set");
    if (k) say_precision(job, lines);
    say_other_ranks(job, lines);
    say_end(job, lines);
    if (k && !job->options->minimal) say_next(job, lines);
}

/* ---- bisect ------------------------------------------------------------------------------------------------------------------ */

/* "forward, micro-step 2, rank 5, model.c:88" */
static void describe_location(const replay_job *job, char *out, size_t room)
{
    size_t used = (size_t)snprintf(out, room, "%s", direction(job->file.location.boundary));
    if (job->file.location.micro_step >= 0 && used < room)
        used += (size_t)snprintf(out + used, room - used, ", micro-step %d", job->file.location.micro_step);
    if (job->file.location.rank >= 0 && used < room)
        used += (size_t)snprintf(out + used, room - used, ", rank %d", job->file.location.rank);
    if (job->file.location.source[0] && used < room) (void)snprintf(out + used, room - used, ", %.200s", job->file.location.source);
}

static void say_head(const replay_job *job, fb_lines *lines)
{
    char place[PLACE_BYTES], about[PLACE_BYTES], list[4096], why[256] = "";
    list_links(&job->file.candidates, list, sizeof list);
    describe_location(job, about, sizeof about);
    switch (job->file.found) {
    case FB_LOCATED_OPERATOR:
        name_place(job->file.location.module, job->file.location.op, place, sizeof place);
        if (replay_is_located(job)) {
            fb_lines_add(lines, "", 0, "%s made the first bad number: %s.", place, about);
        } else {
            (void)fb_locate_chain_whole(&job->file, why, sizeof why);
            fb_lines_add(lines, "", 0, "Not shown: the answer names an operator, and its chain to the finding is not whole (%s).",
                         why);
        }
        break;
    case FB_LOCATED_SET:
        fb_lines_add(lines, "", 0, "%u operators made bad numbers, and none of them comes after another: %s.",
                     job->file.candidates.total, list);
        break;
    case FB_LOCATED_INTERVAL:
        fb_lines_add(lines, "", 0, "Not certain: it is among %u: %s.", job->file.candidates.total, list);
        break;
    case FB_LOCATED_ENTRY:
        name_place(job->file.location.module, job->file.location.tensor, place, sizeof place);
        fb_lines_add(lines, "", 0, "Bad before the first operator ran, and none is blamed: %s.", list[0] ? list : place);
        break;
    case FB_LOCATED_NOT_REPRODUCED:
        fb_lines_add(lines, "", 0, "Not reproduced: 0 of %u, so there is nothing to locate.", job->file.replay.tried);
        break;
    case FB_LOCATED_NOT_STEADY:
        fb_lines_add(lines, "", 0, "Not steady: replays contradict each other, so no operator is named.");
        break;
    default: fb_lines_add(lines, "", 0, "Undecided: the replays do not tell where it comes from."); break;
    }
}

/* As `why` writes it. */
static const char *kind_name(int32_t kind)
{
    return kind == FB_KIND_NAN ? "NaN" : kind == FB_KIND_POS_INF ? "+Inf" : kind == FB_KIND_NEG_INF ? "-Inf" : fb_kind_name(kind);
}

static void say_what(const replay_job *job, fb_lines *lines)
{
    char index[256];
    if (!job->file.location.known || !replay_is_located(job)) return;
    write_index(job->file.location.index, job->file.location.ndim, index, sizeof index);
    fb_lines_add(lines, "  what", INDENT, "%s: %s, %" PRIu64 " of %" PRIu64 " bad%s%s%s%s", job->file.location.tensor,
                 kind_name(job->file.location.kind), job->file.location.bad, job->file.location.elements,
                 index[0] ? ", first at " : "", index, job->file.location.format ? ", " : "",
                 job->file.location.format ? fb_dtype_name(job->file.location.format) : "");
}

static void say_chain(const replay_job *job, fb_lines *lines)
{
    static const char *const labels[] = {"unknown", "clean", "generate", "propagate", "kill"};
    const fb_locate_links *chain = &job->file.chain;
    if (!replay_is_located(job)) return;
    for (uint32_t i = 0; i < chain->count; i++) {
        char name[PLACE_BYTES];
        const fb_locate_link *link;
        if (i == CHAIN_SHOWN && chain->count > CHAIN_SHOWN + 2) {
            fb_lines_add(lines, "", INDENT, "... %u more", chain->count - CHAIN_SHOWN - 1);
            i = chain->count - 1;
        }
        link = &chain->items[i];
        name_link(link, name, sizeof name);
        fb_lines_add(lines, i ? "" : "  chain", INDENT, "%-10s %s%s%s",
                     link->entry                                                                   ? "entry"
                     : link->label >= 0 && link->label < (int32_t)(sizeof labels / sizeof *labels) ? labels[link->label]
                                                                                                   : "unknown",
                     name, link->source[0] ? ", " : "", link->source);
    }
}

static void say_swallowed(const replay_job *job, fb_lines *lines)
{
    char list[4096];
    list_links(&job->file.swallowed, list, sizeof list);
    if (job->file.swallowed.count) fb_lines_add(lines, "  swallowed", INDENT, "bad as well, and it reached nothing: %s", list);
}

static void say_cause(const replay_job *job, fb_lines *lines)
{
    if (!job->file.cause.name[0] || (job->file.found == FB_LOCATED_OPERATOR && !replay_is_located(job))) return;
    fb_lines_add(lines, "  cause", INDENT, "%s%s: %s", job->file.cause.name,
                 job->file.cause.certain || job->file.cause.class_number == FB_CAUSE_UNKNOWN ? "" : " (likely)",
                 job->file.cause.explanation);
    if (job->file.cause.witness[0]) fb_lines_add(lines, "  proof", INDENT, "%s", job->file.cause.witness);
    if (job->file.cause.fix[0]) fb_lines_add(lines, "  fix", INDENT, "%s", job->file.cause.fix);
    if (job->file.cause.verify[0]) fb_lines_add(lines, "  check", INDENT, "%s", job->file.cause.verify);
}

static void list_samples(const replay_job *job, char *out, size_t room)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < job->file.minimise.sample_count && i < SHOWN && used < room; i++)
        used += (size_t)snprintf(out + used, room - used, "%s%" PRId64, i ? ", " : " (", job->file.minimise.sample_ids[i]);
    if (used && used < room) (void)snprintf(out + used, room - used, "%s)", job->file.minimise.sample_count > SHOWN ? ", ..." : "");
}

static void say_smallest(const replay_job *job, fb_lines *lines)
{
    char samples[512];
    uint32_t rows = job->file.minimise.rows_needed;
    if (job->file.minimise.state == 0 || rows == 0) return;
    list_samples(job, samples, sizeof samples);
    fb_lines_add(lines, "  smallest", INDENT, "%u of %u sample%s%s, %u token%s%s%s", rows, job->file.minimise.rows,
                 job->file.minimise.rows == 1 ? "" : "s", samples, job->file.minimise.tokens_needed,
                 job->file.minimise.tokens_needed == 1 ? "" : "s",
                 job->file.minimise.rest_shows == 1 ? "; the other samples show it as well, so none of them is the cause"
                 : job->file.minimise.coupled       ? ", needed together: the cause is in what they share"
                                                    : "",
                 job->file.minimise.state == FB_MINIMISE_BUDGET ? "; it may be smaller still, the replays allowed were used up"
                                                                : "");
}

static void say_bisect(const replay_job *job, fb_lines *lines)
{
    say_head(job, lines);
    say_what(job, lines);
    say_chain(job, lines);
    say_swallowed(job, lines);
    say_cause(job, lines);
    say_smallest(job, lines);
    if (job->file.replay.tried)
        fb_lines_add(lines, "  reproduced", INDENT, "%u of %u", job->file.replay.reproduced, job->file.replay.tried);
    say_faithful(job, lines);
    if (job->file.replay.reproduced) say_precision(job, lines);
    say_other_ranks(job, lines);
    fb_lines_add(lines, "  cost", INDENT, "%u replay%s, %u of them the search (%s); %.1f s", job->file.cost.replays,
                 job->file.cost.replays == 1 ? "" : "s", job->file.cost.search_replays, job->file.cost.strategy,
                 job->file.cost.seconds);
    say_end(job, lines);
}

int replay_show_text(const replay_job *job, int asked)
{
    fb_lines lines;
    fb_error err;
    char *text = NULL;
    int code;
    fb_lines_init(&lines, cli_columns(stdout), 0);
    if (asked == REPLAY_AGAIN) say_replay(job, &lines);
    else say_bisect(job, &lines);
    code = fb_lines_finish(&lines, &text, &err) != FB_OK ? cli_fail(&err) : cli_print(text);
    fb_free(text);
    return code;
}
