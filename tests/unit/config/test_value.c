#include "expect.h"

/* Every case is a file with exactly one mistake. */

static void test_numbers_have_kinds_and_ranges(void **state)
{
    static const struct expected_mistake list[] = {
        {SERVES "workers: many\n", 2, 10, "`many` is not a whole number", "`auto`"},
        {SERVES "workers: 0\n", 2, 10, "`0` is too little", "from 1 to 1024"},
        {SERVES "workers: 1.5\n", 2, 10, "`1.5` is not a whole number", "from 1 to 1024"},
        {SERVES "workers: -1\n", 2, 10, "`-1` is not a whole number", "from 1 to 1024"},
        {SERVES "workers: 9999\n", 2, 10, "`9999` is too much", "from 1 to 1024"},
        {SERVES "retry: {budget_ratio: 1.5}\n", 2, 23, "`1.5` is too much", "from 0 to 1"},
        {SERVES "retry: {budget_ratio: nan}\n", 2, 23, "`nan` is not a number", "from 0 to 1"},
        {SERVES "retry: {budget_ratio: 0x1}\n", 2, 23, "`0x1` is not a number", "from 0 to 1"},
        {SERVES "half_close: maybe\n", 2, 13, "`maybe` is not a truth value", "`true` or `false`"},
    };
    EXPECT_MISTAKES(list);
}

static void test_sizes_and_durations_need_units(void **state)
{
    static const struct expected_mistake list[] = {
        {SERVES "limits:\n  body: 64m\n", 3, 9, "body: `64m` is not a size", "`64MiB`"},
        {SERVES "limits:\n  body: big\n", 3, 9, "`big` is not a size", "`64KiB`"},
        {SERVES "limits:\n  head: 1B\n", 3, 9, "`1B` is too little", "from 4KiB to 1MiB"},
        {SERVES "timeouts:\n  connect: 10\n", 3, 12, "`10` is not a duration", "`10s`"},
        {SERVES "timeouts:\n  connect: soon\n", 3, 12, "`soon` is not a duration", "`150ms`"},
        {SERVES "timeouts:\n  connect: 1h\n", 3, 12, "`1h` is too much", "from 1ms to 10m"},
        {SERVES "timeouts:\n  request: 99999999999999h\n", 3, 12, "is too much", "or `off`"},
        {"models: [{name: m, replicas: http://h:1, slo: {ttft: 0}}]\n", 1, 54,
         "ttft: `0` is too "
         "little",
         "from 1ms"},
    };
    EXPECT_MISTAKES(list);
}

static void test_words_are_suggested(void **state)
{
    static const struct expected_mistake list[] = {
        {SERVES "log: {level: wran}\n", 2, 14, "`wran` is not a word", "did you mean `warn`?"},
        {SERVES "log: {format: xml}\n", 2, 15, "`xml` is not a word", "one of `text`, `json`"},
        {SERVES "routing: {policy: least-laod}\n", 2, 19, "`least-laod` is not a routing policy",
         "did you mean `least-load`?"},
        {"models: [{name: m, engine: vlm, replicas: http://h:1}]\n", 1, 28,
         "`vlm` is not an engine", "did you mean `vllm`?"},
        {"models: [{name: m, engine: zzzzzz, replicas: http://h:1}]\n", 1, 28,
         "`zzzzzz` is not an engine", "one of `auto`, `vllm`"},
    };
    EXPECT_MISTAKES(list);
}

static void test_addresses_and_urls_are_checked(void **state)
{
    static const struct expected_mistake list[] = {
        {SERVES "listen: localhost:http\n", 2, 9, "is not an address to listen on", "port"},
        {SERVES "listen: [127.0.0.1:1, example.com:80]\n", 2, 23,
         "`example.com:80` is not an "
         "address",
         "numeric"},
        {SERVES "listen: [127.0.0.1:1, 127.0.0.1:1]\n", 2, 23, "stands in this list twice",
         "line 2"},
        {SERVES "admin: here\n", 2, 8, "`here` is not an address", "port"},
        {"backends: [h:8000]\n", 1, 12, "`h:8000` is not the URL of an engine", "`http://h:8000`"},
        {"backends: [https://h]\n", 1, 12, "is not the URL of an engine", "https"},
        {"backends: [http://u:p@h]\n", 1, 12, "is not the URL of an engine", "@"},
        {"backends: ['http://']\n", 1, 13, "is not the URL of an engine", "http://host:port"},
        {"backends: [http://h:80, http://H/v1/]\n", 1, 25,
         "`http://H/v1/` stands in this list "
         "twice",
         "line 1"},
        {"backends: [{url: http://h, wieght: 1}]\n", 1, 28, "unknown option `wieght` of a replica",
         "{url: URL}"},
    };
    EXPECT_MISTAKES(list);
}

