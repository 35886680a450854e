#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "observe/genai.h"
#include "observe/record.h"

static void test_bounds_rise(void **state)
{
    for (size_t i = 1; i < GENAI_DURATION_BOUNDS; i++)
        assert_true(genai_duration_bounds_us[i] == 2 * genai_duration_bounds_us[i - 1]);
    for (size_t i = 1; i < GENAI_TTFT_BOUNDS; i++)
        assert_true(genai_ttft_bounds_us[i] > genai_ttft_bounds_us[i - 1]);
    for (size_t i = 1; i < GENAI_TPOT_BOUNDS; i++)
        assert_true(genai_tpot_bounds_us[i] > genai_tpot_bounds_us[i - 1]);
}

static struct request_record completed(void)
{
    return (struct request_record){.operation = "chat",
                                   .outcome = OUTCOME_OK,
                                   .generates = true,
                                   .stream = true,
                                   .tokens_out = 2,
                                   .duration_ns = 20 * NS_PER_MS,
                                   .ttft_ns = 5 * NS_PER_MS,
                                   .tpot_ns = 10 * NS_PER_MS};
}

static void test_value_at_a_bound_counts_below_it_and_one_ns_more_above(void **state)
{
    static struct genai_shard shard;
    struct request_record r = completed();
    genai_record(&shard, &r);
    assert_int_equal(shard.duration[GENAI_CHAT][OUTCOME_OK][1], 1); /* le 0.02 */
    assert_int_equal(shard.ttft[GENAI_CHAT][1], 1);                 /* le 0.005 */
    assert_int_equal(shard.tpot[GENAI_CHAT][0], 1);                 /* le 0.01 */

    r.duration_ns++;
    r.ttft_ns++;
    r.tpot_ns++;
    genai_record(&shard, &r);
    assert_int_equal(shard.duration[GENAI_CHAT][OUTCOME_OK][2], 1);
    assert_int_equal(shard.ttft[GENAI_CHAT][2], 1);
    assert_int_equal(shard.tpot[GENAI_CHAT][1], 1);
    assert_int_equal(shard.ttft_sum_us[GENAI_CHAT], 10000);
}

static void test_value_above_all_bounds_has_a_cell(void **state)
{
    static struct genai_shard shard;
    struct request_record r = completed();
    r.duration_ns = r.ttft_ns = r.tpot_ns = 1000 * NS_PER_S;
    genai_record(&shard, &r);
    assert_int_equal(shard.duration[GENAI_CHAT][OUTCOME_OK][GENAI_DURATION_BOUNDS], 1);
    assert_int_equal(shard.ttft[GENAI_CHAT][GENAI_TTFT_BOUNDS], 1);
    assert_int_equal(shard.tpot[GENAI_CHAT][GENAI_TPOT_BOUNDS], 1);
}

static uint64_t total(const _Atomic uint64_t *cells, size_t count)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += cells[i];
    return sum;
}

static void test_only_successful_responses_have_token_times(void **state)
{
    static struct genai_shard shard;
    struct request_record r = completed();
    for (int outcome = OUTCOME_OK + 1; outcome < OUTCOMES; outcome++) {
        r.outcome = (enum outcome)outcome;
        genai_record(&shard, &r);
        assert_int_equal(total(shard.duration[GENAI_CHAT][outcome], GENAI_DURATION_BOUNDS + 1), 1);
    }
    assert_int_equal(total(shard.ttft[GENAI_CHAT], GENAI_TTFT_BOUNDS + 1), 0);
    assert_int_equal(total(shard.tpot[GENAI_CHAT], GENAI_TPOT_BOUNDS + 1), 0);
}

static void test_one_token_has_no_time_per_output_token(void **state)
{
    static struct genai_shard shard;
    struct request_record r = completed();
    r.tokens_out = 1;
    genai_record(&shard, &r);
    assert_int_equal(total(shard.ttft[GENAI_CHAT], GENAI_TTFT_BOUNDS + 1), 1);
    assert_int_equal(total(shard.tpot[GENAI_CHAT], GENAI_TPOT_BOUNDS + 1), 0);
}

static void test_operations_are_kept_apart_and_unknown_ones_together(void **state)
{
    static struct genai_shard shard;
    const char *const words[] = {"chat",   "text_completion", "embeddings",
                                 "rerank", "tokenize",        NULL};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        struct request_record r = completed();
        r.operation = words[i];
        genai_record(&shard, &r);
    }
    const uint64_t expected[GENAI_OPERATIONS] = {1, 1, 1, 3};
    for (int op = 0; op < GENAI_OPERATIONS; op++)
        assert_int_equal(total(shard.duration[op][OUTCOME_OK], GENAI_DURATION_BOUNDS + 1),
                         expected[op]);
    assert_string_equal(genai_operation_name(GENAI_OTHER), "_OTHER");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds_rise),
        cmocka_unit_test(test_value_at_a_bound_counts_below_it_and_one_ns_more_above),
        cmocka_unit_test(test_value_above_all_bounds_has_a_cell),
        cmocka_unit_test(test_only_successful_responses_have_token_times),
        cmocka_unit_test(test_one_token_has_no_time_per_output_token),
        cmocka_unit_test(test_operations_are_kept_apart_and_unknown_ones_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
