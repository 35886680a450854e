#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dialects/key_scan.h"

static unsigned scan(const char *text)
{
    return key_scan(slice_str(text));
}

static void test_keys_with_a_value_are_found(void **state)
{
    assert_int_equal(scan("{\"error\":{}}"), KEY_ERROR);
    assert_int_equal(scan("{\"finish_reason\" : \"stop\"}"), KEY_FINISH);
    assert_int_equal(scan("{\"usage\"\n:\t{}}"), KEY_USAGE);
    assert_int_equal(scan("{\"a\":[{\"usage\":1,\"finish_reason\":0}],\"error\":false}"),
                     KEY_USAGE | KEY_FINISH | KEY_ERROR);
}

static void test_null_counts_as_absent(void **state)
{
    assert_int_equal(scan("{\"error\":null,\"usage\": null,\"finish_reason\":  null}"), 0);
    assert_int_equal(scan("{\"usage\":null,\"usage\":{}}"), KEY_USAGE);
}

static void test_text_that_talks_about_keys_has_none(void **state)
{
    assert_int_equal(scan("{\"content\":\"\\\"error\\\":{} \\\"usage\\\":5\"}"), 0);
    assert_int_equal(scan("{\"content\":\"error\"}"), VALUE_IS_ERROR);
    assert_int_equal(scan("{\"content\":\"usage\",\"x\":1}"), 0);
    assert_int_equal(scan("{\"errors\":1,\"my_usage\":2,\"finish_reasons\":3,\"Error\":4}"), 0);
}

static void test_a_key_is_found_wherever_it_stands(void **state)
{
    static const char *const keys[] = {"\"error\":1", "\"finish_reason\":1", "\"usage\":1"};
    for (size_t k = 0; k < 3; k++)
        for (size_t at = 0; at < 70; at++) {
            char text[120];
            memset(text, 'x', sizeof text);
            size_t len = strlen(keys[k]);
            memcpy(text + at, keys[k], len);
            assert_int_equal(key_scan(slice_of(text, sizeof text)), 1u << k);
            assert_int_equal(key_scan(slice_of(text, at + len)), 1u << k);
        }
}

static void test_a_text_that_ends_early_is_no_key(void **state)
{
    static const char text[] = "{\"finish_reason\":\"stop\"}";
    for (size_t len = 0; len <= 17; len++)
        assert_int_equal(key_scan(slice_of(text, len)), 0);
    assert_int_equal(key_scan(slice_of(text, 18)), KEY_FINISH);
    assert_int_equal(key_scan((struct slice){0}), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_with_a_value_are_found),
        cmocka_unit_test(test_null_counts_as_absent),
        cmocka_unit_test(test_text_that_talks_about_keys_has_none),
        cmocka_unit_test(test_a_key_is_found_wherever_it_stands),
        cmocka_unit_test(test_a_text_that_ends_early_is_no_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
