#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fixture.h"

extern const struct engine engine_llamacpp;

static void test_a_real_server_is_read(void **state)
{
    struct engine_facts f = {0};
    fixture_ask(&engine_llamacpp, "/props", fixture_read("llamacpp/get-props.http").body, &f);
    fixture_ask(&engine_llamacpp, "/v1/models", fixture_read("llamacpp/get-v1-models.http").body,
                &f);
    fixture_ask(&engine_llamacpp, "/metrics", fixture_read("llamacpp/get-metrics.http").body, &f);
    fixture_ask(&engine_llamacpp, "/slots", fixture_read("llamacpp/get-slots.http").body, &f);
    assert_string_equal(f.version, "b0-unknown");
    assert_int_equal(f.model_count, 1);
    assert_string_equal(f.models[0], "smollm2-135m-instruct");
    assert_int_equal(f.max_context_tokens, 2048); /* of a slot, not of the model */
    assert_int_equal(f.slots, 4);
    assert_int_equal(f.kv_tokens, 4 * 2048);
    assert_true(f.has_load);
    assert_int_equal(f.running, 0);
    assert_int_equal(f.prefix_queries, 124 + 210);
    assert_int_equal(f.prefix_hits, 210);
}

static const char busy_slots[] =
    "[{\"id\":0,\"n_ctx\":1000,\"is_processing\":true,\"n_prompt_tokens\":300,"
    "\"next_token\":[{\"n_decoded\":50}]},"
    "{\"id\":1,\"n_ctx\":1000,\"is_processing\":true,\"n_prompt_tokens\":100,"
    "\"next_token\":{\"n_decoded\":50}},"
    "{\"id\":2,\"n_ctx\":1000,\"is_processing\":false,\"n_prompt_tokens\":900},"
    "{\"id\":3,\"n_ctx\":1000}]";

static void test_pressure_is_what_busy_slots_hold(void **state)
{
    struct engine_facts f = {0};
    fixture_ask(&engine_llamacpp, "/slots", slice_str(busy_slots), &f);
    assert_int_equal(f.kv_used_ppm, 125000); /* 500 of 4000 */
    assert_int_equal(f.slots, 4);
}

static void test_slots_stand_in_for_metrics_that_are_off(void **state)
{
    struct engine_facts f = {0};
    fixture_ask(&engine_llamacpp, "/slots", slice_str(busy_slots), &f);
    assert_true(f.has_load);
    assert_int_equal(f.running, 2);
    f = (struct engine_facts){0};
    fixture_ask(&engine_llamacpp, "/metrics",
                SLICE("llamacpp:requests_processing 4\nllamacpp:requests_deferred 7\n"), &f);
    fixture_ask(&engine_llamacpp, "/slots", slice_str(busy_slots), &f);
    assert_int_equal(f.running, 4);
    assert_int_equal(f.waiting, 7);
}

static void test_more_than_full_is_full(void **state)
{
    struct engine_facts f = {0};
    fixture_ask(&engine_llamacpp, "/slots",
                SLICE("[{\"n_ctx\":10,\"is_processing\":true,\"n_prompt_tokens\":4294967295,"
                      "\"next_token\":[{\"n_decoded\":4294967295}]}]"),
                &f);
    assert_int_equal(f.kv_used_ppm, 1000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_real_server_is_read),
        cmocka_unit_test(test_pressure_is_what_busy_slots_hold),
        cmocka_unit_test(test_slots_stand_in_for_metrics_that_are_off),
        cmocka_unit_test(test_more_than_full_is_full),
    };
    return cmocka_run_group_tests_name("llamacpp", tests, NULL, NULL);
}
