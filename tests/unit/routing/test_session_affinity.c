#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool.h"

extern const struct route_policy route_session_affinity;

static uint64_t session(uint64_t n)
{
    return n * 0x9e3779b97f4a7c15 + 1;
}

static int pick(struct test_pool *p, uint64_t n)
{
    return pool_pick(p, &route_session_affinity, session(n));
}

static void test_a_session_stays_where_it_is(void **state)
{
    static const size_t counts[] = {1, 2, 100, 1000, 10000};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        struct test_pool *a = pool_new(counts[c], 1), *b = pool_new(counts[c], 2);
        for (uint64_t n = 0; n < 200;
             n++) /* another gateway: another seed, other ids, same names */
            assert_int_equal(pick(a, n), pick(b, n));
        pool_free(a);
        pool_free(b);
    }
}

static void test_sessions_spread_evenly(void **state)
{
    static const size_t counts[] = {10, 1000};
    for (size_t c = 0; c < 2; c++) {
        struct test_pool *p = pool_new(counts[c], 1);
        size_t sessions = counts[c] * 200;
        size_t *hits = calloc(counts[c], sizeof *hits);
        size_t most = 0;
        for (uint64_t n = 0; n < sessions; n++) {
            size_t at = (size_t)pick(p, n);
            if (++hits[at] > most)
                most = hits[at];
        }
        assert_true(most <
                    200 * 8 / 5); /* 12 % between windows, 7 % by chance; of 1000 the worst */
        free(hits);
        pool_free(p);
    }
}

/* Only sessions of the replica that went move, and all of them come back. */
static void test_a_replica_that_goes_moves_only_its_own_sessions(void **state)
{
    static const size_t counts[] = {20, 2000};
    enum { SESSIONS = 4000 };
    for (size_t c = 0; c < 2; c++) {
        struct test_pool *p = pool_new(counts[c], 1);
        int home[SESSIONS];
        for (uint64_t n = 0; n < SESSIONS; n++)
            home[n] = pick(p, n);
        int gone = home[0];
        pool_set_state(p, (size_t)gone, REPLICA_DOWN);
        for (uint64_t n = 0; n < SESSIONS; n++) {
            int at = pick(p, n);
            if (home[n] == gone)
                assert_int_not_equal(at, gone);
            else
                assert_int_equal(at, home[n]);
        }
        pool_set_state(p, (size_t)gone, REPLICA_READY);
        for (uint64_t n = 0; n < SESSIONS; n++)
            assert_int_equal(pick(p, n), home[n]);
        pool_free(p);
    }
}

/* Taken out of the list altogether, by a reload: its own, and about as many at windows' ends. */
static void test_a_reload_moves_few_sessions(void **state)
{
    enum { COUNT = 1000, SESSIONS = 20000 };
    struct test_pool *p = pool_new(COUNT, 1);
    static struct replica *home[SESSIONS];
    for (uint64_t n = 0; n < SESSIONS; n++)
        home[n] = p->replicas[pick(p, n)];
    struct replica *gone = p->replicas[500];
    memmove(&p->replicas[500], &p->replicas[501], (COUNT - 501) * sizeof p->replicas[0]);
    p->view.count--;
    size_t moved = 0;
    for (uint64_t n = 0; n < SESSIONS; n++)
        moved += p->replicas[pick(p, n)] != home[n];
    assert_in_range(moved, 10,
                    80); /* 20 own and 20 others expected; modulo n would move them all */
    replica_drop(gone);
    pool_free(p);
}

static void test_pools_out_of_order_are_scanned_and_agree_with_themselves(void **state)
{
    struct test_pool *p = pool_new(300, 1);
    p->view.ring_order = false;
    for (uint64_t n = 0; n < 20; n++) {
        struct replica *before = p->replicas[pick(p, n)];
        struct replica *first = p->replicas[0];
        memmove(&p->replicas[0], &p->replicas[1], 299 * sizeof p->replicas[0]);
        p->replicas[299] = first;
        assert_ptr_equal(p->replicas[pick(p, n)], before);
    }
    pool_free(p);
}

