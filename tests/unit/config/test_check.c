#include "expect.h"

static void test_names_are_one_space(void **state)
{
    static const struct expected_mistake list[] = {
        {"models:\n  - {name: a, replicas: http://h:1}\n  - {name: a, replicas: http://h:1}\n", 3,
         12, "there is already a model or alias `a`", "line 2"},
        {"models:\n  - {name: a, replicas: http://h:1}\n"
         "  - {name: b, aliases: [c, a], replicas: http://h:1}\n",
         3, 28, "there is already a model or alias `a`", "line 2"},
        {"models: [{name: a, aliases: [x, x], replicas: http://h:1}]\n", 1, 33,
         "`x` stands in this list twice", "line 1"},
        {"models: [{name: a, aliases: a, replicas: http://h:1}]\n", 1, 29,
         "there is already a model or alias `a`", "line 1"},
        {"models:\n  - name: a\n    pools:\n      - {name: p, replicas: http://h:1}\n"
         "      - {name: p, replicas: http://h:2}\n",
         5, 16, "there is already a pool `p`", "line 4"},
        {"models:\n  - name: a\n    pools:\n      - replicas: http://h:1\n"
         "      - replicas: http://h:2\n",
         5, 9, "there is already a pool `default`", "line 4"},
    };
    EXPECT_MISTAKES(list);
}

static void test_bounds_do_not_contradict_each_other(void **state)
{
    static const struct expected_mistake list[] = {
        {SERVES "limits: {body: 8MiB, body_memory: 4MiB}\n", 2, 16,
         "limits.body is more than limits.body_memory", "lower"},
        {SERVES "limits: {body_memory: 4MiB}\n", 2, 23, "limits.body is more than", "raise"},
        {SERVES "health: {eject: {base: 2m}}\n", 2, 24, "health.eject.base is more than", "lower"},
        {SERVES "admin: localhost:8080\n", 2, 8, "cannot share `localhost:8080`", "`off`"},
        {SERVES "listen: 127.0.0.1:9090\n", 2, 9, "cannot share `127.0.0.1:9090`", "`off`"},
    };
    EXPECT_MISTAKES(list);
}

static void test_there_must_be_somewhere_to_go(void **state)
{
    static const struct expected_mistake list[] = {
        {"workers: 1\n", 0, 0, "there are no models", "--defaults"},
        {"models: []\n", 1, 9, "there are no models", "--defaults"},
        {"models:\n", 1, 1, "there are no models", "--defaults"},
        {SERVES "backends: http://h:1\n", 2, 1, "`backends` stands beside `models`", "keep one"},
        {"models: [{name: a}]\n", 1, 10, "this model has no replicas", "`launch`"},
        {"models: [{name: a, replicas: []}]\n", 1, 30, "0 items are too few", "1 to 10000"},
        {"models: [{name: a, pools: []}]\n", 1, 20, "this model has no pools", "`replicas`"},
        {"models: [{name: a, replicas: http://h:1, launch: {command: 'x {port}'}}]\n", 1, 42,
         "`replicas` or `launch`, not both", "a pool of its own"},
    };
    EXPECT_MISTAKES(list);
}

static void test_launched_engines_get_ports_of_their_own(void **state)
{
    static const struct expected_mistake list[] = {
        {"models: [{name: a, launch: {command: x, replicas: 2}}]\n", 1, 38,
         "the command has no {port}", "--port {port}"},
        {"models: [{name: a, launch: {command: 'x {port}', first_port: 65535, replicas: 2}}]\n", 1,
         62, "the last replica's port would be 65536", "lower first_port"},
        {"models:\n  - {name: a, launch: {command: 'x {port}', first_port: 9000, replicas: 3}}\n"
         "  - {name: b, launch: {command: 'x {port}', first_port: 9002}}\n",
         3, 57, "ports 9002 to 9002 are also taken", "line 2"},
        {"models: [{name: a, launch: {command: 'x {prot} {port}'}}]\n", 1, 39,
         "nothing fills in `{prot}`", "`{port}`"},
    };
    EXPECT_MISTAKES(list);
}

static void test_a_port_may_come_another_way(void **state)
{
    config_free(expect_config(SLICE("models: [{name: a, launch: {command: x, first_port: 9}}]\n")));
    config_free(expect_config(
        SLICE("models: [{name: a, launch: {command: x, environment: {PORT: \"{port}\"}}}]\n")));
}

static void test_json_in_a_command_is_the_engines_own(void **state)
{
    config_free(expect_config(SLICE(
        "models: [{name: a, launch: {command: [x, \"{port}\", '{\"pots\": {}}', '{a}']}}]\n")));
}

static void test_a_refused_value_is_not_compared(void **state)
{
    static const struct expected_mistake one = {SERVES "limits: {body: 64m, body_memory: 1MiB}\n",
                                                2, 16, "`64m` is not a size", "`64MiB`"};
    expect_mistake(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_are_one_space),
        cmocka_unit_test(test_bounds_do_not_contradict_each_other),
        cmocka_unit_test(test_there_must_be_somewhere_to_go),
        cmocka_unit_test(test_launched_engines_get_ports_of_their_own),
        cmocka_unit_test(test_a_port_may_come_another_way),
        cmocka_unit_test(test_json_in_a_command_is_the_engines_own),
        cmocka_unit_test(test_a_refused_value_is_not_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
