#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "captured.h"
#include "dialects/stream.h"
#include "http/sse.h"

enum { MAX_CLASSES = 512 };

/* One letter per event, runs counted: "P C23 F U D". Blank lines are left out. */
struct outcome {
    struct stream_reader reader;
    char classes[MAX_CLASSES];
};

static void note(char *classes, enum stream_event event, char *last, unsigned *run)
{
    static const char letters[] = "MPCUFDE";
    size_t len = strlen(classes);
    if (*last == letters[event]) {
        while (len > 0 && classes[len - 1] != *last)
            len--;
        snprintf(classes + len, MAX_CLASSES - len, "%u", ++*run);
        return;
    }
    *last = letters[event];
    *run = 1;
    snprintf(classes + len, MAX_CLASSES - len, "%s%c", len ? " " : "", *last);
}

/* Reads `text` as it arrives in pieces of `piece` bytes. */
static struct outcome read_in_pieces(enum dialect dialect, struct slice text, size_t piece)
{
    struct outcome out = {.classes = ""};
    struct sse_cursor cursor = {0};
    size_t taken = 0;
    char last = 0;
    unsigned run = 0;
    stream_reader_init(&out.reader, dialect);
    for (size_t arrived = 0; arrived < text.len;) {
        arrived += piece < text.len - arrived ? piece : text.len - arrived;
        size_t len;
        while ((len = sse_event_length(&cursor, slice_of(text.ptr + taken, arrived - taken)))) {
            struct slice event = slice_of(text.ptr + taken, len);
            taken += len;
            cursor = (struct sse_cursor){0};
            enum stream_event class = stream_reader_event(&out.reader, event);
            if (!strchr("\r\n", *event.ptr))
                note(out.classes, class, &last, &run);
        }
    }
    return out;
}

static struct outcome read_text(enum dialect dialect, const char *text)
{
    return read_in_pieces(dialect, slice_str(text), strlen(text));
}

static enum dialect dialect_of(const char *name)
{
    if (strstr(name, "anthropic"))
        return DIALECT_ANTHROPIC;
    if (strstr(name, "responses"))
        return DIALECT_OPENAI_RESPONSES;
    return strstr(name, "completions") ? DIALECT_OPENAI_COMPLETIONS : DIALECT_OPENAI_CHAT;
}

/* -- real engines -- */

static const struct {
    const char *name, *classes;
    unsigned content, prompt, output, cached;
    bool complete;
} captured[] = {
    {"llama-server/chat-stream-usage.http", "P C24 F U D", 24, 27, 24, 0, true},
    {"llama-server/tool-stream.http", "P C64 F U D", 64, 37, 64, 7, true},
    {"llama-server/tool-stream-hermes.sse", "P C64 F U D", 64, 154, 64, 0, true},
    {"llama-server/logprobs-stream.http", "P C4 F D", 4, 0, 0, 0, true},
    {"llama-server/completions-stream.http", "C8 F D", 8, 5, 8, 0, true},
    {"llama-server/anthropic-stream.http", "P C5 M F D", 5, 0, 16, 0, true},
    {"llama-server/responses-stream.http", "P4 C16 M3 D", 16, 32, 16, 31, true},
    {"llama-server/midstream-sigkill.http", "P C5", 5, 0, 0, 0, false},
    {"xllamacpp/chat-stream-usage.http", "P C24 F U D", 24, 27, 24, 7, true},
    {"xllamacpp/tool-stream.http", "P C64 F U D", 64, 37, 64, 27, true},
    {"xllamacpp/logprobs-stream.http", "P C4 F D", 4, 0, 0, 0, true},
    {"xllamacpp/completions-stream.http", "C8 F D", 8, 5, 8, 0, true},
    {"xllamacpp/anthropic-stream.http", "P2 C14 M F D", 14, 32, 15, 24, true},
    {"xllamacpp/responses-stream.http", "P4 C16 M3 D", 16, 32, 16, 31, true},
    {"vllm-0.32.0/chat-stream-usage.http", "P C24 U D", 24, 27, 24, 0, true},
    {"vllm-0.32.0/tool-stream.http", "P C4 F U D", 4, 37, 48, 0, true},
    {"vllm-0.32.0/logprobs-stream.http", "P C4 D", 4, 0, 0, 0, true},
    {"vllm-0.32.0/completions-stream.http", "C8 U D", 8, 5, 8, 0, true},
    {"vllm-0.32.0/anthropic-stream.http", "P2 C16 M F D", 16, 32, 16, 0, true},
    {"vllm-0.32.0/responses-stream.http", "P4 C16 M3 D", 16, 32, 16, 0, true},
    {"vllm-0.32.0/midstream-engine-died.http", "P C5 E D", 5, 0, 0, 0, false},
    {"vllm-0.32.0/midstream-sigterm-stall.http", "P C5", 5, 0, 0, 0, false},
    {"dynamo-mocker-1.6.1/stream.sse", "C6 F U D", 6, 32, 6, 0, true},
    {"llm-d-sim/chat-stream.sse", "P C3 F U D", 3, 6, 3, 0, true},
};
enum { CAPTURED = sizeof captured / sizeof *captured };

