#include "expect.h"

#include "config/yaml.h"

static struct config_errors errors;
static struct arena arena;

static int setup(void **state)
{
    config_errors_init(&errors);
    arena_init(&arena, 4096, SIZE_MAX);
    return 0;
}

static int teardown(void **state)
{
    config_errors_free(&errors);
    arena_free(&arena);
    return 0;
}

static const struct yaml_node *parse(struct slice text)
{
    struct report report = {.file = "t", .source = text, .errors = &errors};
    return yaml_parse(text, &arena, &report);
}

static void assert_scalar(const struct yaml_node *node, const char *text, uint32_t line,
                          uint32_t column)
{
    assert_int_equal(node->kind, YAML_SCALAR);
    assert_true(slice_eq(node->text, slice_str(text)));
    assert_int_equal(node->place.line, line);
    assert_int_equal(node->place.column, column);
}

static void test_nodes_know_their_places(void **state)
{
    const struct yaml_node *root = parse(SLICE("a: 1\nb:\n  - \xc3\xa9: x\n  - [y, \"z\"]\n"));
    assert_non_null(root);
    assert_scalar(yaml_find(root, SLICE("a"))->value, "1", 1, 4);
    const struct yaml_node *list = yaml_find(root, SLICE("b"))->value;
    assert_int_equal(list->count, 2);
    const struct yaml_entry *first = list->first->value->first;
    assert_scalar(first->key, "\xc3\xa9", 3, 5);
    assert_scalar(first->value, "x", 3, 8); /* columns are characters, not bytes */
    assert_scalar(list->first->next->value->first->value, "y", 4, 6);
}

static void test_a_value_left_out_is_null_and_has_a_place(void **state)
{
    const struct yaml_node *root = parse(SLICE("a:\nb: ~\nc: null\nd: \"null\"\ne: ''\n"));
    assert_true(yaml_find(root, SLICE("a"))->value->is_null);
    assert_int_equal(yaml_find(root, SLICE("a"))->value->place.line, 1);
    assert_true(yaml_find(root, SLICE("b"))->value->is_null);
    assert_true(yaml_find(root, SLICE("c"))->value->is_null);
    assert_false(yaml_find(root, SLICE("d"))->value->is_null);
    assert_false(yaml_find(root, SLICE("e"))->value->is_null);
}

static void test_paths_go_through_sections(void **state)
{
    const struct yaml_node *root = parse(SLICE("a: {b: {c: 7}}\nd: 1\n"));
    assert_scalar(yaml_find_path(root, "a.b.c")->value, "7", 1, 12);
    assert_null(yaml_find_path(root, "a.x.c"));
    assert_null(yaml_find_path(root, "d.e"));
    assert_null(yaml_find_path(NULL, "a"));
}

static void test_an_alias_is_the_node_itself(void **state)
{
    const struct yaml_node *root = parse(SLICE("a: &x [1, 2]\nb: *x\n"));
    assert_ptr_equal(yaml_find(root, SLICE("a"))->value, yaml_find(root, SLICE("b"))->value);
    assert_int_equal(errors.count, 0);
}

static void test_an_empty_text_has_no_root_and_no_mistake(void **state)
{
    assert_null(parse(SLICE("")));
    assert_null(parse(SLICE("# only this\n")));
    assert_int_equal(errors.count, 0);
}

static void assert_broken(struct slice text, uint32_t line, uint32_t column, const char *part)
{
    teardown(NULL);
    setup(NULL);
    assert_null(parse(text));
    assert_int_equal(errors.count, 1);
    if (!strstr(errors.mistakes[0].text, part))
        fail_msg("'%s' has no '%s'", errors.mistakes[0].text, part);
    assert_int_equal(errors.mistakes[0].line, line);
    assert_int_equal(errors.mistakes[0].column, column);
}

static void test_what_is_no_yaml_has_a_place(void **state)
{
    assert_broken(SLICE("a:\n\t- b\n"), 2, 1, "tab");
    assert_broken(SLICE("a: [1,\nb"), 2, 1, "not YAML");
    assert_broken(SLICE("a: b: c"), 1, 5, "not YAML");
    assert_broken(SLICE("a: \xff\n"), 1, 4, "UTF-8");
    assert_broken(SLICE("a: 1\nb: \0\n"), 2, 4, "zero byte");
    assert_broken(SLICE("a: 1\n---\nb: 2\n"), 2, 1, "second document");
    assert_broken(SLICE("[a]: 1\n"), 1, 1, "cannot be a key");
    assert_broken(SLICE("a: *b\n"), 1, 5, "no such anchor");
    assert_broken(SLICE("&a [*a]\n"), 1, 6, "no such anchor");
}

static void test_a_tag_is_a_mistake(void **state)
{
    assert_non_null(parse(SLICE("a: !!str 1\n")));
    assert_int_equal(errors.count, 1);
    assert_int_equal(errors.mistakes[0].column, 4);
}

static void test_of_two_equal_keys_the_first_stays(void **state)
{
    const struct yaml_node *root = parse(SLICE("a: 1\nb: 2\na: 3\n"));
    assert_int_equal(errors.count, 1);
    assert_int_equal(errors.mistakes[0].line, 3);
    assert_non_null(strstr(errors.mistakes[0].help, "line 1"));
    assert_int_equal(root->count, 2);
    assert_scalar(yaml_find(root, SLICE("a"))->value, "1", 1, 4);
    assert_null(root->first->next->next);
}

/* A few lines that stand for 10^9 nodes. */
static void test_a_billion_laughs_are_counted_and_refused(void **state)
{
    char text[4096];
    size_t len = (size_t)snprintf(text, sizeof text, "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for (int i = 1; i < 9; i++) {
        len += (size_t)snprintf(text + len, sizeof text - len, "a%d: &a%d [", i, i);
        for (int j = 0; j < 10; j++)
            len += (size_t)snprintf(text + len, sizeof text - len, "%s*a%d", j ? "," : "", i - 1);
        len += (size_t)snprintf(text + len, sizeof text - len, "]\n");
    }
    assert_null(parse(slice_of(text, len)));
    assert_int_equal(errors.count, 1);
    assert_non_null(strstr(errors.mistakes[0].text, "more than a configuration may hold"));
}

static void test_depth_is_bounded(void **state)
{
    char text[2 * YAML_MAX_DEPTH + 2];
    memset(text, '[', YAML_MAX_DEPTH + 1);
    memset(text + YAML_MAX_DEPTH + 1, ']', YAML_MAX_DEPTH + 1);
    assert_non_null(parse(slice_of(text + 1, 2 * YAML_MAX_DEPTH)));
    assert_broken(slice_of(text, sizeof text), 1, YAML_MAX_DEPTH + 1, "too deep");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_nodes_know_their_places),
        TEST(test_a_value_left_out_is_null_and_has_a_place),
        TEST(test_paths_go_through_sections),
        TEST(test_an_alias_is_the_node_itself),
        TEST(test_an_empty_text_has_no_root_and_no_mistake),
        TEST(test_what_is_no_yaml_has_a_place),
        TEST(test_a_tag_is_a_mistake),
        TEST(test_of_two_equal_keys_the_first_stays),
        TEST(test_a_billion_laughs_are_counted_and_refused),
        TEST(test_depth_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
