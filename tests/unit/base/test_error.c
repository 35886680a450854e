#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/error.h"

static void test_set_returns_the_code_and_keeps_the_sentence(void **state)
{
    struct error err;
    assert_int_equal(error_set(&err, WEIR_EINVAL, "port %d is taken", 80), WEIR_EINVAL);
    assert_int_equal(err.code, WEIR_EINVAL);
    assert_string_equal(err.text, "port 80 is taken");
    assert_int_equal(err.line, 0);
    assert_string_equal(err.file, "");
}

static void test_null_error_still_returns_the_code(void **state)
{
    assert_int_equal(error_set(NULL, WEIR_ELIMIT, "unread"), WEIR_ELIMIT);
    assert_int_equal(error_set_errno(NULL, ENOENT, "unread"), WEIR_EIO);
}

static void test_errno_text_is_appended(void **state)
{
    struct error err;
    assert_int_equal(error_set_errno(&err, ENOENT, "cannot open %s", "weir.yaml"), WEIR_EIO);
    assert_string_equal(err.text, "cannot open weir.yaml: No such file or directory");
}

static void test_long_text_is_cut_and_terminated(void **state)
{
    char wide[600];
    memset(wide, 'x', sizeof wide);
    wide[sizeof wide - 1] = '\0';
    struct error err;
    (void)error_set(&err, WEIR_EIO, "%s", wide);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    (void)error_set_errno(&err, ENOENT, "%s", wide);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
}

static void test_text_is_one_line(void **state)
{
    struct error err;
    (void)error_set(&err, WEIR_EIO, "%s", "a\nforged\x1b[0m line");
    assert_string_equal(err.text, "a forged [0m line");
}

static void test_own_text_may_be_an_argument(void **state)
{
    struct error err;
    (void)error_set(&err, WEIR_EIO, "inner");
    (void)error_set(&err, WEIR_EINVAL, "outer: %s", err.text);
    assert_string_equal(err.text, "outer: inner");
}

static void test_every_code_has_a_name(void **state)
{
    for (int code = WEIR_OK; code <= WEIR_EUNSUPPORTED; code++)
        assert_non_null(weir_err_name(code));
    assert_string_equal(weir_err_name(WEIR_OK), "ok");
    assert_string_equal(weir_err_name(WEIR_EUNSUPPORTED), "unsupported");
    assert_string_equal(weir_err_name(WEIR_EUNSUPPORTED + 1), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_returns_the_code_and_keeps_the_sentence),
        cmocka_unit_test(test_null_error_still_returns_the_code),
        cmocka_unit_test(test_errno_text_is_appended),
        cmocka_unit_test(test_long_text_is_cut_and_terminated),
        cmocka_unit_test(test_text_is_one_line),
        cmocka_unit_test(test_own_text_may_be_an_argument),
        cmocka_unit_test(test_every_code_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
