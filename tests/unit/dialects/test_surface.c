#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dialects/surface.h"

static char scratch[256];

static struct surface_match match(const char *method, const char *target)
{
    assert_true(strlen(target) <= sizeof scratch);
    return surface_match(slice_str(method), slice_str(target), scratch);
}

static void assert_matches(const char *target, enum surface surface)
{
    struct surface_match m = match(surface_info(surface)->method, target);
    if (m.surface != surface)
        fail_msg("%s: surface %d, not %d", target, (int)m.surface, (int)surface);
    assert_false(m.wrong_method);
}

static void assert_unknown(const char *target)
{
    static const char *const methods[] = {"GET", "POST", "DELETE"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        struct surface_match m = match(methods[i], target);
        if (m.surface != SURFACE_NONE || m.wrong_method)
            fail_msg("%s %s is served as %d", methods[i], target, (int)m.surface);
    }
}

static void test_each_surface_answers_at_its_path_with_and_without_version(void **state)
{
    for (int i = 0; i < SURFACE_COUNT; i++) {
        if (i == SURFACE_MODEL)
            continue;
        const char *path = surface_info((enum surface)i)->path;
        assert_matches(path, (enum surface)i);
        if (strncmp(path, "/v1/", 4) == 0)
            assert_matches(path + 3, (enum surface)i);
    }
    assert_matches("/v2/rerank", SURFACE_RERANK);
}

static void test_fr22_doubled_and_trailing_slashes_and_queries_do_not_matter(void **state)
{
    assert_matches("/v1/chat/completions/", SURFACE_CHAT);
    assert_matches("//v1/chat/completions", SURFACE_CHAT);
    assert_matches("//chat/completions", SURFACE_CHAT);
    assert_matches("/v1//chat///completions", SURFACE_CHAT);
    assert_matches("/v1/messages?beta=true", SURFACE_MESSAGES);
    assert_matches("/v1/messages/?beta=true", SURFACE_MESSAGES);
    assert_matches("/v1/models/", SURFACE_MODELS);
    struct surface_match m = match("POST", "/v1/messages?beta=true&x=/../");
    assert_true(slice_eq(m.query, SLICE("?beta=true&x=/../")));
    assert_int_equal(match("POST", "/v1/messages").query.len, 0);
}

static void assert_model(const char *target, struct slice id)
{
    struct surface_match m = match("GET", target);
    if (m.surface != SURFACE_MODEL || !slice_eq(m.model_id, id))
        fail_msg("%s: surface %d, id \"%.*s\"", target, (int)m.surface, SLICE_ARG(m.model_id));
}

static void test_fr22_a_model_id_is_everything_behind_the_prefix_decoded_once(void **state)
{
    assert_model("/v1/models/m", SLICE("m"));
    assert_model("/models/m", SLICE("m"));
    assert_model("/v1/models/org/name", SLICE("org/name"));
    assert_model("/v1/models/org%2Fname", SLICE("org/name"));
    assert_model("/v1/models/org%2fname:tag", SLICE("org/name:tag"));
    assert_model("/v1/models/org%252Fname", SLICE("org%2Fname"));
    assert_model("/v1/models/org/name/", SLICE("org/name"));
    assert_model("/v1/models/m?x=1", SLICE("m"));
    assert_model("//v1//models//m", SLICE("m"));
    assert_model("/v1/models/%00", slice_of("\0", 1));
    assert_unknown("/v1/models/100%");
    assert_unknown("/v1/models/%2");
    assert_unknown("/v1/models/%zz");
    assert_unknown("/v1/models/a/../b");
    assert_unknown("/v1/models/./b");
    assert_unknown("/v1/models/..");
}

