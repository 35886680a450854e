#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/rng.h"

/* The authors' C code, with the state 1, 2, 3, 4. */
static void test_sequence_is_xoshiro256pp(void **state)
{
    static const uint64_t want[] = {41943041, 58720359, 3588806011781223, 3591011842654386,
                                    9228616714210784205ull};
    struct rng rng = {{1, 2, 3, 4}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_true(rng_next(&rng) == want[i]);
}

static void test_seed_is_splitmix64_and_replays(void **state)
{
    struct rng a, b;
    rng_seed(&a, 0);
    assert_true(a.state[0] == 0xe220a8397b1dcdaf && a.state[1] == 0x6e789e6aa1b965f4);
    rng_seed(&b, 0);
    for (int i = 0; i < 100; i++)
        assert_true(rng_next(&a) == rng_next(&b));
    rng_seed(&b, 1);
    assert_true(rng_next(&a) != rng_next(&b));
}

static void test_below_stays_below_and_is_even(void **state)
{
    struct rng rng;
    rng_seed(&rng, 5);
    size_t counts[7] = {0};
    for (int i = 0; i < 70000; i++)
        counts[rng_below(&rng, 7)]++;
    for (int i = 0; i < 7; i++)
        assert_in_range(counts[i], 9600, 10400); /* 10000 +- 4 standard deviations */
    assert_int_equal(rng_below(&rng, 1), 0);
    for (int i = 0; i < 1000; i++)
        assert_true(rng_below(&rng, (1ull << 63) + 1) <= 1ull << 63);
}

static void test_unit_is_in_range_with_the_right_mean(void **state)
{
    struct rng rng;
    rng_seed(&rng, 6);
    double sum = 0;
    for (int i = 0; i < 100000; i++) {
        double u = rng_unit(&rng);
        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(sum > 49600 && sum < 50400);
}

static void test_secrets_fill_the_memory_and_differ(void **state)
{
    char a[5000] = {0}, b[sizeof a] = {0};
    rng_secret(a, sizeof a);
    rng_secret(b, sizeof b);
    assert_memory_not_equal(a, b, 16);
    assert_memory_not_equal(a + sizeof a - 16, b + sizeof b - 16, 16);
    rng_secret(a, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequence_is_xoshiro256pp),
        cmocka_unit_test(test_seed_is_splitmix64_and_replays),
        cmocka_unit_test(test_below_stays_below_and_is_even),
        cmocka_unit_test(test_unit_is_in_range_with_the_right_mean),
        cmocka_unit_test(test_secrets_fill_the_memory_and_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
