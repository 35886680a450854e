#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/rng.h"
#include "model/replica.h"

static const char any_engine; /* model/ never looks into an engine */

static struct replica *make(const char *name)
{
    struct replica_identity identity = {
        .name = slice_str(name),
        .host = SLICE("[::1]:8000"),
        .path_prefix = SLICE("/llm"),
        .authorization = SLICE("Bearer secret"),
        .engine = (const struct engine *)&any_engine,
    };
    return replica_new(&identity);
}

static void test_identity_is_copied_and_ids_are_unique(void **state)
{
    char name[] = "http://[::1]:8000/llm"; /* FR-38: brackets are kept */
    struct replica *a = make(name);
    name[0] = 'X';
    struct replica *b = make("b");
    assert_string_equal(a->name, "http://[::1]:8000/llm");
    assert_string_equal(a->host, "[::1]:8000");
    assert_string_equal(a->path_prefix, "/llm");
    assert_string_equal(a->authorization, "Bearer secret");
    assert_ptr_equal(atomic_load(&a->engine), &any_engine);
    assert_int_equal(replica_state(a), REPLICA_UNKNOWN);
    assert_int_not_equal(a->id, b->id);
    assert_int_equal((uintptr_t)a % 64, 0);
    replica_drop(a);
    replica_drop(b);
}

static void test_ring_hash_is_the_same_in_every_process(void **state)
{
    struct replica *r = make("http://a:8000");
    assert_true(r->ring_hash == 0x1c0a0b5864685e6f); /* sessions of all gateways hang on it */
    replica_drop(r);
}

static void test_every_state_has_a_name(void **state)
{
    for (int s = 0; s < REPLICA_STATES; s++)
        assert_string_not_equal(replica_state_name((enum replica_state)s), "?");
    assert_string_equal(replica_state_name(REPLICA_STATES), "?");
}

static void assert_load(const struct replica *r, int64_t requests, int64_t prompt, int64_t output)
{
    assert_int_equal(replica_in_flight(r), requests);
    assert_int_equal(atomic_load(&r->load.prompt_tokens), prompt);
    assert_int_equal(atomic_load(&r->load.output_tokens), output);
}

static void test_claim_is_given_back_step_by_step(void **state)
{
    struct replica *r = make("a");
    struct replica_claim claim = {0};
    replica_claim_take(&claim, r, 100, 50);
    assert_load(r, 1, 100, 50);
    replica_claim_first_token(&claim);
    assert_load(r, 1, 0, 50);
    replica_claim_progress(&claim, 20);
    assert_load(r, 1, 0, 30);
    replica_claim_release(&claim);
    assert_load(r, 0, 0, 0);
    replica_drop(r);
}

static void test_fr25_claim_released_twice_counts_once(void **state)
{
    struct replica *r = make("a");
    struct replica_claim claim = {0};
    replica_claim_release(&claim); /* never taken */
    replica_claim_take(&claim, r, 7, 7);
    replica_claim_release(&claim);
    replica_claim_release(&claim);
    replica_claim_first_token(&claim);
    replica_claim_progress(&claim, 5);
    assert_load(r, 0, 0, 0);
    replica_drop(r);
}

static void test_more_tokens_than_expected_never_make_load_negative(void **state)
{
    struct replica *r = make("a");
    struct replica_claim claim = {0};
    replica_claim_take(&claim, r, 10, 3);
    replica_claim_progress(&claim, 2);
    replica_claim_progress(&claim, UINT32_MAX);
    replica_claim_progress(&claim, 1);
    assert_load(r, 1, 10, 0);
    replica_claim_release(&claim);
    assert_load(r, 0, 0, 0);
    replica_drop(r);
}

static void test_taking_with_a_held_claim_releases_the_first(void **state)
{
    struct replica *a = make("a"), *b = make("b");
    struct replica_claim claim = {0};
    replica_claim_take(&claim, a, 10, 10);
    replica_claim_take(&claim, b, 20, 20); /* failover */
    assert_load(a, 0, 0, 0);
    assert_load(b, 1, 20, 20);
    replica_claim_release(&claim);
    assert_load(b, 0, 0, 0);
    replica_drop(a);
    replica_drop(b);
}

static void test_a_claim_keeps_its_replica_alive(void **state)
{
    struct replica *r = make("a");
    struct replica_claim claim = {0};
    replica_claim_take(&claim, r, 1, 1);
    replica_drop(r); /* the fleet let go of it; the request is still there */
    assert_int_equal(replica_in_flight(claim.replica), 1);
    replica_claim_release(&claim);
}

static void test_fr25_random_paths_end_at_zero(void **state)
{
    enum { REPLICAS = 3, CLAIMS = 40, STEPS = 20000 };
    const uint64_t seed = 25;
    print_message("seed %llu\n", (unsigned long long)seed);
    struct rng rng;
    rng_seed(&rng, seed);
    struct replica *replicas[REPLICAS] = {make("a"), make("b"), make("c")};
    struct replica_claim claims[CLAIMS] = {0};
    for (int i = 0; i < STEPS; i++) {
        struct replica_claim *claim = &claims[rng_below(&rng, CLAIMS)];
        uint32_t tokens = (uint32_t)rng_below(&rng, 1000);
        switch (rng_below(&rng, 4)) {
        case 0:
            replica_claim_take(claim, replicas[rng_below(&rng, REPLICAS)], tokens, tokens / 2);
            break;
        case 1:
            replica_claim_first_token(claim);
            break;
        case 2:
            replica_claim_progress(claim, tokens / 4);
            break;
        default:
            replica_claim_release(claim);
        }
        for (int k = 0; k < REPLICAS; k++) {
            assert_true(atomic_load(&replicas[k]->load.requests) >= 0);
            assert_true(atomic_load(&replicas[k]->load.prompt_tokens) >= 0);
            assert_true(atomic_load(&replicas[k]->load.output_tokens) >= 0);
        }
    }
    for (int i = 0; i < CLAIMS; i++)
        replica_claim_release(&claims[i]);
    for (int k = 0; k < REPLICAS; k++) {
        assert_load(replicas[k], 0, 0, 0);
        replica_drop(replicas[k]);
    }
}