static void assert_as_captured(size_t i, const struct outcome *out)
{
    const struct stream_reader *r = &out->reader;
    if (strcmp(out->classes, captured[i].classes) != 0)
        fail_msg("%s reads \"%s\"", captured[i].name, out->classes);
    assert_int_equal(r->content_events, captured[i].content);
    assert_int_equal(r->usage.prompt_tokens, captured[i].prompt);
    assert_int_equal(r->usage.output_tokens, captured[i].output);
    assert_int_equal(r->usage.cached_tokens, captured[i].cached);
    assert_int_equal(r->usage.known, captured[i].output > 0);
    assert_int_equal(stream_reader_complete(r), captured[i].complete);
    assert_false(r->usage_unknown);
}

static void test_captured_streams_are_understood_in_pieces_of_any_size(void **state)
{
    for (size_t i = 0; i < CAPTURED; i++) {
        struct buf body;
        captured_body(captured[i].name, &body);
        size_t pieces[] = {buf_len(&body), 1, 2, 7, 1000};
        for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
            struct outcome out =
                read_in_pieces(dialect_of(captured[i].name), buf_slice(&body), pieces[p]);
            assert_as_captured(i, &out);
        }
        buf_free(&body);
    }
}

static void test_captured_events_end_at_the_same_place_at_every_split(void **state)
{
    for (size_t i = 0; i < CAPTURED; i++) {
        struct buf body;
        captured_body(captured[i].name, &body);
        struct slice rest = buf_slice(&body);
        for (;;) {
            struct sse_cursor cursor = {0};
            size_t len = sse_event_length(&cursor, rest);
            if (len == 0)
                break;
            for (size_t at = 1; at < len; at++) {
                cursor = (struct sse_cursor){0};
                assert_int_equal(sse_event_length(&cursor, slice_of(rest.ptr, at)), 0);
                assert_int_equal(sse_event_length(&cursor, rest), len);
            }
            rest = slice_from(rest, len);
        }
        assert_int_equal(rest.len, 0);
        buf_free(&body);
    }
}

static void test_done_behind_an_error_is_no_success(void **state)
{
    struct buf body;
    captured_body("vllm-0.32.0/midstream-engine-died.http", &body);
    struct outcome out = read_in_pieces(DIALECT_OPENAI_CHAT, buf_slice(&body), buf_len(&body));
    assert_true(out.reader.saw_error);
    assert_false(out.reader.saw_done);
    assert_int_equal(out.reader.error.kind, API_UPSTREAM_FAILED);
    assert_non_null(strstr(out.reader.error.text, "EngineCore encountered an issue"));
    buf_free(&body);

    /* Not even with a finish reason before it. */
    out = read_text(DIALECT_OPENAI_CHAT,
                    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
                    "data: {\"error\":{\"message\":\"x\"}}\n\ndata: [DONE]\n\n");
    assert_false(stream_reader_complete(&out.reader));
}

/* -- chat and completions, made up -- */

#define DELTA(members) "data: {\"choices\":[{\"index\":0,\"delta\":{" members "}}]}\n\n"
#define HELLO          DELTA("\"content\":\"Hello\"")
#define FINISH         "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
#define DONE           "data: [DONE]\n\n"

static void assert_classes(enum dialect dialect, const char *text, const char *classes)
{
    struct outcome out = read_text(dialect, text);
    if (strcmp(out.classes, classes) != 0)
        fail_msg("%s\nreads \"%s\", not \"%s\"", text, out.classes, classes);
}

static void assert_chat(const char *text, const char *classes)
{
    assert_classes(DIALECT_OPENAI_CHAT, text, classes);
}

