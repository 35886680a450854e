#include "expect.h"

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

static void test_flags_and_defaults_make_a_config_without_models(void **state)
{
    struct config_flags flags = {.listen = "127.0.0.1:1, [::1]:2",
                                 .backends = "http://a:8000,http://b:8000",
                                 .policy = "round-robin",
                                 .access_log = "-",
                                 .workers = 3};
    struct config *c = config_from_flags(&flags, expect_words(), &errors);
    assert_non_null(c);
    assert_null(c->file);
    assert_int_equal(c->listen_count, 2);
    assert_string_equal(c->listen[1], "[::1]:2");
    assert_string_equal(c->admin_listen, "127.0.0.1:9090");
    assert_int_equal(c->backend_count, 2);
    assert_string_equal(c->backends[1], "http://b:8000");
    assert_string_equal(c->policy, "round-robin");
    assert_string_equal(c->access_log, "-");
    assert_int_equal(c->workers, 3);
    assert_int_equal(c->model_count, 0);
    assert_int_equal(c->limits.head_bytes, 64 * 1024);
    config_free(c);
}

static void test_no_admin_listener_is_off(void **state)
{
    struct config_flags flags = {.backends = "http://a", .admin_listen = "off"};
    struct config *c = config_from_flags(&flags, expect_words(), &errors);
    assert_non_null(c);
    assert_null(c->admin_listen);
    config_free(c);
}

static void assert_refused(struct config_flags flags, const char *text, const char *help)
{
    teardown(NULL);
    setup(NULL);
    assert_null(config_from_flags(&flags, expect_words(), &errors));
    assert_int_equal(errors.count, 1);
    if (!strstr(errors.mistakes[0].text, text) || (help && !strstr(errors.mistakes[0].help, help)))
        fail_msg("%.*s", SLICE_ARG(buf_slice(&errors.report)));
}

static void test_each_flag_is_checked_like_its_option(void **state)
{
    const char *good = "http://a:1";
    assert_refused((struct config_flags){0}, "--backends: there is no engine", "give a file");
    assert_refused((struct config_flags){.backends = ""}, "--backends: there is no engine", NULL);
    assert_refused((struct config_flags){.backends = "a:8000"}, "--backends: `a:8000` is not",
                   "http://a:8000");
    assert_refused((struct config_flags){.backends = "http://a:1,http://a:1/v1"},
                   "`http://a:1/v1` is there twice", NULL);
    assert_refused((struct config_flags){.backends = good, .listen = "x"}, "--listen: `x`", "port");
    assert_refused((struct config_flags){.backends = good, .policy = "least-laod"},
                   "--policy: `least-laod`", "least-load");
    assert_refused((struct config_flags){.backends = good, .workers = 5000}, "--workers: `5000`",
                   "1024");
    assert_refused((struct config_flags){.backends = good, .access_log = "\xff"}, "UTF-8", NULL);
}

static void test_several_wrong_flags_are_all_said(void **state)
{
    struct config_flags flags = {.listen = "x,y", .backends = "z", .policy = "w"};
    assert_null(config_from_flags(&flags, expect_words(), &errors));
    assert_int_equal(errors.count, 4);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_flags_and_defaults_make_a_config_without_models),
        TEST(test_no_admin_listener_is_off),
        TEST(test_each_flag_is_checked_like_its_option),
        TEST(test_several_wrong_flags_are_all_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
