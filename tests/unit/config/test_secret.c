#include "expect.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/secret.h"

static struct arena arena;
static struct complaint why;
static char path[64];

static int setup(void **state)
{
    arena_init(&arena, 4096, SIZE_MAX);
    snprintf(path, sizeof path, "/tmp/weir-test-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int teardown(void **state)
{
    arena_free(&arena);
    return unlink(path);
}

static void put(struct slice text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text.ptr, 1, text.len, file), text.len);
    assert_int_equal(fclose(file), 0);
}

static void test_a_key_file_loses_its_newline(void **state)
{
    put(SLICE(" sk-abc \r\n\n"));
    assert_string_equal(secret_from_file(path, &arena, &why), "sk-abc");
}

static void assert_refused(struct slice text, const char *part)
{
    put(text);
    assert_null(secret_from_file(path, &arena, &why));
    assert_non_null(strstr(why.text, part));
    assert_non_null(strstr(why.text, path));
    assert_null(strstr(why.text, "sk-"));
    assert_null(strstr(why.help, "sk-"));
}

static void test_what_could_forge_a_header_is_refused_and_not_shown(void **state)
{
    assert_refused(SLICE(""), "is empty");
    assert_refused(SLICE("\n"), "is empty");
    assert_refused(SLICE("sk-a\nX-Evil: 1"), "more than one line");
    assert_refused(SLICE("sk-a\0b"), "more than one line");
}

static void test_a_long_key_is_refused(void **state)
{
    char text[SECRET_MAX + 1];
    memset(text, 'a', sizeof text);
    put(slice_of(text, SECRET_MAX));
    assert_non_null(secret_from_file(path, &arena, &why));
    assert_refused(slice_of(text, sizeof text), "longer than 4096");
}

static void test_what_is_no_file_is_refused_without_waiting(void **state)
{
    assert_null(secret_from_file("/nowhere", &arena, &why));
    assert_non_null(strstr(why.text, "`/nowhere` cannot be opened: No such file"));
    assert_null(secret_from_file("/tmp", &arena, &why));
    assert_non_null(strstr(why.text, "is a directory"));
    assert_null(secret_from_file("/dev/zero", &arena, &why));
    assert_non_null(strstr(why.text, "not a regular file"));
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_null(secret_from_file(path, &arena, &why));
    assert_non_null(strstr(why.text, "not a regular file"));
}

static void test_the_environment_is_asked_by_name(void **state)
{
    setenv("WEIR_TEST_KEY", "sk-env", 1);
    assert_string_equal(secret_from_environment("WEIR_TEST_KEY", &arena, &why), "sk-env");
    unsetenv("WEIR_TEST_KEY");
    assert_null(secret_from_environment("WEIR_TEST_KEY", &arena, &why));
    assert_non_null(strstr(why.text, "`WEIR_TEST_KEY` is not set"));
}

static struct slice yaml_with(const char *option, const char *value)
{
    static char text[256];
    int len = snprintf(text, sizeof text, "models: [{name: m, replicas: http://h:1, %s: '%s'}]\n",
                       option, value);
    return slice_of(text, (size_t)len);
}

static void test_a_config_has_the_key_and_shows_only_its_source(void **state)
{
    put(SLICE("sk-secret\n"));
    struct config *c = expect_config(yaml_with("api_key_file", path));
    struct buf shown_text;
    buf_init(&shown_text, 1 << 20);
    assert_string_equal(c->models[0].pools[0].api_key, "sk-secret");
    assert_int_equal(config_show(c, &shown_text), WEIR_OK);
    assert_null(slice_find(buf_slice(&shown_text), SLICE("sk-secret")));
    assert_non_null(slice_find(buf_slice(&shown_text), slice_str(path)));

    struct config *copy = config_with_models(c, c->models, c->model_count);
    config_free(c);
    assert_string_equal(copy->models[0].pools[0].api_key, "sk-secret");
    assert_string_equal(copy->models[0].pools[0].api_key_file, path);
    config_free(copy);
    buf_free(&shown_text);
}

static void test_a_key_that_is_not_there_has_its_place_in_the_file(void **state)
{
    static const struct expected_mistake list[] = {
        {"models: [{name: m, replicas: http://h:1, api_key_file: /nowhere}]\n", 1, 56,
         "`/nowhere` cannot be opened: No such file", "weir's user may read"},
        {"models: [{name: m, replicas: http://h:1, api_key_env: WEIR_NOPE}]\n", 1, 55,
         "`WEIR_NOPE` is not set", "api_key_file"},
        {"models: [{name: m, replicas: http://h:1, api_key_env: A, api_key_file: b}]\n", 1, 42,
         "from a file or from the environment", "not both"},
    };
    EXPECT_MISTAKES(list);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_key_file_loses_its_newline),
        TEST(test_what_could_forge_a_header_is_refused_and_not_shown),
        TEST(test_a_long_key_is_refused),
        TEST(test_what_is_no_file_is_refused_without_waiting),
        TEST(test_the_environment_is_asked_by_name),
        TEST(test_a_config_has_the_key_and_shows_only_its_source),
        TEST(test_a_key_that_is_not_there_has_its_place_in_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
