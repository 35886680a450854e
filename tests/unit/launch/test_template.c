#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launch/template.h"

static const struct template_values values = {.model = "smollm2", .index = 3, .port = 8081};

static void assert_filled(const char *text, const char *expected)
{
    struct buf out;
    buf_init(&out, 256);
    assert_int_equal(template_fill(&out, text, &values), WEIR_OK);
    assert_int_equal(buf_len(&out), strlen(expected));
    assert_memory_equal(buf_slice(&out).ptr, expected, strlen(expected));
    buf_free(&out);
}

static void test_placeholders_are_filled_wherever_they_stand(void **state)
{
    assert_filled("--port={port}", "--port=8081");
    assert_filled("{model}-{index}", "smollm2-3");
    assert_filled("{port}{port}", "80818081");
    assert_filled("plain", "plain");
}

static void test_other_braces_stay_as_they_are(void **state)
{
    assert_filled("{\"kv\": {\"port\": {port}}}", "{\"kv\": {\"port\": 8081}}");
    assert_filled("{Port} {port", "{Port} {port");
    assert_filled("{{index}}", "{3}");
    assert_filled("{", "{");
}

static void test_what_was_filled_in_is_not_looked_at_again(void **state)
{
    struct template_values odd = {.model = "{port}"};
    struct buf out;
    buf_init(&out, 64);
    assert_int_equal(template_fill(&out, "{model}", &odd), WEIR_OK);
    assert_memory_equal(buf_slice(&out).ptr, "{port}", 6);
    buf_free(&out);
}

static void test_a_full_buffer_is_a_limit(void **state)
{
    struct buf out;
    buf_init(&out, 4);
    assert_int_equal(template_fill(&out, "{model}", &values), WEIR_ELIMIT);
    assert_int_equal(template_fill(&out, "12345", &values), WEIR_ELIMIT);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_placeholders_are_filled_wherever_they_stand),
        cmocka_unit_test(test_other_braces_stay_as_they_are),
        cmocka_unit_test(test_what_was_filled_in_is_not_looked_at_again),
        cmocka_unit_test(test_a_full_buffer_is_a_limit),
    };
    return cmocka_run_group_tests_name("template", tests, NULL, NULL);
}
