#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "base/clock.h"
#include "health/health.h"

#define NOW (1000 * NS_PER_S)

static const struct health_rules rules = {
    .eject_after = 3,
    .eject_base_ns = 10 * NS_PER_S,
    .eject_max_ns = 60 * NS_PER_S,
    .eject_max_share = 0.5,
    .busy_ns = 2 * NS_PER_S,
    .down_after = 3,
    .up_after = 2,
};

enum { POOL = 4 };

static const char any_engine;

static struct replica *make(void)
{
    struct replica_identity identity = {.name = SLICE("r"),
                                        .engine = (const struct engine *)&any_engine};
    struct replica *r = replica_new(&identity);
    atomic_store(&r->state, REPLICA_READY);
    return r;
}

static enum health_change report(struct replica *r, enum health_outcome outcome, uint64_t now_ns)
{
    return health_report(r, &rules, outcome, 0, POOL, now_ns);
}

static void eject(struct replica *r, uint64_t now_ns)
{
    for (uint32_t i = 1; i < rules.eject_after; i++)
        assert_int_equal(report(r, HEALTH_FAULT, now_ns), HEALTH_SAME);
    assert_int_equal(report(r, HEALTH_FAULT, now_ns), HEALTH_EJECTED);
}

static void test_fr28_failures_in_a_row_eject(void **state)
{
    struct replica *r = make();
    report(r, HEALTH_FAULT, NOW);
    report(r, HEALTH_FAULT, NOW);
    report(r, HEALTH_GOOD, NOW); /* breaks the row */
    eject(r, NOW);
    assert_int_equal(replica_ejection(r, NOW), REPLICA_OUT);
    assert_false(health_may_try(r, &rules, NOW));
    replica_drop(r);
}

static void test_what_says_nothing_bad_never_ejects(void **state)
{
    struct replica *r = make();
    for (int i = 0; i < 100; i++) {
        assert_int_equal(report(r, HEALTH_GOOD, NOW), HEALTH_SAME); /* also a client's 4xx */
        assert_int_equal(report(r, HEALTH_NONE, NOW), HEALTH_SAME);
        assert_int_equal(report(r, HEALTH_BUSY, NOW), HEALTH_SAME);
    }
    assert_int_equal(replica_ejection(r, NOW), REPLICA_IN);
    replica_drop(r);
}

static void test_busy_and_leaving_clients_do_not_break_a_row_of_failures(void **state)
{
    struct replica *r = make();
    report(r, HEALTH_FAULT, NOW);
    report(r, HEALTH_BUSY, NOW);
    report(r, HEALTH_FAULT, NOW);
    report(r, HEALTH_NONE, NOW);
    assert_int_equal(report(r, HEALTH_FAULT, NOW), HEALTH_EJECTED);
    replica_drop(r);
}

static void test_busy_marks_for_a_while(void **state)
{
    struct replica *r = make();
    report(r, HEALTH_BUSY, NOW);
    assert_int_equal(atomic_load(&r->health.busy_until_ns), NOW + rules.busy_ns);
    replica_drop(r);
}

static void test_fr28_exactly_one_trial_after_the_time_is_over(void **state)
{
    struct replica *r = make();
    eject(r, NOW);
    uint64_t later = NOW + rules.eject_base_ns;
    assert_false(health_may_try(r, &rules, later - 1));
    assert_true(health_may_try(r, &rules, later));
    assert_false(health_may_try(r, &rules, later));
    assert_false(health_may_try(r, &rules, later + 1));
    replica_drop(r);
}

static void test_a_good_trial_brings_it_back_on_a_ramp(void **state)
{
    struct replica *r = make();
    eject(r, NOW);
    uint64_t later = NOW + rules.eject_base_ns;
    assert_true(health_may_try(r, &rules, later));
    assert_int_equal(report(r, HEALTH_GOOD, later + 5), HEALTH_RETURNED);
    assert_int_equal(replica_ejection(r, later + 5), REPLICA_IN);
    assert_int_equal(atomic_load(&r->health.returned_ns), later + 5);
    assert_true(health_may_try(r, &rules, later + 5));
    replica_drop(r);
}

