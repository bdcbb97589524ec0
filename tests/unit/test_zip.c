/*
 * The directory of zip archives: good ones, and those by which one program is shown other bytes than the next. The files are made
 * by scripts/make-golden-torch.py; of the hostile ones Python's zipfile takes more than half.
 */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "ckpt/zip.h"
#include "fault/os_sim.h"
#include "support/memory_os.h"

#define GOLDEN "tests/golden/zip/"

typedef struct bytes {
    char *data;
    size_t count;
} bytes;

static bytes load_file(const char *path)
{
    bytes b;
    fb_error err;
    fb_error_clear(&err);
    if (fb_os_read_file(fb_os_posix(), path, 1u << 28, &b.data, &b.count, &err) != FB_OK) fail_msg("%s", err.message);
    return b;
}

/* An archive inside a larger file: `before` bytes of noise in front, `after` behind. */
typedef struct opened {
    memory_os memory;
    uint8_t *data;
    fb_ckpt_file file;
    fb_zip *zip;
    fb_status status;
    fb_error err;
} opened;

static void open_inside(opened *o, const void *data, size_t count, size_t before, size_t after)
{
    fb_ckpt_range range;
    memset(o, 0, sizeof *o);
    o->data = malloc(before + count + after + 1);
    assert_non_null(o->data);
    memset(o->data, 'P', before + count + after + 1);
    memcpy(o->data + before, data, count);
    memory_os_init(&o->memory, o->data, before + count + after);
    assert_int_equal(fb_ckpt_file_open(&o->file, &o->memory.os, "memory.zip", 4096, &o->err), FB_OK);
    memset(&range, 0, sizeof range);
    range.file = &o->file;
    range.offset_bytes = before;
    range.bytes = count;
    o->status = fb_zip_open(&o->zip, &range, &o->err);
    assert_int_equal(o->status == FB_OK, o->zip != NULL);
}

static void shut(opened *o)
{
    fb_zip_close(o->zip);
    fb_ckpt_file_close(&o->file);
    free(o->data);
}

static void open_golden(opened *o, const char *name)
{
    char path[512];
    bytes b;
    (void)snprintf(path, sizeof path, "%s%s.zip", GOLDEN, name);
    b = load_file(path);
    open_inside(o, b.data, b.count, 0, 0);
    fb_free(b.data);
}

static void open_good(opened *o, const char *name)
{
    open_golden(o, name);
    if (o->status != FB_OK) fail_msg("%s: %s", name, o->err.message);
}

static void expect_content(opened *o, const char *name, const char *content)
{
    const fb_zip_member *m = fb_zip_find(o->zip, name);
    uint8_t *data;
    assert_non_null(m);
    assert_string_equal(m->name, name);
    assert_int_equal(m->bytes, strlen(content));
    if (fb_zip_load(o->zip, m, 1000, &data, &o->err) != FB_OK) fail_msg("%s", o->err.message);
    assert_string_equal((const char *)data, content);
    fb_free(data);
    if (m->encoding == FB_CKPT_STORED) assert_memory_equal(o->data + m->data_at, content, strlen(content));
}

static const char *beta(void)
{
    static char text[401];
    for (int i = 0; i < 100; i++) memcpy(text + 4 * i, "beta", 4);
    return text;
}

/* ---- good archives ---------------------------------------------------------------------------------------------------------- */

static void test_zip__stored_and_deflated_members_are_found_and_read(void **ignored)
{
    static const char *const names[] = {"two", "comment", "wide", "descriptor", "wide-local"};
    (void)ignored;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        opened o;
        open_good(&o, names[i]);
        assert_int_equal(fb_zip_count(o.zip), 2);
        assert_string_equal(fb_zip_member_at(o.zip, 0)->name, "a");
        assert_int_equal(fb_zip_member_at(o.zip, 0)->header_bytes_at, 0);
        assert_int_equal(fb_zip_member_at(o.zip, 1)->encoding, FB_CKPT_DEFLATED);
        expect_content(&o, "a", "alpha");
        expect_content(&o, "b/c", beta());
        assert_null(fb_zip_find(o.zip, "b"));
        assert_null(fb_zip_find(o.zip, ""));
        assert_null(fb_zip_find(o.zip, "zz"));
        shut(&o);
    }
}

