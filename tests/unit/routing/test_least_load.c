#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool.h"

extern const struct route_policy route_least_load;

static void test_the_least_loaded_is_chosen(void **state)
{
    struct test_pool *p = pool_new(100, 1);
    for (size_t i = 0; i < 100; i++)
        pool_add_load(p, i, 1, (int64_t)(i == 42 ? 1 : 100 + i));
    for (int i = 0; i < 20; i++)
        assert_int_equal(pool_pick(p, &route_least_load, 0), 42);
    pool_free(p);
}

static void test_equal_loads_are_settled_by_lot(void **state)
{
    enum { PICKS = 10000, COUNT = 10 };
    struct test_pool *p = pool_new(COUNT, 2);
    size_t hits[COUNT] = {0};
    for (int i = 0; i < PICKS; i++)
        hits[pool_pick(p, &route_least_load, 0)]++;
    for (int i = 0; i < COUNT; i++) /* mean 1000, deviation 30 */
        assert_in_range(hits[i], 850, 1150);
    pool_free(p);
}

static void test_in_a_large_pool_the_choice_is_among_the_best(void **state)
{
    enum { COUNT = 10000, PICKS = 2000 };
    struct test_pool *p = pool_new(COUNT, 3);
    for (size_t i = 0; i < COUNT; i++)
        pool_add_load(p, i, 1, (int64_t)i);
    double sum = 0;
    for (int i = 0; i < PICKS; i++)
        sum += pool_pick(p, &route_least_load, 0);
    double mean_rank = sum / PICKS / COUNT; /* of the best of 64: 1/65 */
    assert_true(mean_rank > 0.013 && mean_rank < 0.018);
    pool_free(p);
}

/* FR-25: one hot prefix or not, max over mean load stays small when each request goes by load. */
static void test_fr25_500_requests_on_8_replicas_spread(void **state)
{
    struct test_pool *p = pool_new(8, 25);
    struct replica_claim claims[500] = {0};
    for (int i = 0; i < 500; i++)
        replica_claim_take(&claims[i], p->replicas[pool_pick(p, &route_least_load, 0)], 4096, 200);
    for (int i = 0; i < 8; i++)
        assert_in_range(replica_in_flight(p->replicas[i]), 62, 63);
    for (int i = 0; i < 500; i++)
        replica_claim_release(&claims[i]);
    pool_free(p);
}

static void test_faster_replicas_get_more(void **state)
{
    struct test_pool *p = pool_new(2, 4);
    struct replica_claim claims[300] = {0};
    replica_learn_speed(p->replicas[0], 101, 1 * NS_PER_S);
    replica_learn_speed(p->replicas[1], 201, 1 * NS_PER_S);
    for (int i = 0; i < 300; i++)
        replica_claim_take(&claims[i], p->replicas[pool_pick(p, &route_least_load, 0)], 100, 100);
    assert_in_range(replica_in_flight(p->replicas[0]), 98, 102);
    assert_in_range(replica_in_flight(p->replicas[1]), 198, 202);
    for (int i = 0; i < 300; i++)
        replica_claim_release(&claims[i]);
    pool_free(p);
}

static void test_a_seed_replays_its_choices(void **state)
{
    struct test_pool *a = pool_new(1000, 9), *b = pool_new(1000, 9);
    for (int i = 0; i < 100; i++)
        assert_int_equal(pool_pick(a, &route_least_load, 0), pool_pick(b, &route_least_load, 0));
    pool_free(a);
    pool_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_least_loaded_is_chosen),
        cmocka_unit_test(test_equal_loads_are_settled_by_lot),
        cmocka_unit_test(test_in_a_large_pool_the_choice_is_among_the_best),
        cmocka_unit_test(test_fr25_500_requests_on_8_replicas_spread),
        cmocka_unit_test(test_faster_replicas_get_more),
        cmocka_unit_test(test_a_seed_replays_its_choices),
    };
    return cmocka_run_group_tests_name("least_load", tests, NULL, NULL);
}
