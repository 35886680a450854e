#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "launch/backoff.h"

static void test_pauses_double_up_to_a_minute(void **state)
{
    static const unsigned expected_s[] = {1, 2, 4, 8, 16, 32, 60, 60};
    struct backoff b = {0};
    for (size_t i = 0; i < sizeof(expected_s) / sizeof(expected_s[0]); i++)
        assert_int_equal(backoff_next(&b, 0, false), expected_s[i] * NS_PER_S);
}

static void test_only_a_ready_and_long_life_starts_anew(void **state)
{
    struct backoff b = {0};
    backoff_next(&b, 0, false);
    assert_int_equal(backoff_next(&b, 3600 * NS_PER_S, false), 2 * NS_PER_S);
    assert_int_equal(backoff_next(&b, 60 * NS_PER_S - 1, true), 4 * NS_PER_S);
    assert_int_equal(backoff_next(&b, 60 * NS_PER_S, true), 1 * NS_PER_S);
    assert_int_equal(backoff_next(&b, 0, true), 2 * NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pauses_double_up_to_a_minute),
        cmocka_unit_test(test_only_a_ready_and_long_life_starts_anew),
    };
    return cmocka_run_group_tests_name("backoff", tests, NULL, NULL);
}