static void test_speed_is_learned_and_averaged(void **state)
{
    struct replica *r = make("a");
    double guess = replica_speed(r);
    assert_true(guess > 0);
    replica_learn_speed(r, 101, 1 * NS_PER_S); /* 100 gaps in a second */
    assert_true(replica_speed(r) == 100.0);
    replica_learn_speed(r, 181, 1 * NS_PER_S);
    assert_true(replica_speed(r) == 110.0); /* an eighth of the way */
    for (int i = 0; i < 200; i++)
        replica_learn_speed(r, 21, 1 * NS_PER_S);
    assert_true(replica_speed(r) < 21.0 && replica_speed(r) >= 20.0);
    replica_drop(r);
}

static void test_impossible_speeds_teach_nothing(void **state)
{
    struct replica *r = make("a");
    replica_learn_speed(r, 101, 1 * NS_PER_S);
    replica_learn_speed(r, 1000, 0);
    replica_learn_speed(r, 0, 1);
    replica_learn_speed(r, 3, 1 * NS_PER_S); /* too short to measure */
    replica_learn_speed(r, UINT32_MAX, 1);
    replica_learn_speed(r, 8, UINT64_MAX);
    assert_true(replica_speed(r) == 100.0);
    replica_drop(r);
}

static void test_ejection_has_three_answers(void **state)
{
    struct replica *r = make("a");
    assert_int_equal(replica_ejection(r, 5), REPLICA_IN);
    atomic_store(&r->health.ejected_until_ns, 100);
    assert_int_equal(replica_ejection(r, 99), REPLICA_OUT);
    assert_int_equal(replica_ejection(r, 100), REPLICA_TRIAL_DUE);
    atomic_store(&r->health.trial_ns, 100);
    assert_int_equal(replica_ejection(r, 101), REPLICA_OUT);
    assert_int_equal(replica_ejection(r, 100 + REPLICA_TRIAL_NS), REPLICA_TRIAL_DUE);
    replica_drop(r);
}

static struct endpoint endpoint_of(unsigned char fill)
{
    struct endpoint e = {.length = fill, .family = fill};
    memset(e.bytes, fill, sizeof e.bytes);
    return e;
}

static void test_endpoint_is_unset_until_resolved(void **state)
{
    struct replica *r = make("a");
    struct endpoint out, in = endpoint_of(16);
    assert_false(replica_endpoint_get(r, &out));
    replica_endpoint_set(r, &in);
    assert_true(replica_endpoint_get(r, &out));
    assert_memory_equal(&in, &out, sizeof in);
    replica_drop(r);
}

enum { ENDPOINT_WRITES = 20000 };

static void *write_endpoints(void *ctx)
{
    for (int i = 0; i < ENDPOINT_WRITES; i++) {
        struct endpoint e = endpoint_of((unsigned char)(1 + i % 100));
        replica_endpoint_set(ctx, &e);
    }
    return NULL;
}

static void test_readers_never_see_half_an_endpoint(void **state)
{
    struct replica *r = make("a");
    struct endpoint out = endpoint_of(1);
    replica_endpoint_set(r, &out);
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, write_endpoints, r), 0);
    for (int i = 0; i < ENDPOINT_WRITES; i++) {
        assert_true(replica_endpoint_get(r, &out));
        struct endpoint whole = endpoint_of((unsigned char)out.length);
        assert_memory_equal(&out, &whole, sizeof whole);
    }
    pthread_join(writer, NULL);
    replica_drop(r);
}

static void *take_and_release(void *ctx)
{
    struct replica_claim claim = {0};
    for (uint32_t i = 0; i < 5000; i++) {
        replica_claim_take(&claim, ctx, i, i);
        replica_claim_first_token(&claim);
        replica_claim_progress(&claim, i / 2);
        replica_claim_release(&claim);
    }
    return NULL;
}

static void test_workers_share_a_load_without_loss(void **state)
{
    enum { WORKERS = 4 };
    struct replica *r = make("a");
    pthread_t threads[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_release, r), 0);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    assert_load(r, 0, 0, 0);
    assert_int_equal(atomic_load(&r->refs), 1);
    replica_drop(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identity_is_copied_and_ids_are_unique),
        cmocka_unit_test(test_ring_hash_is_the_same_in_every_process),
        cmocka_unit_test(test_every_state_has_a_name),
        cmocka_unit_test(test_claim_is_given_back_step_by_step),
        cmocka_unit_test(test_fr25_claim_released_twice_counts_once),
        cmocka_unit_test(test_more_tokens_than_expected_never_make_load_negative),
        cmocka_unit_test(test_taking_with_a_held_claim_releases_the_first),
        cmocka_unit_test(test_a_claim_keeps_its_replica_alive),
        cmocka_unit_test(test_fr25_random_paths_end_at_zero),
        cmocka_unit_test(test_speed_is_learned_and_averaged),
        cmocka_unit_test(test_impossible_speeds_teach_nothing),
        cmocka_unit_test(test_ejection_has_three_answers),
        cmocka_unit_test(test_endpoint_is_unset_until_resolved),
        cmocka_unit_test(test_readers_never_see_half_an_endpoint),
        cmocka_unit_test(test_workers_share_a_load_without_loss),
    };
    return cmocka_run_group_tests_name("replica", tests, NULL, NULL);
}
