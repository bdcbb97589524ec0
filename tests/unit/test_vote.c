/* The vote: key, digest, clamping, disagreement of every kind, and words that no ballots can give. Layout: docs/format/vote.md. */
#include "policy/vote.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const fb_vote_agreement agreed = {
    UINT64_C(0x1234567890abcdef), 2, 412, 1, UINT64_C(0x40f0000000000000), UINT64_C(0xfeed), 0, 0, 0};

static fb_vote_ballot clean_ballot(int32_t rank)
{
    fb_vote_ballot ballot;
    memset(&ballot, 0, sizeof ballot);
    ballot.agreement = agreed;
    ballot.rank = rank;
    return ballot;
}

static fb_vote_ballot bad_ballot(int32_t micro_step, int32_t boundary, int64_t position, int32_t rank)
{
    fb_vote_ballot ballot = clean_ballot(rank);
    ballot.has_finding = 1;
    ballot.micro_step = micro_step;
    ballot.boundary = boundary;
    ballot.position = position;
    ballot.wish = FB_SKIP;
    return ballot;
}

/* What two ranks read when they vote. Both must read the same. */
static fb_vote_outcome vote_of_two(const fb_vote_ballot *a, const fb_vote_ballot *b)
{
    int64_t own_a[FB_VOTE_WORDS], own_b[FB_VOTE_WORDS], reduced[FB_VOTE_WORDS];
    fb_vote_outcome at_a, at_b;
    (void)fb_vote_write(own_a, a);
    (void)fb_vote_write(own_b, b);
    memcpy(reduced, own_a, sizeof reduced);
    fb_vote_fold(reduced, own_b);
    fb_vote_read(reduced, own_a, &at_a);
    fb_vote_read(reduced, own_b, &at_b);
    assert_memory_equal(&at_a, &at_b, sizeof at_a);
    return at_a;
}

static int64_t key_of(int32_t micro_step, int32_t boundary, int64_t position, int32_t rank)
{
    uint32_t clamped;
    int64_t key = fb_vote_key(micro_step, boundary, position, rank, &clamped);
    assert_int_equal(clamped, 0);
    return key;
}

/* ---- key --------------------------------------------------------------------------------------------------------------------- */

static void test_vote__layout_of_the_key_is_pinned(void **unused)
{
    (void)unused;
    /* 3 | 3 | 5 | 7 in 14, 4, 24 and 21 bits. */
    assert_true(key_of(3, FB_FORWARD, 5, 7) == (INT64_C(3) << 49 | INT64_C(3) << 45 | INT64_C(5) << 21 | 7));
    /* In backward the position is stored mirrored: 2^24 - 1 - 5. */
    assert_true(key_of(3, FB_LOCAL_GRAD, 5, 7) == (INT64_C(3) << 49 | INT64_C(5) << 45 | INT64_C(16777210) << 21 | 7));
    assert_true(key_of(3, FB_REDUCED_GRAD, 5, 7) == (INT64_C(3) << 49 | INT64_C(6) << 45 | INT64_C(16777210) << 21 | 7));
}

static void test_vote__a_key_gives_its_place_back(void **unused)
{
    const int32_t micros[] = {0, 1, 511, FB_VOTE_MICRO_MAX}, ranks[] = {0, 1, 1048575, FB_VOTE_RANK_MAX};
    const int64_t positions[] = {0, 1, 70000, FB_VOTE_POSITION_MAX};
    int m, b, p, r;
    (void)unused;
    for (m = 0; m < 4; m++)
        for (b = FB_ENTRY; b <= FB_CHECKPOINT; b++)
            for (p = 0; p < 4; p++)
                for (r = 0; r < 4; r++) {
                    fb_vote_outcome place;
                    int64_t key = key_of(micros[m], b, positions[p], ranks[r]);
                    assert_true(key >= 0 && key != FB_VOTE_CLEAN);
                    assert_true(fb_vote_key_read(key, &place));
                    assert_int_equal(place.micro_step, micros[m]);
                    assert_int_equal(place.boundary, b);
                    assert_true(place.position == positions[p]);
                    assert_int_equal(place.rank, ranks[r]);
                }
}

