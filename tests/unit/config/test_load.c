#include "expect.h"

#include <stdlib.h>
#include <unistd.h>

static struct config_errors errors;

static int setup(void **state)
{
    config_errors_init(&errors);
    return 0;
}

static int teardown(void **state)
{
    config_errors_free(&errors);
    return 0;
}

static bool report_has(const char *part)
{
    return slice_find(buf_slice(&errors.report), slice_str(part)) != NULL;
}

static void test_defaults_are_what_the_table_says(void **state)
{
    struct config *c = expect_config(SLICE(SERVES));
    assert_string_equal(c->file, "test.yaml");
    assert_string_equal(c->listen[0], "127.0.0.1:8080");
    assert_int_equal(c->listen_count, 1);
    assert_string_equal(c->admin_listen, "127.0.0.1:9090");
    assert_int_not_equal(c->workers, 0);
    assert_int_equal(c->log_level, LOG_INFO);
    assert_false(c->log_json);
    assert_null(c->access_log);
    assert_true(c->access_log_json);
    assert_int_equal(c->limits.head_bytes, 64 * 1024);
    assert_int_equal(c->limits.connections, 65536);
    assert_true(c->timeouts.first_byte_ns == 300000000000);
    assert_int_equal(c->timeouts.request_ns, 0);
    assert_true(c->health.eject_max_share == 0.5);
    assert_int_equal(c->retry.attempts, 3);
    assert_string_equal(c->session_header, "x-session-id");
    assert_string_equal(c->models[0].pools[0].engine, "auto");
    assert_string_equal(c->models[0].pools[0].policy, "least-load");
    assert_int_equal(c->models[0].slo_ttft_ns, 0);
    config_free(c);
}

static void test_every_mistake_is_reported_in_the_order_of_the_lines(void **state)
{
    struct slice text = SLICE("models:\n"
                              "  - name: m\n"
                              "    engine: vlm\n"
                              "    replicas: [h:1]\n"
                              "workers: none\n"
                              "lisen: x\n");
    assert_null(config_parse(text, "dir/w.yaml", expect_words(), &errors));
    assert_int_equal(errors.count, 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(errors.mistakes[i].line, 3 + i);
    assert_true(report_has("dir/w.yaml:3:13: error: engine: `vlm` is not an engine\n"
                           "    3 |     engine: vlm\n"
                           "      |             ^~~\n"
                           "        help: did you mean `vllm`?\n"));
}

static void test_more_mistakes_than_are_kept_are_counted(void **state)
{
    struct buf text;
    buf_init(&text, 1 << 20);
    for (int i = 0; i < 3 * CONFIG_MAX_ERRORS; i++)
        assert_int_equal(buf_printf(&text, "nonsense%d: 1\n", i), WEIR_OK);
    assert_null(config_parse(buf_slice(&text), "t", expect_words(), &errors));
    assert_int_equal(errors.count, 3 * CONFIG_MAX_ERRORS);
    assert_true(report_has("128 more mistakes are not shown"));
    buf_free(&text);
}

static void test_a_long_line_is_shown_around_the_mistake(void **state)
{
    char text[2000];
    int len = snprintf(text, sizeof text, "# x\nworkers: [%*s]\n" SERVES, 500, "oops");
    assert_null(config_parse(slice_of(text, (size_t)len), "t", expect_words(), &errors));
    assert_int_equal(errors.count, 1);
    assert_true(buf_len(&errors.report) < 500);
}

static void test_what_is_shown_cannot_drive_a_terminal(void **state)
{
    struct slice text = SLICE("workers: \"\\e[31m\"\n\"\\x07bell\": 1\n" SERVES);
    assert_null(config_parse(text, "t", expect_words(), &errors));
    for (size_t i = 0; i < buf_len(&errors.report); i++)
        assert_true(errors.report.ptr[i] >= ' ' || errors.report.ptr[i] == '\n');
}

static void test_a_file_that_cannot_be_read_is_said_plainly(void **state)
{
    assert_null(config_load("/nowhere/weir.yaml", expect_words(), &errors));
    assert_true(report_has("/nowhere/weir.yaml: error: the file cannot be opened: No such file"));
    teardown(NULL);
    setup(NULL);
    assert_null(config_load("/", expect_words(), &errors));
    assert_true(report_has("is a directory"));
}

static void test_a_file_is_loaded_under_its_own_name(void **state)
{
    char path[] = "/tmp/weir-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, SERVES, sizeof SERVES - 1), sizeof SERVES - 1);
    close(fd);
    struct config *c = config_load(path, expect_words(), &errors);
    unlink(path);
    assert_non_null(c);
    assert_string_equal(c->file, path);
    config_free(c);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_defaults_are_what_the_table_says),
        TEST(test_every_mistake_is_reported_in_the_order_of_the_lines),
        TEST(test_more_mistakes_than_are_kept_are_counted),
        TEST(test_a_long_line_is_shown_around_the_mistake),
        TEST(test_what_is_shown_cannot_drive_a_terminal),
        TEST(test_a_file_that_cannot_be_read_is_said_plainly),
        TEST(test_a_file_is_loaded_under_its_own_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