static uint64_t time_out_of(const struct replica *r, uint64_t since)
{
    return atomic_load(&r->health.ejected_until_ns) - since;
}

static void test_failed_trials_double_the_time_up_to_the_most(void **state)
{
    struct replica *r = make();
    eject(r, NOW);
    uint64_t at = NOW, out = rules.eject_base_ns;
    for (int i = 0; i < 40; i++) {
        assert_int_equal(time_out_of(r, at), out);
        at += out;
        assert_true(health_may_try(r, &rules, at));
        assert_int_equal(report(r, HEALTH_FAULT, at), HEALTH_EJECTED);
        out = out * 2 < rules.eject_max_ns ? out * 2 : rules.eject_max_ns;
    }
    replica_drop(r);
}

static void test_flapping_goes_on_doubling_and_good_service_ends_the_row(void **state)
{
    struct replica *r = make();
    eject(r, NOW);
    uint64_t back = NOW + rules.eject_base_ns;
    assert_true(health_may_try(r, &rules, back));
    report(r, HEALTH_GOOD, back);
    eject(r, back + NS_PER_S); /* returned, and failed at once */
    assert_int_equal(time_out_of(r, back + NS_PER_S), 2 * rules.eject_base_ns);
    back += NS_PER_S + 2 * rules.eject_base_ns;
    assert_true(health_may_try(r, &rules, back));
    report(r, HEALTH_GOOD, back);
    eject(r, back + rules.eject_max_ns);
    assert_int_equal(time_out_of(r, back + rules.eject_max_ns), rules.eject_base_ns);
    replica_drop(r);
}

static void test_requests_from_before_the_ejection_change_nothing(void **state)
{
    struct replica *r = make();
    eject(r, NOW);
    assert_int_equal(report(r, HEALTH_GOOD, NOW + 1), HEALTH_SAME);
    assert_int_equal(report(r, HEALTH_FAULT, NOW + 2), HEALTH_SAME);
    assert_int_equal(time_out_of(r, NOW), rules.eject_base_ns);
    uint64_t later = NOW + rules.eject_base_ns;
    assert_int_equal(report(r, HEALTH_GOOD, later), HEALTH_SAME); /* over, but no trial began */
    assert_int_equal(replica_ejection(r, later), REPLICA_TRIAL_DUE);
    replica_drop(r);
}

static void test_a_trial_that_proves_nothing_leaves_the_next_one_free(void **state)
{
    static const enum health_outcome nothing[] = {HEALTH_NONE, HEALTH_BUSY};
    for (size_t i = 0; i < 2; i++) {
        struct replica *r = make();
        eject(r, NOW);
        uint64_t later = NOW + rules.eject_base_ns;
        assert_true(health_may_try(r, &rules, later));
        assert_int_equal(report(r, nothing[i], later + 1), HEALTH_SAME);
        assert_true(health_may_try(r, &rules, later + 2));
        replica_drop(r);
    }
}

static void test_a_trial_without_end_does_not_block_for_ever(void **state)
{
    struct replica *r = make();
    eject(r, NOW);
    uint64_t later = NOW + rules.eject_base_ns;
    assert_true(health_may_try(r, &rules, later));
    assert_false(health_may_try(r, &rules, later + REPLICA_TRIAL_NS - 1));
    assert_true(health_may_try(r, &rules, later + REPLICA_TRIAL_NS));
    assert_false(health_may_try(r, &rules, later + REPLICA_TRIAL_NS + 1));
    replica_drop(r);
}

static bool can_eject(size_t out_count, size_t pool_size)
{
    struct replica *r = make();
    enum health_change change = HEALTH_SAME;
    for (int i = 0; i < 10; i++)
        if (health_report(r, &rules, HEALTH_FAULT, out_count, pool_size, NOW) == HEALTH_EJECTED)
            change = HEALTH_EJECTED;
    replica_drop(r);
    return change == HEALTH_EJECTED;
}