static void test_fr25_an_overloaded_home_is_left_for_the_next(void **state)
{
    struct test_pool *p = pool_new(8, 1);
    int home = pick(p, 7);
    pool_add_load(p, (size_t)home, 4, 0); /* within the slack */
    assert_int_equal(pick(p, 7), home);
    pool_add_load(p, (size_t)home, 96, 0);
    int next = pick(p, 7);
    assert_int_not_equal(next, home);
    for (int i = 0; i < 20; i++)
        assert_int_equal(pick(p, 7), next); /* the next in hash order, not anybody */
    for (size_t i = 0; i < 8; i++)
        if ((int)i != home)
            pool_add_load(p, i, 60, 0); /* now the mean is high, and home is no exception */
    assert_int_equal(pick(p, 7), home);
    pool_free(p);
}

/* One session with all the requests: its replica holds its bound, the others share the rest. */
static void test_fr25_a_hot_session_cannot_drown_its_replica(void **state)
{
    struct test_pool *p = pool_new(8, 1);
    static struct replica_claim claims[500];
    int64_t most = 0;
    for (int i = 0; i < 500; i++)
        replica_claim_take(&claims[i], p->replicas[pick(p, 7)], 4096, 100);
    for (int i = 0; i < 8; i++)
        if (replica_in_flight(p->replicas[i]) > most)
            most = replica_in_flight(p->replicas[i]);
    assert_true(most <= 2 * 500 / 8 + 5);
    for (int i = 0; i < 500; i++)
        replica_claim_release(&claims[i]);
    pool_free(p);
}

static void test_a_request_without_a_session_goes_by_load(void **state)
{
    struct test_pool *p = pool_new(5, 1);
    for (size_t i = 0; i < 5; i++)
        pool_add_load(p, i, 3, i == 4 ? 1 : 100);
    assert_int_equal(pool_pick(p, &route_session_affinity, 0), 4);
    pool_free(p);
}

static void test_sessions_return_over_the_ramp_and_never_leave_again(void **state)
{
    enum { SESSIONS = 2000 };
    struct test_pool *p = pool_new(4, 1);
    static int home[SESSIONS];
    static bool is_back[SESSIONS];
    for (uint64_t n = 0; n < SESSIONS; n++)
        home[n] = pick(p, n);
    size_t own = 0, before = 0;
    for (uint64_t s = 0; s <= 10; s++) {
        atomic_store(&p->replicas[2]->health.returned_ns, NOW - s * NS_PER_S);
        size_t back = 0;
        own = 0;
        for (uint64_t n = 0; n < SESSIONS; n++) {
            if (home[n] != 2)
                continue;
            own++;
            bool now_back = pick(p, n) == 2;
            assert_true(now_back || !is_back[n]);
            is_back[n] = now_back;
            back += now_back;
        }
        assert_true(back >= before);
        if (s == 1)
            assert_true(back < own / 4);
        before = back;
    }
    assert_int_equal(before, own);
    pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_session_stays_where_it_is),
        cmocka_unit_test(test_sessions_spread_evenly),
        cmocka_unit_test(test_a_replica_that_goes_moves_only_its_own_sessions),
        cmocka_unit_test(test_a_reload_moves_few_sessions),
        cmocka_unit_test(test_pools_out_of_order_are_scanned_and_agree_with_themselves),
        cmocka_unit_test(test_fr25_an_overloaded_home_is_left_for_the_next),
        cmocka_unit_test(test_fr25_a_hot_session_cannot_drown_its_replica),
        cmocka_unit_test(test_a_request_without_a_session_goes_by_load),
        cmocka_unit_test(test_sessions_return_over_the_ramp_and_never_leave_again),
    };
    return cmocka_run_group_tests_name("session_affinity", tests, NULL, NULL);
}