static void test_text_is_checked(void **state)
{
    static const struct expected_mistake list[] = {
        {SERVES "session_header: 'x session'\n", 2, 18, "is not the name of a header",
         "x-session-id"},
        {"models: [{name: '', replicas: http://h:1}]\n", 1, 18, "this is empty", "1 to 255"},
        {"models: [{name: ' m', replicas: http://h:1}]\n", 1, 18, "begins or ends with a space",
         "take the space away"},
        {"models: [{name: \"a\\tb\", replicas: http://h:1}]\n", 1, 18, "control characters",
         "on one line"},
        {"models: [{name: m, launch: {command: 'x {port}', ready_path: health}}]\n", 1, 62,
         "`health` is not the path of a URL", "begin with `/`"},
        {"models: [{name: m, launch: {command: 'x {port}', environment: {A-B: 1}}}]\n", 1, 64,
         "`A-B` is not the name of an environment variable", "letters"},
        {"models: [{name: m, replicas: http://h:1, api_key_env: $KEY}]\n", 1, 55,
         "`$KEY` is not the name of an environment variable", "without `$`"},
        {"models: [{name: m, launch: {command: 'x {port} | tee'}}]\n", 1, 39,
         "command: no shell runs this command", "as a list"},
    };
    EXPECT_MISTAKES(list);
}

static void test_kinds_are_checked(void **state)
{
    static const struct expected_mistake list[] = {
        {SERVES "workers: [1]\n", 2, 10, "workers: needs one value, and this is a list",
         "`workers: auto`"},
        {SERVES "workers:\n", 2, 1, "workers: there is no value here", "`auto`"},
        {SERVES "listen: {a: b}\n", 2, 9, "listen: needs a list, and this is a map",
         "`listen: 127.0.0.1:8080`"},
        {SERVES "listen: []\n", 2, 9, "0 items are too few", "1 to 64"},
        {SERVES "listen: [[a]]\n", 2, 10, "needs one value, and this is a list", "as in"},
        {SERVES "limits: 5\n", 2, 9, "a section is a map of options", "indented"},
        {"models: {m: x}\n", 1, 9, "models is a list, and this is a map", "`- name: my-model`"},
        {"models: [x]\n", 1, 10, "a model is a map of options, and this is one value", "indented"},
        {"models: [{name: m, launch: x}]\n", 1, 28, "launch is a map of options", "indented"},
        {"models: [{name: m, pools: {a: b}}]\n", 1, 27, "pools is a list, and this is a map",
         "`- name: my-pool`"},
        {"models: [{name: m, pools: [x]}]\n", 1, 28, "a pool is a map of options", "indented"},
        {"just words\n", 1, 1, "a configuration is a map of options", "indented"},
    };
    EXPECT_MISTAKES(list);
}

static void test_none_has_a_word_and_yaml_1_1_tools_write_false(void **state)
{
    struct config *c = expect_config(SLICE(SERVES "admin: off\ntimeouts: {request: false}\n"
                                                  "access_log: {path: no}\n"));
    assert_null(c->admin_listen);
    assert_null(c->access_log);
    assert_int_equal(c->timeouts.request_ns, 0);
    config_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_have_kinds_and_ranges),
        cmocka_unit_test(test_sizes_and_durations_need_units),
        cmocka_unit_test(test_words_are_suggested),
        cmocka_unit_test(test_addresses_and_urls_are_checked),
        cmocka_unit_test(test_text_is_checked),
        cmocka_unit_test(test_kinds_are_checked),
        cmocka_unit_test(test_none_has_a_word_and_yaml_1_1_tools_write_false),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
