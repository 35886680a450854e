#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fixture.h"

static const struct engine *find(const char *name)
{
    const struct engine *e = engine_find(slice_str(name));
    assert_non_null(e);
    return e;
}

static void test_every_row_is_complete_and_found_by_its_word(void **state)
{
    static const char *const words[] = {"vllm", "sglang", "trtllm", "llamacpp", "openai"};
    const struct engine *e;
    size_t count = 0;
    for (; engine_at(count, &e); count++) {
        assert_string_equal(e->name, words[count]);
        assert_ptr_equal(find(e->name), e);
        assert_true(strlen(e->help) > 0);
        assert_int_equal(e->health_path[0], '/');
        assert_non_null(e->once[0].path);
        assert_non_null(e->says_overflow);
    }
    assert_int_equal(count, 5);
    assert_null(engine_find(SLICE("auto")));
    assert_null(engine_find(SLICE("")));
}

static void test_health_of_each_engine(void **state)
{
    struct fixture ok = fixture_read("llamacpp/get-health.http");
    struct fixture loading = fixture_read("llamacpp/loading-health.http");
    struct fixture empty = fixture_read("vllm-0.32.0/get-health.http");
    const struct engine *llamacpp = find("llamacpp"), *vllm = find("vllm");
    assert_int_equal(engine_read_health(llamacpp, ok.status, ok.body), REPLICA_READY);
    assert_int_equal(engine_read_health(llamacpp, loading.status, loading.body), REPLICA_LOADING);
    assert_int_equal(engine_read_health(vllm, empty.status, empty.body), REPLICA_READY);
    /* vLLM listens only once it has loaded: a 503 is a dead engine process. */
    assert_int_equal(engine_read_health(vllm, 503, SLICE("")), REPLICA_DOWN);
    assert_int_equal(engine_read_health(find("sglang"), 503, SLICE("")), REPLICA_LOADING);
    assert_int_equal(engine_read_health(find("openai"), 401, SLICE("")), REPLICA_READY);
    assert_int_equal(engine_read_health(find("openai"), 502, SLICE("")), REPLICA_DOWN);
}

static void test_no_answer_is_down_for_every_engine(void **state)
{
    const struct engine *e;
    for (size_t i = 0; engine_at(i, &e); i++) {
        assert_int_equal(engine_read_health(e, 0, SLICE("")), REPLICA_DOWN);
        assert_int_equal(engine_read_health(e, 500, SLICE("")), REPLICA_DOWN);
        assert_int_equal(engine_read_health(e, 200, SLICE("\xff{")), REPLICA_READY);
    }
}

static const struct engine *detect(const char *path, const char *fixture)
{
    struct fixture f = fixture_read(fixture);
    return engine_detect(path, f.status, f.server, f.body);
}

static void test_real_engines_are_told_apart(void **state)
{
    assert_ptr_equal(detect("/v1/models", "vllm-0.32.0/get-v1-models.http"), find("vllm"));
    assert_ptr_equal(detect("/metrics", "vllm-0.32.0/get-metrics.http"), find("vllm"));
    assert_ptr_equal(detect("/v1/models", "llamacpp/get-v1-models.http"), find("llamacpp"));
    assert_ptr_equal(detect("/v1/models", "llamacpp/loading-health.http"), find("llamacpp"));
    assert_ptr_equal(detect("/metrics", "llamacpp/get-metrics.http"), find("llamacpp"));
    assert_null(detect("/v1/models", "vllm-0.32.0/get-props.http")); /* 404 */
}

static const struct engine *detect_text(const char *path, const char *body)
{
    return engine_detect(path, 200, SLICE("uvicorn"), slice_str(body));
}

static void test_engines_without_fixtures_are_told_apart(void **state)
{
    assert_ptr_equal(
        detect_text("/v1/models", "{\"data\":[{\"id\":\"m\",\"owned_by\":\"sglang\"}]}"),
        find("sglang"));
    assert_ptr_equal(
        detect_text("/v1/models", "{\"data\":[{\"id\":\"m\",\"owned_by\":\"tensorrt_llm\"}]}"),
        find("trtllm"));
    assert_ptr_equal(detect_text("/metrics", "python_info 1\nsglang:num_running_reqs 0\n"),
                     find("sglang"));
    assert_ptr_equal(detect_text("/prometheus/metrics", "trtllm_num_requests_running 0\n"),
                     find("trtllm"));
}

static void test_strangers_are_nobody(void **state)
{
    assert_null(detect_text("/v1/models", "{\"data\":[{\"id\":\"m\",\"owned_by\":\"nvidia\"}]}"));
    assert_null(detect_text("/v1/models", "{\"data\":[]}"));
    assert_null(detect_text("/v1/models", "[]"));
    assert_null(detect_text("/v1/models", ""));
    assert_null(detect_text("/v1/models", "not json"));
    assert_null(detect_text("/metrics", "[{\"iterLatencyMS\":1}]")); /* trtllm-serve's JSON */
    struct slice dynamo = fixture_bytes("dynamo-mocker/metrics.txt");
    assert_null(engine_detect("/metrics", 200, SLICE(""), dynamo));
}

static void test_detection_asks_the_models_first_and_ends(void **state)
{
    size_t count = 0;
    assert_string_equal(engine_detect_paths[0], "/v1/models");
    while (engine_detect_paths[count])
        count++;
    assert_in_range(count, 1, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_is_complete_and_found_by_its_word),
        cmocka_unit_test(test_health_of_each_engine),
        cmocka_unit_test(test_no_answer_is_down_for_every_engine),
        cmocka_unit_test(test_real_engines_are_told_apart),
        cmocka_unit_test(test_engines_without_fixtures_are_told_apart),
        cmocka_unit_test(test_strangers_are_nobody),
        cmocka_unit_test(test_detection_asks_the_models_first_and_ends),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
