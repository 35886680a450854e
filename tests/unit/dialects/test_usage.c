#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "captured.h"
#include "dialects/usage.h"

static struct usage read_text(const char *body)
{
    struct usage usage = {0};
    usage_read_body(slice_str(body), &usage);
    return usage;
}

static void assert_usage(struct usage u, uint64_t prompt, uint64_t output, uint64_t cached)
{
    assert_true(u.known);
    assert_int_equal(u.prompt_tokens, prompt);
    assert_int_equal(u.output_tokens, output);
    assert_int_equal(u.cached_tokens, cached);
}

static struct usage read_captured(const char *name)
{
    struct usage usage = {0};
    struct buf body;
    captured_body(name, &body);
    usage_read_body(buf_slice(&body), &usage);
    buf_free(&body);
    return usage;
}

static void test_captured_answers_have_their_counts(void **state)
{
    assert_usage(read_captured("vllm-0.32.0/chat-nonstream.http"), 27, 24, 0);
    assert_usage(read_captured("llama-server/unknown-model.http"), 27, 2, 26);
    assert_usage(read_captured("vllm-0.32.0/tool-nonstream.http"), 37, 48, 0);
}

static void test_each_dialect_is_understood(void **state)
{
    assert_usage(read_text("{\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7,"
                           "\"prompt_tokens_details\":{\"cached_tokens\":3}}}"),
                 5, 7, 3);
    assert_usage(read_text("{\"usage\":{\"input_tokens\":5,\"output_tokens\":7,"
                           "\"input_tokens_details\":{\"cached_tokens\":3}}}"),
                 5, 7, 3);
    assert_usage(read_text("{\"usage\":{\"input_tokens\":5,\"output_tokens\":7,"
                           "\"cache_read_input_tokens\":3,\"cache_creation_input_tokens\":2}}"),
                 10, 7, 3);
    assert_usage(read_text("{\"usage\":{\"prompt_tokens\":5,\"total_tokens\":5}}"), 5, 0, 0);
    struct usage u = read_text("{\"usage\":{\"completion_tokens\":9,"
                               "\"completion_tokens_details\":{\"reasoning_tokens\":4}}}");
    assert_int_equal(u.reasoning_tokens, 4);
    u = read_text("{\"usage\":{\"output_tokens\":9,"
                  "\"output_tokens_details\":{\"reasoning_tokens\":4}}}");
    assert_int_equal(u.reasoning_tokens, 4);
}

static void test_llamacpp_timings_tell_the_cached_tokens_where_usage_does_not(void **state)
{
    assert_usage(read_text("{\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7},"
                           "\"timings\":{\"cache_n\":4}}"),
                 5, 7, 4);
    assert_usage(read_text("{\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7,"
                           "\"prompt_tokens_details\":{\"cached_tokens\":3}},"
                           "\"timings\":{\"cache_n\":4}}"),
                 5, 7, 3);
}

static void test_fr27_explicit_zeros_are_known(void **state)
{
    assert_usage(read_text("{\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":0}}"), 0, 0, 0);
}

static void test_absurd_counts_are_ignored(void **state)
{
    struct usage u = read_text("{\"usage\":{\"prompt_tokens\":-1,\"completion_tokens\":1e30}}");
    assert_false(u.known);
    u = read_text("{\"usage\":{\"prompt_tokens\":\"5\",\"completion_tokens\":99999999999}}");
    assert_false(u.known);
    assert_usage(read_text("{\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1,"
                           "\"prompt_tokens_details\":{\"cached_tokens\":500}}}"),
                 5, 1, 5);
}

static void test_what_is_absent_or_malformed_leaves_what_was_there(void **state)
{
    struct usage u = {.known = true, .prompt_tokens = 8, .output_tokens = 2, .cached_tokens = 1};
    static const char *const bodies[] = {"",
                                         "{",
                                         "[]",
                                         "{}",
                                         "{\"usage\":null}",
                                         "{\"usage\":[]}",
                                         "{\"usage\":{}}",
                                         "{\"timings\":{\"cache_n\":4}}"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        usage_read_body(slice_str(bodies[i]), &u);
        assert_usage(u, 8, 2, 1);
    }
    usage_read_body(SLICE("{\"usage\":{\"output_tokens\":5}}"), &u);
    assert_usage(u, 8, 5, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_captured_answers_have_their_counts),
        cmocka_unit_test(test_each_dialect_is_understood),
        cmocka_unit_test(test_llamacpp_timings_tell_the_cached_tokens_where_usage_does_not),
        cmocka_unit_test(test_fr27_explicit_zeros_are_known),
        cmocka_unit_test(test_absurd_counts_are_ignored),
        cmocka_unit_test(test_what_is_absent_or_malformed_leaves_what_was_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
