#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fixture.h"

extern const struct engine engine_trtllm;

static void test_trtllm_serve_is_read(void **state)
{
    struct engine_facts f = {0};
    fixture_ask(&engine_trtllm, "/prometheus/metrics",
                SLICE("trtllm_num_requests_running{model_name=\"m\"} 5\n"
                      "trtllm_num_requests_waiting{model_name=\"m\"} 2\n"
                      "trtllm_kv_cache_utilization{model_name=\"m\"} 0.62\n"
                      "trtllm_kv_cache_max_blocks 1000\ntrtllm_kv_cache_tokens_per_block 32\n"
                      "trtllm_kv_cache_reused_blocks_total 30\n"
                      "trtllm_kv_cache_missed_blocks_total 70\n"),
                &f);
    assert_true(f.has_load);
    assert_int_equal(f.running, 5);
    assert_int_equal(f.waiting, 2);
    assert_int_equal(f.kv_used_ppm, 620000);
    assert_int_equal(f.kv_tokens, 32000);
    assert_int_equal(f.prefix_queries, 3200);
    assert_int_equal(f.prefix_hits, 960);
}

static void test_triton_names_are_read(void **state)
{
    struct engine_facts f = {0};
    fixture_ask(&engine_trtllm, "/prometheus/metrics",
                SLICE("nv_trt_llm_request_metrics{model=\"m\",request_type=\"scheduled\"} 6\n"
                      "nv_trt_llm_request_metrics{model=\"m\",request_type=\"waiting\"} 3\n"
                      "nv_trt_llm_request_metrics{model=\"m\",request_type=\"max\"} 512\n"
                      "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"} 0.25\n"
                      "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\"} 100\n"
                      "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\"} 64\n"),
                &f);
    assert_true(f.has_load);
    assert_int_equal(f.running, 6);
    assert_int_equal(f.waiting, 3);
    assert_int_equal(f.kv_used_ppm, 250000);
    assert_int_equal(f.kv_tokens, 6400);
}

static void test_huge_numbers_do_not_wrap(void **state)
{
    struct engine_facts f = {0};
    fixture_ask(&engine_trtllm, "/prometheus/metrics",
                SLICE("trtllm_num_requests_running 1e30\ntrtllm_kv_cache_max_blocks 1e30\n"
                      "trtllm_kv_cache_tokens_per_block 1e30\n"
                      "trtllm_kv_cache_reused_blocks_total 1e30\n"
                      "trtllm_kv_cache_missed_blocks_total 1e30\n"),
                &f);
    assert_int_equal(f.running, UINT32_MAX);
    assert_true(f.prefix_hits <= f.prefix_queries);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trtllm_serve_is_read),
        cmocka_unit_test(test_triton_names_are_read),
        cmocka_unit_test(test_huge_numbers_do_not_wrap),
    };
    return cmocka_run_group_tests_name("trtllm", tests, NULL, NULL);
}