static void test_only_a_share_of_a_pool_is_out_at_once(void **state)
{
    assert_true(can_eject(0, 4));
    assert_true(can_eject(1, 4));
    assert_false(can_eject(2, 4)); /* half of 4 are out */
    assert_true(can_eject(0, 2));
    assert_false(can_eject(1, 2));
    assert_false(can_eject(0, 1)); /* alone: there is nothing better */
    assert_true(can_eject(0, 3));  /* at least one of several, whatever the share */
    assert_false(can_eject(1, 3));
}

static void test_ejected_are_counted_until_they_return(void **state)
{
    struct replica *pool[3] = {make(), make(), make()};
    assert_int_equal(health_ejected_count(pool, 3, NOW), 0);
    eject(pool[1], NOW);
    assert_int_equal(health_ejected_count(pool, 3, NOW), 1);
    assert_int_equal(health_ejected_count(pool, 3, NOW + rules.eject_base_ns), 1); /* trial due */
    assert_int_equal(health_ejected_count(pool, 0, NOW), 0);
    for (int i = 0; i < 3; i++)
        replica_drop(pool[i]);
}

/* Workers at the same replica at the same moment. */
enum { WORKERS = 4, ROUNDS = 500 };

struct race {
    struct replica *r;
    pthread_barrier_t barrier;
    _Atomic uint32_t ejections, trials, returns;
};

static void *race_for_health(void *ctx)
{
    struct race *race = ctx;
    uint64_t at = NOW;
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < 3; k++)
            if (report(race->r, HEALTH_FAULT, at) == HEALTH_EJECTED)
                race->ejections++;
        pthread_barrier_wait(&race->barrier);
        at += 2 * rules.eject_max_ns;
        bool is_mine = health_may_try(race->r, &rules, at);
        race->trials += is_mine;
        pthread_barrier_wait(&race->barrier);
        if (is_mine && report(race->r, HEALTH_GOOD, at) == HEALTH_RETURNED)
            race->returns++;
        pthread_barrier_wait(&race->barrier);
        at += NS_PER_S;
    }
    return NULL;
}

static void test_fr28_of_several_workers_one_ejects_and_one_tries(void **state)
{
    struct race race = {.r = make()};
    pthread_t threads[WORKERS];
    pthread_barrier_init(&race.barrier, NULL, WORKERS);
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, race_for_health, &race), 0);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(race.ejections, ROUNDS);
    assert_int_equal(race.trials, ROUNDS);
    assert_int_equal(race.returns, ROUNDS);
    pthread_barrier_destroy(&race.barrier);
    replica_drop(race.r);
}

/* Active checks */

static enum replica_state check(struct replica *r, struct health_streak *streak,
                                enum replica_state seen, uint64_t now_ns)
{
    enum replica_state state = health_check(r, streak, &rules, seen, now_ns);
    atomic_store(&r->state, state);
    return state;
}

static void test_a_new_replica_is_ready_at_its_first_answer_without_a_ramp(void **state)
{
    struct replica *r = make();
    struct health_streak streak = {0};
    atomic_store(&r->state, REPLICA_UNKNOWN);
    assert_int_equal(check(r, &streak, REPLICA_READY, NOW), REPLICA_READY);
    assert_int_equal(atomic_load(&r->health.returned_ns), 0);
    replica_drop(r);
}

static void test_one_missed_check_is_forgiven_three_are_not(void **state)
{
    struct replica *r = make();
    struct health_streak streak = {0};
    assert_int_equal(check(r, &streak, REPLICA_DOWN, NOW), REPLICA_READY);
    assert_int_equal(check(r, &streak, REPLICA_READY, NOW), REPLICA_READY);
    assert_int_equal(check(r, &streak, REPLICA_DOWN, NOW), REPLICA_READY);
    assert_int_equal(check(r, &streak, REPLICA_DOWN, NOW), REPLICA_READY);
    assert_int_equal(check(r, &streak, REPLICA_DOWN, NOW), REPLICA_DOWN);
    replica_drop(r);
}

