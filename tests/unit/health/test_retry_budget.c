#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "health/health.h"

#define NOW (1000 * NS_PER_S)

static size_t drain(struct retry_budget *b, uint64_t now_ns)
{
    size_t taken = 0;
    while (taken < 100000 && retry_budget_take(b, now_ns))
        taken++;
    return taken;
}

static void test_a_quiet_model_can_retry_at_once(void **state)
{
    struct retry_budget b;
    retry_budget_init(&b, 0.2, 3, NOW);
    assert_int_equal(drain(&b, NOW), 30); /* ten seconds of the floor */
    assert_false(retry_budget_take(&b, NOW));
}

static void test_the_floor_flows_in_with_time(void **state)
{
    struct retry_budget b;
    retry_budget_init(&b, 0.2, 3, NOW);
    drain(&b, NOW);
    assert_int_equal(drain(&b, NOW + 2 * NS_PER_S), 6);
    assert_int_equal(drain(&b, NOW + 1 * NS_PER_S), 0); /* a time that went back adds nothing */
    assert_int_equal(drain(&b, NOW + 3 * NS_PER_S), 3);
}

static void test_requests_pay_for_a_share_of_retries(void **state)
{
    struct retry_budget b;
    retry_budget_init(&b, 0.25, 0, NOW);
    assert_false(retry_budget_take(&b, NOW));
    for (int i = 0; i < 100; i++)
        retry_budget_deposit(&b);
    assert_int_equal(drain(&b, NOW), 25);
}

static void test_what_is_saved_up_has_a_bound(void **state)
{
    struct retry_budget b;
    retry_budget_init(&b, 0.25, 1, NOW);
    for (int i = 0; i < 1000000; i++)
        retry_budget_deposit(&b);
    assert_int_equal(drain(&b, NOW + 86400 * NS_PER_S), 260); /* 10 s of 1, 1000 requests of 0.25 */
}

static void test_zero_means_never(void **state)
{
    struct retry_budget b;
    retry_budget_init(&b, 0, 0, NOW);
    for (int i = 0; i < 100; i++)
        retry_budget_deposit(&b);
    assert_false(retry_budget_take(&b, NOW + 100 * NS_PER_S));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_quiet_model_can_retry_at_once),
        cmocka_unit_test(test_the_floor_flows_in_with_time),
        cmocka_unit_test(test_requests_pay_for_a_share_of_retries),
        cmocka_unit_test(test_what_is_saved_up_has_a_bound),
        cmocka_unit_test(test_zero_means_never),
    };
    return cmocka_run_group_tests_name("retry_budget", tests, NULL, NULL);
}
