#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool.h"

extern const struct route_policy route_round_robin;

static void test_each_in_turn(void **state)
{
    struct test_pool *p = pool_new(5, 1);
    int before = pool_pick(p, &route_round_robin, 0);
    for (int i = 0; i < 12; i++) {
        int at = pool_pick(p, &route_round_robin, 0);
        assert_int_equal(at, (before + 1) % 5);
        before = at;
    }
    pool_free(p);
}

static void test_those_out_of_service_are_skipped_evenly(void **state)
{
    struct test_pool *p = pool_new(4, 1);
    size_t hits[4] = {0};
    pool_set_state(p, 2, REPLICA_DOWN);
    for (int i = 0; i < 300; i++)
        hits[pool_pick(p, &route_round_robin, 0)]++;
    assert_int_equal(hits[0], 100);
    assert_int_equal(hits[1], 100);
    assert_int_equal(hits[2], 0);
    assert_int_equal(hits[3], 100);
    pool_free(p);
}

static void test_workers_start_apart(void **state)
{
    bool started[8] = {false};
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct test_pool *p = pool_new(8, seed);
        started[pool_pick(p, &route_round_robin, 0)] = true;
        pool_free(p);
    }
    for (int i = 0; i < 8; i++)
        assert_true(started[i]);
}

static void test_a_smaller_pool_after_a_reload_is_no_trouble(void **state)
{
    struct test_pool *p = pool_new(9, 1);
    for (int i = 0; i < 8; i++)
        pool_pick(p, &route_round_robin, 0);
    size_t count = p->view.count;
    p->view.count = 2;
    for (int i = 0; i < 5; i++)
        assert_in_range(pool_pick(p, &route_round_robin, 0), 0, 1);
    p->view.count = count;
    pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_in_turn),
        cmocka_unit_test(test_those_out_of_service_are_skipped_evenly),
        cmocka_unit_test(test_workers_start_apart),
        cmocka_unit_test(test_a_smaller_pool_after_a_reload_is_no_trouble),
    };
    return cmocka_run_group_tests_name("round_robin", tests, NULL, NULL);
}
