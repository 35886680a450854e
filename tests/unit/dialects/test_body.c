#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/rng.h"
#include "edited_body.h"

static struct arena arena;
static struct api_error why;

static int setup(void **state)
{
    arena_init(&arena, 4096, 1 << 20);
    return 0;
}

static int teardown(void **state)
{
    arena_free(&arena);
    return 0;
}

static struct body_info inspect(enum surface surface, const char *body)
{
    struct body_info info;
    if (body_inspect(surface, slice_str(body), &arena, &info, &why))
        fail_msg("%s: %s", body, why.text);
    return info;
}

static void assert_refused(enum surface surface, struct slice body, const char *param)
{
    struct body_info info;
    if (!body_inspect(surface, body, &arena, &info, &why))
        fail_msg("taken: %.*s", SLICE_ARG(body));
    assert_int_equal(api_error_status(&why, false), 400);
    assert_string_equal(why.param, param);
    assert_true(strlen(why.text) > 0);
}

static void assert_chat_refused(const char *body, const char *param)
{
    assert_refused(SURFACE_CHAT, slice_str(body), param);
}

/* -- reading -- */

static void test_members_that_weir_acts_on_are_read(void **state)
{
    const char *body = " { \"model\" : \"a/b:c\", \"stream\":true, \"max_tokens\": 50,\n"
                       "\"n\":2,\"user\":\"u1\",\"tools\":[{}],\"messages\":[1,2]}";
    struct body_info info = inspect(SURFACE_CHAT, body);
    assert_true(slice_eq(info.model, SLICE("a/b:c")));
    assert_true(slice_eq(info.model_span, SLICE("\"a/b:c\"")));
    assert_true(info.stream);
    assert_false(info.wants_usage);
    assert_int_equal(info.max_tokens, 50);
    assert_int_equal(info.n, 2);
    assert_true(slice_eq(info.user, SLICE("u1")));
    assert_true(info.has_tools);
    assert_int_equal(info.prompt_bytes, 4 + 5);
}

static void test_prompts_are_measured_on_every_surface(void **state)
{
    struct body_info info = inspect(SURFACE_MESSAGES, "{\"model\":\"m\",\"system\":\"1234\","
                                                      "\"messages\":[],\"tools\":[1]}");
    assert_int_equal(info.prompt_bytes, 6 + 2 + 3);
    info = inspect(SURFACE_RESPONSES, "{\"model\":\"m\",\"input\":\"1\",\"instructions\":\"2\"}");
    assert_int_equal(info.prompt_bytes, 6);
    info = inspect(SURFACE_COMPLETIONS, "{\"model\":\"m\",\"prompt\":[1,2]}");
    assert_int_equal(info.prompt_bytes, 5);
    assert_int_equal(info.n, 1);
}

static void test_the_largest_limit_counts_and_minus_one_is_none(void **state)
{
    struct body_info info =
        inspect(SURFACE_CHAT, "{\"model\":\"m\",\"max_completion_tokens\":70,\"max_tokens\":5}");
    assert_int_equal(info.max_tokens, 70);
    assert_int_equal(
        inspect(SURFACE_RESPONSES, "{\"model\":\"m\",\"max_output_tokens\":9}").max_tokens, 9);
    assert_int_equal(inspect(SURFACE_CHAT, "{\"model\":\"m\",\"max_tokens\":-1}").max_tokens, 0);
    assert_int_equal(inspect(SURFACE_CHAT, "{\"model\":\"m\",\"max_tokens\":1e3}").max_tokens,
                     1000);
    assert_true(inspect(SURFACE_CHAT, "{\"model\":\"m\",\"max_tokens\":9e999}").max_tokens >
                (uint64_t)1 << 60);
}

static void test_a_session_goes_before_a_user_in_either_order(void **state)
{
    const char *const bodies[] = {"{\"model\":\"m\",\"user\":\"u\",\"session_id\":\"s\"}",
                                  "{\"model\":\"m\",\"session_id\":\"s\",\"user\":\"u\"}"};
    for (size_t i = 0; i < 2; i++)
        assert_true(slice_eq(inspect(SURFACE_CHAT, bodies[i]).user, SLICE("s")));
    assert_int_equal(inspect(SURFACE_CHAT, "{\"model\":\"m\",\"user\":{\"a\":1}}").user.len, 0);
}

