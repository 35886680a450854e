#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fixture.h"

extern const struct engine engine_sglang;

static void test_metrics_of_all_ranks_are_read(void **state)
{
    struct engine_facts f = {0};
    fixture_ask(&engine_sglang, "/metrics",
                SLICE("sglang:num_running_reqs{dp_rank=\"0\"} 3\n"
                      "sglang:num_running_reqs{dp_rank=\"1\"} 4\n"
                      "sglang:num_queue_reqs{dp_rank=\"0\"} 2\n"
                      "sglang:token_usage{dp_rank=\"0\"} 0.1\n"
                      "sglang:token_usage{dp_rank=\"1\"} 0.3\n"
                      "sglang:full_token_usage 0.9\n"
                      "sglang:max_total_num_tokens{dp_rank=\"0\"} 1000\n"
                      "sglang:max_total_num_tokens{dp_rank=\"1\"} 1000\n"
                      "sglang:prompt_tokens_total 500\nsglang:cached_tokens_total 200\n"
                      "sglang:num_retracted_reqs 9\nsglang:num_retracted_requests_total 48\n"
                      "sglang:gen_throughput NaN\n"),
                &f);
    assert_true(f.has_load);
    assert_int_equal(f.running, 7);
    assert_int_equal(f.waiting, 2);
    assert_int_equal(f.kv_used_ppm, 200000);
    assert_int_equal(f.kv_tokens, 2000);
    assert_int_equal(f.prefix_queries, 500);
    assert_int_equal(f.prefix_hits, 200);
    assert_int_equal(f.preemptions, 48);
}

static void test_server_info_is_read_old_path_and_new(void **state)
{
    static const char *const paths[] = {"/get_server_info", "/server_info"};
    for (size_t i = 0; i < 2; i++) {
        struct engine_facts f = {0};
        fixture_ask(&engine_sglang, paths[i],
                    SLICE("{\"version\":\"0.5.23\",\"context_length\":null,"
                          "\"max_total_num_tokens\":431616,\"max_running_requests\":2048}"),
                    &f);
        assert_string_equal(f.version, "0.5.23");
        assert_int_equal(f.max_context_tokens, 0);
        assert_int_equal(f.kv_tokens, 431616);
        assert_int_equal(f.slots, 2048);
    }
}

static void test_without_metrics_the_load_is_unknown(void **state)
{
    struct engine_facts f = {0};
    fixture_ask(&engine_sglang, "/metrics", SLICE("python_info 1\n"), &f);
    assert_false(f.has_load);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics_of_all_ranks_are_read),
        cmocka_unit_test(test_server_info_is_read_old_path_and_new),
        cmocka_unit_test(test_without_metrics_the_load_is_unknown),
    };
    return cmocka_run_group_tests_name("sglang", tests, NULL, NULL);
}
