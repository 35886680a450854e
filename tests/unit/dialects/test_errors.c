#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/utf8.h"
#include "captured.h"
#include "dialects/errors.h"
#include "http/sse.h"

enum { MAX_OUT = 8192 };

static struct json_doc *parse(struct slice text)
{
    struct json_doc *doc = json_parse(text);
    if (!doc)
        fail_msg("not JSON: %.*s", SLICE_ARG(text));
    return doc;
}

static void assert_string(const struct json_value *object, const char *key, const char *text)
{
    struct slice found = json_string(json_get(object, key));
    if (!json_is_string(json_get(object, key)) || !slice_eq(found, slice_str(text)))
        fail_msg("%s is \"%.*s\", not \"%s\"", key, SLICE_ARG(found), text);
}

static struct json_doc *body_of(const struct api_error *e, bool is_anthropic)
{
    struct buf out;
    buf_init(&out, MAX_OUT);
    assert_int_equal(api_error_write_body(e, is_anthropic, SLICE("req_1"), &out), WEIR_OK);
    struct json_doc *doc = parse(buf_slice(&out));
    buf_free(&out);
    return doc;
}

static void test_openai_body_has_all_four_keys(void **state)
{
    struct api_error e;
    api_error_set(&e, API_UNKNOWN_MODEL, "no model \"%s\"", "x");
    struct json_doc *doc = body_of(&e, false);
    const struct json_value *error = json_get(json_root(doc), "error");
    assert_int_equal(json_count(error), 4);
    assert_string(error, "message", "no model \"x\"");
    assert_string(error, "type", "invalid_request_error");
    assert_string(error, "code", "model_not_found");
    assert_true(json_is_null(json_get(error, "param")));
    json_doc_free(doc);

    snprintf(e.param, sizeof(e.param), "model");
    doc = body_of(&e, false);
    assert_string(json_get(json_root(doc), "error"), "param", "model");
    json_doc_free(doc);
    assert_int_equal(api_error_status(&e, false), 404);
}

static void test_anthropic_body_has_its_own_shape_status_and_request_id(void **state)
{
    struct api_error e;
    api_error_set(&e, API_OVERLOADED, "busy");
    assert_int_equal(api_error_status(&e, false), 503);
    assert_int_equal(api_error_status(&e, true), 529);
    struct json_doc *doc = body_of(&e, true);
    assert_string(json_root(doc), "type", "error");
    assert_string(json_root(doc), "request_id", "req_1");
    assert_string(json_get(json_root(doc), "error"), "type", "overloaded_error");
    assert_string(json_get(json_root(doc), "error"), "message", "busy");
    json_doc_free(doc);
}

static void test_every_kind_has_words_and_statuses_that_belong_together(void **state)
{
    for (int kind = 0; kind < API_ERROR_KINDS; kind++) {
        struct api_error e;
        api_error_set(&e, (enum api_error_kind)kind, "x");
        assert_true(strlen(api_error_reason(e.kind)) > 0);
        int openai = api_error_status(&e, false), anthropic = api_error_status(&e, true);
        assert_true(openai >= 400 && openai < 600);
        assert_int_equal(openai / 100, anthropic / 100);
        struct json_doc *doc = body_of(&e, true);
        struct slice type = json_string(json_get(json_get(json_root(doc), "error"), "type"));
        assert_int_equal(anthropic == 529, slice_eq(type, SLICE("overloaded_error")));
        json_doc_free(doc);
    }
}

/* The data of the one event in `out`, which must be whole and nothing more. */
static struct slice only_event(struct slice out, struct slice *event_name)
{
    struct sse_cursor cursor = {0};
    assert_int_equal(sse_event_length(&cursor, out), out.len);
    struct slice name, value, data = {0};
    size_t offset = 0, data_lines = 0;
    *event_name = (struct slice){0};
    while (sse_next_field(out, &offset, &name, &value)) {
        if (slice_eq(name, SLICE("event")))
            *event_name = value;
        if (slice_eq(name, SLICE("data"))) {
            data = value;
            data_lines++;
        }
    }
    assert_int_equal(data_lines, 1);
    return data;
}

