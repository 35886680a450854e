#include "expect.h"

static void test_unknown_options_are_told_what_was_meant(void **state)
{
    static const struct expected_mistake list[] = {
        {SERVES "listne: 127.0.0.1:8080\n", 2, 1, "unknown option `listne`",
         "did you mean `listen`?"},
        {SERVES "timeouts:\n  frist_byte: 3s\n", 3, 3, "unknown option `frist_byte`",
         "did you mean `first_byte`?"},
        {SERVES "health: {eject: {maximum: 3s}}\n", 2, 18, "unknown option `maximum`",
         "known here: after, base, max, max_share"},
        {SERVES "first_byte: 3s\n", 2, 1, "unknown option `first_byte`",
         "elsewhere: timeouts.first_byte"},
        {SERVES "timeouts.connect: 3s\n", 2, 1, "unknown option `timeouts.connect`",
         "a point does not nest"},
        {SERVES "zzzzzzzz: 1\n", 2, 1, "unknown option `zzzzzzzz`", "known here: listen, admin"},
        {"models: [{name: m, replicas: http://h:1, <<: {a: b}}]\n", 1, 42, "unknown option `<<`",
         "merge keys"},
        {"models: [{name: m, replicas: http://h:1, api_key: sk-1}]\n", 1, 42,
         "unknown option `api_key`", "`api_key_file: PATH`"},
        {"models: [{name: m, alias: [x], replicas: http://h:1}]\n", 1, 20, "unknown option `alias`",
         "did you mean `aliases`?"},
        {"models: [{name: m, pools: [{replica: http://h:1, launch: {command: 'x {port}'}}]}]\n", 1,
         29, "unknown option `replica`", "did you mean `replicas`?"},
        {"models: [{name: m, launch: {command: 'x {port}', comand: y}}]\n", 1, 50,
         "unknown option `comand`", "did you mean `command`?"},
        {SERVES "workers: 1\nworkers: 2\n", 3, 1, "`workers` stands here for a second time",
         "line 2"},
    };
    EXPECT_MISTAKES(list);
}

static void test_what_a_section_cannot_be_without_is_said(void **state)
{
    static const struct expected_mistake list[] = {
        {"models:\n  - replicas: http://h:1\n", 2, 5, "a model needs `name`", "`name: my-model`"},
        {"models: [{name: m, launch: {replicas: 2}}]\n", 1, 28, "launch needs `command`",
         "llama-server"},
        {"models: [{name: m, pools: [{name: p}]}]\n", 1, 28, "this pool has no replicas",
         "`launch`"},
        {"models: [{name: m, engine: vllm, pools: [{replicas: http://h:1}]}]\n", 1, 20,
         "`engine` stands beside `pools`", "move it into the pool"},
        {"", 0, 0, "the configuration is empty", "--defaults"},
        {"# nothing\n", 0, 0, "the configuration is empty", "--defaults"},
    };
    EXPECT_MISTAKES(list);
}

static void test_a_model_with_one_pool_may_have_its_options_itself(void **state)
{
    struct config *c = expect_config(SLICE("models:\n"
                                           "  - name: m\n"
                                           "    engine: vllm\n"
                                           "    engine_model: org/m\n"
                                           "    routing: {policy: round-robin}\n"
                                           "    replicas:\n"
                                           "      - http://a:1\n"
                                           "      - {url: http://b:2}\n"));
    assert_int_equal(c->model_count, 1);
    assert_int_equal(c->models[0].pool_count, 1);
    const struct config_pool *pool = &c->models[0].pools[0];
    assert_string_equal(pool->name, "default");
    assert_string_equal(pool->engine, "vllm");
    assert_string_equal(pool->engine_model, "org/m");
    assert_string_equal(pool->policy, "round-robin");
    assert_int_equal(pool->replica_count, 2);
    assert_string_equal(pool->replicas[1], "http://b:2");
    assert_null(pool->replicas[2]);
    config_free(c);
}

/* `routing` stands below `models` on purpose: the order of a map means nothing. */
static void test_the_nearest_policy_holds(void **state)
{
    struct config *c = expect_config(
        SLICE("models:\n"
              "  - name: a\n"
              "    pools:\n"
              "      - {name: p, replicas: http://h:1}\n"
              "      - {name: q, replicas: http://h:2, routing: {policy: round-robin}}\n"
              "    routing: {policy: session-affinity}\n"
              "  - {name: b, replicas: http://h:3}\n"
              "routing: {policy: power-of-two}\n"));
    assert_string_equal(c->models[0].pools[0].policy, "session-affinity");
    assert_string_equal(c->models[0].pools[1].policy, "round-robin");
    assert_string_equal(c->models[1].pools[0].policy, "power-of-two");
    assert_string_equal(c->policy, "power-of-two");
    config_free(c);
}

static void test_a_launch_is_read_whole(void **state)
{
    struct config *c = expect_config(SLICE("models:\n"
                                           "  - name: m\n"
                                           "    launch:\n"
                                           "      command: serve --port {port} 'two words'\n"
                                           "      replicas: 3\n"
                                           "      first_port: 9000\n"
                                           "      ready_path: /ready\n"
                                           "      ready_timeout: 5m\n"
                                           "      environment: {A: 1, B: , C: \"x=y\"}\n"));
    const struct config_launch *launch = c->models[0].pools[0].launch;
    assert_string_equal(launch->command[3], "two words");
    assert_null(launch->command[4]);
    assert_int_equal(launch->replicas, 3);
    assert_int_equal(launch->first_port, 9000);
    assert_string_equal(launch->ready_path, "/ready");
    assert_true(launch->ready_timeout_ns == 300000000000);
    assert_true(launch->stop_timeout_ns == 10000000000);
    assert_string_equal(launch->environment[0], "A=1");
    assert_string_equal(launch->environment[1], "B=");
    assert_string_equal(launch->environment[2], "C=x=y");
    assert_null(launch->environment[3]);
    config_free(c);
}

static void test_aliases_of_yaml_can_be_shared_between_pools(void **state)
{
    struct config *c = expect_config(SLICE("models:\n"
                                           "  - {name: a, replicas: &r [http://h:1, http://h:2]}\n"
                                           "  - {name: b, replicas: *r}\n"));
    assert_int_equal(c->models[1].pools[0].replica_count, 2);
    config_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_options_are_told_what_was_meant),
        cmocka_unit_test(test_what_a_section_cannot_be_without_is_said),
        cmocka_unit_test(test_a_model_with_one_pool_may_have_its_options_itself),
        cmocka_unit_test(test_the_nearest_policy_holds),
        cmocka_unit_test(test_a_launch_is_read_whole),
        cmocka_unit_test(test_aliases_of_yaml_can_be_shared_between_pools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