static void test_vote__forward_counts_up_from_the_input_and_backward_down_from_the_loss(void **unused)
{
    (void)unused;
    assert_true(key_of(0, FB_FORWARD, 3, 0) < key_of(0, FB_FORWARD, 4, 0));
    assert_true(key_of(0, FB_LOCAL_GRAD, 4, 0) < key_of(0, FB_LOCAL_GRAD, 3, 0));
    assert_true(key_of(0, FB_REDUCED_GRAD, 4, 0) < key_of(0, FB_REDUCED_GRAD, 3, 0));
    assert_true(key_of(0, FB_UPDATE, 3, 0) < key_of(0, FB_UPDATE, 4, 0));
}

static void test_vote__micro_step_outweighs_boundary_outweighs_position_outweighs_rank(void **unused)
{
    (void)unused;
    assert_true(key_of(0, FB_UPDATE, FB_VOTE_POSITION_MAX, FB_VOTE_RANK_MAX) < key_of(1, FB_ENTRY, 0, 0));
    assert_true(key_of(0, FB_INPUT, FB_VOTE_POSITION_MAX, FB_VOTE_RANK_MAX) < key_of(0, FB_FORWARD, 0, 0));
    assert_true(key_of(0, FB_FORWARD, 3, FB_VOTE_RANK_MAX) < key_of(0, FB_FORWARD, 4, 0));
    assert_true(key_of(0, FB_FORWARD, 3, 1) < key_of(0, FB_FORWARD, 3, 2));
}

static void test_vote__no_key_can_be_taken_for_clean_even_when_everything_is_clamped(void **unused)
{
    int64_t words[FB_VOTE_WORDS];
    fb_vote_ballot ballot = bad_ballot(INT32_MAX, INT32_MAX, INT64_MAX, INT32_MAX);
    fb_vote_outcome out;
    uint32_t clamped;
    (void)unused;
    clamped = fb_vote_write(words, &ballot);
    assert_int_equal(clamped, FB_VOTE_CLAMPED_MICRO | FB_VOTE_CLAMPED_BOUNDARY | FB_VOTE_CLAMPED_POSITION | FB_VOTE_CLAMPED_RANK);
    assert_true(words[0] < FB_VOTE_CLEAN);
    fb_vote_read(words, words, &out);
    assert_int_equal(out.quorum_equal, FB_VOTE_EQUAL);
    assert_int_equal(out.clean, 0);
    assert_int_equal(out.micro_step, FB_VOTE_MICRO_MAX);
    assert_int_equal(out.boundary, FB_CHECKPOINT);
    assert_true(out.position == FB_VOTE_POSITION_MAX);
}

static void test_vote__each_clamped_field_is_said(void **unused)
{
    const struct {
        int32_t micro, boundary;
        int64_t position;
        int32_t rank;
        uint32_t bit;
    } cases[] = {
        {-1, FB_LOSS, 0, 0, FB_VOTE_CLAMPED_MICRO},    {FB_VOTE_MICRO_MAX + 1, FB_LOSS, 0, 0, FB_VOTE_CLAMPED_MICRO},
        {0, 0, 0, 0, FB_VOTE_CLAMPED_BOUNDARY},        {0, FB_CHECKPOINT + 1, 0, 0, FB_VOTE_CLAMPED_BOUNDARY},
        {0, FB_LOSS, -1, 0, FB_VOTE_CLAMPED_POSITION}, {0, FB_LOSS, FB_VOTE_POSITION_MAX + 1, 0, FB_VOTE_CLAMPED_POSITION},
        {0, FB_LOSS, 0, -1, FB_VOTE_CLAMPED_RANK},     {0, FB_LOSS, 0, FB_VOTE_RANK_MAX + 1, FB_VOTE_CLAMPED_RANK},
    };
    size_t i;
    (void)unused;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fb_vote_ballot ballot = bad_ballot(cases[i].micro, cases[i].boundary, cases[i].position, cases[i].rank);
        int64_t words[FB_VOTE_WORDS];
        assert_int_equal(fb_vote_write(words, &ballot), cases[i].bit);
    }
    {
        fb_vote_ballot ballot = clean_ballot(0);
        int64_t words[FB_VOTE_WORDS];
        ballot.wish = FB_HALT + 1;
        assert_int_equal(fb_vote_write(words, &ballot), FB_VOTE_CLAMPED_WISH);
        assert_true(words[3] == -FB_HALT);
    }
}

/* ---- agreement --------------------------------------------------------------------------------------------------------------- */