static void test_fr5_an_error_event_is_whole_and_json_whatever_it_quotes(void **state)
{
    static const char hostile[] =
        "it's \"bad\"\n\ndata: [DONE]\r\n\r\n</script>\xe2\x80\xa8\xff\x01";
    struct api_error e;
    api_error_set(&e, API_UPSTREAM, "%s", hostile);
    for (int d = DIALECT_OPENAI_CHAT; d <= DIALECT_ANTHROPIC; d++) {
        struct buf out;
        struct slice name;
        buf_init(&out, MAX_OUT);
        assert_int_equal(api_error_write_event(&e, (enum dialect)d, slice_str(hostile), 7, &out),
                         WEIR_OK);
        struct slice data = only_event(buf_slice(&out), &name);
        struct json_doc *doc = parse(data);
        assert_null(slice_find(data, SLICE("</")));
        assert_null(slice_find(data, SLICE("\xe2\x80\xa8")));
        assert_int_equal(utf8_first_invalid(data), data.len);
        const struct json_value *root = json_root(doc);
        bool is_named = d == DIALECT_ANTHROPIC || d == DIALECT_OPENAI_RESPONSES;
        assert_true(slice_eq(name, is_named ? SLICE("error") : (struct slice){0}));
        const struct json_value *error =
            d == DIALECT_OPENAI_RESPONSES ? root : json_get(root, "error");
        assert_non_null(slice_find(json_string(json_get(error, "message")), SLICE("\"bad\"")));
        json_doc_free(doc);
        buf_free(&out);
    }
}

static void test_responses_error_event_carries_the_sequence_number(void **state)
{
    struct api_error e;
    struct slice name;
    struct buf out;
    buf_init(&out, MAX_OUT);
    api_error_set(&e, API_UPSTREAM, "lost");
    assert_int_equal(api_error_write_event(&e, DIALECT_OPENAI_RESPONSES, SLICE("r"), 41, &out),
                     WEIR_OK);
    struct json_doc *doc = parse(only_event(buf_slice(&out), &name));
    const struct json_value *root = json_root(doc);
    assert_string(root, "type", "error");
    assert_string(root, "code", "upstream_disconnected");
    assert_string(root, "message", "lost");
    assert_true(json_is_null(json_get(root, "param")));
    assert_int_equal(json_int(json_get(root, "sequence_number"), 0), 41);
    json_doc_free(doc);
    buf_free(&out);
}

static void test_fr4_the_event_for_a_lost_upstream_is_as_sdks_expect(void **state)
{
    struct api_error e;
    struct buf out;
    buf_init(&out, MAX_OUT);
    api_error_set(&e, API_UPSTREAM, "gone");
    assert_int_equal(api_error_write_event(&e, DIALECT_OPENAI_CHAT, SLICE("r"), 0, &out), WEIR_OK);
    assert_true(slice_eq(buf_slice(&out),
                         SLICE("data: {\"error\":{\"message\":\"gone\",\"type\":\"upstream_error\","
                               "\"param\":null,\"code\":\"upstream_disconnected\"}}\n\n")));
    buf_free(&out);
}

static void test_a_full_buffer_gets_all_or_nothing(void **state)
{
    struct api_error e;
    api_error_set(&e, API_UPSTREAM, "gone");
    snprintf(e.param, sizeof(e.param), "model");
    for (int d = DIALECT_OPENAI_CHAT; d <= DIALECT_ANTHROPIC; d++) {
        size_t max = 3;
        enum weir_err rc;
        do {
            struct buf out;
            buf_init(&out, max++);
            assert_int_equal(buf_append(&out, SLICE("ab")), WEIR_OK);
            rc = api_error_write_event(&e, (enum dialect)d, SLICE("req"), 1, &out);
            if (rc)
                assert_true(slice_eq(buf_slice(&out), SLICE("ab")));
            else
                assert_true(slice_starts(buf_slice(&out), SLICE("ab")) && buf_len(&out) > 2);
            buf_free(&out);
        } while (rc == WEIR_ELIMIT);
        assert_int_equal(rc, WEIR_OK);
    }
}