static void test_zip__every_form_of_zip64_and_data_descriptor_is_read(void **ignored)
{
    static const char *const names[] = {"wide-full", "descriptor-bare", "descriptor-wide", "no-checksum"};
    (void)ignored;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        opened o;
        open_good(&o, names[i]);
        assert_int_equal(fb_zip_count(o.zip), 1);
        expect_content(&o, "a", "alpha");
        shut(&o);
    }
}

static void test_zip__odd_but_honest_archives_are_taken(void **ignored)
{
    opened o;
    (void)ignored;
    open_good(&o, "empty");
    assert_int_equal(fb_zip_count(o.zip), 0);
    assert_null(fb_zip_find(o.zip, "a"));
    shut(&o);
    open_good(&o, "empty-member");
    expect_content(&o, "a", "");
    expect_content(&o, "b", "");
    shut(&o);
    open_good(&o, "unicode");
    expect_content(&o,
                   "gr\xc3\xbc\xc3\x9f"
                   "e/\xe4\xb8\x96",
                   "x");
    shut(&o);
    open_good(&o, "folder");
    expect_content(&o, "d/", "");
    shut(&o);
    open_good(&o, "end-mark-in-data");
    shut(&o);
    open_good(&o, "dots-in-names");
    expect_content(&o, "a..b/..c/d..", "x");
    shut(&o);
    open_good(&o, "directory-order"); /* members stay in the order of the directory, whatever their places are */
    assert_string_equal(fb_zip_member_at(o.zip, 0)->name, "b");
    expect_content(&o, "a", "alpha");
    expect_content(&o, "b", "beta");
    shut(&o);
}

static void test_zip__an_archive_inside_a_file_has_places_in_the_file(void **ignored)
{
    bytes b = load_file(GOLDEN "two.zip");
    opened o;
    (void)ignored;
    open_inside(&o, b.data, b.count, 1000, 500);
    if (o.status != FB_OK) fail_msg("%s", o.err.message);
    assert_int_equal(fb_zip_member_at(o.zip, 0)->header_bytes_at, 1000);
    expect_content(&o, "a", "alpha");
    expect_content(&o, "b/c", beta());
    shut(&o);
    fb_free(b.data);
}

static void test_zip__a_member_over_the_bound_is_not_loaded(void **ignored)
{
    opened o;
    uint8_t *data;
    (void)ignored;
    open_good(&o, "two");
    assert_int_equal(fb_zip_load(o.zip, fb_zip_find(o.zip, "a"), 4, &data, &o.err), FB_E_LIMIT);
    assert_null(data);
    assert_int_equal(fb_zip_load(o.zip, fb_zip_find(o.zip, "b/c"), 399, &data, &o.err), FB_E_LIMIT);
    shut(&o);
}

/* ---- hostile archives -------------------------------------------------------------------------------------------------------- */

typedef struct refusal {
    const char *name;
    fb_status status;
    const char *says;
} refusal;

