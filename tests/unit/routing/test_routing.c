#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool.h"

static void test_every_policy_is_found_by_its_word(void **state)
{
    const char *name, *help;
    size_t count = 0;
    while (route_policy_at(count, &name, &help)) {
        const struct route_policy *policy = route_policy_find(slice_str(name));
        assert_non_null(policy);
        assert_non_null(policy->pick);
        assert_string_equal(route_policy_name(policy), name);
        assert_true(strlen(help) > 0);
        count++;
    }
    assert_int_equal(count, 4);
    assert_null(route_policy_find(SLICE("Round-robin")));
    assert_null(route_policy_find(SLICE("")));
    assert_null(route_policy_name(NULL));
}

/* All policies, on pools in which something is wrong. */
static void for_all_policies(void (*check)(struct test_pool *p, const struct route_policy *policy),
                             size_t count)
{
    const char *name, *help;
    for (size_t i = 0; route_policy_at(i, &name, &help); i++) {
        struct test_pool *p = pool_new(count, i);
        check(p, route_policy_find(slice_str(name)));
        pool_free(p);
    }
}

static void check_none(struct test_pool *p, const struct route_policy *policy)
{
    assert_int_equal(pool_pick(p, policy, 0), ROUTE_NONE);
    assert_int_equal(pool_pick(p, policy, 77), ROUTE_NONE);
}

static void test_an_empty_pool_has_nobody(void **state)
{
    for_all_policies(check_none, 0);
}

static void check_the_only_usable(struct test_pool *p, const struct route_policy *policy)
{
    for (size_t i = 0; i < p->view.count; i++)
        pool_set_state(p, i, (enum replica_state)(i % REPLICA_STATES));
    for (size_t i = 0; i < p->view.count; i++)
        if (i % REPLICA_STATES == REPLICA_READY && i != 1)
            pool_eject(p, i, NOW + 1);
    for (uint64_t n = 0; n < 50; n++)
        assert_int_equal(pool_pick(p, policy, n), 1);
    p->view.tried[0] = p->replicas[1]->id;
    p->view.tried_count = 1;
    assert_int_equal(pool_pick(p, policy, 5), ROUTE_NONE);
}

static void test_the_one_usable_replica_is_found_in_any_pool(void **state)
{
    for_all_policies(check_the_only_usable, 7);
    for_all_policies(check_the_only_usable, 3000);
}

static void check_desperate(struct test_pool *p, const struct route_policy *policy)
{
    for (size_t i = 0; i < p->view.count; i++)
        pool_set_state(p, i, REPLICA_DRAINING);
    p->view.desperate = true;
    assert_int_equal(pool_pick(p, policy, 1), ROUTE_NONE);
    pool_set_state(p, 2, REPLICA_DOWN);
    assert_int_equal(pool_pick(p, policy, 1), 2);
}

static void test_a_desperate_view_takes_all_but_draining(void **state)
{
    for_all_policies(check_desperate, 5);
    for_all_policies(check_desperate, 500);
}

static void check_returning_share(struct test_pool *p, const struct route_policy *policy)
{
    enum { PICKS = 20000 };
    atomic_store(&p->replicas[3]->health.returned_ns, NOW - 1 * NS_PER_S); /* a tenth of the ramp */
    size_t hits = 0;
    for (uint64_t n = 0; n < PICKS; n++)
        hits += pool_pick(p, policy, n * 7919 + 1) == 3;
    double share = (double)hits / PICKS * (double)p->view.count; /* 1: a fair share */
    assert_true(share > 0.05 && share < 0.3);
}

static void test_fr28_a_returning_replica_gets_a_small_share_first(void **state)
{
    for_all_policies(check_returning_share, 8);
}

static void check_only_returning(struct test_pool *p, const struct route_policy *policy)
{
    for (size_t i = 0; i < p->view.count; i++)
        atomic_store(&p->replicas[i]->health.returned_ns, NOW);
    for (uint64_t n = 0; n < 200; n++)
        assert_int_not_equal(pool_pick(p, policy, n), ROUTE_NONE);
}

static void test_a_pool_that_returns_as_a_whole_still_serves(void **state)
{
    for_all_policies(check_only_returning, 3);
}

static void test_an_ejected_replica_is_usable_when_its_trial_is_due(void **state)
{
    struct test_pool *p = pool_new(2, 1);
    pool_eject(p, 0, NOW);
    assert_true(route_usable(&p->view, 0, NOW));
    assert_false(route_usable(&p->view, 0, NOW - 1));
    atomic_store(&p->replicas[0]->health.trial_ns, NOW);
    assert_false(route_usable(&p->view, 0, NOW + 1));
    p->view.desperate = true;
    assert_true(route_usable(&p->view, 0, NOW - 1));
    pool_free(p);
}

