/*
 * See drill_all.h: which runs there are, and having them run. They are started in the order of the list, as many at a time as
 * settings->jobs says, and a line is printed when all seeds of a fault, and of those before it, are through.
 */
#include "drill_all.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/status.h"
#include "cli.h"

enum { LOOK_MS = 4 };

/* ---- which ------------------------------------------------------------------------------------------------------------------- */

int drill_all_list(int json)
{
    if (json) {
        drill_all_print_truths();
        return cli_flush();
    }
    for (int i = 0; i < drill_fault_count; i++) printf("fault    %-26s %s\n", drill_faults[i].id, drill_faults[i].what);
    for (int i = 0; i < drill_healthy_count; i++) printf("healthy  %-26s %s\n", drill_healthies[i].id, drill_healthies[i].what);
    return cli_flush();
}

static const char *id_at(int at)
{
    return at < drill_fault_count ? drill_faults[at].id : drill_healthies[at - drill_fault_count].id;
}

/* Sets chosen[]; how many, or -1 after a message. */
static int choose(const char *only, unsigned char *chosen)
{
    int count = 0, all = drill_fault_count + drill_healthy_count;
    memset(chosen, !only, (size_t)all);
    for (const char *at = only ? only + strspn(only, ",") : NULL; at && *at; at += strspn(at, ",")) {
        size_t bytes = strcspn(at, ",");
        int i = 0;
        while (i < all && !(strlen(id_at(i)) == bytes && strncmp(id_at(i), at, bytes) == 0)) i++;
        if (i == all) {
            cli_error("there is no fault '%.*s'; firstbad drill --all --list names them", bytes < 60 ? (int)bytes : 60, at);
            return -1;
        }
        chosen[i] = 1;
        at += bytes;
    }
    for (int i = 0; i < all; i++) count += chosen[i];
    if (!count) cli_error("--only names no fault");
    return count ? count : -1;
}

static void plan(drill_all *all, const unsigned char *chosen, const drill_settings *settings)
{
    for (int i = 0; i < drill_fault_count + drill_healthy_count; i++) {
        for (int32_t seed = 1; chosen[i] && seed <= settings->seeds; seed++) {
            drill_one *one = &all->ones[all->count++];
            one->seed = seed;
            if (i < drill_fault_count) one->fault = &drill_faults[i];
            else one->healthy = &drill_healthies[i - drill_fault_count];
            all->faults += one->fault != NULL;
            drill_one_plan(one, settings->ranks);
        }
    }
}

int drill_all_choose(const char *only, drill_all *all, const drill_settings *settings, fb_error *err)
{
    size_t room = (size_t)drill_fault_count + (size_t)drill_healthy_count;
    unsigned char *chosen = fb_calloc(room, 1);
    int count = chosen ? choose(only, chosen) : 0;
    memset(all, 0, sizeof *all);
    err->code = FB_OK;
    if (count > 0) all->ones = fb_calloc((size_t)count * (size_t)settings->seeds, sizeof *all->ones);
    if (count == 0 || (count > 0 && !all->ones)) (void)fb_fail(err, FB_E_NOMEM, "plan the drill: no memory");
    if (all->ones) plan(all, chosen, settings);
    all->whole = count == drill_fault_count + drill_healthy_count;
    fb_free(chosen);
    return all->ones != NULL;
}

/* ---- counting ---------------------------------------------------------------------------------------------------------------- */

int drill_all_count(const drill_all *all, int level, int worth, int *of)
{
    int count = 0;
    *of = 0;
    for (int i = 0; i < all->count; i++) {
        int got = all->ones[i].score.levels[level];
        if (!all->ones[i].done || !all->ones[i].fault || got == DRILL_NOT_ASKED) continue;
        (*of)++;
        count += got == worth;
    }
    return count;
}

int drill_all_exact(const drill_all *all, int32_t seeds, int *of)
{
    int count = 0;
    *of = 0;
    for (int i = 0; i < all->faults; i += seeds) {
        int right = 1;
        for (int k = 0; k < seeds; k++) right &= all->ones[i + k].done && drill_score_exact(&all->ones[i + k].score);
        (*of)++;
        count += right;
    }
    return count;
}

int drill_all_wrong_claims(const drill_all *all)
{
    int count = 0;
    for (int i = 0; i < all->count; i++) count += all->ones[i].score.wrong_claims;
    return count;
}

int drill_all_false_alarms(const drill_all *all)
{
    int count = 0;
    for (int i = 0; i < all->count; i++) count += all->ones[i].score.false_alarms;
    return count;
}