static void test_vote__digest_is_the_same_on_every_machine(void **unused)
{
    fb_vote_agreement zero;
    (void)unused;
    memset(&zero, 0, sizeof zero);
    /* Pinned: a change here is a change of the vote's layout, and ranks of two builds would disagree. */
    assert_true(fb_vote_digest(&agreed) == INT64_C(0xbe6979193aefc95));
    assert_true(fb_vote_digest(&zero) == INT64_C(0xb7e1b0046921dd));
    assert_true(fb_vote_digest(&zero) >= 1);
}

static void test_vote__clean_ballots_of_one_step_are_a_clean_quorum(void **unused)
{
    fb_vote_ballot a = clean_ballot(0), b = clean_ballot(1);
    fb_vote_outcome out = vote_of_two(&a, &b);
    (void)unused;
    assert_int_equal(out.quorum_equal, FB_VOTE_EQUAL);
    assert_int_equal(out.clean, 1);
    assert_int_equal(out.wish, FB_PROCEED);
    assert_int_equal(out.rank, -1);
    assert_int_equal(out.micro_step, -1);
    assert_int_equal(out.boundary, 0);
    assert_true(out.position == -1);
}

static void disagree(fb_vote_ballot other)
{
    fb_vote_ballot ours = clean_ballot(0);
    fb_vote_outcome out = vote_of_two(&ours, &other);
    assert_int_equal(out.quorum_equal, FB_VOTE_DISAGREE);
    assert_int_equal(out.illegal, 0);
    assert_int_equal(out.clean, 0);
    assert_int_equal(out.wish, FB_HALT);
}

static void test_vote__another_run_is_no_quorum(void **unused)
{
    fb_vote_ballot other = clean_ballot(1);
    (void)unused;
    other.agreement.run_hash++;
    disagree(other);
}

static void test_vote__another_attempt_is_no_quorum(void **unused)
{
    fb_vote_ballot other = clean_ballot(1);
    (void)unused;
    other.agreement.attempt++;
    disagree(other);
}

static void test_vote__disagreeing_steps_are_no_quorum(void **unused)
{
    fb_vote_ballot other = clean_ballot(1);
    (void)unused;
    other.agreement.step++;
    disagree(other);
    other.agreement.step -= 2;
    disagree(other);
}

static void test_vote__another_vote_of_the_same_step_is_no_quorum(void **unused)
{
    fb_vote_ballot other = clean_ballot(1);
    (void)unused;
    other.agreement.vote_number++;
    disagree(other);
}

static void test_vote__another_loss_scale_is_no_quorum(void **unused)
{
    fb_vote_ballot other = clean_ballot(1);
    (void)unused;
    other.agreement.scale_bits ^= 1;
    disagree(other);
}

static void test_vote__another_policy_is_no_quorum(void **unused)
{
    fb_vote_ballot other = clean_ballot(1);
    (void)unused;
    other.agreement.policy ^= UINT64_C(1) << 63;
    disagree(other);
}

static void test_vote__disagreement_keeps_the_place_of_a_finding(void **unused)
{
    fb_vote_ballot ours = clean_ballot(0), other = bad_ballot(2, FB_LOCAL_GRAD, 9, 1);
    fb_vote_outcome out;
    (void)unused;
    other.agreement.step++;
    out = vote_of_two(&ours, &other);
    assert_int_equal(out.quorum_equal, FB_VOTE_DISAGREE);
    assert_int_equal(out.rank, 1);
    assert_int_equal(out.boundary, FB_LOCAL_GRAD);
    assert_true(out.position == 9);
}

static void test_vote__the_gravest_wish_of_any_rank_wins(void **unused)
{
    int32_t a, b;
    (void)unused;
    for (a = FB_SKIP; a <= FB_HALT; a++)
        for (b = FB_SKIP; b <= FB_HALT; b++) {
            fb_vote_ballot first = bad_ballot(0, FB_LOCAL_GRAD, 1, 0), second = bad_ballot(0, FB_LOCAL_GRAD, 0, 1);
            first.wish = a;
            second.wish = b;
            assert_int_equal(vote_of_two(&first, &second).wish, a > b ? a : b);
        }
}

