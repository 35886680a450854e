#include "expect.h"

#include "config/option.h"

static void test_every_row_is_whole(void **state)
{
    const struct option *option;
    for (size_t i = 0; (option = option_at(i)); i++) {
        bool is_section = option_storage(option) == STORE_STRUCTS;
        assert_true(option->help[0] && option->help[strlen(option->help) - 1] != '.');
        assert_true(option->min <= option->max);
        if (!is_section && !option->fallback && !option->example)
            fail_msg("%s has neither a default nor an example", option->path);
        if (option->is_required && option->fallback)
            fail_msg("%s is required and has a default", option->path);
    }
}

static void test_paths_are_found_and_stand_once(void **state)
{
    const struct option *option;
    for (size_t i = 0; (option = option_at(i)); i++)
        assert_ptr_equal(option_find(option->scope, slice_str(option_key(option))), option);
}

/* The writer opens a section once; its options must stand together. */
static void test_options_of_a_section_stand_together(void **state)
{
    for (int scope = 0; scope < OPTION_SCOPE_COUNT; scope++) {
        const struct option *option = NULL, *before = NULL;
        for (; (option = option_next((enum option_scope)scope, option)); before = option) {
            size_t section = strcspn(option_key(option), ".");
            bool is_new = !before || strncmp(option_key(before), option_key(option), section + 1);
            if (!is_new || option_key(option)[section] != '.')
                continue;
            const struct option *other = NULL;
            while ((other = option_next((enum option_scope)scope, other)) && other < option)
                if (strncmp(option_key(other), option_key(option), section + 1) == 0)
                    fail_msg("%s stands apart from %s", option->path, other->path);
        }
    }
}

static void test_sections_are_what_options_stand_in(void **state)
{
    assert_true(option_is_section(OPTION_CONFIG, SLICE("health")));
    assert_true(option_is_section(OPTION_CONFIG, SLICE("health.eject")));
    assert_false(option_is_section(OPTION_CONFIG, SLICE("health.interval")));
    assert_false(option_is_section(OPTION_CONFIG, SLICE("heal")));
    assert_false(option_is_section(OPTION_CONFIG, SLICE("")));
}

static void test_words_are_found_by_position(void **state)
{
    assert_int_equal(words_find("a|bc|d", SLICE("bc")), 1);
    assert_int_equal(words_find("a|bc|d", SLICE("b")), -1);
    assert_int_equal(words_find("a|bc|d", SLICE("")), -1);
    assert_true(slice_eq(words_at("a|bc|d", 2), SLICE("d")));
    assert_int_equal(words_at("a|bc|d", 3).len, 0);
}

static void test_integers_fit_fields_of_every_width(void **state)
{
    struct {
        uint8_t a;
        uint16_t b;
        uint32_t c;
        uint64_t d;
    } fields = {0};
    const size_t sizes[] = {1, 2, 4, 8};
    const size_t offsets[] = {0, 2, 4, 8};
    for (size_t i = 0; i < 4; i++) {
        struct option option = {.type = OPTION_COUNT, .offset = offsets[i], .size = sizes[i]};
        option_set_integer(&option, &fields, 200 + i);
        assert_int_equal(option_integer(&option, &fields), 200 + i);
    }
    assert_int_equal(fields.a, 200);
    assert_int_equal(fields.b, 201);
    assert_int_equal(fields.c, 202);
    assert_int_equal(fields.d, 203);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_is_whole),
        cmocka_unit_test(test_paths_are_found_and_stand_once),
        cmocka_unit_test(test_options_of_a_section_stand_together),
        cmocka_unit_test(test_sections_are_what_options_stand_in),
        cmocka_unit_test(test_words_are_found_by_position),
        cmocka_unit_test(test_integers_fit_fields_of_every_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