static const refusal refusals[] = {
    {"prefix", FB_E_CORRUPT, "in front of the first member"},
    {"prefix-offsets-unchanged", FB_E_CORRUPT, "put in front"},
    {"prefix-is-an-archive", FB_E_CORRUPT, "put in front"},
    {"trailing", FB_E_CORRUPT, "bytes after its comment"},
    {"trailing-zeros", FB_E_CORRUPT, "bytes after its comment"},
    {"comment-too-long", FB_E_CORRUPT, "bytes after its comment"},
    {"comment-too-short", FB_E_CORRUPT, "no end record"},
    {"comment-is-an-end-record", FB_E_CORRUPT, "two end records"},
    {"comment-holds-a-misfit-end-record", FB_E_CORRUPT, "two end records"},
    {"comment-is-an-archive", FB_E_CORRUPT, "two end records"},
    {"no-end", FB_E_CORRUPT, "no end record"},
    {"no-end-but-the-mark", FB_E_CORRUPT, "no end record"},
    {"counts-disagree", FB_E_CORRUPT, "1 members on this disk"},
    {"count-too-small", FB_E_CORRUPT, "follow the last of 1"},
    {"count-too-large", FB_E_CORRUPT, "too small"},
    {"count-huge", FB_E_LIMIT, "at most 2000000"},
    {"count-over-the-limit", FB_E_LIMIT, "at most 2000000"},
    {"directory-size-small", FB_E_CORRUPT, "does not end at the end record"},
    {"directory-size-huge", FB_E_CORRUPT, "does not end at the end record"},
    {"directory-beyond", FB_E_CORRUPT, "does not end at the end record"},
    {"directory-gap", FB_E_CORRUPT, "not its data descriptor"},
    {"directory-followed", FB_E_CORRUPT, "4 bytes follow the last of 2"},
    {"disk", FB_E_UNSUPPORTED, "several disks"},
    {"member-on-another-disk", FB_E_UNSUPPORTED, "several disks"},
    {"wide-disagrees", FB_E_CORRUPT, "two end records disagree"},
    {"wide-size-disagrees", FB_E_CORRUPT, "two end records disagree"},
    {"wide-place-disagrees", FB_E_CORRUPT, "two end records disagree"},
    {"wide-record-size", FB_E_CORRUPT, "does not lead to"},
    {"wide-record-elsewhere", FB_E_CORRUPT, "does not lead to"},
    {"wide-two-disks", FB_E_UNSUPPORTED, "several disks"},
    {"wide-missing", FB_E_CORRUPT, "which is missing"},
    {"wide-field-missing", FB_E_CORRUPT, "do not fit its sizes"},
    {"wide-field-short", FB_E_CORRUPT, "do not fit its sizes"},
    {"wide-field-long", FB_E_CORRUPT, "do not fit its sizes"},
    {"wide-field-twice", FB_E_CORRUPT, "do not fit its sizes"},
    {"wide-field-beyond", FB_E_CORRUPT, "damaged"},
    {"wide-size-over-63-bits", FB_E_CORRUPT, "another size"},
    {"wide-offset-overflows", FB_E_CORRUPT, "in the directory"},
    {"extra-damaged", FB_E_CORRUPT, "damaged"},
    {"extra-second-name", FB_E_CORRUPT, "two names"},
    {"duplicate", FB_E_CORRUPT, "two members have the name a"},
    {"same-place", FB_E_CORRUPT, ""},
    {"quoted-overlap", FB_E_CORRUPT, "begins inside another"},
    {"inside-another", FB_E_CORRUPT, "begins inside another"},
    {"backwards", FB_E_CORRUPT, ""},
    {"place-in-directory", FB_E_CORRUPT, ""},
    {"place-beyond", FB_E_CORRUPT, "in the directory"},
    {"hidden-member", FB_E_CORRUPT, "not its data descriptor"},
    {"hidden-byte", FB_E_CORRUPT, "not its data descriptor"},
    {"name-differs", FB_E_CORRUPT, "another name"},
    {"name-length-differs", FB_E_CORRUPT, "another name"},
    {"flags-differ", FB_E_CORRUPT, "another set of flags"},
    {"flags-differ-descriptor", FB_E_CORRUPT, "another set of flags"},
    {"method-differs", FB_E_CORRUPT, "another method"},
    {"checksum-differs", FB_E_CORRUPT, "another checksum"},
    {"size-differs", FB_E_CORRUPT, "another size"},
    {"size-differs-from-zero", FB_E_CORRUPT, "another size"},
    {"descriptor-differs", FB_E_CORRUPT, "not its data descriptor"},
    {"local-mark", FB_E_CORRUPT, "no local header"},
    {"central-mark", FB_E_CORRUPT, "a directory entry was due"},
    {"stored-two-sizes", FB_E_CORRUPT, "two sizes"},
    {"size-too-large", FB_E_CORRUPT, "reaches into the directory"},
    {"encrypted", FB_E_UNSUPPORTED, "encrypted"},
    {"strong", FB_E_UNSUPPORTED, "encrypted"},
    {"masked", FB_E_UNSUPPORTED, "encrypted"},
    {"flags-meaningless", FB_E_CORRUPT, "mean nothing"},
    {"method-bzip2", FB_E_UNSUPPORTED, "method 12"},
    {"method-99", FB_E_UNSUPPORTED, "method 99"},
    {"name-empty", FB_E_CORRUPT, "without a name"},
    {"name-absolute", FB_E_CORRUPT, "absolute"},
    {"name-up", FB_E_CORRUPT, "leads out"},
    {"name-up-end", FB_E_CORRUPT, "leads out"},
    {"name-up-only", FB_E_CORRUPT, "leads out"},
    {"name-backslash", FB_E_CORRUPT, "backslash"},
    {"name-nul", FB_E_CORRUPT, "control character"},
    {"name-control", FB_E_CORRUPT, "control character"},
    {"name-delete", FB_E_CORRUPT, "control character"},
    {"name-c1", FB_E_CORRUPT, "control character"},
    {"name-no-utf8", FB_E_CORRUPT, "no UTF-8"},
    {"name-overlong", FB_E_CORRUPT, "no UTF-8"},
    {"name-surrogate", FB_E_CORRUPT, "no UTF-8"},
    {"name-cut", FB_E_CORRUPT, "no UTF-8"},
    {"name-long", FB_E_LIMIT, "at most 4096"},
};