static void test_who_was_down_proves_itself_and_starts_a_ramp(void **state)
{
    struct replica *r = make();
    struct health_streak streak = {0};
    eject(r, NOW);
    atomic_store(&r->state, REPLICA_DOWN);
    assert_int_equal(check(r, &streak, REPLICA_READY, NOW), REPLICA_DOWN);
    assert_int_equal(check(r, &streak, REPLICA_DOWN, NOW), REPLICA_DOWN);
    assert_int_equal(check(r, &streak, REPLICA_READY, NOW), REPLICA_DOWN);
    assert_int_equal(check(r, &streak, REPLICA_READY, NOW + 7), REPLICA_READY);
    assert_int_equal(atomic_load(&r->health.returned_ns), NOW + 7);
    assert_int_equal(replica_ejection(r, NOW + 7), REPLICA_IN);
    replica_drop(r);
}

static void test_loading_and_draining_are_believed_at_once(void **state)
{
    struct replica *r = make();
    struct health_streak streak = {0};
    assert_int_equal(check(r, &streak, REPLICA_DRAINING, NOW), REPLICA_DRAINING);
    assert_int_equal(check(r, &streak, REPLICA_LOADING, NOW), REPLICA_LOADING);
    assert_int_equal(check(r, &streak, REPLICA_DOWN, NOW), REPLICA_LOADING);
    assert_int_equal(check(r, &streak, REPLICA_READY, NOW + 1), REPLICA_READY);
    assert_int_equal(atomic_load(&r->health.returned_ns), NOW + 1); /* a cold cache: ramp */
    replica_drop(r);
}

static void test_an_ejected_replica_stays_so_while_its_checks_pass(void **state)
{
    struct replica *r = make();
    struct health_streak streak = {0};
    eject(r, NOW); /* /health is fine, answers are not */
    assert_int_equal(check(r, &streak, REPLICA_READY, NOW), REPLICA_READY);
    assert_int_equal(replica_ejection(r, NOW), REPLICA_OUT);
    replica_drop(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fr28_failures_in_a_row_eject),
        cmocka_unit_test(test_what_says_nothing_bad_never_ejects),
        cmocka_unit_test(test_busy_and_leaving_clients_do_not_break_a_row_of_failures),
        cmocka_unit_test(test_busy_marks_for_a_while),
        cmocka_unit_test(test_fr28_exactly_one_trial_after_the_time_is_over),
        cmocka_unit_test(test_a_good_trial_brings_it_back_on_a_ramp),
        cmocka_unit_test(test_failed_trials_double_the_time_up_to_the_most),
        cmocka_unit_test(test_flapping_goes_on_doubling_and_good_service_ends_the_row),
        cmocka_unit_test(test_requests_from_before_the_ejection_change_nothing),
        cmocka_unit_test(test_a_trial_that_proves_nothing_leaves_the_next_one_free),
        cmocka_unit_test(test_a_trial_without_end_does_not_block_for_ever),
        cmocka_unit_test(test_only_a_share_of_a_pool_is_out_at_once),
        cmocka_unit_test(test_ejected_are_counted_until_they_return),
        cmocka_unit_test(test_fr28_of_several_workers_one_ejects_and_one_tries),
        cmocka_unit_test(test_a_new_replica_is_ready_at_its_first_answer_without_a_ramp),
        cmocka_unit_test(test_one_missed_check_is_forgiven_three_are_not),
        cmocka_unit_test(test_who_was_down_proves_itself_and_starts_a_ramp),
        cmocka_unit_test(test_loading_and_draining_are_believed_at_once),
        cmocka_unit_test(test_an_ejected_replica_stays_so_while_its_checks_pass),
    };
    return cmocka_run_group_tests_name("health", tests, NULL, NULL);
}