static void test_paths_that_engines_serve_but_weir_does_not_are_unknown(void **state)
{
    static const char *const paths[] = {
        "/health",
        "/ping",
        "/load",
        "/version",
        "/metrics",
        "/kv_event_sources",
        "/abort_requests",
        "/pause",
        "/resume",
        "/sleep",
        "/wake_up",
        "/reset_prefix_cache",
        "/collective_rpc",
        "/server_info",
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/scale_elastic_ep",
        "/fault_tolerance/x",
        "/abort_request",
        "/pd_role_switch",
        "/slow_down",
        "/v1/loads",
        "/loads",
        "/slots",
        "/props",
        "/lora-adapters",
        "/busy_threshold",
        "/prometheus/metrics",
        "/v1/chat/completions/render",
        "/v1/chat/completions/batch",
        "/inference/v1/generate",
        "/tokenizer_info",
        "/v1/completions/metrics",
        "/",
        "",
        "*",
        "/v1",
        "/v1/",
        "/v1/chat",
        "/v1/tokenize",
        "/v2/chat/completions",
        "/v1/v1/chat/completions",
        "/v1/chat/completionsx",
        "/health/",
        "v1/chat/completions",
        "/V1/chat/completions",
        "/v1/chat/completions;x=1",
        "/v1/chat/completions#x",
        "http://weir/v1/chat/completions",
    };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        assert_unknown(paths[i]);
}

static void test_encoded_and_dotted_paths_never_match(void **state)
{
    static const char *const paths[] = {
        "/v1/chat%2Fcompletions", "/%76%31/chat/completions",  "/v1/chat/completions%2F",
        "/v1/./chat/completions", "/v1/x/../chat/completions", "/../v1/chat/completions",
        "/v1/chat/completions/.", "/v1/chat/completions/..",   "/v1/chat/completions%00",
        "/v1\\chat\\completions", "/v1/%2e%2e/metrics",        "/health%2flive",
    };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        assert_unknown(paths[i]);
}

static void test_another_method_is_told_which_one_is_allowed(void **state)
{
    static const char *const methods[] = {"GET", "HEAD", "OPTIONS", "PUT", "post", ""};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        struct surface_match m = match(methods[i], "/v1/chat/completions");
        assert_int_equal(m.surface, SURFACE_NONE);
        assert_true(m.wrong_method);
        assert_string_equal(m.allow, "POST");
    }
    assert_string_equal(match("HEAD", "/v1/models").allow, "GET");
    assert_string_equal(match("DELETE", "/v1/models/m").allow, "GET");
    assert_string_equal(match("POST", "/health/ready").allow, "GET, HEAD");
}

static void test_head_asks_for_health_without_its_body(void **state)
{
    struct surface_match m = match("HEAD", "/health/ready");
    assert_int_equal(m.surface, SURFACE_READY);
    assert_true(m.is_head);
    assert_false(match("GET", "/health/live").is_head);
}

static void test_errors_below_messages_are_anthropics(void **state)
{
    static const char *const anthropic[] = {"/v1/messages", "/messages/", "/v1/messages?x",
                                            "/v1/messages/count_tokens", "/v1/messages/batches"};
    static const char *const openai[] = {"/v1/chat/completions", "/", "/v1/messagesx",
                                         "/v1/models"};
    for (size_t i = 0; i < sizeof anthropic / sizeof *anthropic; i++)
        assert_true(match("GET", anthropic[i]).is_anthropic);
    for (size_t i = 0; i < sizeof openai / sizeof *openai; i++)
        assert_false(match("GET", openai[i]).is_anthropic);
}

static void test_names_are_distinct_and_plain(void **state)
{
    for (int i = 0; i < SURFACE_COUNT; i++) {
        const char *name = surface_info((enum surface)i)->name;
        assert_int_equal(strspn(name, "abcdefghijklmnopqrstuvwxyz_"), strlen(name));
        for (int j = 0; j < i; j++)
            assert_string_not_equal(name, surface_info((enum surface)j)->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_surface_answers_at_its_path_with_and_without_version),
        cmocka_unit_test(test_fr22_doubled_and_trailing_slashes_and_queries_do_not_matter),
        cmocka_unit_test(test_fr22_a_model_id_is_everything_behind_the_prefix_decoded_once),
        cmocka_unit_test(test_paths_that_engines_serve_but_weir_does_not_are_unknown),
        cmocka_unit_test(test_encoded_and_dotted_paths_never_match),
        cmocka_unit_test(test_another_method_is_told_which_one_is_allowed),
        cmocka_unit_test(test_head_asks_for_health_without_its_body),
        cmocka_unit_test(test_errors_below_messages_are_anthropics),
        cmocka_unit_test(test_names_are_distinct_and_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