static void test_zip__what_two_programs_could_understand_differently_is_refused(void **ignored)
{
    (void)ignored;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        char name[256];
        opened o;
        (void)snprintf(name, sizeof name, "hostile/%s", refusals[i].name);
        open_golden(&o, name);
        if (o.status != refusals[i].status || !strstr(o.err.message, refusals[i].says)) {
            fail_msg("%s: %s: %s", name, fb_status_name(o.status), o.status == FB_OK ? "taken" : o.err.message);
        }
        assert_true(o.err.offset_bytes <= o.memory.bytes);
        shut(&o);
    }
}

static void test_zip__the_table_of_hostile_archives_is_complete(void **ignored)
{
    DIR *folder = opendir(GOLDEN "hostile");
    struct dirent *entry;
    size_t files = 0;
    (void)ignored;
    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) files += entry->d_name[0] != '.';
    (void)closedir(folder);
    assert_int_equal(files, sizeof refusals / sizeof refusals[0]);
}

static void test_zip__content_that_is_not_what_the_directory_says_is_refused(void **ignored)
{
    static const refusal contents[] = {
        {"stored-checksum", FB_E_CORRUPT, "do not have its checksum"},
        {"deflated-checksum", FB_E_CORRUPT, "do not have its checksum"},
        {"deflated-short", FB_E_CORRUPT, "the compressed data ends"},
        {"deflated-long", FB_E_CORRUPT, "goes on"},
        {"deflated-cut", FB_E_CORRUPT, "the compressed data ends"},
        {"deflated-followed", FB_E_CORRUPT, "bytes follow"},
        {"deflated-noise", FB_E_CORRUPT, "damaged"},
        {"deflated-bomb", FB_E_LIMIT, "more than 100 times"},
    };
    (void)ignored;
    for (size_t i = 0; i < sizeof contents / sizeof contents[0]; i++) {
        char name[256];
        opened o;
        uint8_t *data;
        fb_status status;
        (void)snprintf(name, sizeof name, "content/%s", contents[i].name);
        open_good(&o, name);
        status = fb_zip_load(o.zip, fb_zip_member_at(o.zip, 0), UINT64_MAX, &data, &o.err);
        if (status != contents[i].status || !strstr(o.err.message, contents[i].says)) {
            fail_msg("%s: %s: %s", name, fb_status_name(status), status == FB_OK ? "taken" : o.err.message);
        }
        assert_null(data);
        shut(&o);
    }
}

/* ---- every truncation, every changed byte, every fault ----------------------------------------------------------------------- */

static const char *const small[] = {"two", "wide", "wide-full", "wide-local", "descriptor", "comment", "unicode"};

