/*
 * The minimiser on random faults: sets that are needed together, several independent ones, faults that vanish with the number of
 * items, runs that cannot tell, runs that show the fault in k of n. Brute force is the oracle itself, asked without a bound.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "search/minimise.h"

enum { FAULTS = 20000, ITEMS = 96, SETS = 3 };

/* How a fault shows. */
enum { MONOTONE, WHOLE_ONLY, PARITY, SPARSE, HASHED, SHAPES };

typedef struct fault {
    uint32_t items, shape;
    uint8_t needed[SETS][ITEMS]; /* any of these sets shows it */
    uint32_t sets, modulus;
    uint64_t key;
    uint32_t unresolved_percent, shows_percent; /* 0: always */
    uint64_t random;
    uint32_t runs;
} fault;

static fault f;
static fb_error err;

static uint64_t draw(uint64_t below)
{
    f.random ^= f.random << 13;
    f.random ^= f.random >> 7;
    f.random ^= f.random << 17;
    return (f.random >> 11) % below;
}

/* ---- the fault --------------------------------------------------------------------------------------------------------------- */

static uint64_t mix(const uint8_t *in)
{
    uint64_t h = f.key;
    for (uint32_t i = 0; i < f.items; i++) h = (h ^ (in[i] + 2u * i)) * UINT64_C(0x100000001b3);
    return h ^ (h >> 29);
}

static int has_a_needed_set(const uint8_t *in)
{
    for (uint32_t s = 0; s < f.sets; s++) {
        uint32_t missing = 0;
        for (uint32_t i = 0; i < f.items; i++) missing += f.needed[s][i] && !in[i];
        if (!missing) return 1;
    }
    return 0;
}

static int really_shows(const uint8_t *in)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < f.items; i++) count += in[i];
    if (count == 0) return 0;
    if (count == f.items) return 1;
    switch (f.shape) {
    case WHOLE_ONLY: return 0;
    case PARITY: return has_a_needed_set(in) && count % f.modulus == f.items % f.modulus;
    case SPARSE: return has_a_needed_set(in) && (count < 6 || mix(in) % 3 != 0);
    case HASHED: return mix(in) % 4 == 0;
    default: return has_a_needed_set(in);
    }
}

static int cannot_tell(const uint8_t *in)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < f.items; i++) count += in[i];
    return count < f.items && (mix(in) >> 20) % 100 < f.unresolved_percent;
}

static void spread(const uint32_t *items, uint32_t count, uint8_t *in)
{
    memset(in, 0, ITEMS);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(items[i] < f.items);
        assert_true(i == 0 || items[i] > items[i - 1]);
        in[items[i]] = 1;
    }
}

static fb_status run(void *ctx, const fb_subset *subset, int32_t *shows, fb_error *e)
{
    uint8_t in[ITEMS];
    (void)ctx;
    (void)e;
    f.runs++;
    spread(subset->items, subset->count, in);
    assert_true(subset->count >= 1);
    *shows = FB_SHOWS_NO;
    if (cannot_tell(in)) *shows = FB_SHOWS_UNRESOLVED;
    else if (really_shows(in) && (!f.shows_percent || draw(100) < f.shows_percent)) *shows = FB_SHOWS_YES;
    return FB_OK;
}

static void make_fault(uint64_t seed)
{
    memset(&f, 0, sizeof f);
    f.random = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    (void)draw(2);
    f.items = 1 + (uint32_t)draw(ITEMS);
    f.shape = (uint32_t)draw(SHAPES);
    f.sets = 1 + (uint32_t)draw(SETS);
    f.modulus = 2 + (uint32_t)draw(2);
    f.key = draw(UINT64_C(1) << 40);
    if (draw(4) == 0) f.unresolved_percent = (uint32_t)draw(60);
    for (uint32_t s = 0; s < f.sets; s++) {
        for (uint64_t n = 1 + draw(5); n > 0; n--) f.needed[s][draw(f.items)] = 1;
    }
}

/* ---- what must hold ---------------------------------------------------------------------------------------------------------- */

static void check_reproduces(const fb_minimise_verdict *v)
{
    uint8_t in[ITEMS];
    assert_true(v->count >= 1);
    spread(v->items, v->count, in);
    assert_true(really_shows(in));
    assert_false(cannot_tell(in));
}

/* Returns how many sets with one item less cannot be told. */
static uint32_t check_one_minimal(const fb_minimise_verdict *v)
{
    uint8_t in[ITEMS];
    uint32_t cannot = 0;
    spread(v->items, v->count, in);
    for (uint32_t i = 0; i < v->count; i++) {
        in[v->items[i]] = 0;
        if (v->count > 1 && cannot_tell(in)) cannot++;
        else assert_false(really_shows(in));
        in[v->items[i]] = 1;
    }
    return cannot;
}

static void check_monotone(const fb_minimise_verdict *v)
{
    uint8_t in[ITEMS];
    spread(v->items, v->count, in);
    for (uint32_t s = 0; s < f.sets; s++) {
        if (memcmp(in, f.needed[s], ITEMS) == 0) return;
    }
    fail_msg("%u items are left, and they are none of the %u needed sets", v->count, f.sets);
}