static void test_vote__a_finding_never_wishes_to_proceed(void **unused)
{
    fb_vote_ballot a = bad_ballot(0, FB_LOSS, 0, 0), b = clean_ballot(1);
    fb_vote_outcome out;
    (void)unused;
    a.wish = FB_PROCEED;
    out = vote_of_two(&a, &b);
    assert_int_equal(out.quorum_equal, FB_VOTE_EQUAL);
    assert_int_equal(out.wish, FB_SKIP);
}

static void test_vote__a_rank_may_ask_for_a_halt_without_a_finding(void **unused)
{
    fb_vote_ballot a = clean_ballot(0), b = clean_ballot(1);
    fb_vote_outcome out;
    (void)unused;
    b.wish = FB_HALT;
    out = vote_of_two(&a, &b);
    assert_int_equal(out.quorum_equal, FB_VOTE_EQUAL);
    assert_int_equal(out.clean, 1);
    assert_int_equal(out.wish, FB_HALT);
}

/* ---- words that no ballots can give ------------------------------------------------------------------------------------------ */

static void test_vote__no_words_are_no_quorum(void **unused)
{
    fb_vote_outcome out;
    (void)unused;
    memset(&out, 0x5a, sizeof out);
    fb_vote_read(NULL, NULL, &out);
    assert_int_equal(out.quorum_equal, FB_VOTE_NO_QUORUM);
    assert_int_equal(out.clean, 0);
    assert_int_equal(out.wish, FB_HALT);
    assert_int_equal(out.rank, -1);
}

static void expect_illegal(const int64_t *reduced, const int64_t *own)
{
    fb_vote_outcome out;
    fb_vote_read(reduced, own, &out);
    assert_int_equal(out.quorum_equal, FB_VOTE_DISAGREE);
    assert_int_equal(out.illegal, 1);
    assert_int_equal(out.clean, 0);
    assert_int_equal(out.wish, FB_HALT);
}

static void test_vote__corrupted_words_are_disagreement_and_never_clean(void **unused)
{
    fb_vote_ballot ballot = clean_ballot(0);
    int64_t good[FB_VOTE_WORDS], w[FB_VOTE_WORDS];
    const struct {
        int word;
        int64_t value;
    } cases[] = {
        {0, -1},
        {0, INT64_MIN},
        {0, 0}, /* sign; boundary 0 */
        {0, INT64_C(9) << 45},
        {0, INT64_C(15) << 45}, /* boundaries that do not exist */
        {0, INT64_MAX - 1},
        {0, INT64_C(16383) << 49 | INT64_C(1) << 45}, /* a micro-step that no ballot holds */
        {0, INT64_C(5) << 45},                        /* a finding, while nobody wishes more than to proceed */
        {1, 0},
        {1, -5},
        {1, INT64_MIN},
        {2, 0},
        {2, 5},
        {2, INT64_MIN},
        {2, INT64_MAX},
        {3, 1},
        {3, 5},
        {3, INT64_MAX},
        {3, -FB_HALT - 1},
        {3, INT64_MIN},
    };
    size_t i;
    (void)unused;
    (void)fb_vote_write(good, &ballot);
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(w, good, sizeof w);
        w[cases[i].word] = cases[i].value;
        expect_illegal(w, NULL);
        expect_illegal(w, good);
    }
}

static void test_vote__every_single_flipped_bit_of_a_clean_vote_is_seen(void **unused)
{
    fb_vote_ballot ballot = clean_ballot(0);
    int64_t good[FB_VOTE_WORDS];
    int word, bit;
    (void)unused;
    (void)fb_vote_write(good, &ballot);
    for (word = 0; word < FB_VOTE_WORDS; word++)
        for (bit = 0; bit < 64; bit++) {
            int64_t w[FB_VOTE_WORDS];
            fb_vote_outcome out;
            memcpy(w, good, sizeof w);
            w[word] = (int64_t)((uint64_t)w[word] ^ UINT64_C(1) << bit);
            fb_vote_read(w, good, &out);
            assert_false(out.quorum_equal == FB_VOTE_EQUAL && out.clean && out.wish == FB_PROCEED);
        }
}

static void test_vote__a_buffer_of_zeroes_is_disagreement(void **unused)
{
    const int64_t zero[FB_VOTE_WORDS] = {0, 0, 0, 0};
    (void)unused;
    expect_illegal(zero, NULL);
}

