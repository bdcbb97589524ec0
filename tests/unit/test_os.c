/* The system table and its helpers on the real file system. Failing calls and power cuts are in tests/fault/test_os_faults.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/status.h"
#include "os/os.h"

static char dir[64];

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/fb-test-os-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int64_t remove_one(void *arg, const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", (const char *)arg, name);
    if (unlink(path) < 0) (void)rmdir(path);
    return 0;
}

static int tear_down(void **state)
{
    char below[128];
    (void)state;
    (void)snprintf(below, sizeof below, "%s/a/b", dir);
    (void)rmdir(below);
    (void)fb_os_posix()->list(NULL, dir, remove_one, dir);
    return rmdir(dir);
}

static const char *in_dir(const char *name)
{
    static char path[8][512];
    static int next;
    char *out = path[next++ % 8];
    (void)snprintf(out, sizeof path[0], "%s/%s", dir, name);
    return out;
}

static void expect_file(const char *name, const char *content)
{
    fb_error err = {0};
    char *data;
    size_t bytes;
    if (fb_os_read_file(fb_os_posix(), in_dir(name), 1 << 20, &data, &bytes, &err) != FB_OK) fail_msg("%s", err.message);
    assert_int_equal(bytes, strlen(content));
    assert_string_equal(data, content); /* read_file ends it with a NUL */
    fb_free(data);
}

static int64_t count_one(void *arg, const char *name)
{
    (void)name;
    ++*(int *)arg;
    return 0;
}

static int names_in_dir(void)
{
    int names = 0;
    assert_int_equal(fb_os_posix()->list(NULL, dir, count_one, &names), 0);
    return names;
}

static void test_os__put_new_never_replaces(void **state)
{
    fb_error err;
    (void)state;
    assert_int_equal(fb_os_put_new(fb_os_posix(), dir, "first_bad.json", "first", 5, &err), FB_OK);
    assert_int_equal(fb_os_put_new(fb_os_posix(), dir, "first_bad.json", "second", 6, &err), FB_E_EXISTS);
    assert_non_null(strstr(err.message, "first_bad.json"));
    expect_file("first_bad.json", "first");
    assert_int_equal(names_in_dir(), 1); /* no temporary file is left */
}

static void test_os__replace_replaces_and_creates(void **state)
{
    fb_error err;
    (void)state;
    assert_int_equal(fb_os_replace(fb_os_posix(), dir, "verdict.json", "one", 3, &err), FB_OK);
    expect_file("verdict.json", "one");
    assert_int_equal(fb_os_replace(fb_os_posix(), dir, "verdict.json", "", 0, &err), FB_OK);
    expect_file("verdict.json", "");
    assert_int_equal(names_in_dir(), 1);
}

static void test_os__leftovers_of_a_crash_do_not_stop_a_new_file(void **state)
{
    fb_error err;
    char name[64];
    (void)state;
    for (int i = 0; i < 3; i++) {
        FILE *file;
        (void)snprintf(name, sizeof name, ".run.json.tmp-%lld-%d", (long long)getpid(), i);
        file = fopen(in_dir(name), "w");
        assert_non_null(file);
        (void)fclose(file);
    }
    assert_int_equal(fb_os_put_new(fb_os_posix(), dir, "run.json", "{}", 2, &err), FB_OK);
    expect_file("run.json", "{}");
    assert_int_equal(names_in_dir(), 4);
}

static void test_os__mkdirs_makes_all_and_takes_what_is_there(void **state)
{
    fb_error err;
    fb_os_info info;
    (void)state;
    assert_int_equal(fb_os_mkdirs(fb_os_posix(), in_dir("a//b/"), &err), FB_OK);
    assert_int_equal(fb_os_mkdirs(fb_os_posix(), in_dir("a/b"), &err), FB_OK);
    assert_int_equal(fb_os_posix()->stat(NULL, in_dir("a/b"), &info), 0);
    assert_int_equal(info.kind, FB_OS_FOLDER);
    assert_int_equal(fb_os_put_new(fb_os_posix(), dir, "file", "", 0, &err), FB_OK);
    assert_int_equal(fb_os_mkdirs(fb_os_posix(), in_dir("file/c"), &err), FB_E_IO);
    assert_int_equal(err.os_errno, ENOTDIR);
    assert_int_equal(fb_os_mkdirs(fb_os_posix(), in_dir("file"), &err), FB_E_IO);
    assert_int_equal(fb_os_mkdirs(fb_os_posix(), "", &err), FB_E_USAGE);
}

