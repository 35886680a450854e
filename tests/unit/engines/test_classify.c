#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fixture.h"

static enum engine_verdict verdict(const char *engine, const char *fixture)
{
    struct fixture f = fixture_read(fixture);
    return engine_classify(engine_find(slice_str(engine)), f.status, f.body);
}

static enum engine_verdict verdict_text(const char *engine, int status, const char *body)
{
    return engine_classify(engine_find(slice_str(engine)), status, slice_str(body));
}

static void test_captured_refusals_are_understood(void **state)
{
    static const struct {
        const char *engine, *fixture;
        enum engine_verdict verdict;
    } rows[] = {
        {"llamacpp", "llamacpp/get-health.http", ENGINE_OK},
        {"llamacpp", "llamacpp/ctx-overflow.http", ENGINE_CONTEXT_OVERFLOW},
        {"llamacpp", "llamacpp/ctx-overflow-stream.http", ENGINE_CONTEXT_OVERFLOW},
        {"llamacpp", "llamacpp/loading-chat-stream.http", ENGINE_LOADING},
        {"llamacpp", "llamacpp/bad-messages.http", ENGINE_CLIENT_FAULT},
        {"llamacpp", "llamacpp/embeddings.http", ENGINE_CLIENT_FAULT}, /* 501 */
        {"llamacpp", "llamacpp/get-version.http", ENGINE_CLIENT_FAULT},
        {"vllm", "vllm-0.32.0/ctx-overflow.http", ENGINE_CONTEXT_OVERFLOW},
        {"vllm", "vllm-0.32.0/ctx-overflow-stream.http", ENGINE_CONTEXT_OVERFLOW},
        {"vllm", "vllm-0.32.0/503-queue-full.http", ENGINE_BUSY},
        {"vllm", "vllm-0.32.0/draining-chat.http", ENGINE_DRAINING},
        {"vllm", "vllm-0.32.0/draining-chat-stream.http", ENGINE_DRAINING},
        {"vllm", "vllm-0.32.0/unknown-model.http", ENGINE_CLIENT_FAULT},
        {"vllm", "vllm-0.32.0/bad-messages.http", ENGINE_CLIENT_FAULT},
        {"vllm", "vllm-0.32.0/render-disabled.http", ENGINE_CLIENT_FAULT},
        {"vllm", "llm-d-sim/429.http", ENGINE_BUSY},
        {"openai", "llamacpp/ctx-overflow.http", ENGINE_CONTEXT_OVERFLOW},
        {"openai", "llamacpp/loading-health.http", ENGINE_LOADING},
        {"openai", "vllm-0.32.0/ctx-overflow.http", ENGINE_CONTEXT_OVERFLOW},
        {"openai", "vllm-0.32.0/draining-chat.http", ENGINE_DRAINING},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (verdict(rows[i].engine, rows[i].fixture) != rows[i].verdict)
            fail_msg("%s: %s", rows[i].engine, rows[i].fixture);
}

static void test_overflows_without_fixtures_are_understood(void **state)
{
    static const struct {
        const char *engine;
        int status;
        const char *body;
    } rows[] = {
        {"sglang", 400,
         "{\"object\":\"error\",\"message\":\"The input (9031 tokens) is longer than the model's "
         "context length (2048 tokens).\",\"type\":\"BadRequestError\",\"code\":400}"},
        {"sglang", 400,
         "{\"object\":\"error\",\"message\":\"Requested token count exceeds the model's maximum "
         "context length of 2048 tokens.\"}"},
        {"sglang", 400,
         "{\"error\":{\"message\":\"Input length (9031) exceeds the maximum allowed length\"}}"},
        {"trtllm", 400,
         "{\"object\":\"error\",\"message\":\"The sum of prompt length (72417.0), query length (0) "
         "should not exceed max_num_tokens (69632)\",\"type\":\"BadRequestError\"}"},
        {"trtllm", 500, "{\"detail\":\"prompt length 9000 exceeds max_seq_len 8192\"}"},
        {"openai", 400, "{\"error\":{\"message\":\"no\",\"code\":\"context_length_exceeded\"}}"},
        {"vllm", 400,
         "{\"object\":\"error\",\"message\":\"This model's maximum context length is "
         "4096 tokens.\",\"code\":400}"},        /* 0.6 */
        {"vllm", 400, "maximum context length"}, /* not JSON at all */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (verdict_text(rows[i].engine, rows[i].status, rows[i].body) != ENGINE_CONTEXT_OVERFLOW)
            fail_msg("row %zu: %s", i, rows[i].body);
}

static void test_status_alone_for_every_engine(void **state)
{
    const struct engine *e;
    for (size_t i = 0; engine_at(i, &e); i++) {
        for (int status = 100; status < 620; status++) {
            enum engine_verdict expected = status >= 200 && status < 300   ? ENGINE_OK
                                           : status >= 300 && status < 500 ? ENGINE_CLIENT_FAULT
                                                                           : ENGINE_FAULT;
            if (status == 408 || status == 425 || status == 429 || status == 503 || status == 529)
                expected = ENGINE_BUSY;
            if (status == 501)
                expected = ENGINE_CLIENT_FAULT;
            assert_int_equal(engine_classify(e, status, SLICE("")), expected);
            assert_int_equal(engine_classify(e, status, SLICE("{\"error\":{}}")), expected);
        }
        assert_int_equal(engine_classify(e, 0, SLICE("")), ENGINE_FAULT);
        assert_int_equal(engine_classify(e, -1, SLICE("")), ENGINE_FAULT);
    }
}

static void test_words_count_only_where_errors_have_them(void **state)
{
    /* A validation error repeats the client's input; only message, type, code and param speak. */
    assert_int_equal(
        verdict_text("vllm", 422, "{\"detail\":[{\"input\":\"maximum context length\"}]}"),
        ENGINE_CLIENT_FAULT);
    assert_int_equal(verdict_text("llamacpp", 400,
                                  "{\"error\":{\"message\":\"no\",\"extra\":\"Loading model\"}}"),
                     ENGINE_CLIENT_FAULT);
    assert_int_equal(verdict_text("llamacpp", 500, "{\"error\":{\"message\":\"Loading model\"}}"),
                     ENGINE_FAULT); /* loading is a 503 */
    assert_int_equal(verdict_text("openai", 503, "{\"error\":\"Loading model\"}"), ENGINE_LOADING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_captured_refusals_are_understood),
        cmocka_unit_test(test_overflows_without_fixtures_are_understood),
        cmocka_unit_test(test_status_alone_for_every_engine),
        cmocka_unit_test(test_words_count_only_where_errors_have_them),
    };
    return cmocka_run_group_tests_name("classify", tests, NULL, NULL);
}
