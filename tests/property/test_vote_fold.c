/* Folding 16,384 simulated ranks in any order and tree gives equal bits, and the reading a plain loop over the ballots gives. */
#include "policy/vote.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 16384 };

static uint64_t random_state;

static uint64_t next_random(void)
{
    /* SplitMix64: the same numbers on every machine. */
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static int below(int n)
{
    return (int)(next_random() % (uint64_t)n);
}

static void seed_test(uint64_t seed)
{
    const char *wish = getenv("FB_SEED");
    random_state = wish ? strtoull(wish, NULL, 10) : seed;
    print_message("seed %llu (FB_SEED replays it)\n", (unsigned long long)random_state);
}

static int64_t leaves[RANKS][FB_VOTE_WORDS];
static fb_vote_ballot ballots[RANKS];
static int order[RANKS];

/* `share` in 1024 of the ranks hold a finding. */
static void make_ballots(int share)
{
    int r;
    memset(ballots, 0, sizeof ballots);
    for (r = 0; r < RANKS; r++) {
        fb_vote_ballot *b = &ballots[r];
        b->agreement.step = 77;
        b->rank = r;
        order[r] = r;
        if (below(1024) < share) {
            b->has_finding = 1;
            b->micro_step = below(8);
            b->boundary = 1 + below(8);
            b->position = below(1000);
            b->wish = FB_SKIP + below(5);
        }
        assert_int_equal(fb_vote_write(leaves[r], b), 0);
    }
}

static void shuffle(void)
{
    int i;
    for (i = RANKS - 1; i > 0; i--) {
        int j = below(i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

static void fold_in_order(int64_t *out)
{
    int i;
    memcpy(out, leaves[order[0]], sizeof leaves[0]);
    for (i = 1; i < RANKS; i++) fb_vote_fold(out, leaves[order[i]]);
}

/* A tree cut at random places; leaves in the present order. */
static void fold_tree(int64_t *out, int first, int count, int balanced)
{
    int64_t right[FB_VOTE_WORDS];
    int left;
    if (count == 1) {
        memcpy(out, leaves[order[first]], sizeof leaves[0]);
        return;
    }
    /* A random cut in the middle half keeps the depth of the recursion small. */
    left = balanced ? count / 2 : count < 4 ? 1 : count / 4 + below(count / 2);
    fold_tree(out, first, left, balanced);
    fold_tree(right, first + left, count - left, balanced);
    fb_vote_fold(out, right);
}

/* Recursive doubling, as an all-reduce does it: every rank ends with the result. */
static void fold_butterfly(int64_t (*all)[FB_VOTE_WORDS])
{
    static int64_t next[RANKS][FB_VOTE_WORDS];
    int distance, r;
    for (distance = 1; distance < RANKS; distance *= 2) {
        memcpy(next, all, sizeof next);
        for (r = 0; r < RANKS; r++) fb_vote_fold(next[r], all[r ^ distance]);
        memcpy(all, next, sizeof next);
    }
}

static int is_earlier(const fb_vote_ballot *a, const fb_vote_ballot *b)
{
    int backward = a->boundary == FB_LOCAL_GRAD || a->boundary == FB_REDUCED_GRAD;
    if (a->micro_step != b->micro_step) return a->micro_step < b->micro_step;
    if (a->boundary != b->boundary) return a->boundary < b->boundary;
    if (a->position != b->position) return backward ? a->position > b->position : a->position < b->position;
    return a->rank < b->rank;
}

static void check_reading(const int64_t *reduced)
{
    const fb_vote_ballot *first = NULL;
    int32_t wish = FB_PROCEED;
    fb_vote_outcome out;
    int r;
    for (r = 0; r < RANKS; r++) {
        if (ballots[r].wish > wish) wish = ballots[r].wish;
        if (ballots[r].has_finding && (!first || is_earlier(&ballots[r], first))) first = &ballots[r];
    }
    for (r = 0; r < RANKS; r += 1 + below(64)) {
        fb_vote_read(reduced, leaves[r], &out);
        assert_int_equal(out.quorum_equal, FB_VOTE_EQUAL);
        assert_int_equal(out.clean, first == NULL);
        assert_int_equal(out.wish, wish);
        if (!first) continue;
        assert_int_equal(out.rank, first->rank);
        assert_int_equal(out.micro_step, first->micro_step);
        assert_int_equal(out.boundary, first->boundary);
        assert_true(out.position == first->position);
    }
}

static void test_vote__fold_in_any_order_and_tree_over_16384_ranks_gives_equal_bits(void **unused)
{
    static int64_t all[RANKS][FB_VOTE_WORDS];
    const int shares[] = {0, 1, 100, 1024};
    int64_t reference[FB_VOTE_WORDS], other[FB_VOTE_WORDS];
    size_t s;
    int i;
    (void)unused;
    seed_test(20240601);
    for (s = 0; s < sizeof shares / sizeof shares[0]; s++) {
        make_ballots(shares[s]);
        fold_in_order(reference);
        check_reading(reference);
        for (i = 0; i < 6; i++) {
            shuffle();
            fold_in_order(other);
            assert_memory_equal(reference, other, sizeof other);
            fold_tree(other, 0, RANKS, 1);
            assert_memory_equal(reference, other, sizeof other);
            fold_tree(other, 0, RANKS, 0);
            assert_memory_equal(reference, other, sizeof other);
        }
        memcpy(all, leaves, sizeof all);
        fold_butterfly(all);
        for (i = 0; i < RANKS; i++) assert_memory_equal(reference, all[i], sizeof reference);
    }
}

static void test_vote__one_rank_of_16384_out_of_step_is_seen_by_all(void **unused)
{
    int64_t reduced[FB_VOTE_WORDS];
    fb_vote_outcome out;
    int i, r;
    (void)unused;
    seed_test(20240602);
    make_ballots(0);
    for (i = 0; i < 20; i++) {
        int odd = below(RANKS);
        ballots[odd].agreement.step += 1 + below(1000);
        (void)fb_vote_write(leaves[odd], &ballots[odd]);
        fold_in_order(reduced);
        for (r = 0; r < RANKS; r += 97) {
            fb_vote_read(reduced, leaves[r], &out);
            assert_int_equal(out.quorum_equal, FB_VOTE_DISAGREE);
        }
        ballots[odd].agreement.step = 77;
        (void)fb_vote_write(leaves[odd], &ballots[odd]);
    }
}

static void test_vote__folding_a_ballot_in_twice_changes_nothing(void **unused)
{
    int64_t a[FB_VOTE_WORDS], b[FB_VOTE_WORDS];
    const int64_t top[FB_VOTE_WORDS] = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX};
    int i;
    (void)unused;
    seed_test(20240603);
    make_ballots(512);
    for (i = 0; i < 1000; i++) {
        memcpy(a, leaves[below(RANKS)], sizeof a);
        memcpy(b, a, sizeof b);
        fb_vote_fold(a, b);
        assert_memory_equal(a, b, sizeof a);
        fb_vote_fold(a, top);
        assert_memory_equal(a, b, sizeof a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vote__fold_in_any_order_and_tree_over_16384_ranks_gives_equal_bits),
        cmocka_unit_test(test_vote__one_rank_of_16384_out_of_step_is_seen_by_all),
        cmocka_unit_test(test_vote__folding_a_ballot_in_twice_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