static void test_os__read_file_says_what_is_wrong(void **state)
{
    fb_error err;
    char *data;
    size_t bytes;
    (void)state;
    assert_int_equal(fb_os_read_file(fb_os_posix(), in_dir("none"), 10, &data, &bytes, &err), FB_E_NOTFOUND);
    assert_null(data);
    assert_int_equal(fb_os_read_file(fb_os_posix(), dir, 10, &data, &bytes, &err), FB_E_IO);
    assert_int_equal(err.os_errno, EISDIR);
    assert_int_equal(fb_os_put_new(fb_os_posix(), dir, "eleven", "hello world", 11, &err), FB_OK);
    assert_int_equal(fb_os_read_file(fb_os_posix(), in_dir("eleven"), 10, &data, &bytes, &err), FB_E_LIMIT);
    assert_null(data);
    assert_int_equal(fb_os_read_file(fb_os_posix(), in_dir("eleven"), 11, &data, &bytes, &err), FB_OK);
    fb_free(data);
    assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
    /* Nor does it wait for somebody who writes into a pipe. */
    assert_int_equal(fb_os_read_file(fb_os_posix(), in_dir("pipe"), 10, &data, &bytes, &err), FB_E_IO);
}

static void test_os__join_fits_or_refuses(void **state)
{
    fb_error err;
    char path[8];
    (void)state;
    assert_int_equal(fb_os_join(path, sizeof path, "abc", "def", &err), FB_OK);
    assert_string_equal(path, "abc/def");
    assert_int_equal(fb_os_join(path, sizeof path, "abc/", "def", &err), FB_OK);
    assert_string_equal(path, "abc/def");
    assert_int_equal(fb_os_join(path, sizeof path, "", "def", &err), FB_OK);
    assert_string_equal(path, "def");
    assert_int_equal(fb_os_join(path, sizeof path, "abcd", "def", &err), FB_E_LIMIT);
}

static void test_os__space_set_aside_is_real(void **state)
{
    const fb_os *os = fb_os_posix();
    struct stat st;
    int64_t fd = fb_os_open(os, in_dir("aside"), O_RDWR | O_CREAT | O_EXCL, 0600);
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(fb_os_set_aside(os, (int)fd, 0, 100000), 0);
    assert_int_equal(fb_os_fsync(os, (int)fd), 0);
    assert_int_equal(fstat((int)fd, &st), 0);
    assert_int_equal(st.st_size, 100000);
    assert_true(st.st_blocks * 512 >= 100000);
    assert_int_equal(os->close(NULL, (int)fd), 0);
}

