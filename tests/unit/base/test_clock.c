#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"

static void test_monotonic_clock_never_goes_back_and_is_never_zero(void **state)
{
    uint64_t last = clock_now_ns();
    assert_true(last > 0);
    for (int i = 0; i < 1000; i++) {
        uint64_t now = clock_now_ns();
        assert_true(now >= last);
        last = now;
    }
}

static void test_wall_time_prints_as_utc_with_milliseconds(void **state)
{
    char text[32];
    clock_format_wall(0, text, sizeof text);
    assert_string_equal(text, "1970-01-01T00:00:00.000Z");
    clock_format_wall(1796122487ull * NS_PER_S + 123 * NS_PER_MS + 999999, text, sizeof text);
    assert_string_equal(text, "2026-12-01T10:54:47.123Z");
    clock_format_wall(1709164799ull * NS_PER_S, text, 25);
    assert_string_equal(text, "2024-02-28T23:59:59.000Z");
}

static void test_wall_clock_is_in_this_century(void **state)
{
    char text[32];
    clock_format_wall(clock_wall_ns(), text, sizeof text);
    assert_memory_equal(text, "20", 2);
    assert_int_equal(strlen(text), 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_monotonic_clock_never_goes_back_and_is_never_zero),
        cmocka_unit_test(test_wall_time_prints_as_utc_with_milliseconds),
        cmocka_unit_test(test_wall_clock_is_in_this_century),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
