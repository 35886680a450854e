#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>

#include "base/rng.h"
#include "config/quantity.h"

static char hint[QUANTITY_HINT];

static void assert_size(const char *text, uint64_t bytes)
{
    uint64_t value = 1;
    assert_int_equal(quantity_read_size(slice_str(text), &value, hint), WEIR_OK);
    assert_int_equal(value, bytes);
}

static void assert_duration(const char *text, uint64_t ns)
{
    uint64_t value = 1;
    assert_int_equal(quantity_read_duration(slice_str(text), &value, hint), WEIR_OK);
    assert_int_equal(value, ns);
}

static void test_sizes_have_binary_and_decimal_units(void **state)
{
    assert_size("64KiB", 65536);
    assert_size("1.5 MiB", 1572864);
    assert_size("2GiB", 2147483648);
    assert_size("10MB", 10000000);
    assert_size("7B", 7);
    assert_size("0", 0);
}

static void test_durations_have_units(void **state)
{
    assert_duration("150ms", 150000000);
    assert_duration("1.5s", 1500000000);
    assert_duration("2m", 120000000000);
    assert_duration("1h", 3600000000000);
    assert_duration("0.000001s", 1000);
    assert_duration("0", 0);
}

static void assert_size_hint(const char *text, const char *want)
{
    uint64_t value = 42;
    assert_int_equal(quantity_read_size(slice_str(text), &value, hint), WEIR_ESYNTAX);
    assert_string_equal(hint, want);
    assert_int_equal(value, 42);
}

static void assert_duration_hint(const char *text, const char *want)
{
    uint64_t value = 42;
    assert_int_equal(quantity_read_duration(slice_str(text), &value, hint), WEIR_ESYNTAX);
    assert_string_equal(hint, want);
    assert_int_equal(value, 42);
}

static void test_what_was_probably_meant_is_said(void **state)
{
    assert_size_hint("64k", "64KiB");
    assert_size_hint("64mb", "64MiB");
    assert_size_hint("1.5 G", "1.5GiB");
    assert_duration_hint("10", "10s");
    assert_duration_hint("5 minutes", "5m");
    assert_duration_hint("3sec", "3s");
}

static void test_rubbish_has_no_hint(void **state)
{
    static const char *const rubbish[] = {"",    "s",    "KiB", "-1s", "1.s", "1.2345678s",
                                          "1 2", "0x10", "1e3", ".5s", "1ss", "10 parsecs"};
    for (size_t i = 0; i < sizeof rubbish / sizeof rubbish[0]; i++)
        assert_duration_hint(rubbish[i], "");
}

static void test_more_than_64_bits_is_a_limit_and_not_a_wrapped_number(void **state)
{
    uint64_t value = 42;
    assert_int_equal(quantity_read_size(SLICE("99999999999TiB"), &value, hint), WEIR_ELIMIT);
    assert_int_equal(quantity_read_duration(SLICE("18446744073709551615h"), &value, hint),
                     WEIR_ELIMIT);
    assert_int_equal(quantity_read_size(SLICE("18446744073709551616B"), &value, hint), WEIR_ELIMIT);
    assert_int_equal(value, 42);
}

/* Mostly round numbers, as people choose, and some that are not. */
static uint64_t draw(struct rng *rng)
{
    static const uint64_t scales[] = {1, 1000, 1024, 1000000, 1 << 20, 60000000000};
    uint64_t scale = scales[rng_next(rng) % 6];
    return rng_next(rng) % (UINT64_MAX / scale) * scale;
}

static void test_what_is_written_reads_back_as_the_same(void **state)
{
    uint64_t seed = 20261201;
    struct rng rng;
    rng_seed(&rng, seed);
    printf("# seed %" PRIu64 "\n", seed);
    for (int i = 0; i < 20000; i++) {
        struct buf out;
        uint64_t value = draw(&rng), back = 1;
        buf_init(&out, 64);
        assert_int_equal(quantity_put_size(&out, value), WEIR_OK);
        assert_int_equal(quantity_read_size(buf_slice(&out), &back, hint), WEIR_OK);
        assert_int_equal(back, value);
        buf_clear(&out);
        assert_int_equal(quantity_put_duration(&out, value), WEIR_OK);
        assert_int_equal(quantity_read_duration(buf_slice(&out), &back, hint), WEIR_OK);
        assert_int_equal(back, value);
        buf_free(&out);
    }
}

static void test_the_largest_unit_that_loses_nothing_is_written(void **state)
{
    struct buf out;
    buf_init(&out, 64);
    assert_int_equal(quantity_put_duration(&out, 90000000000), WEIR_OK);
    assert_int_equal(quantity_put_size(&out, 3 << 20), WEIR_OK);
    assert_int_equal(quantity_put_size(&out, 1000), WEIR_OK);
    assert_int_equal(quantity_put_duration(&out, 0), WEIR_OK);
    assert_true(slice_eq(buf_slice(&out), SLICE("90s3MiB1000B0s")));
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_have_binary_and_decimal_units),
        cmocka_unit_test(test_durations_have_units),
        cmocka_unit_test(test_what_was_probably_meant_is_said),
        cmocka_unit_test(test_rubbish_has_no_hint),
        cmocka_unit_test(test_more_than_64_bits_is_a_limit_and_not_a_wrapped_number),
        cmocka_unit_test(test_what_is_written_reads_back_as_the_same),
        cmocka_unit_test(test_the_largest_unit_that_loses_nothing_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