static void test_vote__zeroed_words_of_one_rank_poison_the_vote_of_all(void **unused)
{
    fb_vote_ballot ballot = clean_ballot(0);
    const int64_t zero[FB_VOTE_WORDS] = {0, 0, 0, 0};
    int64_t own[FB_VOTE_WORDS], reduced[FB_VOTE_WORDS];
    (void)unused;
    (void)fb_vote_write(own, &ballot);
    memcpy(reduced, own, sizeof reduced);
    fb_vote_fold(reduced, zero);
    expect_illegal(reduced, own);
}

static void test_vote__a_reduction_that_lost_our_finding_is_disagreement(void **unused)
{
    fb_vote_ballot ours = bad_ballot(0, FB_LOCAL_GRAD, 4, 1), peer = clean_ballot(0);
    int64_t own[FB_VOTE_WORDS], reduced[FB_VOTE_WORDS];
    (void)unused;
    (void)fb_vote_write(own, &ours);
    (void)fb_vote_write(reduced, &peer); /* what a broadcast from rank 0 would give in the place of a MIN */
    expect_illegal(reduced, own);
}

static void test_vote__words_of_an_earlier_step_are_not_taken_for_this_one(void **unused)
{
    fb_vote_ballot before = clean_ballot(0), now = clean_ballot(0);
    int64_t own[FB_VOTE_WORDS], stale[FB_VOTE_WORDS];
    fb_vote_outcome out;
    int64_t step;
    (void)unused;
    (void)fb_vote_write(own, &now);
    for (step = 0; step < 412; step++) { /* whichever way the two digests compare */
        before.agreement.step = step;
        (void)fb_vote_write(stale, &before);
        fb_vote_read(stale, own, &out);
        assert_int_equal(out.quorum_equal, FB_VOTE_DISAGREE);
        assert_int_equal(out.clean, 0);
    }
}

static void test_vote__the_reduced_word_decides_and_not_the_local_finding(void **unused)
{
    fb_vote_ballot ours = clean_ballot(0), peer = bad_ballot(0, FB_LOCAL_GRAD, 4, 1);
    int64_t own[FB_VOTE_WORDS], reduced[FB_VOTE_WORDS];
    fb_vote_outcome out;
    (void)unused;
    (void)fb_vote_write(own, &ours);
    (void)fb_vote_write(reduced, &peer);
    fb_vote_fold(reduced, own);
    fb_vote_read(reduced, own, &out);
    assert_int_equal(out.quorum_equal, FB_VOTE_EQUAL);
    assert_int_equal(out.clean, 0);
    assert_int_equal(out.rank, 1);
    assert_int_equal(out.wish, FB_SKIP);
}

/* ---- parameters that are compared with the vote ------------------------------------------------------------------------------ */

static int drifted(const fb_vote_ballot *a, const fb_vote_ballot *b)
{
    int64_t reduced[FB_VOTE_WORDS], other[FB_VOTE_WORDS];
    (void)fb_vote_write(reduced, a);
    (void)fb_vote_write(other, b);
    fb_vote_fold(reduced, other);
    return fb_vote_drifted(reduced);
}

static void test_vote__parameters_that_differ_are_told_from_everything_else_that_does(void **unused)
{
    (void)unused;
    for (uint64_t i = 1; i < 2000; i++) {
        fb_vote_ballot a = clean_ballot(0), b = clean_ballot(1);
        a.agreement.has_replicas = b.agreement.has_replicas = 1;
        a.agreement.replicas = i * UINT64_C(0x9e3779b97f4a7c15);
        b.agreement.replicas = a.agreement.replicas;
        assert_int_equal(vote_of_two(&a, &b).quorum_equal, FB_VOTE_EQUAL);
        assert_int_equal(drifted(&a, &b), 0);
        b.agreement.replicas ^= UINT64_C(1) << i % 64;
        assert_int_equal(vote_of_two(&a, &b).quorum_equal, FB_VOTE_DISAGREE);
        assert_int_equal(drifted(&a, &b), 1);
        b.agreement.step++; /* and in another step as well: then nothing is said of the parameters */
        assert_int_equal(vote_of_two(&a, &b).quorum_equal, FB_VOTE_DISAGREE);
        assert_int_equal(drifted(&a, &b), 0);
    }
}

