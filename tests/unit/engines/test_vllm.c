#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fixture.h"

extern const struct engine engine_vllm;

static void test_vllm_0_32_is_read(void **state)
{
    struct engine_facts f = {0};
    fixture_ask(&engine_vllm, "/version", fixture_read("vllm-0.32.0/get-version.http").body, &f);
    fixture_ask(&engine_vllm, "/v1/models", fixture_read("vllm-0.32.0/get-v1-models.http").body,
                &f);
    fixture_ask(&engine_vllm, "/metrics", fixture_read("vllm-0.32.0/get-metrics.http").body, &f);
    assert_string_equal(f.version, "0.32.0");
    assert_int_equal(f.model_count, 1);
    assert_string_equal(f.models[0], "smollm2");
    assert_int_equal(f.max_context_tokens, 2048);
    assert_true(f.has_load);
    assert_int_equal(f.running, 0);
    assert_int_equal(f.waiting, 0);
    assert_int_equal(f.kv_tokens, 46592); /* kv_cache_size_tokens */
    assert_int_equal(f.prefix_queries, 261);
    assert_int_equal(f.prefix_hits, 0);
}

static void test_the_simulator_of_llm_d_is_read_as_vllm(void **state)
{
    struct engine_facts f = {0};
    fixture_ask(&engine_vllm, "/metrics", fixture_bytes("llm-d-sim/metrics.txt"), &f);
    assert_true(f.has_load);
    assert_int_equal(f.kv_tokens, 16 * 1024); /* no kv_cache_size_tokens: blocks times size */
    assert_int_equal(f.prefix_queries, 47);
}

static void test_old_names_and_ranks_are_read(void **state)
{
    struct engine_facts f = {0};
    fixture_ask(&engine_vllm, "/metrics",
                SLICE("vllm:num_requests_running{engine=\"0\"} 2\n"
                      "vllm:num_requests_running{engine=\"1\"} 3\n"
                      "vllm:num_requests_waiting{engine=\"0\"} 1\n"
                      "vllm:num_requests_waiting{engine=\"1\"} 6\n"
                      "vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 7\n"
                      "vllm:gpu_cache_usage_perc{engine=\"0\"} 0.5\n"
                      "vllm:gpu_cache_usage_perc{engine=\"1\"} 0.25\n"
                      "vllm:gpu_prefix_cache_queries_total 100\n"
                      "vllm:gpu_prefix_cache_hits_total 40\n"
                      "vllm:num_preemptions 5\n"
                      "vllm:admission_rejections_total{reason=\"max_num_queued_reqs\"} 8\n"
                      "vllm:admission_rejections_total{reason=\"max_num_queued_tokens\"} 1\n"
                      "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"10\"} 1\n"
                      "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1\n"),
                &f);
    assert_int_equal(f.running, 5);
    assert_int_equal(f.waiting, 7);
    assert_int_equal(f.kv_used_ppm, 375000);
    assert_int_equal(f.kv_tokens, 160);
    assert_int_equal(f.prefix_queries, 100);
    assert_int_equal(f.prefix_hits, 40);
    assert_int_equal(f.preemptions, 5);
    assert_int_equal(f.refusals, 9);
}

static void test_a_cache_of_impossible_size_is_unknown(void **state)
{
    struct engine_facts f = {0};
    fixture_ask(&engine_vllm, "/metrics",
                SLICE("vllm:num_requests_running 1\n"
                      "vllm:cache_config_info{block_size=\"18446744073709551615\","
                      "num_gpu_blocks=\"18446744073709551615\"} 1\n"),
                &f);
    assert_true(f.has_load);
    assert_int_equal(f.kv_tokens, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vllm_0_32_is_read),
        cmocka_unit_test(test_the_simulator_of_llm_d_is_read_as_vllm),
        cmocka_unit_test(test_old_names_and_ranks_are_read),
        cmocka_unit_test(test_a_cache_of_impossible_size_is_unknown),
    };
    return cmocka_run_group_tests_name("vllm", tests, NULL, NULL);
}