static void test_the_ramp_grows_from_a_little_to_all(void **state)
{
    struct test_pool *p = pool_new(1, 1);
    struct replica *r = p->replicas[0];
    assert_true(route_ramp(&p->view, r, NOW) == 1.0); /* never away */
    atomic_store(&r->health.returned_ns, NOW);
    double before = 0;
    for (uint64_t s = 0; s <= 10; s++) {
        double ramp = route_ramp(&p->view, r, NOW + s * NS_PER_S);
        assert_true(ramp > before && ramp <= 1.0);
        before = ramp;
    }
    assert_true(before == 1.0);
    assert_true(route_ramp(&p->view, r, NOW - 5 * NS_PER_S) > 0); /* a clock of another worker */
    p->view.ramp_ns = 0;
    assert_true(route_ramp(&p->view, r, NOW) == 1.0);
    pool_free(p);
}

static double load_of(struct test_pool *p, size_t i)
{
    return route_load(&p->view, p->replicas[i], NOW);
}

static void test_load_grows_with_work_and_falls_with_speed(void **state)
{
    struct test_pool *p = pool_new(2, 1);
    assert_true(load_of(p, 0) == 0.0);
    pool_add_load(p, 0, 1, 100);
    pool_add_load(p, 1, 1, 200);
    assert_true(load_of(p, 0) > 0 && load_of(p, 1) > load_of(p, 0));
    replica_learn_speed(p->replicas[0], 51, 1 * NS_PER_S);
    replica_learn_speed(p->replicas[1], 501, 1 * NS_PER_S);
    assert_true(load_of(p, 1) < load_of(p, 0)); /* ten times as fast, twice the work */
    atomic_fetch_add(&p->replicas[1]->load.prompt_tokens, 100000);
    assert_true(load_of(p, 1) > load_of(p, 0));
    pool_free(p);
}

static void test_what_other_gateways_sent_counts_and_fades(void **state)
{
    struct test_pool *p = pool_new(1, 1);
    struct replica *r = p->replicas[0];
    atomic_store(&r->report.running, 6);
    atomic_store(&r->report.waiting, 4);
    assert_true(load_of(p, 0) == 0.0); /* never scraped */
    atomic_store(&r->report.taken_ns, NOW);
    double fresh = load_of(p, 0);
    double old = route_load(&p->view, r, NOW + 10 * NS_PER_S);
    assert_true(fresh > old && old > 0);
    assert_true(route_load(&p->view, r, NOW + 60 * NS_PER_S) == 0.0);
    pool_add_load(p, 0, 10, 0); /* they were all ours: not counted twice */
    assert_true(load_of(p, 0) < fresh);
    pool_free(p);
}

static void test_a_busy_engine_is_less_attractive_for_a_while(void **state)
{
    struct test_pool *p = pool_new(1, 1);
    atomic_store(&p->replicas[0]->health.busy_until_ns, NOW + 2 * NS_PER_S);
    assert_true(load_of(p, 0) > 0);
    assert_true(route_load(&p->view, p->replicas[0], NOW + 1 * NS_PER_S) < load_of(p, 0));
    assert_true(route_load(&p->view, p->replicas[0], NOW + 2 * NS_PER_S) == 0.0);
    pool_free(p);
}

static void test_desperate_loads_order_by_hope(void **state)
{
    struct test_pool *p = pool_new(5, 1);
    p->view.desperate = true;
    pool_eject(p, 1, NOW + 1);
    pool_set_state(p, 2, REPLICA_UNKNOWN);
    pool_set_state(p, 3, REPLICA_DOWN);
    pool_set_state(p, 4, REPLICA_LOADING);
    pool_add_load(p, 0, 20, 10000);
    for (size_t i = 1; i < 5; i++)
        assert_true(load_of(p, i - 1) < load_of(p, i));
    pool_free(p);
}

static void test_a_view_of_a_pool_is_a_first_round(void **state)
{
    struct test_pool *p = pool_new(3, 1);
    assert_false(p->view.desperate);
    assert_int_equal(p->view.tried_count, 0);
    assert_int_equal(p->view.count, 3);
    assert_true(p->view.ring_order);
    pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_policy_is_found_by_its_word),
        cmocka_unit_test(test_an_empty_pool_has_nobody),
        cmocka_unit_test(test_the_one_usable_replica_is_found_in_any_pool),
        cmocka_unit_test(test_a_desperate_view_takes_all_but_draining),
        cmocka_unit_test(test_fr28_a_returning_replica_gets_a_small_share_first),
        cmocka_unit_test(test_a_pool_that_returns_as_a_whole_still_serves),
        cmocka_unit_test(test_an_ejected_replica_is_usable_when_its_trial_is_due),
        cmocka_unit_test(test_the_ramp_grows_from_a_little_to_all),
        cmocka_unit_test(test_load_grows_with_work_and_falls_with_speed),
        cmocka_unit_test(test_what_other_gateways_sent_counts_and_fades),
        cmocka_unit_test(test_a_busy_engine_is_less_attractive_for_a_while),
        cmocka_unit_test(test_desperate_loads_order_by_hope),
        cmocka_unit_test(test_a_view_of_a_pool_is_a_first_round),
    };
    return cmocka_run_group_tests_name("routing", tests, NULL, NULL);
}