static void test_fr1_text_of_any_script_and_invalid_bytes_are_content(void **state)
{
    assert_chat(DELTA("\"content\":\"\xe4\xbd\xa0\xe5\xa5\xbd\xf0\x9f\x99\x82\""), "C");
    assert_chat(DELTA("\"content\":\"\xff\xc0\x80\""), "C");
    struct outcome out = read_text(
        DIALECT_OPENAI_CHAT,
        "data: {\"choices\":[{\"delta\":{\"content\":\"\xff\"},\"finish_reason\":\"stop\"}],"
        "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\n" DONE);
    assert_string_equal(out.classes, "C D");
    assert_true(stream_reader_complete(&out.reader));
    assert_int_equal(out.reader.usage.output_tokens, 2);
}

static void test_fr2_comments_and_unknown_fields_count_for_nothing(void **state)
{
    assert_chat(":\n\n: keepalive\n\nretry: 3000\n\nid: 5\n\nfoo: bar\n\n" HELLO ":\n\n", "M5 C M");
    assert_classes(DIALECT_ANTHROPIC, ":\n\n: x\n\n", "M2");
}

static void test_what_counts_as_content(void **state)
{
    static const char *const content[] = {
        DELTA("\"content\":\"x\""),
        DELTA("\"role\":\"assistant\",\"content\":\"x\""),
        DELTA("\"reasoning_content\":\"x\""),
        DELTA("\"reasoning\":\"x\""),
        DELTA("\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]"),
        DELTA("\"refusal\":\"no\""),
        DELTA("\"audio\":{\"id\":\"a\"}"),
        DELTA("\"function_call\":{\"name\":\"f\"}"),
        "data: {\"choices\":[{\"text\":\"x\"}]}\n\n",
        "data:{\"choices\":[{\"delta\":{}},{\"delta\":{\"content\":\"x\"}}]}\r\n\r\n",
    };
    static const char *const prelude[] = {
        DELTA("\"role\":\"assistant\""),
        DELTA("\"role\":\"assistant\",\"content\":\"\""),
        DELTA("\"role\":\"assistant\",\"content\":null,\"tool_calls\":[]"),
        DELTA(""),
        "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":null}]}\n\n",
    };
    for (size_t i = 0; i < sizeof content / sizeof *content; i++)
        assert_chat(content[i], "C");
    for (size_t i = 0; i < sizeof prelude / sizeof *prelude; i++)
        assert_chat(prelude[i], "P");
}

static void test_content_and_finish_reason_in_one_chunk_are_both_seen(void **state)
{
    struct outcome out = read_text(
        DIALECT_OPENAI_CHAT, HELLO
        "data: "
        "{\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"length\"}]}\n\n" DONE);
    assert_string_equal(out.classes, "C2 D");
    assert_true(stream_reader_complete(&out.reader));
    assert_int_equal(out.reader.content_events, 2);
}

static void test_empty_completion_text_with_a_finish_reason_is_a_finish(void **state)
{
    assert_classes(DIALECT_OPENAI_COMPLETIONS,
                   "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n" DONE,
                   "F D");
}