static void test_long_text_is_cut_between_characters(void **state)
{
    for (size_t lead = 0; lead < 5; lead++) {
        char text[1000] = {0};
        memset(text, 'x', lead);
        for (size_t at = lead; at + 4 < sizeof text; at += 4)
            memcpy(text + at, "\xf0\x9f\x99\x82", 4);
        struct api_error e;
        api_error_set(&e, API_INTERNAL, "%s", text);
        struct slice cut = slice_str(e.text);
        assert_true(cut.len > sizeof e.text - 5);
        assert_int_equal(utf8_first_invalid(cut), cut.len);
    }
}

/* -- engines' answers -- */

static int status_of(const char *name)
{
    struct buf whole;
    buf_init(&whole, CAPTURED_MAX_BYTES);
    captured_read_file(name, &whole);
    captured_append(&whole, slice_of("", 1));
    int status = (int)strtol(buf_slice(&whole).ptr + sizeof "HTTP/1.1", NULL, 10);
    buf_free(&whole);
    return status;
}

static bool from_captured(enum dialect dialect, const char *name, bool overflow,
                          struct api_error *out)
{
    struct buf body;
    captured_body(name, &body);
    bool replaced =
        api_error_from_engine(dialect, status_of(name), overflow, buf_slice(&body), out);
    buf_free(&body);
    return replaced;
}

static void test_context_overflow_is_named_alike_for_every_engine_and_dialect(void **state)
{
    static const char *const names[] = {"llama-server/ctx-overflow.http",
                                        "xllamacpp/ctx-overflow.http",
                                        "vllm-0.32.0/ctx-overflow.http"};
    for (size_t i = 0; i < 3; i++)
        for (int d = DIALECT_OPENAI_CHAT; d <= DIALECT_ANTHROPIC; d++) {
            struct api_error e;
            assert_true(from_captured((enum dialect)d, names[i], true, &e));
            assert_int_equal(e.kind, API_CONTEXT_LENGTH);
            assert_int_equal(api_error_status(&e, d == DIALECT_ANTHROPIC), 400);
            assert_non_null(slice_find(slice_str(e.text), SLICE("2048")));
            struct json_doc *doc = body_of(&e, false);
            assert_string(json_get(json_root(doc), "error"), "code", "context_length_exceeded");
            json_doc_free(doc);
        }
}

static void test_openai_shaped_answers_pass_unchanged(void **state)
{
    static const char *const names[] = {
        "llama-server/bad-messages.http",
        "vllm-0.32.0/bad-messages.http",
        "vllm-0.32.0/unknown-model.http",
        "vllm-0.32.0/503-queue-full.http",
        "vllm-0.32.0/draining-chat.http",
        "llama-server/loading-chat-stream.http",
        "llm-d-sim/429.http",
        "llama-server/embeddings.http",
    };
    struct api_error e;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_false(from_captured(DIALECT_OPENAI_CHAT, names[i], false, &e));
}