static void test_zip__every_truncation_is_refused(void **ignored)
{
    (void)ignored;
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) {
        char path[512];
        bytes b;
        (void)snprintf(path, sizeof path, "%s%s.zip", GOLDEN, small[i]);
        b = load_file(path);
        for (size_t cut = 0; cut < b.count; cut++) {
            opened o;
            open_inside(&o, b.data, cut, 3, 5);
            assert_int_equal(o.status, FB_E_CORRUPT);
            shut(&o);
        }
        fb_free(b.data);
    }
}

/* No changed byte of the structure may change what is read without being noticed: the archive is
 * refused, or the same bytes come out. */
static void test_zip__a_changed_byte_is_noticed_or_means_nothing(void **ignored)
{
    bytes b = load_file(GOLDEN "two.zip");
    size_t refused = 0;
    (void)ignored;
    for (size_t at = 0; at < b.count; at++) {
        for (int bit = 0; bit < 8; bit++) {
            opened o;
            char *changed = malloc(b.count);
            assert_non_null(changed);
            memcpy(changed, b.data, b.count);
            changed[at] = (char)(changed[at] ^ (1 << bit));
            open_inside(&o, changed, b.count, 0, 0);
            refused += o.status != FB_OK;
            for (uint64_t i = 0; o.zip && i < fb_zip_count(o.zip); i++) {
                const fb_zip_member *m = fb_zip_member_at(o.zip, i);
                const char *due = m->bytes == 5 ? "alpha" : beta();
                uint8_t *data;
                assert_true(strcmp(m->name, "a") == 0 || strcmp(m->name, "b/c") == 0);
                if (fb_zip_load(o.zip, m, 1000, &data, &o.err) != FB_OK) continue;
                assert_string_equal((const char *)data, due);
                fb_free(data);
            }
            shut(&o);
            free(changed);
        }
    }
    assert_true(refused > b.count * 8 / 2);
    fb_free(b.data);
}

static fb_status read_all(const fb_os *os, fb_error *err)
{
    fb_ckpt_file file;
    fb_ckpt_range range;
    fb_zip *zip = NULL;
    fb_status status = fb_ckpt_file_open(&file, os, "/a.zip", 4096, err);
    if (status != FB_OK) return status;
    memset(&range, 0, sizeof range);
    range.file = &file;
    range.bytes = file.info.size_bytes;
    status = fb_zip_open(&zip, &range, err);
    for (uint64_t i = 0; status == FB_OK && i < fb_zip_count(zip); i++) {
        uint8_t *data;
        status = fb_zip_load(zip, fb_zip_member_at(zip, i), 1000, &data, err);
        fb_free(data);
    }
    fb_zip_close(zip);
    fb_ckpt_file_close(&file);
    return status;
}

static os_sim *machine_with(const char *path)
{
    bytes b = load_file(path);
    os_sim *sim = os_sim_new();
    const fb_os *os = os_sim_os(sim);
    int fd = (int)fb_os_open(os, "/a.zip", O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fb_os_write_all(os, fd, b.data, b.count), 0);
    (void)os->close(os->ctx, fd);
    fb_free(b.data);
    return sim;
}

static void test_zip__each_failing_allocation_and_call_is_reported(void **ignored)
{
    (void)ignored;
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) {
        char path[512];
        os_sim *sim;
        fb_error err;
        fb_status status = FB_E_NOMEM;
        (void)snprintf(path, sizeof path, "%s%s.zip", GOLDEN, small[i]);
        sim = machine_with(path);
        for (uint64_t k = 1; status != FB_OK; k++) {
            fb_alloc_fail_at(k, 0);
            status = read_all(os_sim_os(sim), &err);
            fb_alloc_fail_at(0, 0);
            assert_true(status == FB_OK || status == FB_E_NOMEM);
            assert_true(k < 200);
        }
        status = FB_E_IO;
        for (uint64_t k = 1; status != FB_OK; k++) {
            os_sim_fail(sim, k, EIO, 0);
            status = read_all(os_sim_os(sim), &err);
            if (status == FB_OK && strcmp(os_sim_call_name(sim, k), "close") == 0) status = FB_E_IO; /* nothing was lost */
            assert_true(status == FB_OK || status == FB_E_IO);
            assert_true(k < 200);
        }
        /* Half of a read of one byte is none, which is the end of the file; that archive has such a member. */
        for (uint64_t k = 1; k < 30 && strcmp(small[i], "unicode") != 0; k++) {
            os_sim_fail(sim, k, OS_SIM_SHORT, 0);
            assert_int_equal(read_all(os_sim_os(sim), &err), FB_OK);
        }
        os_sim_free(sim);
    }
}

