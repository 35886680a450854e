#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/clock.h"
#include "observe/record.h"
#include "observe/traffic.h"

static void test_same_names_give_the_same_traffic(void **state)
{
    struct traffic_registry *registry = traffic_registry_new(2);
    struct traffic *a = traffic_get(registry, SLICE("m"), SLICE("p"));
    assert_ptr_equal(traffic_get(registry, SLICE("m"), SLICE("p")), a);
    assert_ptr_not_equal(traffic_get(registry, SLICE("m"), SLICE("")), a);
    assert_ptr_not_equal(traffic_get(registry, SLICE("mp"), SLICE("")), a);
    assert_ptr_not_equal(traffic_get(registry, SLICE(""), SLICE("mp")), a);
    assert_int_equal(traffic_count(registry), 4);
    assert_ptr_equal(traffic_at(registry, 0), a);
    assert_string_equal(a->model, "m");
    assert_string_equal(a->pool, "p");
    assert_int_equal(a->shard_count, 2);
    traffic_registry_free(registry);
}

static void test_names_are_copied(void **state)
{
    struct traffic_registry *registry = traffic_registry_new(1);
    char name[] = "model";
    const struct traffic *t = traffic_get(registry, slice_str(name), slice_str(name));
    name[0] = 'x';
    assert_string_equal(t->model, "model");
    assert_string_equal(t->pool, "model");
    traffic_registry_free(registry);
}

static void test_chain_of_a_model_has_its_traffic_and_no_other(void **state)
{
    struct traffic_registry *registry = traffic_registry_new(1);
    const struct traffic *own = traffic_get(registry, SLICE("a"), SLICE(""));
    traffic_get(registry, SLICE("b"), SLICE(""));
    const struct traffic *pool = traffic_get(registry, SLICE("a"), SLICE("pool"));

    const struct traffic *newest = traffic_of_model(registry, SLICE("a"));
    assert_ptr_equal(newest, pool);
    assert_ptr_equal(newest->next_of_model, own);
    assert_null(own->next_of_model);
    assert_null(traffic_of_model(registry, SLICE("c")));
    traffic_registry_free(registry);
}

static void test_registry_refuses_more_than_its_maximum(void **state)
{
    struct traffic_registry *registry = traffic_registry_new(0);
    char name[16];
    for (int i = 0; i < TRAFFIC_MAX; i++) {
        snprintf(name, sizeof name, "m%d", i);
        assert_non_null(traffic_get(registry, slice_str(name), SLICE("")));
    }
    assert_null(traffic_get(registry, SLICE("one more"), SLICE("")));
    assert_non_null(traffic_get(registry, SLICE("m7"), SLICE("")));
    assert_int_equal(traffic_count(registry), TRAFFIC_MAX);
    traffic_registry_free(registry);
}

static struct request_record good_stream(void)
{
    return (struct request_record){.operation = "chat",
                                   .outcome = OUTCOME_OK,
                                   .generates = true,
                                   .stream = true,
                                   .good = true,
                                   .tries = 3,
                                   .bytes_in = 100,
                                   .bytes_out = 1000,
                                   .tokens_in = 10,
                                   .tokens_out = 20,
                                   .tokens_cached = 5,
                                   .duration_ns = 900 * NS_PER_US,
                                   .ttft_ns = 300 * NS_PER_US,
                                   .tpot_ns = 7 * NS_PER_US};
}

static void test_good_request_is_counted_everywhere_once(void **state)
{
    static struct traffic_shard shard;
    struct request_record r = good_stream();
    traffic_record(&shard, &r);
    assert_int_equal(shard.requests[OUTCOME_OK], 1);
    assert_int_equal(shard.offered, 1);
    assert_int_equal(shard.good, 1);
    assert_int_equal(shard.late_ttft + shard.late_tpot, 0);
    assert_int_equal(shard.retries, 2);
    assert_int_equal(shard.tokens_in, 10);
    assert_int_equal(shard.tokens_out, 20);
    assert_int_equal(shard.tokens_cached, 5);
    assert_int_equal(shard.good_tokens_out, 20);
    assert_int_equal(shard.bytes_in, 100);
    assert_int_equal(shard.bytes_out, 1000);
    assert_int_equal(shard.duration.sum, 900);
    assert_int_equal(shard.ttft.sum, 300);
    assert_int_equal(shard.tpot.sum, 7);
    assert_int_equal(shard.queue.count, 1);
    assert_int_equal(shard.itl.count, 0);
}

static void test_late_request_is_offered_and_not_good(void **state)
{
    static struct traffic_shard shard;
    struct request_record r = good_stream();
    r.good = false;
    r.late_tpot = true;
    traffic_record(&shard, &r);
    assert_int_equal(shard.offered, 1);
    assert_int_equal(shard.good, 0);
    assert_int_equal(shard.late_tpot, 1);
    assert_int_equal(shard.good_tokens_out, 0);
    assert_int_equal(shard.tokens_out, 20);
}

static void test_abandoned_stream_keeps_its_ttft_and_leaves_no_tpot(void **state)
{
    static struct traffic_shard shard;
    struct request_record r = good_stream();
    r.outcome = OUTCOME_ABANDONED;
    r.good = false;
    traffic_record(&shard, &r);
    assert_int_equal(shard.requests[OUTCOME_ABANDONED], 1);
    assert_int_equal(shard.offered, 0);
    assert_int_equal(shard.ttft.count, 1);
    assert_int_equal(shard.tpot.count, 0);
}

static void test_request_that_asked_no_engine_and_did_not_wait_has_no_queue_time(void **state)
{
    static struct traffic_shard shard;
    struct request_record r = {.outcome = OUTCOME_SHED, .generates = true};
    traffic_record(&shard, &r);
    assert_int_equal(shard.queue.count, 0);
    assert_int_equal(shard.retries, 0);
    assert_int_equal(shard.offered, 1);
    r.queue_ns = 5 * NS_PER_US;
    traffic_record(&shard, &r);
    assert_int_equal(shard.queue.count, 1);
    assert_int_equal(shard.queue.sum, 5);
}

static void test_gaps_are_counted(void **state)
{
    static struct traffic_shard shard;
    traffic_gap(&shard, 12);
    traffic_gap(&shard, 13);
    assert_int_equal(shard.itl.count, 2);
    assert_int_equal(shard.itl.sum, 25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_names_give_the_same_traffic),
        cmocka_unit_test(test_names_are_copied),
        cmocka_unit_test(test_chain_of_a_model_has_its_traffic_and_no_other),
        cmocka_unit_test(test_registry_refuses_more_than_its_maximum),
        cmocka_unit_test(test_good_request_is_counted_everywhere_once),
        cmocka_unit_test(test_late_request_is_offered_and_not_good),
        cmocka_unit_test(test_abandoned_stream_keeps_its_ttft_and_leaves_no_tpot),
        cmocka_unit_test(test_request_that_asked_no_engine_and_did_not_wait_has_no_queue_time),
        cmocka_unit_test(test_gaps_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