static void test_vote__a_rank_that_compares_parameters_disagrees_with_one_that_does_not(void **unused)
{
    fb_vote_ballot a = clean_ballot(0), b = clean_ballot(1);
    (void)unused;
    a.agreement.has_replicas = 1;
    assert_int_equal(vote_of_two(&a, &b).quorum_equal, FB_VOTE_DISAGREE);
    assert_int_equal(drifted(&a, &b), 0);
}

static void test_vote__the_digest_with_parameters_is_the_documented_hash(void **unused)
{
    fb_vote_agreement agreement = agreed;
    int64_t without = fb_vote_digest(&agreement), with;
    (void)unused;
    agreement.replicas = 77; /* not read */
    assert_true(fb_vote_digest(&agreement) == without);
    agreement.has_replicas = 1;
    with = fb_vote_digest(&agreement);
    assert_true(with > 0 && with != without);
    agreement.replicas = 78;
    assert_true(fb_vote_digest(&agreement) >> 32 == with >> 32 && fb_vote_digest(&agreement) != with);
}

static void test_vote__words_of_no_ballot_never_say_that_parameters_drifted(void **unused)
{
    static const int64_t words[][FB_VOTE_WORDS] = {
        {FB_VOTE_CLEAN, 0, 0, 0}, {FB_VOTE_CLEAN, 5, INT64_MIN, 0}, {FB_VOTE_CLEAN, -5, -9, 0},
        {FB_VOTE_CLEAN, 5, 9, 0}, {FB_VOTE_CLEAN, 5, -5, 0},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) assert_int_equal(fb_vote_drifted(words[i]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vote__parameters_that_differ_are_told_from_everything_else_that_does),
        cmocka_unit_test(test_vote__a_rank_that_compares_parameters_disagrees_with_one_that_does_not),
        cmocka_unit_test(test_vote__the_digest_with_parameters_is_the_documented_hash),
        cmocka_unit_test(test_vote__words_of_no_ballot_never_say_that_parameters_drifted),
        cmocka_unit_test(test_vote__layout_of_the_key_is_pinned),
        cmocka_unit_test(test_vote__a_key_gives_its_place_back),
        cmocka_unit_test(test_vote__forward_counts_up_from_the_input_and_backward_down_from_the_loss),
        cmocka_unit_test(test_vote__micro_step_outweighs_boundary_outweighs_position_outweighs_rank),
        cmocka_unit_test(test_vote__no_key_can_be_taken_for_clean_even_when_everything_is_clamped),
        cmocka_unit_test(test_vote__each_clamped_field_is_said),
        cmocka_unit_test(test_vote__digest_is_the_same_on_every_machine),
        cmocka_unit_test(test_vote__clean_ballots_of_one_step_are_a_clean_quorum),
        cmocka_unit_test(test_vote__another_run_is_no_quorum),
        cmocka_unit_test(test_vote__another_attempt_is_no_quorum),
        cmocka_unit_test(test_vote__disagreeing_steps_are_no_quorum),
        cmocka_unit_test(test_vote__another_vote_of_the_same_step_is_no_quorum),
        cmocka_unit_test(test_vote__another_loss_scale_is_no_quorum),
        cmocka_unit_test(test_vote__another_policy_is_no_quorum),
        cmocka_unit_test(test_vote__disagreement_keeps_the_place_of_a_finding),
        cmocka_unit_test(test_vote__the_gravest_wish_of_any_rank_wins),
        cmocka_unit_test(test_vote__a_finding_never_wishes_to_proceed),
        cmocka_unit_test(test_vote__a_rank_may_ask_for_a_halt_without_a_finding),
        cmocka_unit_test(test_vote__no_words_are_no_quorum),
        cmocka_unit_test(test_vote__corrupted_words_are_disagreement_and_never_clean),
        cmocka_unit_test(test_vote__every_single_flipped_bit_of_a_clean_vote_is_seen),
        cmocka_unit_test(test_vote__a_buffer_of_zeroes_is_disagreement),
        cmocka_unit_test(test_vote__zeroed_words_of_one_rank_poison_the_vote_of_all),
        cmocka_unit_test(test_vote__a_reduction_that_lost_our_finding_is_disagreement),
        cmocka_unit_test(test_vote__words_of_an_earlier_step_are_not_taken_for_this_one),
        cmocka_unit_test(test_vote__the_reduced_word_decides_and_not_the_local_finding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
