#include "expect.h"

static struct buf report;

static size_t compare(const char *was, const char *is, size_t max)
{
    struct config *a = expect_config(slice_str(was)), *b = expect_config(slice_str(is));
    buf_init(&report, max);
    size_t count = config_restart_needed(a, b, &report);
    config_free(a);
    config_free(b);
    return count;
}

static void test_what_a_reload_changes_is_not_reported(void **state)
{
    assert_int_equal(compare(SERVES, SERVES "limits: {body: 1MiB}\nlog: {level: debug}\n", 4096),
                     0);
    assert_int_equal(buf_len(&report), 0);
    buf_free(&report);
}

static void test_what_needs_a_restart_is_said_with_both_values(void **state)
{
    assert_int_equal(compare(SERVES "workers: 2\n",
                             SERVES "workers: 3\nadmin: off\nlisten: [127.0.0.1:1, 127.0.0.1:2]\n",
                             4096),
                     3);
    assert_true(
        slice_eq(buf_slice(&report), SLICE("listen: 127.0.0.1:8080 -> 127.0.0.1:1, 127.0.0.1:2\n"
                                           "admin: 127.0.0.1:9090 -> off\n"
                                           "workers: 2 -> 3\n")));
    buf_free(&report);
}

static void test_lines_that_do_not_fit_are_counted_and_left_out(void **state)
{
    assert_int_equal(compare(SERVES "workers: 2\n", SERVES "workers: 3\nadmin: off\n", 20), 2);
    assert_true(slice_eq(buf_slice(&report), SLICE("workers: 2 -> 3\n")));
    buf_free(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_reload_changes_is_not_reported),
        cmocka_unit_test(test_what_needs_a_restart_is_said_with_both_values),
        cmocka_unit_test(test_lines_that_do_not_fit_are_counted_and_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
