/*
 * ddmin as a machine that stops at every question. It holds a set that reproduces, cut into `pieces` runs of neighbours, and goes
 * through the pieces, then through what is left without each:
 *   a piece reproduces              it becomes the set, in 2 pieces
 *   what is left without one does   it becomes the set, in one piece less
 *   none does                       twice as many pieces, until each is one item; then it is 1-minimal
 */
#include "search/minimise.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "search/memory.h"

struct fb_minimise {
    fb_minimise_options options;
    fb_memory memory;
    uint32_t *set, *trial; /* [items] ascending: what reproduces; what is asked about */
    uint64_t *bits;        /* trial as bits, for the memory */
    uint32_t set_count, trial_count;
    uint32_t pieces, piece;       /* piece < pieces: that one alone; < 2 * pieces: all but piece - pieces */
    uint32_t yes, no, unresolved; /* answers to the subset that is being asked */
    int asked, started;
    fb_subset question;
    fb_minimise_verdict verdict;
};

/* ---- open and free ----------------------------------------------------------------------------------------------------------- */

fb_status fb_minimise_open(fb_minimise **out, const fb_minimise_options *options, fb_error *err)
{
    fb_minimise *m;
    if (!out || !options) return fb_fail(err, FB_E_USAGE, "open minimiser: an argument is NULL");
    *out = NULL;
    if (options->items == 0 || options->items > FB_MINIMISE_ITEMS_MAX) {
        return fb_fail(err, FB_E_USAGE, "open minimiser: %u items, expected 1 to %d", options->items, FB_MINIMISE_ITEMS_MAX);
    }
    if (options->needed > (options->asks ? options->asks : 1)) {
        return fb_fail(err, FB_E_USAGE, "open minimiser: %u of %u runs can never show the fault", options->needed, options->asks);
    }
    m = fb_calloc(1, sizeof *m);
    if (!m) return fb_fail(err, FB_E_NOMEM, "open minimiser: no memory for %zu bytes", sizeof *m);
    m->options = *options;
    if (!m->options.tests_max) m->options.tests_max = FB_MINIMISE_TESTS_MAX;
    if (!m->options.asks) m->options.asks = 1;
    if (!m->options.needed) m->options.needed = 1;
    fb_memory_init(&m->memory, options->items);
    m->set = fb_calloc(options->items, sizeof *m->set);
    m->trial = fb_calloc(options->items, sizeof *m->trial);
    m->bits = fb_calloc((size_t)m->memory.words, sizeof *m->bits);
    if (!m->set || !m->trial || !m->bits) {
        fb_minimise_free(m);
        return fb_fail(err, FB_E_NOMEM, "open minimiser: no memory for %u items", options->items);
    }
    *out = m;
    return FB_OK;
}

void fb_minimise_free(fb_minimise *m)
{
    if (!m) return;
    fb_memory_release(&m->memory);
    fb_free(m->set);
    fb_free(m->trial);
    fb_free(m->bits);
    fb_free(m);
}

/* ---- the next subset --------------------------------------------------------------------------------------------------------- */

static uint32_t piece_start(const fb_minimise *m, uint32_t piece)
{
    uint64_t items = (uint64_t)m->set_count * piece;
    uint32_t pieces = m->pieces > 0 ? m->pieces : 1; /* an empty set has none, and is never asked about */
    return (uint32_t)(items / pieces);
}

static void make_trial(fb_minimise *m)
{
    int alone = m->piece < m->pieces;
    uint32_t piece = alone ? m->piece : m->piece - m->pieces;
    uint32_t start = piece_start(m, piece), end = piece_start(m, piece + 1);
    m->trial_count = 0;
    for (uint32_t i = 0; i < m->set_count; i++) {
        if ((i >= start && i < end) == alone) m->trial[m->trial_count++] = m->set[i];
    }
}