/* ---- size -------------------------------------------------------------------------------------------------------------------- */

static void put(uint8_t *p, uint64_t value, size_t count)
{
    for (size_t i = 0; i < count; i++) p[i] = (uint8_t)(value >> 8 * i);
}

static void test_zip__a_hundred_thousand_members_are_read_with_few_calls(void **ignored)
{
    enum { MEMBERS = 100000, NAME = 8, LOCAL = 30 + NAME + 4, CENTRAL = 46 + NAME };
    size_t count = (size_t)MEMBERS * (LOCAL + CENTRAL) + 56 + 20 + 22;
    uint8_t *data = calloc(count, 1), *p = data, *end;
    opened o;
    (void)ignored;
    assert_non_null(data);
    for (uint32_t i = 0; i < MEMBERS; i++, p += LOCAL) {
        memcpy(p, "PK\3\4", 4);
        put(p + 18, 4, 4);
        put(p + 22, 4, 4);
        put(p + 26, NAME, 2);
        (void)snprintf((char *)p + 30, NAME + 1, "%08u", (unsigned)i);
    }
    for (uint32_t i = 0; i < MEMBERS; i++, p += CENTRAL) {
        memcpy(p, "PK\1\2", 4);
        put(p + 20, 4, 4);
        put(p + 24, 4, 4);
        put(p + 28, NAME, 2);
        put(p + 42, (uint64_t)i * LOCAL, 4);
        memcpy(p + 46, data + (size_t)i * LOCAL + 30, NAME);
    }
    end = p;
    memcpy(p, "PK\6\6", 4);
    put(p + 4, 44, 8);
    put(p + 24, MEMBERS, 8);
    put(p + 32, MEMBERS, 8);
    put(p + 40, (uint64_t)MEMBERS * CENTRAL, 8);
    put(p + 48, (uint64_t)MEMBERS * LOCAL, 8);
    p += 56;
    memcpy(p, "PK\6\7", 4);
    put(p + 8, (uint64_t)(end - data), 8);
    put(p + 16, 1, 4);
    p += 20;
    memcpy(p, "PK\5\6", 4);
    memset(p + 8, 0xff, 12);
    open_inside(&o, data, count, 0, 0);
    if (o.status != FB_OK) fail_msg("%s", o.err.message);
    assert_int_equal(fb_zip_count(o.zip), MEMBERS);
    assert_int_equal(fb_zip_find(o.zip, "00099999")->data_at, (uint64_t)MEMBERS * LOCAL - 4);
    shut(&o);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zip__stored_and_deflated_members_are_found_and_read),
        cmocka_unit_test(test_zip__every_form_of_zip64_and_data_descriptor_is_read),
        cmocka_unit_test(test_zip__odd_but_honest_archives_are_taken),
        cmocka_unit_test(test_zip__an_archive_inside_a_file_has_places_in_the_file),
        cmocka_unit_test(test_zip__a_member_over_the_bound_is_not_loaded),
        cmocka_unit_test(test_zip__what_two_programs_could_understand_differently_is_refused),
        cmocka_unit_test(test_zip__the_table_of_hostile_archives_is_complete),
        cmocka_unit_test(test_zip__content_that_is_not_what_the_directory_says_is_refused),
        cmocka_unit_test(test_zip__every_truncation_is_refused),
        cmocka_unit_test(test_zip__a_changed_byte_is_noticed_or_means_nothing),
        cmocka_unit_test(test_zip__each_failing_allocation_and_call_is_reported),
        cmocka_unit_test(test_zip__a_hundred_thousand_members_are_read_with_few_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
