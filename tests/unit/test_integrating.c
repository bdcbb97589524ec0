/* The trainer that docs/integrating.md quotes does what the page says, and the page quotes it word for word. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#define ALONE_IN_A_TEST
#include "integration/alone.c" /* NOLINT(bugprone-suspicious-include): the example itself is under test */

static char dir[64], checkpoint[96];

static int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "%s/fb-integrating-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(dir));
    (void)snprintf(checkpoint, sizeof checkpoint, "%s/table.safetensors", dir);
    setenv("FIRSTBAD_DIR", dir, 1);
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    unsetenv("FIRSTBAD_DIR");
    (void)snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) == 0 ? 0 : -1;
}

static trainer *opened(const char *inject, int loss_scaling)
{
    static trainer t;
    memset(&t, 0, sizeof t);
    if (inject) setenv("FIRSTBAD_INJECT", inject, 1);
    guard_open(&t, loss_scaling);
    unsetenv("FIRSTBAD_INJECT");
    return &t;
}

static void test_integrating__a_healthy_run_learns_and_nothing_is_withheld(void **state)
{
    trainer *t = opened(NULL, 0);
    (void)state;
    assert_int_equal(train(t, 40, checkpoint), 0);
    assert_int_equal(t->updates, 40);
    assert_true(t->loss < 0.5); /* from log 16 = 2.77 */
    assert_int_equal(access(checkpoint, F_OK), 0);
}

/* A power of two changes exponents alone, so scaling the loss and unscaling the gradients changes no bit. */
static void test_integrating__loss_scaling_by_a_power_of_two_changes_no_bit(void **state)
{
    static trainer plain;
    trainer *t = opened(NULL, 0);
    (void)state;
    assert_int_equal(train(t, 20, checkpoint), 0);
    plain = *t;
    t = opened(NULL, 1);
    assert_true(fb_run_loss_scale(t->run) > 1.0);
    assert_int_equal(train(t, 20, checkpoint), 0);
    assert_memory_equal(t->w, plain.w, sizeof plain.w);
    assert_memory_equal(t->m, plain.m, sizeof plain.m);
}

/* Written beside the state and then put in place: the same bits. */
static void test_integrating__an_update_that_is_held_back_changes_no_bit(void **state)
{
    static trainer plain;
    trainer *t = opened(NULL, 0);
    (void)state;
    assert_int_equal(train(t, 20, checkpoint), 0);
    plain = *t;
    t = opened(NULL, 0);
    t->hold_back = 1;
    assert_int_equal(train(t, 20, checkpoint), 0);
    assert_memory_equal(t->w, plain.w, sizeof plain.w);
    assert_memory_equal(t->m, plain.m, sizeof plain.m);
    assert_int_equal(t->updates, 20);
}

/* A learning rate at which finite gradients make an infinite parameter: it never reaches the state. */
static void test_integrating__an_update_that_overflows_is_held_back(void **state)
{
    trainer *t = opened(NULL, 0);
    static trainer before;
    (void)state;
    t->hold_back = 1;
    for (int step = 1; step < 5; step++) assert_int_equal(train_step(t, step, 0.5f), FB_PROCEED);
    for (int i = 0; i < V * V; i++) t->m[i] *= 1e3f;
    before = *t;
    assert_int_equal(train_step(t, 5, 3e38f), FB_SKIP);
    assert_memory_equal(t->w, before.w, sizeof before.w);
    assert_memory_equal(t->m, before.m, sizeof before.m);
    assert_int_equal(t->updates, before.updates);
    assert_int_equal(train_step(t, 6, 1e-6f), FB_PROCEED);
    fb_run_close(t->run);
}

/* One fault in one step: that update is withheld with the state as it was, and the run goes on. */
static void withheld(const char *inject, int step)
{
    trainer *t = opened(inject, 0);
    static trainer before;
    for (int s = 1; s < step; s++) assert_int_equal(train_step(t, s, 0.5f), FB_PROCEED);
    before = *t;
    if (train_step(t, step, 0.5f) != FB_SKIP) fail_msg("%s was not withheld", inject);
    assert_memory_equal(t->w, before.w, sizeof before.w);
    assert_memory_equal(t->m, before.m, sizeof before.m);
    assert_int_equal(t->updates, before.updates);
    assert_int_equal(train_step(t, step + 1, 0.5f), FB_PROCEED);
    fb_run_close(t->run);
}