static void check(const fb_minimise_verdict *v, uint32_t tests_max)
{
    assert_true(v->tests <= tests_max);
    assert_int_equal(v->tests, f.runs);
    check_reproduces(v);
    assert_true(v->showed >= 1 && v->asked >= v->showed);
    if (v->found == FB_MINIMISE_BUDGET) {
        assert_int_equal(v->tests, tests_max);
        return;
    }
    assert_int_equal(v->found == FB_MINIMISE_WHOLE, v->count == f.items && f.items > 1);
    if (v->found != FB_MINIMISE_WHOLE) assert_int_equal(v->found, FB_MINIMISE_MINIMAL);
    assert_int_equal(check_one_minimal(v), v->unresolved);
    if (f.shape == MONOTONE && !f.unresolved_percent) check_monotone(v);
    if (f.shape == WHOLE_ONLY && f.items > 1) assert_int_equal(v->found, FB_MINIMISE_WHOLE);
}

static uint64_t test_seed(void)
{
    const char *wish = getenv("FB_SEED");
    uint64_t seed = wish ? strtoull(wish, NULL, 10) : 1;
    print_message("seed %llu (FB_SEED replays it)\n", (unsigned long long)seed);
    return seed;
}

static void test_minimise__the_result_reproduces_and_is_1_minimal_unless_the_budget_ends(void **state)
{
    uint64_t seed = test_seed(), found[FB_MINIMISE_UNDECIDED + 1] = {0}, tests = 0;
    (void)state;
    for (uint64_t i = 0; i < FAULTS; i++) {
        fb_minimise_options options = {.tests_max = i % 3 ? 1u << 30 : 1 + (uint32_t)(i % 50)};
        fb_minimise *m;
        make_fault(seed * 1000003 + i);
        options.items = f.items;
        assert_int_equal(fb_minimise_open(&m, &options, &err), FB_OK);
        assert_int_equal(fb_minimise_run(m, run, NULL, &err), FB_OK);
        check(fb_minimise_result(m), options.tests_max);
        found[fb_minimise_result(m)->found]++;
        tests += fb_minimise_result(m)->tests;
        fb_minimise_free(m);
    }
    print_message("minimal %llu, budget %llu, whole %llu; %llu runs\n", (unsigned long long)found[FB_MINIMISE_MINIMAL],
                  (unsigned long long)found[FB_MINIMISE_BUDGET], (unsigned long long)found[FB_MINIMISE_WHOLE],
                  (unsigned long long)tests);
}

/* A run never shows what is not there, so whatever is returned reproduces, however seldom it shows. */
static void test_minimise__a_fault_that_shows_in_some_runs_never_gives_a_set_that_does_not_reproduce(void **state)
{
    uint64_t seed = test_seed(), missed = 0, ended = 0;
    (void)state;
    for (uint64_t i = 0; i < FAULTS; i++) {
        fb_minimise_options options = {.asks = 1 + (uint32_t)(i % 7), .tests_max = 1u << 30};
        fb_minimise *m;
        const fb_minimise_verdict *v;
        options.needed = 1 + (uint32_t)(i / 7 % options.asks);
        make_fault(seed * 3000017 + i);
        f.shows_percent = 20 + (uint32_t)draw(80);
        options.items = f.items;
        assert_int_equal(fb_minimise_open(&m, &options, &err), FB_OK);
        assert_int_equal(fb_minimise_run(m, run, NULL, &err), FB_OK);
        v = fb_minimise_result(m);
        if (v->found == FB_MINIMISE_NOT_REPRODUCED) {
            missed++;
            assert_null(v->items);
        } else {
            ended++;
            check_reproduces(v);
            assert_true(v->showed >= options.needed && v->asked <= options.asks);
        }
        fb_minimise_free(m);
    }
    print_message("%llu ended with a set, %llu did not show at all\n", (unsigned long long)ended, (unsigned long long)missed);
    assert_true(ended > missed);
}

/* Zeller and Hildebrandt: at most n^2 + 3n tests; and about 2 log2 n when one item is enough by itself. */
static void test_minimise__costs_no_more_than_the_published_bound(void **state)
{
    uint64_t seed = test_seed();
    (void)state;
    for (uint64_t i = 0; i < FAULTS / 4; i++) {
        fb_minimise_options options = {.tests_max = 1u << 30};
        fb_minimise *m;
        make_fault(seed * 5000011 + i);
        if (i % 2) {
            f.shape = MONOTONE;
            f.sets = 1;
            f.unresolved_percent = 0;
            memset(f.needed, 0, sizeof f.needed);
            f.needed[0][draw(f.items)] = 1;
        }
        options.items = f.items;
        assert_int_equal(fb_minimise_open(&m, &options, &err), FB_OK);
        assert_int_equal(fb_minimise_run(m, run, NULL, &err), FB_OK);
        assert_true(fb_minimise_result(m)->tests <= f.items * f.items + 3 * f.items);
        if (i % 2) assert_true(fb_minimise_result(m)->tests <= 1 + 2 * (uint32_t)ceil(log2(f.items)));
        fb_minimise_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_minimise__the_result_reproduces_and_is_1_minimal_unless_the_budget_ends),
        cmocka_unit_test(test_minimise__a_fault_that_shows_in_some_runs_never_gives_a_set_that_does_not_reproduce),
        cmocka_unit_test(test_minimise__costs_no_more_than_the_published_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
