#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "config/command_line.h"

static struct arena arena;
static struct complaint why;

static const char *const *split(const char *text, size_t *count)
{
    return command_line_split(slice_str(text), &arena, count, &why);
}

/* `want` has the arguments separated by "|". */
static void assert_split(const char *text, const char *want)
{
    size_t count;
    char joined[256] = "";
    const char *const *list = split(text, &count);
    assert_non_null(list);
    assert_null(list[count]);
    for (size_t i = 0, len = 0; i < count; i++)
        len += (size_t)snprintf(joined + len, sizeof joined - len, "%s%s", i ? "|" : "", list[i]);
    assert_string_equal(joined, want);
}

static void assert_refused(const char *text, const char *part)
{
    size_t count;
    assert_null(split(text, &count));
    assert_non_null(strstr(why.text, part));
}

static void test_spaces_separate(void **state)
{
    assert_split("  a bb\t ccc\n", "a|bb|ccc");
    assert_split("", "");
    assert_split("   ", "");
}

static void test_quotes_and_backslashes_keep_together(void **state)
{
    assert_split("a 'b c' \"d e\"", "a|b c|d e");
    assert_split("x'y z'\"w\"v", "xy zwv");
    assert_split("'' \"\"", "|");
    assert_split("a\\ b \\' \"\\\"\\\\\" '\\'", "a b|'|\"\\|\\");
    assert_split("--json '{\"a\": $1}'", "--json|{\"a\": $1}");
}

static void test_what_needs_a_shell_is_refused(void **state)
{
    static const char *const needs[] = {"a | b", "a; b", "a & b",  "a > b", "a < b",    "$HOME/x",
                                        "`a`",   "(a)",  "\"$A\"", "~/x",   "a \"`b`\""};
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        assert_refused(needs[i], "no shell");
    assert_split("a~b \\$x \\~", "a~b|$x|~");
}

static void test_open_quotes_are_refused(void **state)
{
    assert_refused("a 'b", "single quote");
    assert_refused("a \"b", "double quote");
}

static void test_arguments_are_bounded(void **state)
{
    char text[2 * COMMAND_MAX_ARGUMENTS + 3];
    size_t count;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 2 ? ' ' : 'a';
    assert_null(command_line_split(slice_of(text, sizeof text), &arena, &count, &why));
    assert_non_null(command_line_split(slice_of(text, sizeof text - 3), &arena, &count, &why));
    assert_int_equal(count, COMMAND_MAX_ARGUMENTS);
}

static void test_a_zero_byte_is_refused(void **state)
{
    size_t count;
    assert_null(command_line_split(SLICE("a\0b"), &arena, &count, &why));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spaces_separate),
        cmocka_unit_test(test_quotes_and_backslashes_keep_together),
        cmocka_unit_test(test_what_needs_a_shell_is_refused),
        cmocka_unit_test(test_open_quotes_are_refused),
        cmocka_unit_test(test_arguments_are_bounded),
        cmocka_unit_test(test_a_zero_byte_is_refused),
    };
    arena_init(&arena, 4096, SIZE_MAX);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return failed;
}
