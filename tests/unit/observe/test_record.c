#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "observe/record.h"

#define MS NS_PER_MS

static struct request_record streamed(uint64_t tokens)
{
    return (struct request_record){
        .outcome = OUTCOME_OK, .generates = true, .stream = true, .tokens_out = tokens};
}

static void test_request_within_both_promises_is_good(void **state)
{
    struct request_record r = streamed(11);
    record_judge(&r, 200 * MS, 1200 * MS, 500 * MS, 150 * MS);
    assert_true(r.good);
    assert_int_equal(r.ttft_ns, 200 * MS);
    assert_int_equal(r.tpot_ns, 100 * MS);
}

static void test_promise_is_kept_at_exactly_its_value_and_broken_one_ns_later(void **state)
{
    struct request_record r = streamed(2);
    record_judge(&r, 500 * MS, 600 * MS, 500 * MS, 100 * MS);
    assert_true(r.good);

    record_judge(&r, 500 * MS + 1, 600 * MS, 500 * MS, 100 * MS);
    assert_false(r.good);
    assert_true(r.late_ttft);
    assert_false(r.late_tpot);

    record_judge(&r, 500 * MS, 600 * MS + 1, 500 * MS, 100 * MS);
    assert_false(r.good);
    assert_false(r.late_ttft);
    assert_true(r.late_tpot);
}

static void test_both_promises_can_be_missed(void **state)
{
    struct request_record r = streamed(2);
    record_judge(&r, 2, 9, 1, 1);
    assert_true(r.late_ttft && r.late_tpot && !r.good);
}

static void test_one_token_meets_any_tpot(void **state)
{
    for (uint64_t tokens = 0; tokens <= 1; tokens++) {
        struct request_record r = streamed(tokens);
        record_judge(&r, 1 * MS, 9000 * MS, 5 * MS, 1);
        assert_true(r.good);
        assert_int_equal(r.tpot_ns, 0);
    }
}

static void test_without_promises_all_completed_requests_are_good(void **state)
{
    struct request_record r = streamed(2);
    record_judge(&r, 1000000 * MS, 9000000 * MS, 0, 0);
    assert_true(r.good);
}

static void test_only_completed_generating_requests_are_judged(void **state)
{
    for (int outcome = OUTCOME_OK; outcome < OUTCOMES; outcome++) {
        struct request_record r = streamed(2);
        r.outcome = (enum outcome)outcome;
        record_judge(&r, 1, 2, 10, 10);
        assert_int_equal(r.good, outcome == OUTCOME_OK);
        record_judge(&r, 100, 200, 10, 10);
        assert_false(r.good);
        assert_int_equal(r.late_ttft, outcome == OUTCOME_OK);
        assert_int_equal(r.late_tpot, outcome == OUTCOME_OK);
    }
    struct request_record embedding = {.outcome = OUTCOME_OK, .duration_ns = 1};
    record_judge(&embedding, 1, 1, 10, 10);
    assert_false(embedding.good);
}

static void test_shed_and_failed_count_as_offered_but_not_what_clients_did(void **state)
{
    const bool offered[OUTCOMES] = {
        [OUTCOME_OK] = true, [OUTCOME_SHED] = true, [OUTCOME_FAILED] = true};
    for (int outcome = OUTCOME_OK; outcome < OUTCOMES; outcome++) {
        struct request_record r = {.outcome = (enum outcome)outcome, .generates = true};
        assert_int_equal(record_is_offered(&r), offered[outcome]);
        r.generates = false;
        assert_false(record_is_offered(&r));
    }
}

static void test_stream_without_content_is_judged_by_its_duration(void **state)
{
    struct request_record r = streamed(0);
    r.duration_ns = 501 * MS;
    record_judge(&r, 0, 0, 500 * MS, 100 * MS);
    assert_true(r.late_ttft);
    assert_int_equal(r.ttft_ns, 0);
    r.duration_ns = 500 * MS;
    record_judge(&r, 0, 0, 500 * MS, 100 * MS);
    assert_true(r.good);
}

static void test_whole_answer_is_good_as_long_as_a_stream_could_have_lasted(void **state)
{
    struct request_record r = streamed(11);
    r.stream = false;
    r.duration_ns = 1500 * MS; /* 500 + 10 * 100 */
    record_judge(&r, 1500 * MS, 1500 * MS, 500 * MS, 100 * MS);
    assert_true(r.good);
    assert_int_equal(r.ttft_ns, 0);
    assert_int_equal(r.tpot_ns, 0);

    r.duration_ns++;
    record_judge(&r, 1500 * MS, 1500 * MS, 500 * MS, 100 * MS);
    assert_true(r.late_ttft);
    assert_false(r.good);
}

static void test_whole_answer_cannot_break_one_promise_alone(void **state)
{
    struct request_record r = streamed(11);
    r.stream = false;
    r.duration_ns = 3600 * NS_PER_S;
    record_judge(&r, 0, 0, 0, 100 * MS);
    assert_true(r.good);
    record_judge(&r, 0, 0, 500 * MS, 0);
    assert_true(r.good);
    r.tokens_out = 1; /* no gap that could excuse it */
    record_judge(&r, 0, 0, 500 * MS, 0);
    assert_true(r.late_ttft);
}

static void test_absurd_token_counts_do_not_overflow(void **state)
{
    struct request_record r = streamed(UINT64_MAX);
    r.duration_ns = 1000 * MS;
    record_judge(&r, 1, 1000 * MS, 500 * MS, 100 * MS);
    assert_true(r.good);
    r.stream = false;
    record_judge(&r, 1, 1000 * MS, 500 * MS, 100 * MS);
    assert_true(r.good);
}

static void test_times_in_the_wrong_order_give_no_tpot(void **state)
{
    struct request_record r = streamed(5);
    record_judge(&r, 10, 5, 100, 1);
    assert_int_equal(r.tpot_ns, 0);
    assert_true(r.good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request_within_both_promises_is_good),
        cmocka_unit_test(test_promise_is_kept_at_exactly_its_value_and_broken_one_ns_later),
        cmocka_unit_test(test_both_promises_can_be_missed),
        cmocka_unit_test(test_one_token_meets_any_tpot),
        cmocka_unit_test(test_without_promises_all_completed_requests_are_good),
        cmocka_unit_test(test_only_completed_generating_requests_are_judged),
        cmocka_unit_test(test_shed_and_failed_count_as_offered_but_not_what_clients_did),
        cmocka_unit_test(test_stream_without_content_is_judged_by_its_duration),
        cmocka_unit_test(test_whole_answer_is_good_as_long_as_a_stream_could_have_lasted),
        cmocka_unit_test(test_whole_answer_cannot_break_one_promise_alone),
        cmocka_unit_test(test_absurd_token_counts_do_not_overflow),
        cmocka_unit_test(test_times_in_the_wrong_order_give_no_tpot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
