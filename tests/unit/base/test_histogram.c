#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/histogram.h"
#include "base/rng.h"

static void test_cells_cover_all_values_without_gap(void **state)
{
    uint64_t next = 0; /* smallest value of the cell */
    for (uint32_t cell = 0; cell < HISTOGRAM_CELLS; cell++) {
        uint64_t upper = histogram_cell_upper(cell);
        assert_true(upper >= next);
        assert_int_equal(histogram_cell(next), cell);
        assert_int_equal(histogram_cell(upper), cell);
        assert_true(upper - next <= next / 8); /* the promised precision */
        next = upper + 1;
    }
    assert_true(next == 1ull << HISTOGRAM_TOP_BIT);
    assert_int_equal(histogram_cell(next), HISTOGRAM_CELLS - 1);
    assert_int_equal(histogram_cell(UINT64_MAX), HISTOGRAM_CELLS - 1);
}

static void test_empty_histogram_answers_zero(void **state)
{
    struct histogram h = {0};
    assert_int_equal(histogram_quantile(&h, 0.5), 0);
    assert_int_equal(histogram_count_le(&h, UINT64_MAX), 0);
}

static void test_quantile_of_few_values_is_the_value_of_that_rank(void **state)
{
    struct histogram h = {0};
    for (uint64_t value = 1; value <= 4; value++)
        histogram_record(&h, value);
    assert_int_equal(histogram_quantile(&h, 0), 1);
    assert_int_equal(histogram_quantile(&h, 0.25), 1);
    assert_int_equal(histogram_quantile(&h, 0.26), 2);
    assert_int_equal(histogram_quantile(&h, 0.5), 2);
    assert_int_equal(histogram_quantile(&h, 1), 4);
    assert_int_equal(histogram_quantile(&h, 7), 4);
    assert_int_equal(histogram_quantile(&h, -1), 1);
}

enum { VALUES = 20000 };

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void test_quantiles_and_counts_agree_with_sorting(void **state)
{
    static uint64_t values[VALUES];
    static struct histogram h, halves[2];
    for (uint64_t seed = 1; seed <= 5; seed++) {
        print_message("# seed %llu\n", (unsigned long long)seed);
        struct rng rng;
        rng_seed(&rng, seed);
        memset(&h, 0, sizeof h);
        memset(halves, 0, sizeof halves);
        uint64_t sum = 0;
        for (size_t i = 0; i < VALUES; i++) {
            values[i] = (uint64_t)exp2(rng_unit(&rng) * (double)(seed * 7)); /* many decades */
            sum += values[i];
            histogram_record(&halves[i % 2], values[i]);
        }
        histogram_merge(&h, &halves[0]);
        histogram_merge(&h, &halves[1]);
        assert_true(h.count == VALUES && h.sum == sum);

        qsort(values, VALUES, sizeof *values, by_value);
        for (int permille = 1; permille <= 1000; permille++) {
            uint64_t exact = values[(size_t)permille * VALUES / 1000 - 1];
            uint64_t got = histogram_quantile(&h, permille / 1000.0);
            assert_true(got >= exact && got - exact <= exact / 8);
        }
        for (uint32_t cell = 0; cell < HISTOGRAM_CELLS; cell += 5) {
            uint64_t bound = histogram_cell_upper(cell), count = 0;
            while (count < VALUES && values[count] <= bound)
                count++;
            assert_int_equal(histogram_count_le(&h, bound), count);
        }
    }
}

static void test_count_leaves_out_a_cell_that_the_bound_cuts(void **state)
{
    struct histogram h = {0};
    histogram_record(&h, 16); /* the cell 16..17 */
    assert_int_equal(histogram_count_le(&h, 16), 0);
    assert_int_equal(histogram_count_le(&h, 17), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cells_cover_all_values_without_gap),
        cmocka_unit_test(test_empty_histogram_answers_zero),
        cmocka_unit_test(test_quantile_of_few_values_is_the_value_of_that_rank),
        cmocka_unit_test(test_quantiles_and_counts_agree_with_sorting),
        cmocka_unit_test(test_count_leaves_out_a_cell_that_the_bound_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
