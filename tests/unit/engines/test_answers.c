#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engines/answers.h"
#include "fixture.h"

static void test_models_and_the_smallest_context_are_kept(void **state)
{
    struct engine_facts f = {0};
    engine_read_models(SLICE("{\"data\":[{\"id\":\"base\",\"max_model_len\":8192},"
                             "{\"id\":\"lora\",\"max_model_len\":4096},{\"id\":\"base\"},"
                             "{\"id\":\"none\",\"max_model_len\":null}]}"),
                       &f);
    assert_int_equal(f.model_count, 3);
    assert_string_equal(f.models[0], "base");
    assert_string_equal(f.models[1], "lora");
    assert_string_equal(f.models[2], "none");
    assert_int_equal(f.max_context_tokens, 4096);
}

static void test_ids_that_cannot_be_shown_are_left_out(void **state)
{
    struct engine_facts f = {0};
    engine_read_models(
        SLICE("{\"data\":[{\"id\":\"\"},{\"id\":\"a\\u001b[2J\"},{\"id\":\"a\\u0000b\"},"
              "{\"id\":7},{},null,{\"id\":\"ok\"}]}"),
        &f);
    assert_int_equal(f.model_count, 1);
    assert_string_equal(f.models[0], "ok");
}

static void test_long_lists_and_long_ids_are_bounded(void **state)
{
    static char body[64 << 10];
    size_t at = (size_t)snprintf(body, sizeof body, "{\"data\":[{\"id\":\"%0300d\"}", 1);
    for (int i = 0; i < 1000; i++)
        at += (size_t)snprintf(body + at, sizeof body - at, ",{\"id\":\"m%d\"}", i);
    snprintf(body + at, sizeof body - at, "]}");
    struct engine_facts f = {0};
    engine_read_models(slice_str(body), &f);
    assert_int_equal(f.model_count, ENGINE_MAX_MODELS);
    assert_string_equal(f.models[0], "m0");
}

static void test_numbers_outside_the_world_are_unknown(void **state)
{
    struct engine_facts f = {0};
    engine_read_models(SLICE("{\"data\":[{\"id\":\"a\",\"max_model_len\":-1},"
                             "{\"id\":\"b\",\"max_model_len\":1e30},"
                             "{\"id\":\"c\",\"max_model_len\":\"8192\"}]}"),
                       &f);
    assert_int_equal(f.max_context_tokens, 0);
}

/* Every reader of every engine, with answers that are none: facts stay as they were. */
static void test_malformed_answers_change_no_fact(void **state)
{
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "[1,2,3]",
        "null",
        "\"text\"",
        "{\"data\":7}",
        "\xff",
        "<html>",
        "{\"a\":NaN}",
        "{\"data\":[[]]}",
        "{\"version\":7}",
        "[{\"n_ctx\":-5}]",
    };
    const struct engine *e;
    for (size_t i = 0; engine_at(i, &e); i++) {
        const struct engine_question *lists[] = {e->once, e->scrape};
        for (size_t n = 0; n < 2 * ENGINE_MAX_QUESTIONS; n++) {
            const struct engine_question *q =
                &lists[n / ENGINE_MAX_QUESTIONS][n % ENGINE_MAX_QUESTIONS];
            for (size_t b = 0; q->path && b < sizeof bad / sizeof *bad; b++) {
                struct engine_facts before = {.has_load = true, .running = 3, .model_count = 0};
                struct engine_facts after = before;
                q->read(slice_str(bad[b]), &after);
                assert_memory_equal(&before, &after, sizeof before);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models_and_the_smallest_context_are_kept),
        cmocka_unit_test(test_ids_that_cannot_be_shown_are_left_out),
        cmocka_unit_test(test_long_lists_and_long_ids_are_bounded),
        cmocka_unit_test(test_numbers_outside_the_world_are_unknown),
        cmocka_unit_test(test_malformed_answers_change_no_fact),
    };
    return cmocka_run_group_tests_name("answers", tests, NULL, NULL);
}