int drill_all_quiet(const drill_all *all)
{
    int count = 0;
    for (int i = all->faults; i < all->count; i++) count += drill_score_passed(&all->ones[i].score);
    return count;
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

drill_cost drill_all_cost(const drill_all *all)
{
    drill_cost out = {0, 0, 0, 0, 0};
    size_t n = 0, room = (size_t)all->count + 1;
    double *values = fb_calloc(2 * room, sizeof *values);
    for (int i = 0; values && i < all->count; i++) {
        if (!all->ones[i].score.replays) continue;
        values[n] = all->ones[i].score.replays;
        values[room + n++] = all->ones[i].score.seconds;
    }
    if (n) {
        qsort(values, n, sizeof *values, by_size);
        qsort(values + room, n, sizeof *values, by_size);
        out = (drill_cost){values[n / 2], values[n - 1], values[room + n / 2], values[room + n - 1], 1};
    }
    fb_free(values);
    return out;
}

/* Runs of healthy trainings that were no use: broken off, or nothing put to the test. */
static int broken_healthy(const drill_all *all)
{
    int count = 0;
    for (int i = all->faults; i < all->count; i++) count += all->ones[i].score.levels[DRILL_AFTER] != DRILL_RIGHT;
    return count;
}

int drill_all_passed(const drill_all *all, int32_t seeds)
{
    int of, asked, exact = drill_all_exact(all, seeds, &of);
    if (drill_all_count(all, DRILL_DETECTED, DRILL_RIGHT, &asked) != asked) return 0;
    if (drill_all_count(all, DRILL_STOPPED, DRILL_RIGHT, &asked) != asked) return 0;
    if (drill_all_wrong_claims(all) || drill_all_false_alarms(all) || broken_healthy(all)) return 0;
    for (int i = 0; i < all->count && !all->whole; i++) {
        if (!drill_score_passed(&all->ones[i].score)) return 0;
    }
    return all->whole ? exact >= DRILL_EXACT_MIN : exact == of;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------------------- */

static void show_progress(int done, int count, const char *id)
{
    enum { WIDTH = 24 };
    char bar[WIDTH + 1];
    if (!isatty(STDERR_FILENO)) return;
    for (int i = 0; i < WIDTH; i++) bar[i] = i * count < done * WIDTH ? '=' : ' ';
    bar[WIDTH] = '\0';
    fprintf(stderr, "\r\033[K[%s] %d of %d  %.48s", bar, done, count, id);
}

/* A run that was as it should be is taken away; one that was not stays, to be looked at. */
static void forget_one(drill_one *one, const drill_slot *slot)
{
    if (!drill_score_passed(&one->score)) return;
    drill_remove(one->folder);
    one->folder[0] = '\0';
    (void)unlink(slot->log);
}

/* The lines of all that is through, up to the first that is not. Returns where to go on. */
static int print_lines(const drill_all *all, int from, const drill_options *options, const drill_settings *settings)
{
    while (from < all->count) {
        for (int k = 0; k < settings->seeds; k++) {
            if (!all->ones[from + k].done) return from;
        }
        if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
        if (!options->json) drill_all_print_line(&all->ones[from], settings->seeds, options->verbose);
        from += settings->seeds;
        if (cli_flush()) return all->count; /* nobody reads on */
    }
    return from;
}

static void look_at(drill_slot *slot, const drill_options *options, const drill_settings *settings, int *done)
{
    drill_one *one = slot->one;
    if (!drill_slot_poll(slot, settings)) return;
    (*done)++;
    if (!options->dir && !options->keep) forget_one(one, slot);
}

static void run_all(drill_all *all, drill_slot *slots, const drill_options *options, const drill_settings *settings)
{
    int next = 0, done = 0, printed = 0;
    while (done < all->count && !process_interrupted() && !ferror(stdout)) {
        int before = done;
        for (int i = 0; i < settings->jobs; i++) {
            if (!slots[i].one && next < all->count) drill_slot_start(&slots[i], &all->ones[next++], settings);
            if (slots[i].one) look_at(&slots[i], options, settings, &done);
        }
        if (done == before) {
            process_sleep_ms(LOOK_MS);
            continue;
        }
        printed = print_lines(all, printed, options, settings);
        if (done < all->count)
            show_progress(done, all->count, all->ones[done].fault ? all->ones[done].fault->id : all->ones[done].healthy->id);
    }
    if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
    for (int i = 0; i < settings->jobs; i++) {
        if (slots[i].one) drill_slot_stop(&slots[i]);
    }
}

/* ---- the whole --------------------------------------------------------------------------------------------------------------- */

static int finish(const drill_all *all, const drill_options *options, const drill_settings *settings, const char *again)
{
    int signal_number = process_interrupted(), passed = drill_all_passed(all, settings->seeds), every = 1;
    int code = passed ? CLI_CLEAN : CLI_BAD, kept;
    for (int i = 0; i < all->count; i++) every &= drill_score_passed(&all->ones[i].score);
    kept = options->dir || options->keep || (!every && !signal_number);
    if (signal_number) code = 128 + signal_number;
    else if (!ferror(stdout) && options->json) drill_all_print_json(all, settings);
    else if (!ferror(stdout)) drill_all_print_score(all, settings, again, kept ? settings->dir : NULL);
    if ((ferror(stdout) || cli_flush()) && !signal_number) code = CLI_UNREADABLE;
    if (signal_number)
        cli_error("drill: ended by signal %d; %s%s", signal_number, kept ? "runs kept in " : "its temporary folder is removed",
                  kept ? settings->dir : "");
    if (!kept) drill_remove(settings->dir);
    return code;
}

int drill_all_run(const drill_options *options, const drill_settings *settings, const char *again)
{
    drill_all all;
    fb_error err;
    int code = CLI_USAGE, chosen = drill_all_choose(options->only, &all, settings, &err);
    drill_slot *slots = chosen ? fb_calloc((size_t)settings->jobs, sizeof *slots) : NULL;
    int64_t begun = process_now_ms();
    if (chosen && !slots) code = cli_fail((fb_fail(&err, FB_E_NOMEM, "run the drill: no memory"), &err));
    if (!chosen && err.code != FB_OK) code = cli_fail(&err);
    if (slots) {
        if (!options->json && all.faults) drill_all_print_head();
        run_all(&all, slots, options, settings);
        all.ms = process_now_ms() - begun;
        code = finish(&all, options, settings, again);
    } else {
        drill_remove(settings->dir);
    }
    fb_free(slots);
    fb_free(all.ones);
    return code;
}