static void test_answers_without_the_openai_shape_get_it_and_keep_words_and_status(void **state)
{
    static const struct {
        int status;
        const char *body, *words;
    } cases[] = {
        {401, "{\"error\":\"Unauthorized\"}", "Unauthorized"},
        {404, "{\"detail\":\"Not Found\"}", "Not Found"},
        {422, "{\"detail\":[{\"loc\":[\"body\"]}]}", "{\"detail\":[{\"loc\":[\"body\"]}]}"},
        {400, "{\"object\":\"error\",\"message\":\"old form\",\"code\":400}", "old form"},
        {500, "  Internal Server Error\r\n", "Internal Server Error"},
        {500, "", "the engine answered 500 and said nothing more"},
        {400, "{\"error\":{\"message\":{\"why\":1}}}", "{\"error\":{\"message\":{\"why\":1}}}"},
        {501, "[]", "[]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct api_error e;
        assert_true(api_error_from_engine(DIALECT_OPENAI_CHAT, cases[i].status, false,
                                          slice_str(cases[i].body), &e));
        assert_string_equal(e.text, cases[i].words);
        assert_int_equal(api_error_status(&e, false), cases[i].status);
    }
}

static void test_anthropic_clients_get_anthropic_types_for_vllm_class_names(void **state)
{
    static const struct {
        const char *name;
        int status;
        const char *type;
    } cases[] = {
        {"vllm-0.32.0/bad-messages.http", 400, "invalid_request_error"},
        {"vllm-0.32.0/unknown-model.http", 404, "not_found_error"},
        {"vllm-0.32.0/503-queue-full.http", 529, "overloaded_error"},
        {"llama-server/loading-chat-stream.http", 529, "overloaded_error"},
        {"vllm-0.32.0/draining-chat.http", 500, "api_error"},
        {"llm-d-sim/429.http", 429, "rate_limit_error"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct api_error e;
        assert_true(from_captured(DIALECT_ANTHROPIC, cases[i].name, false, &e));
        assert_int_equal(api_error_status(&e, true), cases[i].status);
        struct json_doc *doc = body_of(&e, true);
        assert_string(json_get(json_root(doc), "error"), "type", cases[i].type);
        json_doc_free(doc);
    }
    struct api_error e;
    struct slice vllm = SLICE("{\"type\":\"error\",\"error\":{\"type\":\"BadRequestError\","
                              "\"message\":\"no\"}}");
    assert_true(api_error_from_engine(DIALECT_ANTHROPIC, 400, false, vllm, &e));
    assert_string_equal(e.text, "no");
}

static void test_fr6_overload_is_529_and_overloaded_error_both_ways(void **state)
{
    struct slice overloaded = SLICE("{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
                                    "\"message\":\"Overloaded\"}}");
    struct slice api = SLICE("{\"type\":\"error\",\"error\":{\"type\":\"api_error\","
                             "\"message\":\"x\"}}");
    struct api_error e;
    assert_false(api_error_from_engine(DIALECT_ANTHROPIC, 529, false, overloaded, &e));
    assert_true(api_error_from_engine(DIALECT_ANTHROPIC, 503, false, overloaded, &e));
    assert_int_equal(api_error_status(&e, true), 529);
    assert_true(api_error_from_engine(DIALECT_ANTHROPIC, 500, false, overloaded, &e));
    assert_int_equal(api_error_status(&e, true), 529);
    assert_true(api_error_from_engine(DIALECT_ANTHROPIC, 529, false, api, &e));
    assert_int_equal(e.kind, API_OVERLOADED);
    assert_false(api_error_from_engine(DIALECT_ANTHROPIC, 500, false, api, &e));
}

static void test_an_absurd_status_is_not_passed_on(void **state)
{
    struct api_error e;
    assert_true(api_error_from_engine(DIALECT_OPENAI_CHAT, 299, false, SLICE("x"), &e));
    assert_int_equal(api_error_status(&e, false), 502);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_openai_body_has_all_four_keys),
        cmocka_unit_test(test_anthropic_body_has_its_own_shape_status_and_request_id),
        cmocka_unit_test(test_every_kind_has_words_and_statuses_that_belong_together),
        cmocka_unit_test(test_fr5_an_error_event_is_whole_and_json_whatever_it_quotes),
        cmocka_unit_test(test_responses_error_event_carries_the_sequence_number),
        cmocka_unit_test(test_fr4_the_event_for_a_lost_upstream_is_as_sdks_expect),
        cmocka_unit_test(test_a_full_buffer_gets_all_or_nothing),
        cmocka_unit_test(test_long_text_is_cut_between_characters),
        cmocka_unit_test(test_context_overflow_is_named_alike_for_every_engine_and_dialect),
        cmocka_unit_test(test_openai_shaped_answers_pass_unchanged),
        cmocka_unit_test(test_answers_without_the_openai_shape_get_it_and_keep_words_and_status),
        cmocka_unit_test(test_anthropic_clients_get_anthropic_types_for_vllm_class_names),
        cmocka_unit_test(test_fr6_overload_is_529_and_overloaded_error_both_ways),
        cmocka_unit_test(test_an_absurd_status_is_not_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