static void test_os__a_lock_keeps_another_open_file_out_and_dies_with_its_process(void **state)
{
    const fb_os *os = fb_os_posix();
    int64_t first, second, third;
    int status;
    pid_t child;
    (void)state;
    first = fb_os_open(os, in_dir("lock"), O_RDWR | O_CREAT, 0600);
    second = fb_os_open(os, in_dir("lock"), O_RDWR, 0);
    assert_int_equal(fb_os_lock(os, (int)first, FB_OS_LOCK), 0);
    assert_int_equal(fb_os_lock(os, (int)second, FB_OS_LOCK), -EAGAIN);
    third = fb_os_open(os, in_dir("lock"), O_RDWR, 0);
    assert_int_equal(os->close(NULL, (int)third), 0); /* an older kind of lock would be lost here */
    assert_int_equal(fb_os_lock(os, (int)second, FB_OS_LOCK), -EAGAIN);
    assert_int_equal(fb_os_lock(os, (int)first, FB_OS_UNLOCK), 0);
    child = fork();
    if (child == 0) {
        int64_t own = fb_os_open(os, in_dir("lock"), O_RDWR, 0);
        _exit(fb_os_lock(os, (int)own, FB_OS_LOCK) == 0 ? 0 : 1); /* and never gives it back */
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(fb_os_lock(os, (int)second, FB_OS_LOCK_WAIT), 0);
    (void)os->close(NULL, (int)first);
    (void)os->close(NULL, (int)second);
}

static int64_t stop_at_two(void *arg, const char *name)
{
    (void)name;
    return ++*(int *)arg == 2 ? 42 : 0;
}

static void test_os__table_calls_return_what_their_header_says(void **state)
{
    const fb_os *os = fb_os_posix();
    fb_os_info info, other;
    char text[FB_OS_PATH_MAX];
    char data[8];
    int seen = 0;
    int64_t fd;
    (void)state;
    assert_int_equal(os->open(NULL, in_dir("none"), O_RDONLY, 0), -ENOENT);
    assert_int_equal(os->close(NULL, -1), -EBADF);
    assert_int_equal(os->stat(NULL, in_dir("none"), &info), -ENOENT);
    assert_int_equal(os->unlink(NULL, in_dir("none")), -ENOENT);
    assert_int_equal(os->list(NULL, in_dir("none"), stop_at_two, &seen), -ENOENT);
    assert_int_equal(fb_os_put_new(os, dir, "x", "12345", 5, NULL), FB_OK);
    assert_int_equal(os->link(NULL, in_dir("x"), in_dir("y")), 0);
    assert_int_equal(os->link(NULL, in_dir("x"), in_dir("y")), -EEXIST);
    assert_int_equal(os->stat(NULL, in_dir("x"), &info), 0);
    assert_int_equal(os->stat(NULL, in_dir("y"), &other), 0);
    assert_int_equal(info.links, 2);
    assert_int_equal(info.size_bytes, 5);
    assert_true(info.inode == other.inode && info.device == other.device);
    assert_int_equal(os->rename(NULL, in_dir("y"), in_dir("z")), 0);
    assert_int_equal(os->list(NULL, dir, stop_at_two, &seen), 42);
    fd = fb_os_open(os, in_dir("x"), O_RDWR, 0);
    assert_int_equal(fcntl((int)fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(fb_os_pread_full(os, (int)fd, data, 8, 1), 4);
    assert_memory_equal(data, "2345", 4);
    assert_int_equal(fb_os_read_full(os, (int)fd, data, 8), 5);
    assert_int_equal(os->ftruncate(NULL, (int)fd, 2), 0);
    assert_int_equal(os->fstat(NULL, (int)fd, &info), 0);
    assert_int_equal(info.size_bytes, 2);
    assert_int_equal(fb_os_pwrite_all(os, (int)fd, "a", 1, UINT64_MAX, NULL), -EOVERFLOW);
    assert_int_equal(os->close(NULL, (int)fd), 0);
    assert_int_equal(os->getpid(NULL), getpid());
    assert_true(os->monotonic_ns(NULL) <= os->monotonic_ns(NULL));
    assert_int_equal(os->sleep_ns(NULL, 1000), 0);
    assert_true(os->realtime_ns(NULL) > 1600000000ll * 1000000000);
    assert_int_equal(os->hostname(NULL, text, sizeof text), 0);
    assert_true(text[0] != '\0');
    assert_int_equal(os->hostname(NULL, text, 2), 0);
    assert_int_equal(strlen(text), 1);
    assert_int_equal(os->realpath(NULL, in_dir("x"), text, sizeof text), 0);
    assert_int_equal(text[0], '/');
    assert_int_equal(os->realpath(NULL, in_dir("x"), text, 3), -ENAMETOOLONG);
    assert_int_equal(os->realpath(NULL, in_dir("none"), text, sizeof text), -ENOENT);
}

static void test_os__an_error_says_what_the_system_said(void **state)
{
    fb_error err;
    (void)state;
    assert_int_equal(fb_os_mkdirs(fb_os_posix(), "/dev/null/runs", &err), FB_E_IO);
    assert_non_null(strstr(err.message, strerror(ENOTDIR)));
    assert_int_equal(fb_fail_os(&err, ENOSPC, "write the ledger"), FB_E_IO);
    assert_non_null(strstr(err.message, strerror(ENOSPC)));
    assert_int_equal(err.os_errno, ENOSPC);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static void put_file(const char *name, const char *content)
{
    FILE *file = fopen(in_dir(name), "w");
    assert_non_null(file);
    assert_true(fputs(content, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void test_os__rename_new_moves_files_and_folders_and_replaces_nothing(void **state)
{
    const fb_os *os = fb_os_posix();
    char from[512], to[512];
    (void)state;
    put_file("one", "1");
    put_file("two", "2");
    (void)snprintf(from, sizeof from, "%s", in_dir("one"));
    (void)snprintf(to, sizeof to, "%s", in_dir("two"));
    assert_int_equal(os->rename_new(NULL, from, to), -EEXIST);
    expect_file("one", "1");
    expect_file("two", "2");
    (void)snprintf(to, sizeof to, "%s", in_dir("three"));
    assert_int_equal(os->rename_new(NULL, from, to), 0);
    expect_file("three", "1");
    assert_int_equal(os->rename_new(NULL, from, to), -ENOENT);
    (void)snprintf(from, sizeof from, "%s", in_dir("folder"));
    (void)snprintf(to, sizeof to, "%s", in_dir("other"));
    assert_int_equal(os->mkdir(NULL, from, 0700), 0);
    assert_int_equal(os->mkdir(NULL, to, 0700), 0);
    assert_int_equal(os->rename_new(NULL, from, to), -EEXIST);
    assert_int_equal(os->rmdir(NULL, to), 0);
    assert_int_equal(os->rename_new(NULL, from, to), 0);
    put_file("other/inside", "");
    assert_int_equal(os->rmdir(NULL, to), -ENOTEMPTY);
    assert_int_equal(unlink(in_dir("other/inside")), 0);
    assert_int_equal(os->rmdir(NULL, to), 0);
}

static void test_os__a_symbolic_link_is_seen_as_one(void **state)
{
    const fb_os *os = fb_os_posix();
    fb_os_info info;
    char text[64];
    (void)state;
    put_file("file", "1");
    assert_int_equal(os->symlink(NULL, "file", in_dir("link")), 0);
    assert_int_equal(os->symlink(NULL, "file", in_dir("link")), -EEXIST);
    assert_int_equal(os->lstat(NULL, in_dir("link"), &info), 0);
    assert_int_equal(info.kind, FB_OS_OTHER);
    assert_int_equal(os->lstat(NULL, in_dir("file"), &info), 0);
    assert_int_equal(info.kind, FB_OS_FILE);
    assert_int_equal(os->readlink(NULL, in_dir("link"), text, sizeof text), 4);
    assert_string_equal(text, "file");
    assert_int_equal(os->readlink(NULL, in_dir("link"), text, 4), -ENAMETOOLONG); /* no room for the NUL */
    assert_int_equal(os->readlink(NULL, in_dir("file"), text, sizeof text), -EINVAL);
}

static void test_os__a_clone_has_the_same_bytes_or_is_not_supported(void **state)
{
    const fb_os *os = fb_os_posix();
    int64_t from, to, got;
    (void)state;
    put_file("file", "content");
    from = os->open(NULL, in_dir("file"), O_RDONLY, 0);
    to = os->open(NULL, in_dir("clone"), O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(from >= 0 && to >= 0);
    got = os->clone(NULL, (int)from, (int)to);
    assert_int_equal(os->close(NULL, (int)from), 0);
    assert_int_equal(os->close(NULL, (int)to), 0);
    if (got == 0) expect_file("clone", "content");
    else assert_int_equal(got, -EOPNOTSUPP);
}

static void test_os__free_space_is_told(void **state)
{
    (void)state;
    assert_true(fb_os_posix()->free_bytes(NULL, dir) > 0);
    assert_int_equal(fb_os_posix()->free_bytes(NULL, in_dir("nothing")), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_os__put_new_never_replaces),
        TEST(test_os__replace_replaces_and_creates),
        TEST(test_os__leftovers_of_a_crash_do_not_stop_a_new_file),
        TEST(test_os__mkdirs_makes_all_and_takes_what_is_there),
        TEST(test_os__read_file_says_what_is_wrong),
        TEST(test_os__join_fits_or_refuses),
        TEST(test_os__space_set_aside_is_real),
        TEST(test_os__a_lock_keeps_another_open_file_out_and_dies_with_its_process),
        TEST(test_os__an_error_says_what_the_system_said),
        TEST(test_os__table_calls_return_what_their_header_says),
        TEST(test_os__rename_new_moves_files_and_folders_and_replaces_nothing),
        TEST(test_os__a_symbolic_link_is_seen_as_one),
        TEST(test_os__a_clone_has_the_same_bytes_or_is_not_supported),
        TEST(test_os__free_space_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