static void test_integrating__each_kind_of_fault_is_withheld_with_the_state_as_it_was(void **state)
{
    (void)state;
    withheld("token-bad@step=5,micro=0", 5);
    withheld("token-bad@step=5,micro=1", 5);
    withheld("label-zero@step=5,micro=1", 5);
    withheld("loss-nan@step=5,micro=0", 5);
    withheld("grad-nan@step=5,micro=0", 5);
    withheld("grad-neginf@step=5,micro=1", 5);
    withheld("reduced-inf@step=5,micro=1", 5);
}

static void test_integrating__faults_in_a_row_halt_the_run(void **state)
{
    trainer *t = opened("grad-inf@step=5-20", 0);
    (void)state;
    assert_int_equal(train(t, 40, checkpoint), 1);
    assert_int_equal(t->updates, 4);
}

static void test_integrating__checkpoints_are_judged_by_their_bytes(void **state)
{
    trainer *t = opened(NULL, 0);
    (void)state;
    assert_int_equal(train_step(t, 1, 0.5f), FB_PROCEED);
    assert_int_equal(save(t, checkpoint, 1), 1);
    assert_int_equal(fb_run_checkpoint_wait(t->run, -1, &t->err), FB_OK);
    assert_int_equal(hear(t), FB_CKPT_COMMITTED);
    memset(&t->m[3], 0xff, sizeof t->m[3]);         /* a NaN */
    assert_int_equal(save(t, checkpoint, 1), 0);    /* the gate is shut, and the file of before is where it was */
    assert_int_equal(write_file(t, checkpoint), 0); /* whoever writes all the same */
    assert_int_equal(fb_run_checkpoint_verify(t->run, checkpoint, 1, &t->err), FB_OK);
    assert_int_equal(fb_run_checkpoint_wait(t->run, -1, &t->err), FB_OK);
    assert_int_equal(hear(t), FB_CKPT_QUARANTINED);
    fb_run_close(t->run);
}

/* ---- the page ---------------------------------------------------------------------------------------------------------------- */

static char *text_of(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 17);
    if (!file) fail_msg("cannot open %s", path);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 17) - 1, file) > 0);
    (void)fclose(file);
    return text;
}

/* Every block that is marked as C stands in one of the programs as it is. */
static void test_integrating__the_page_quotes_programs_that_are_tested(void **state)
{
    char *page = text_of("docs/integrating.md");
    char *programs[] = {text_of("tests/integration/alone.c"), text_of("tests/integration/several.c")};
    int blocks = 0;
    (void)state;
    for (char *at = strstr(page, "```c\n"); at; at = strstr(at, "```c\n")) {
        char *end = strstr(at += 5, "\n```");
        assert_non_null(end);
        end[1] = '\0';
        if (!strstr(programs[0], at) && !strstr(programs[1], at))
            fail_msg("docs/integrating.md quotes what no program has:\n%s", at);
        blocks++;
        at = end + 2;
    }
    assert_true(blocks >= 6);
    free(page);
    free(programs[0]);
    free(programs[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_integrating__a_healthy_run_learns_and_nothing_is_withheld, setup, teardown),
        cmocka_unit_test_setup_teardown(test_integrating__loss_scaling_by_a_power_of_two_changes_no_bit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_integrating__each_kind_of_fault_is_withheld_with_the_state_as_it_was, setup, teardown),
        cmocka_unit_test_setup_teardown(test_integrating__an_update_that_is_held_back_changes_no_bit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_integrating__an_update_that_overflows_is_held_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_integrating__faults_in_a_row_halt_the_run, setup, teardown),
        cmocka_unit_test_setup_teardown(test_integrating__checkpoints_are_judged_by_their_bytes, setup, teardown),
        cmocka_unit_test(test_integrating__the_page_quotes_programs_that_are_tested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