static void test_fr21_null_counts_as_absent_and_unknown_members_are_not_looked_at(void **state)
{
    struct body_info info =
        inspect(SURFACE_CHAT,
                "{\"model\":\"m\",\"stream\":null,\"stream_options\":null,\"max_tokens\":null,"
                "\"n\":null,\"user\":null,\"tools\":null,\"kv_transfer_params\":null,"
                "\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":null}],"
                "\"x\":{\"model\":1,\"model\":2},\"priority\":-5,\"cache_salt\":\"s\"}");
    assert_false(info.stream);
    assert_false(info.has_tools);
    assert_int_equal(info.max_tokens, 0);
    assert_int_equal(info.n, 1);
    assert_false(info.stream_options_is_object);
}

static void test_fr7_usage_is_wanted_only_when_asked_for(void **state)
{
    static const struct {
        const char *options;
        bool wants;
    } cases[] = {
        {"{\"include_usage\":true}", true},
        {"{\"include_usage\":false}", false},
        {"{\"include_usage\":null}", false},
        {"{}", false},
        {"null", false},
        {"{ \"x\":1, \"include\\u005fusage\" : true}", true},
        {"{\"continuous_usage_stats\":true}", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[200];
        snprintf(body, sizeof body, "{\"stream_options\":%s,\"model\":\"m\",\"stream\":true}",
                 cases[i].options);
        assert_int_equal(inspect(SURFACE_CHAT, body).wants_usage, cases[i].wants);
    }
}

static void test_stream_means_nothing_where_nothing_streams(void **state)
{
    assert_false(inspect(SURFACE_EMBEDDINGS, "{\"model\":\"m\",\"stream\":true}").stream);
    assert_false(
        inspect(SURFACE_COUNT_TOKENS, "{\"model\":\"m\",\"stream\":7,\"n\":\"x\"}").stream);
    assert_true(inspect(SURFACE_MESSAGES, "{\"model\":\"m\",\"stream\":true}").stream);
    /* A responses client may send stream_options with other members than usage. */
    inspect(SURFACE_RESPONSES,
            "{\"model\":\"m\",\"stream_options\":{\"include_obfuscation\":true}}");
}

static void test_only_tokenizers_do_without_a_model(void **state)
{
    for (int i = 0; i < SURFACE_MODELS; i++) {
        enum surface surface = (enum surface)i;
        if (surface == SURFACE_TOKENIZE || surface == SURFACE_DETOKENIZE) {
            assert_int_equal(inspect(surface, "{}").model.len, 0);
            assert_int_equal(inspect(surface, "{\"model\":null}").model_span.len, 0);
        } else {
            assert_refused(surface, SLICE("{}"), "model");
            assert_refused(surface, SLICE("{\"model\":null}"), "model");
        }
        assert_refused(surface, SLICE("{\"model\":\"\"}"), "model");
        assert_refused(surface, SLICE("{\"model\":5}"), "model");
    }
}

/* -- refusing -- */

static void test_wrong_types_are_refused_by_name(void **state)
{
    static const struct {
        const char *member, *param;
    } cases[] = {
        {"\"stream\":\"yes\"", "stream"},
        {"\"stream\":1", "stream"},
        {"\"stream_options\":[]", "stream_options"},
        {"\"stream_options\":{}", "stream_options"}, /* without stream */
        {"\"stream\":false,\"stream_options\":{\"include_usage\":true}", "stream_options"},
        {"\"stream\":true,\"stream_options\":{\"include_usage\":1}",
         "stream_options.include_usage"},
        {"\"stream\":true,\"stream_options\":{\"include_usage\":false,\"include_usage\":true}",
         "stream_options.include_usage"},
        {"\"max_tokens\":\"5\"", "max_tokens"},
        {"\"max_completion_tokens\":{}", "max_completion_tokens"},
        {"\"max_output_tokens\":true", "max_output_tokens"},
        {"\"n\":0", "n"},
        {"\"n\":-1", "n"},
        {"\"n\":1.5", "n"},
        {"\"n\":1e10", "n"},
        {"\"n\":\"2\"", "n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[200];
        snprintf(body, sizeof body, "{\"model\":\"m\",%s}", cases[i].member);
        assert_chat_refused(body, cases[i].param);
    }
}

static void test_members_that_steer_engines_are_refused_by_name(void **state)
{
    static const char *const names[] = {"kv_transfer_params",     "bootstrap_host",
                                        "bootstrap_port",         "bootstrap_room",
                                        "disagg_prefill_dp_rank", "routed_dp_rank"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int s = 0; s < SURFACE_MODELS; s++) {
            char body[200];
            snprintf(body, sizeof body, "{\"model\":\"m\",\"%s\":0}", names[i]);
            assert_refused((enum surface)s, slice_str(body), names[i]);
            assert_non_null(strstr(why.text, names[i]));
        }
    assert_chat_refused("{\"model\":\"m\",\"bootstrap\\u005fhost\":\"x\"}", "bootstrap_host");
    assert_chat_refused("{\"model\":\"m\",\"routed_dp_rank\":null,\"routed_dp_rank\":1}",
                        "routed_dp_rank");
}

static void test_fr19_duplicates_are_refused_however_they_are_spelt(void **state)
{
    assert_chat_refused("{\"model\":\"a\",\"model\":\"b\"}", "model");
    assert_chat_refused("{\"model\":\"a\",\"mod\\u0065l\":\"b\"}", "model");
    assert_chat_refused("{\"m\\u006fdel\":\"a\",\"mod\\u0065l\":\"a\"}", "model");
    assert_chat_refused("{\"model\":null,\"model\":\"b\"}", "model");
    assert_chat_refused("{\"model\":\"a\",\"stream\":true,\"stream\":false}", "stream");
    assert_chat_refused("{\"model\":\"a\",\"max_tokens\":1,\"max_tokens\":2}", "max_tokens");
    assert_chat_refused("{\"model\":\"a\",\"messages\":[],\"messages\":[]}", "messages");
    inspect(SURFACE_CHAT,
            "{\"model\":\"a\",\"messages\":[{\"role\":1,\"role\":2}],\"x\":1,\"x\":2}");
}

static void test_fr18_half_a_character_is_refused_with_its_offset(void **state)
{
    static const char *const texts[] = {"\\ud83d", "\\ude00",  "\\ud83d\\ud83d",
                                        "\xff",    "\xc0\x80", "\xed\xa0\xbd\xed\xb8\x80"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char body[200];
        snprintf(body, sizeof body, "{\"model\":\"m\",\"prompt\":\"%s\"}", texts[i]);
        assert_refused(SURFACE_COMPLETIONS, slice_str(body), "");
        assert_int_equal(why.kind, API_BAD_JSON);
        assert_non_null(strstr(why.text, "at byte 2"));
    }
    inspect(SURFACE_COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"\\ud83d\\ude00 \\u0000\"}");
}

static void test_fr20_nesting_bombs_are_refused(void **state)
{
    static char bomb[100000];
    memset(bomb, '[', sizeof bomb);
    memcpy(bomb, "{\"x\":", 5);
    assert_refused(SURFACE_CHAT, slice_of(bomb, sizeof bomb), "");
    assert_int_equal(why.kind, API_BAD_JSON);
}

static void test_what_is_not_a_json_object_is_refused(void **state)
{
    static const char *const bodies[] = {"",
                                         " ",
                                         "null",
                                         "[]",
                                         "\"x\"",
                                         "{",
                                         "{\"model\":\"m\"",
                                         "{\"model\":\"m\"}x",
                                         "{\"model\":\"m\",}",
                                         "model=m&stream=true"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        assert_chat_refused(bodies[i], "");
        assert_int_equal(why.kind, API_BAD_JSON);
    }
    assert_refused(SURFACE_CHAT, (struct slice){0}, "");
}

static void test_an_endless_name_is_refused_and_an_endless_user_cut(void **state)
{
    static char body[3 * BODY_MAX_NAME];
    char name[BODY_MAX_NAME + 2];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    snprintf(body, sizeof body, "{\"model\":\"%s\"}", name);
    assert_chat_refused(body, "model");
    snprintf(body, sizeof body, "{\"model\":\"m\",\"user\":\"%s\"}", name);
    assert_int_equal(inspect(SURFACE_CHAT, body).user.len, BODY_MAX_NAME);
}

static void test_a_full_arena_is_a_refusal(void **state)
{
    struct arena small;
    arena_init(&small, 16, 16);
    assert_non_null(arena_alloc(&small, 16));
    struct body_info info;
    struct slice body = SLICE("{\"model\":\"\\u0061\"}");
    assert_int_equal(body_inspect(SURFACE_CHAT, body, &small, &info, &why), WEIR_EINVAL);
    assert_string_equal(why.param, "model");

    struct body_plan plan;
    body = SLICE("{\"model\":\"a\"}");
    assert_int_equal(body_inspect(SURFACE_CHAT, body, &small, &info, &why), WEIR_OK);
    assert_int_equal(body_plan_edits(SURFACE_CHAT, body, &info, SLICE("b"), true, &small, &plan),
                     WEIR_ELIMIT);
    arena_free(&small);
}

/* -- editing -- */

static void assert_edited(enum surface surface, const char *body, const char *model, bool add_usage,
                          const char *expected)
{
    struct body_info info = inspect(surface, body);
    struct body_plan plan;
    assert_int_equal(body_plan_edits(surface, slice_str(body), &info, slice_str(model), add_usage,
                                     &arena, &plan),
                     WEIR_OK);
    struct slice edited = edited_join(slice_str(body), &plan);
    if (!slice_eq(edited, slice_str(expected)))
        fail_msg("%s\nbecame %.*s\nnot    %s", body, SLICE_ARG(edited), expected);
    heap_free((char *)edited.ptr);
}

static void test_fr16_names_are_replaced_in_place(void **state)
{
    assert_edited(SURFACE_CHAT, "{ \"model\" :\t\"fast\" ,\"x\":1e0}", "org/long-name", true,
                  "{ \"model\" :\t\"org/long-name\" ,\"x\":1e0}");
    assert_edited(SURFACE_CHAT, "{\"a\":[1],\"model\":\"fast\"}", "f", true,
                  "{\"a\":[1],\"model\":\"f\"}");
    assert_edited(SURFACE_CHAT, "{\"mod\\u0065l\":\"f\\u0061st\"}", "a\"b\n", true,
                  "{\"mod\\u0065l\":\"a\\\"b\\n\"}");
}

static void test_fr21_what_needs_no_change_gets_none(void **state)
{
    const char *const bodies[] = {
        "{\"model\":\"m\",\"stream\":false}",
        "{\"model\":\"\\u006d\"}",
        "{\"model\":\"m\",\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        assert_edited(SURFACE_CHAT, bodies[i], "m", true, bodies[i]);
        assert_edited(SURFACE_CHAT, bodies[i], "", true, bodies[i]);
    }
    const char *stream = "{\"model\":\"m\",\"stream\":true}";
    assert_edited(SURFACE_CHAT, stream, "m", false, stream);
    assert_edited(SURFACE_MESSAGES, stream, "m", true, stream);
    assert_edited(SURFACE_RESPONSES, stream, "m", true, stream);
    assert_edited(SURFACE_TOKENIZE, "{\"prompt\":\"x\"}", "m", true, "{\"prompt\":\"x\"}");
}

static void test_fr7_usage_is_asked_for_in_every_form_of_the_option(void **state)
{
    assert_edited(SURFACE_CHAT, " {\n \"stream\":true,\"model\":\"m\"}", "m", true,
                  " {\"stream_options\":{\"include_usage\":true},\n \"stream\":true,"
                  "\"model\":\"m\"}");
    assert_edited(SURFACE_CHAT, "{\"model\":\"m\",\"stream\":true,\"stream_options\":null}", "mm",
                  true,
                  "{\"model\":\"mm\",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    assert_edited(
        SURFACE_CHAT, "{\"stream_options\":{ },\"model\":\"m\",\"stream\":true}", "mm", true,
        "{\"stream_options\":{\"include_usage\":true },\"model\":\"mm\",\"stream\":true}");
    assert_edited(SURFACE_COMPLETIONS,
                  "{\"stream_options\":{ \"a\":1},\"model\":\"m\",\"stream\":true}", "m", true,
                  "{\"stream_options\":{\"include_usage\":true, \"a\":1},\"model\":\"m\","
                  "\"stream\":true}");
    assert_edited(SURFACE_CHAT,
                  "{\"model\":\"m\",\"stream\":true,"
                  "\"stream_options\":{\"a\":1,\"include_usage\": false }}",
                  "m", true,
                  "{\"model\":\"m\",\"stream\":true,"
                  "\"stream_options\":{\"a\":1,\"include_usage\": true }}");
    assert_edited(SURFACE_CHAT,
                  "{\"model\":\"m\",\"stream\":true,\"stream_options\":{\"include_usage\":null}}",
                  "m", true,
                  "{\"model\":\"m\",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
}

/* -- random bodies -- */

static void put(struct buf *out, const char *text)
{
    assert_int_equal(buf_append(out, slice_str(text)), WEIR_OK);
}

static void put_space(struct buf *out, struct rng *rng)
{
    static const char *const spaces[] = {"", "", "", " ", "\n  ", "\t", "\r\n"};
    put(out, spaces[rng_below(rng, sizeof spaces / sizeof *spaces)]);
}

static void put_key(struct buf *out, struct rng *rng, const char *key)
{
    put(out, "\"");
    for (; *key; key++)
        assert_int_equal(
            buf_printf(out, rng_below(rng, 20) ? "%c" : "\\u%04x", (unsigned char)*key), WEIR_OK);
    put(out, "\"");
    put_space(out, rng);
    put(out, ":");
    put_space(out, rng);
}

/* A body of members in random order, among them all that weir edits. */
static void put_body(struct buf *out, struct rng *rng)
{
    static const char *const members[][4] = {
        {"model", "\"fast\"", "\"a\\/\\u00e9\xc3\xa9\"", "\"org/x\""},
        {"stream", "true", "true", "true"},
        {"stream_options", "{}", "null", "{ \"include_usage\" : false }"},
        {"stream_options", "{\"a\":[{}],\"include_usage\":true}", "{\"b\":{\"include_usage\":1}}",
         "{ \"includ\\u0065_usage\":null}"},
        {"messages", "[{\"model\":\"x\",\"model\":\"y\"}]", "[]", "\"\\ud83d\\ude00 }{\""},
        {"x", "1e-3", "12345678901234567890123", "-0.0"},
        {"y", "{\"stream_options\":{},\"model\":null}", "[[[\"]\"]]]", "true"},
        {"user", "\"u\"", "null", "5"},
        {"max_tokens", "17", "null", "1.0"},
    };
    enum { COUNT = sizeof members / sizeof *members };
    bool skip_one = rng_below(rng, 2); /* one of the two forms of stream_options, or none */
    size_t first = (size_t)rng_below(rng, COUNT), written = 0;
    put_space(out, rng);
    put(out, "{");
    for (size_t i = 0; i < COUNT; i++) {
        size_t m = (first + i) % COUNT;
        if ((m == 2 && skip_one) || (m == 3 && !(skip_one && rng_below(rng, 2))))
            continue;
        put(out, written++ ? "," : "");
        put_space(out, rng);
        put_key(out, rng, members[m][0]);
        put(out, members[m][1 + rng_below(rng, 3)]);
        put_space(out, rng);
    }
    put(out, "}");
    put_space(out, rng);
}

static void test_an_edited_body_is_the_original_but_for_what_was_edited(void **state)
{
    static const char *const names[] = {"", "f", "fast", "org/x", "a much longer name \"\\\x01"};
    const uint64_t seed = 16;
    print_message("# seed %llu\n", (unsigned long long)seed);
    struct rng rng;
    rng_seed(&rng, seed);
    for (int round = 0; round < 5000; round++) {
        struct buf body;
        struct body_info info;
        buf_init(&body, 1 << 16);
        put_body(&body, &rng);
        enum surface surface = (enum surface)rng_below(&rng, SURFACE_MODELS);
        struct slice text = buf_slice(&body);
        if (body_inspect(surface, text, &arena, &info, &why))
            fail_msg("%.*s: %s", SLICE_ARG(text), why.text);
        struct slice name = slice_str(names[rng_below(&rng, sizeof names / sizeof *names)]);
        if (!edited_body_holds(surface, text, &info, name, rng_below(&rng, 2), &arena))
            fail_msg("%.*s as \"%.*s\"", SLICE_ARG(text), SLICE_ARG(name));
        buf_free(&body);
        arena_reset(&arena);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_members_that_weir_acts_on_are_read),
        TEST(test_prompts_are_measured_on_every_surface),
        TEST(test_the_largest_limit_counts_and_minus_one_is_none),
        TEST(test_a_session_goes_before_a_user_in_either_order),
        TEST(test_fr21_null_counts_as_absent_and_unknown_members_are_not_looked_at),
        TEST(test_fr7_usage_is_wanted_only_when_asked_for),
        TEST(test_stream_means_nothing_where_nothing_streams),
        TEST(test_only_tokenizers_do_without_a_model),
        TEST(test_wrong_types_are_refused_by_name),
        TEST(test_members_that_steer_engines_are_refused_by_name),
        TEST(test_fr19_duplicates_are_refused_however_they_are_spelt),
        TEST(test_fr18_half_a_character_is_refused_with_its_offset),
        TEST(test_fr20_nesting_bombs_are_refused),
        TEST(test_what_is_not_a_json_object_is_refused),
        TEST(test_an_endless_name_is_refused_and_an_endless_user_cut),
        TEST(test_a_full_arena_is_a_refusal),
        TEST(test_fr16_names_are_replaced_in_place),
        TEST(test_fr21_what_needs_no_change_gets_none),
        TEST(test_fr7_usage_is_asked_for_in_every_form_of_the_option),
        TEST(test_an_edited_body_is_the_original_but_for_what_was_edited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