static void test_fr7_usage_is_recorded_in_every_form(void **state)
{
#define USAGE "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}"
    static const struct {
        const char *text, *classes;
    } cases[] = {
        {HELLO FINISH "data: {\"choices\":[]," USAGE "}\n\n" DONE, "C F U D"},
        {HELLO FINISH "data: {\"choices\":[{\"index\":0,\"delta\":{}}]," USAGE "}\n\n" DONE,
         "C F U D"},
        {HELLO "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]," USAGE "}\n\n" DONE,
         "C F D"},
        /* vLLM's continuous statistics: the chunk stays what it is */
        {"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]," USAGE "}\n\n"
         "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]," USAGE "}\n\n" FINISH DONE,
         "P C F D"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outcome out = read_text(DIALECT_OPENAI_CHAT, cases[i].text);
        assert_string_equal(out.classes, cases[i].classes);
        assert_true(out.reader.usage.known);
        assert_int_equal(out.reader.usage.prompt_tokens, 3);
        assert_true(stream_reader_complete(&out.reader));
    }
    assert_chat("data: {\"choices\":[],\"prompt_filter_results\":[{}]}\n\n" HELLO, "M C");
    assert_chat(HELLO "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}],\"usage\":null}\n\n",
                "C2");
}

static void test_fr8_every_tool_call_fragment_is_content(void **state)
{
    static const char *const fragments[] = {
        "\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"f\"}},{\"id\":\"b\"}]",
        "\"tool_calls\":[{\"function\":{\"arguments\":\"{\\\"error\\\":1\"}}]",
        "\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":\"}\"}}]",
    };
    char text[1000];
    snprintf(text, sizeof text,
             "data: {\"choices\":[{\"delta\":{%s}}]}\n\n"
             "data: {\"choices\":[{\"delta\":{%s}}]}\n\ndata: {\"choices\":[{\"delta\":{%s}}]}\n\n",
             fragments[0], fragments[1], fragments[2]);
    assert_chat(text, "C3");
}

static void test_fr4_a_tidy_end_without_finish_or_marker_is_no_success(void **state)
{
    static const struct {
        const char *text;
        bool complete;
    } cases[] = {
        {"", false},
        {HELLO, false},
        {HELLO DONE, false},
        {HELLO FINISH, false},
        {HELLO FINISH DONE, true},
        {DONE, false},
        {FINISH DONE, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outcome out = read_text(DIALECT_OPENAI_CHAT, cases[i].text);
        assert_int_equal(stream_reader_complete(&out.reader), cases[i].complete);
    }
}

static void test_every_form_of_an_engines_error_is_an_error(void **state)
{
    static const struct {
        const char *text, *words;
        enum api_error_kind kind;
    } cases[] = {
        {"data: {\"error\":{\"message\":\"boom\",\"code\":500}}\n\n", "boom", API_UPSTREAM_FAILED},
        {"data: {\"error\":\"boom\"}\n\n", "boom", API_UPSTREAM_FAILED},
        {"data: {\"object\":\"error\",\"message\":\"boom\",\"code\":400}\n\n", "boom",
         API_BAD_REQUEST},
        {"error: {\"message\":\"boom\",\"code\":503}\n\n", "boom", API_OVERLOADED},
        {"event: error\ndata: {\"message\":\"boom\"}\n\n", "boom", API_UPSTREAM_FAILED},
        {"event: error\n: boom\n\n", "did not say why", API_UPSTREAM_FAILED},
        {"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"error\"}]}\n\n", "\"error\"",
         API_UPSTREAM_FAILED},
        {"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"abort\"}]}\n\n", "\"abort\"",
         API_UPSTREAM_FAILED},
        {"data: {\"error\":{\"message\":-Infinity}}\n\n", "did not say why", API_UPSTREAM_FAILED},
        {"data: {\"error\":{\ndata: \"message\":\ndata: \"boom\"}}\n\n", "boom",
         API_UPSTREAM_FAILED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int after_content = 0; after_content < 2; after_content++) {
            char text[400];
            snprintf(text, sizeof text, "%s%s", after_content ? HELLO : "", cases[i].text);
            struct outcome out = read_text(DIALECT_OPENAI_CHAT, text);
            assert_string_equal(out.classes, after_content ? "C E" : "E");
            assert_int_equal(out.reader.error.kind, cases[i].kind);
            if (!strstr(out.reader.error.text, cases[i].words))
                fail_msg("%s: %s", text, out.reader.error.text);
        }
    assert_chat(HELLO "data: {\"error\":null,\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n",
                "C2");
}

static void test_the_first_error_is_the_one_that_is_told(void **state)
{
    struct outcome out =
        read_text(DIALECT_OPENAI_CHAT, "data: {\"error\":{\"message\":\"one\"}}\n\n"
                                       "data: {\"error\":{\"message\":\"two\"}}\n\n");
    assert_string_equal(out.classes, "E2");
    assert_non_null(strstr(out.reader.error.text, "one"));
}

static void test_fr40_json_that_only_others_can_read_is_content(void **state)
{
    struct outcome out =
        read_text(DIALECT_OPENAI_CHAT,
                  "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"logprobs\":-Infinity}]}\n\n"
                  "data: {\"choices\":[{\"logprobs\":NaN,\"finish_reason\":\"stop\"}]}\n\n" DONE);
    assert_string_equal(out.classes, "C2 D");
    assert_true(out.reader.usage_unknown);
    assert_true(stream_reader_complete(&out.reader));
}

static void test_data_that_is_no_object_counts_for_nothing(void **state)
{
    assert_chat("data: hello\n\ndata:\n\ndata: []\n\ndata: 5\n\ndata\n\n", "M5");
    assert_chat(HELLO "data: hello\n\n", "C M");
}

static void test_text_that_looks_like_an_error_is_content(void **state)
{
    assert_chat(HELLO DELTA("\"content\":\"{\\\"error\\\":{\\\"message\\\":\\\"x\\\"}}\""), "C2");
    assert_chat(HELLO DELTA("\"content\":\"[DONE]\"") DELTA("\"content\":\"error\""), "C3");
}

/* -- messages -- */

#define NAMED(name, rest) "event: " name "\ndata: {\"type\":\"" name "\"" rest "}\n\n"
#define TEXT_DELTA                                                                                 \
    NAMED("content_block_delta", ",\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}")

static void test_messages_prelude_lasts_until_a_delta_has_content(void **state)
{
    assert_classes(DIALECT_ANTHROPIC,
                   NAMED("message_start", ",\"message\":{\"usage\":{\"input_tokens\":4}}")
                       NAMED("ping", "") NAMED("content_block_start", ",\"index\":0")
                           NAMED("content_block_delta",
                                 ",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\"}")
                               TEXT_DELTA NAMED("ping", "") TEXT_DELTA,
                   "P4 C M C");
}

static void test_messages_need_stop_reason_and_message_stop(void **state)
{
    struct outcome out = read_text(
        DIALECT_ANTHROPIC,
        NAMED("message_start", ",\"message\":{\"usage\":{\"input_tokens\":4,\"output_tokens\":1}}")
            TEXT_DELTA NAMED("message_delta",
                             ",\"delta\":{\"stop_reason\":null},\"usage\":{\"output_tokens\":2}")
                NAMED("message_delta",
                      ",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":3}")
                    NAMED("message_stop", ""));
    assert_string_equal(out.classes, "P C M F D");
    assert_true(stream_reader_complete(&out.reader));
    assert_int_equal(out.reader.usage.prompt_tokens, 4);
    assert_int_equal(out.reader.usage.output_tokens, 3);
    out = read_text(DIALECT_ANTHROPIC, TEXT_DELTA NAMED("message_stop", ""));
    assert_false(stream_reader_complete(&out.reader));
    assert_classes(DIALECT_ANTHROPIC, TEXT_DELTA DONE, "C M");
}

static void test_fr6_overload_after_200_is_told_apart(void **state)
{
    static const char overloaded[] =
        NAMED("error", ",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}");
    struct outcome out = read_text(DIALECT_ANTHROPIC, overloaded);
    assert_string_equal(out.classes, "E");
    assert_int_equal(out.reader.error.kind, API_OVERLOADED);
    assert_int_equal(api_error_status(&out.reader.error, true), 529);
    char text[500];
    snprintf(text, sizeof text, "%s%s%s", TEXT_DELTA, overloaded, NAMED("message_stop", ""));
    out = read_text(DIALECT_ANTHROPIC, text);
    assert_string_equal(out.classes, "C E D");
    assert_false(out.reader.saw_done);
}

static void test_events_without_a_name_are_told_by_their_type(void **state)
{
    assert_classes(DIALECT_ANTHROPIC,
                   "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"x\"}}\n\n"
                   "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"x\"}}\n\n"
                   "data: {\"type\":\"message_stop\"}\n\n",
                   "C2 D");
}

/* -- responses -- */

static void test_responses_keep_the_next_sequence_number(void **state)
{
    struct outcome out = read_text(
        DIALECT_OPENAI_RESPONSES,
        NAMED("response.created", ",\"sequence_number\":0")
            NAMED("response.output_text.delta", ",\"delta\":\"a\",\"sequence_number\":4")
                NAMED("response.output_text.delta", ",\"delta\":\"b\",\"sequence_number\": 17"));
    assert_string_equal(out.classes, "P C2");
    assert_int_equal(out.reader.sequence, 18);
}

static void test_responses_end_in_one_event_that_has_it_all(void **state)
{
    static const char *const ends[] = {"response.completed", "response.incomplete"};
    for (size_t i = 0; i < 2; i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "event: %s\ndata: {\"response\":{\"usage\":{\"input_tokens\":2,"
                 "\"output_tokens\":3}},\"type\":\"%s\"}\n\n",
                 ends[i], ends[i]);
        struct outcome out = read_text(DIALECT_OPENAI_RESPONSES, text);
        assert_string_equal(out.classes, "D");
        assert_true(stream_reader_complete(&out.reader));
        assert_int_equal(out.reader.usage.output_tokens, 3);
    }
}

static void test_responses_failures_are_errors(void **state)
{
    static const char *const texts[] = {
        NAMED("response.failed", ",\"response\":{\"error\":{\"message\":\"boom\"}}"),
        NAMED("response.completed",
              ",\"response\":{\"status\":\"failed\",\"error\":{\"message\":\"boom\"}}"),
        NAMED("error", ",\"message\":\"boom\",\"code\":\"x\",\"sequence_number\":3"),
        NAMED("error", ",\"error\":{\"message\":\"boom\"}"),
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct outcome out = read_text(DIALECT_OPENAI_RESPONSES, texts[i]);
        assert_string_equal(out.classes, "E");
        assert_non_null(strstr(out.reader.error.text, "boom"));
        assert_false(stream_reader_complete(&out.reader));
    }
}

/* -- the end of a body -- */

static void test_fr4_a_torn_event_at_the_end_is_no_content(void **state)
{
    static const struct {
        enum dialect dialect;
        const char *event;
        enum stream_event class;
    } cases[] = {
        {DIALECT_OPENAI_CHAT, HELLO, STREAM_CONTENT},
        {DIALECT_OPENAI_CHAT, FINISH, STREAM_FINISH},
        {DIALECT_OPENAI_CHAT, DONE, STREAM_DONE},
        {DIALECT_OPENAI_CHAT, ": comment\n\n", STREAM_META},
        {DIALECT_ANTHROPIC, TEXT_DELTA, STREAM_CONTENT},
        {DIALECT_OPENAI_RESPONSES, NAMED("response.completed", ""), STREAM_DONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stream_reader r;
        size_t len = strlen(cases[i].event) - 2; /* the tear may take the line ends, too */
        for (size_t at = 1; at <= len; at++) {
            char torn[400];
            snprintf(torn, sizeof torn, "%.*s\n\n", (int)at, cases[i].event);
            stream_reader_init(&r, cases[i].dialect);
            r.saw_content = true;
            enum stream_event class = stream_reader_tail(&r, slice_str(torn));
            if (class != (at < len ? STREAM_META : cases[i].class))
                fail_msg("%s is read as %d", torn, (int)class);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_captured_streams_are_understood_in_pieces_of_any_size),
        cmocka_unit_test(test_captured_events_end_at_the_same_place_at_every_split),
        cmocka_unit_test(test_done_behind_an_error_is_no_success),
        cmocka_unit_test(test_fr1_text_of_any_script_and_invalid_bytes_are_content),
        cmocka_unit_test(test_fr2_comments_and_unknown_fields_count_for_nothing),
        cmocka_unit_test(test_what_counts_as_content),
        cmocka_unit_test(test_content_and_finish_reason_in_one_chunk_are_both_seen),
        cmocka_unit_test(test_empty_completion_text_with_a_finish_reason_is_a_finish),
        cmocka_unit_test(test_fr7_usage_is_recorded_in_every_form),
        cmocka_unit_test(test_fr8_every_tool_call_fragment_is_content),
        cmocka_unit_test(test_fr4_a_tidy_end_without_finish_or_marker_is_no_success),
        cmocka_unit_test(test_every_form_of_an_engines_error_is_an_error),
        cmocka_unit_test(test_the_first_error_is_the_one_that_is_told),
        cmocka_unit_test(test_fr40_json_that_only_others_can_read_is_content),
        cmocka_unit_test(test_data_that_is_no_object_counts_for_nothing),
        cmocka_unit_test(test_text_that_looks_like_an_error_is_content),
        cmocka_unit_test(test_messages_prelude_lasts_until_a_delta_has_content),
        cmocka_unit_test(test_messages_need_stop_reason_and_message_stop),
        cmocka_unit_test(test_fr6_overload_after_200_is_told_apart),
        cmocka_unit_test(test_events_without_a_name_are_told_by_their_type),
        cmocka_unit_test(test_responses_keep_the_next_sequence_number),
        cmocka_unit_test(test_responses_end_in_one_event_that_has_it_all),
        cmocka_unit_test(test_responses_failures_are_errors),
        cmocka_unit_test(test_fr4_a_torn_event_at_the_end_is_no_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