static void make_bits(fb_minimise *m)
{
    memset(m->bits, 0, (size_t)m->memory.words * sizeof *m->bits);
    for (uint32_t i = 0; i < m->trial_count; i++) m->bits[m->trial[i] / 64] |= UINT64_C(1) << (m->trial[i] % 64);
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The trial reproduces: it is the set now. */
static void take_trial(fb_minimise *m)
{
    if (!m->started) m->pieces = 2;
    else if (m->piece < m->pieces) m->pieces = 2;
    else m->pieces = m->pieces - 1 < 2 ? 2 : m->pieces - 1;
    m->started = 1;
    memcpy(m->set, m->trial, m->trial_count * sizeof *m->set);
    m->set_count = m->trial_count;
    m->pieces = smaller(m->pieces, m->set_count);
    m->piece = 0;
}

/* 1: there is a next trial; 0: it is 1-minimal. */
static int go_on(fb_minimise *m)
{
    m->piece++;
    if (m->piece < 2 * m->pieces) return 1;
    if (m->pieces >= m->set_count) return 0;
    m->pieces = (uint32_t)(2 * (uint64_t)m->pieces < m->set_count ? 2 * (uint64_t)m->pieces : m->set_count);
    m->piece = 0;
    return 1;
}

/* ---- the end ----------------------------------------------------------------------------------------------------------------- */

static uint32_t count_unresolved(fb_minimise *m)
{
    uint32_t count = 0;
    m->pieces = m->set_count;
    for (m->piece = m->pieces; m->set_count > 1 && m->piece < 2 * m->pieces; m->piece++) {
        make_trial(m);
        make_bits(m);
        count += fb_memory_find(&m->memory, m->bits) == FB_SHOWS_UNRESOLVED;
    }
    return count;
}

static void finish(fb_minimise *m, int32_t found)
{
    m->verdict.found = found;
    if (found == FB_MINIMISE_MINIMAL || found == FB_MINIMISE_WHOLE) m->verdict.unresolved = count_unresolved(m);
}

static void finish_minimal(fb_minimise *m)
{
    finish(m, m->set_count > 1 && m->set_count == m->options.items ? FB_MINIMISE_WHOLE : FB_MINIMISE_MINIMAL);
}

static void show_set(fb_minimise *m)
{
    m->verdict.items = m->started ? m->set : NULL;
    m->verdict.count = m->started ? m->set_count : 0;
}

/* ---- ask and answer ---------------------------------------------------------------------------------------------------------- */

static void ask_about_all(fb_minimise *m)
{
    for (uint32_t i = 0; i < m->options.items; i++) m->trial[i] = i;
    m->trial_count = m->options.items;
}

/* Find a trial that is not settled, or finish. */
static void next_trial(fb_minimise *m)
{
    for (;;) {
        int32_t known;
        if (m->set_count == 1) {
            finish_minimal(m); /* without its one item nothing is left to run */
            return;
        }
        make_trial(m);
        make_bits(m);
        known = fb_memory_find(&m->memory, m->bits);
        if (known < 0) return;
        m->verdict.spared++;
        /* Nothing known reproduces but supersets of the set, so a known trial does not. */
        if (!go_on(m)) {
            finish_minimal(m);
            return;
        }
    }
}

static const fb_subset *out(fb_minimise *m)
{
    m->question.items = m->trial;
    m->question.count = m->trial_count;
    m->question.again = m->yes + m->no + m->unresolved;
    m->asked = 1;
    return &m->question;
}

const fb_subset *fb_minimise_ask(fb_minimise *m)
{
    if (!m || m->verdict.found != FB_MINIMISE_NONE) return NULL;
    if (m->asked) return &m->question;
    if (m->yes + m->no + m->unresolved == 0) {
        if (m->started) next_trial(m);
        else ask_about_all(m);
        if (m->verdict.found != FB_MINIMISE_NONE) return NULL;
        make_bits(m);
    }
    if (m->verdict.tests >= m->options.tests_max) {
        finish(m, m->started ? FB_MINIMISE_BUDGET : FB_MINIMISE_UNDECIDED);
        return NULL;
    }
    return out(m);
}

/* -1: it has to be asked again. */
static int32_t settled(const fb_minimise *m)
{
    uint32_t left = m->options.asks - m->yes - m->no - m->unresolved;
    if (m->yes >= m->options.needed) return FB_SHOWS_YES;
    if (m->no > m->options.asks - m->options.needed) return FB_SHOWS_NO;
    return m->yes + left >= m->options.needed ? -1 : FB_SHOWS_UNRESOLVED;
}

static void use(fb_minimise *m, int32_t shows)
{
    if (shows == FB_SHOWS_YES) {
        m->verdict.showed = m->yes;
        m->verdict.asked = m->yes + m->no + m->unresolved;
        take_trial(m);
    } else if (!m->started) {
        finish(m, shows == FB_SHOWS_NO ? FB_MINIMISE_NOT_REPRODUCED : FB_MINIMISE_UNDECIDED);
    } else if (!go_on(m)) {
        finish_minimal(m);
    }
    m->yes = m->no = m->unresolved = 0;
    show_set(m);
}

fb_status fb_minimise_answer(fb_minimise *m, int32_t shows, fb_error *err)
{
    uint32_t *counter;
    int32_t result;
    if (!m || shows < FB_SHOWS_NO || shows > FB_SHOWS_UNRESOLVED) {
        return fb_fail(err, FB_E_USAGE, "answer minimiser: it is NULL, or %d is no FB_SHOWS_*", shows);
    }
    if (!m->asked) return fb_fail(err, FB_E_ORDER, "answer minimiser: it has not asked; call fb_minimise_ask first");
    counter = shows == FB_SHOWS_YES ? &m->yes : shows == FB_SHOWS_NO ? &m->no : &m->unresolved;
    ++*counter;
    result = settled(m);
    if (result >= 0) {
        fb_status status = fb_memory_add(&m->memory, m->bits, (uint8_t)result, err);
        if (status != FB_OK) {
            --*counter;
            return status;
        }
        m->verdict.subsets++;
    }
    m->asked = 0;
    m->verdict.tests++;
    if (result >= 0) use(m, result);
    return FB_OK;
}

const fb_minimise_verdict *fb_minimise_result(const fb_minimise *m)
{
    return m ? &m->verdict : NULL;
}

fb_status fb_minimise_run(fb_minimise *m, fb_minimise_test test, void *ctx, fb_error *err)
{
    fb_status status = FB_OK;
    const fb_subset *question;
    if (!m || !test) return fb_fail(err, FB_E_USAGE, "run minimiser: an argument is NULL");
    while (status == FB_OK && (question = fb_minimise_ask(m)) != NULL) {
        int32_t shows = FB_SHOWS_UNRESOLVED;
        status = test(ctx, question, &shows, err);
        if (status == FB_OK) status = fb_minimise_answer(m, shows, err);
    }
    return status;
}
