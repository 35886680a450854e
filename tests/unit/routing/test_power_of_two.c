#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool.h"

extern const struct route_policy route_power_of_two;

static void test_of_two_the_less_loaded_is_chosen(void **state)
{
    struct test_pool *p = pool_new(2, 1);
    pool_add_load(p, 0, 1, 100);
    for (int i = 0; i < 100; i++) /* in 16 draws the other one is missed once in 32768 picks */
        assert_int_equal(pool_pick(p, &route_power_of_two, 0), 1);
    pool_free(p);
}

static void test_the_most_loaded_of_many_is_never_chosen(void **state)
{
    struct test_pool *p = pool_new(50, 2);
    for (size_t i = 0; i < 50; i++)
        pool_add_load(p, i, 1, (int64_t)i);
    for (int i = 0; i < 5000; i++)
        assert_int_not_equal(pool_pick(p, &route_power_of_two, 0), 49);
    pool_free(p);
}

static void test_load_stays_close_to_even(void **state)
{
    enum { COUNT = 100, REQUESTS = 3000 };
    struct test_pool *p = pool_new(COUNT, 3);
    struct replica_claim *claims = calloc(REQUESTS, sizeof *claims);
    for (int i = 0; i < REQUESTS; i++)
        replica_claim_take(&claims[i], p->replicas[pool_pick(p, &route_power_of_two, 0)], 10, 100);
    for (int i = 0; i < COUNT; i++) /* mean 30; by one draw the maximum would be about 45 */
        assert_in_range(replica_in_flight(p->replicas[i]), 24, 34);
    for (int i = 0; i < REQUESTS; i++)
        replica_claim_release(&claims[i]);
    free(claims);
    pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_two_the_less_loaded_is_chosen),
        cmocka_unit_test(test_the_most_loaded_of_many_is_never_chosen),
        cmocka_unit_test(test_load_stays_close_to_even),
    };
    return cmocka_run_group_tests_name("power_of_two", tests, NULL, NULL);
}
