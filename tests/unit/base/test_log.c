#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"

/* What went to stderr between capture_start() and capture_end(). */
static int saved_stderr;
static int reader;

static void capture_start(void)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    reader = ends[0];
    saved_stderr = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
}

static const char *capture_end(void)
{
    static char text[1 << 17];
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    ssize_t got = read(reader, text, sizeof text - 1);
    close(reader);
    text[got > 0 ? got : 0] = '\0';
    return text;
}

static void assert_is_time(const char *text)
{
    static const char shape[] = "dddd-dd-ddTdd:dd:dd.dddZ";
    for (size_t i = 0; i < sizeof shape - 1; i++) {
        if (shape[i] == 'd')
            assert_in_range(text[i], '0', '9');
        else
            assert_int_equal(text[i], shape[i]);
    }
}

static void test_text_line_is_time_level_what_sentence(void **state)
{
    log_setup(LOG_INFO, false);
    capture_start();
    log_info("replica up", "%s after %d ms", "r7", 12);
    const char *text = capture_end();
    assert_is_time(text);
    assert_string_equal(text + 24, " info replica up: r7 after 12 ms\n");
}

static void test_json_line_has_the_same_fields(void **state)
{
    log_setup(LOG_INFO, true);
    capture_start();
    log_error("disk", "cannot write \"%s\"", "a\nb");
    const char *text = capture_end();
    assert_int_equal(text[strlen(text) - 1], '\n');
    struct json_doc *doc = json_parse(slice_str(text));
    assert_non_null(doc);
    const struct json_value *root = json_root(doc);
    assert_int_equal(json_count(root), 4);
    assert_is_time(json_string(json_get(root, "time")).ptr);
    assert_true(slice_eq(json_string(json_get(root, "level")), SLICE("error")));
    assert_true(slice_eq(json_string(json_get(root, "what")), SLICE("disk")));
    assert_true(slice_eq(json_string(json_get(root, "msg")), SLICE("cannot write \"a\nb\"")));
    json_doc_free(doc);
}

static void test_levels_above_the_limit_are_silent(void **state)
{
    log_setup(LOG_WARN, false);
    assert_true(log_enabled(LOG_ERROR) && log_enabled(LOG_WARN) && !log_enabled(LOG_INFO));
    capture_start();
    log_info("x", "hidden");
    log_debug("x", "hidden");
    log_warn("x", "shown");
    const char *text = capture_end();
    assert_null(strstr(text, "hidden"));
    assert_non_null(strstr(text, "warn x: shown\n"));
}

static void test_arguments_cannot_forge_lines_or_drive_terminals(void **state)
{
    log_setup(LOG_INFO, false);
    capture_start();
    log_info("client", "%s", "a\n2026 error forged\x1b[2J\x7f\xc2\x9b\xff \xc3\xa9");
    const char *text = capture_end();
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    assert_non_null(strstr(text, "a 2026 error forged [2J   ? \xc3\xa9\n")); /* no C1, no byte FF */
}

static void test_lines_are_cut_at_two_kilobytes_and_stay_valid(void **state)
{
    char wide[5000];
    for (int json = 0; json < 2; json++) {
        for (int filler = 0; filler < 2; filler++) {
            memset(wide, filler ? '\x01' : 'x', sizeof wide - 1);
            wide[sizeof wide - 1] = '\0';
            log_setup(LOG_INFO, json);
            capture_start();
            log_info("wide", "%s", wide);
            const char *text = capture_end();
            assert_in_range(strlen(text), 1000, 2048);
            assert_int_equal(text[strlen(text) - 1], '\n');
            struct json_doc *doc = json_parse(slice_str(text));
            assert_int_equal(doc != NULL, json);
            json_doc_free(doc);
        }
    }
}

static void test_lines_that_cannot_be_written_are_counted(void **state)
{
    log_setup(LOG_INFO, false);
    signal(SIGPIPE, SIG_IGN);

    uint64_t before = log_lost();
    capture_start();
    close(reader);
    reader = open("/dev/null", O_RDONLY);
    log_info("x", "nobody reads");
    (void)capture_end();
    assert_int_equal(log_lost(), before + 1);

    capture_start();
    for (int i = 0; i < 5000; i++) /* more than a pipe holds */
        log_info("x", "%01000d", i);
    const char *text = capture_end();
    assert_true(log_lost() > before + 1);
    assert_int_equal(text[strlen(text) - 1], '\n'); /* dropped whole, not torn */

    before = log_lost();
    capture_start();
    int full = open("/dev/full", O_WRONLY);
    dup2(full, STDERR_FILENO);
    close(full);
    log_info("x", "no space");
    (void)capture_end();
    assert_int_equal(log_lost(), before + 1);
}

static void test_limited_event_is_written_once_a_second_with_the_number_left_out(void **state)
{
    log_setup(LOG_INFO, false);
    struct log_limit limit = {0};
    uint64_t start = 5 * NS_PER_S;
    capture_start();
    for (uint64_t i = 0; i < 10; i++)
        log_limited(&limit, start + i * NS_PER_MS, LOG_WARN, "fds", "none left");
    log_limited(&limit, start + NS_PER_S, LOG_WARN, "fds", "none left");
    log_limited(&limit, start + 2 * NS_PER_S, LOG_WARN, "fds", "none left");
    log_limited(&limit, start + 4 * NS_PER_S, LOG_DEBUG, "fds", "not enabled");
    char *text = (char *)capture_end();
    const char *const want[] = {" warn fds: none left",
                                " warn fds: none left (9 more left out before)",
                                " warn fds: none left"};
    for (size_t i = 0; i < 3; i++) {
        char *end = strchr(text, '\n');
        assert_non_null(end);
        *end = '\0';
        assert_string_equal(text + 24, want[i]);
        text = end + 1;
    }
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_line_is_time_level_what_sentence),
        cmocka_unit_test(test_json_line_has_the_same_fields),
        cmocka_unit_test(test_levels_above_the_limit_are_silent),
        cmocka_unit_test(test_arguments_cannot_forge_lines_or_drive_terminals),
        cmocka_unit_test(test_lines_are_cut_at_two_kilobytes_and_stay_valid),
        cmocka_unit_test(test_lines_that_cannot_be_written_are_counted),
        cmocka_unit_test(test_limited_event_is_written_once_a_second_with_the_number_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
