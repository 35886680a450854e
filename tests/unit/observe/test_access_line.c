#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "observe/access_line.h"
#include "observe/record.h"

static struct request_record served(void)
{
    return (struct request_record){.request_id = SLICE("req-1"),
                                   .client = SLICE("127.0.0.1:5000"),
                                   .model = SLICE("llama"),
                                   .pool = "gpu",
                                   .replica = "http://a:8000",
                                   .surface = "chat",
                                   .operation = "chat",
                                   .reason = "ok",
                                   .outcome = OUTCOME_OK,
                                   .status = 200,
                                   .tries = 1,
                                   .stream = true,
                                   .generates = true,
                                   .usage_known = true,
                                   .good = true,
                                   .bytes_in = 312,
                                   .bytes_out = 20480,
                                   .tokens_in = 25,
                                   .tokens_out = 100,
                                   .tokens_cached = 16,
                                   .start_wall_ns = 1796122487123 * NS_PER_MS,
                                   .duration_ns = 2345678901,
                                   .ttft_ns = 45006789,
                                   .tpot_ns = 23000000,
                                   .longest_gap_ns = 99 * NS_PER_MS};
}

static void expect_line(const struct request_record *r, enum access_log_format format,
                        const char *expected)
{
    char line[ACCESS_LOG_LINE_MAX];
    size_t len = access_log_format_line(r, format, line, sizeof line);
    assert_int_equal(len, strlen(expected));
    assert_memory_equal(line, expected, len);
}

static void test_json_line_of_a_good_request(void **state)
{
    struct request_record r = served();
    expect_line(&r, ACCESS_LOG_JSON,
                "{\"time\":\"2026-12-01T10:54:47.123Z\",\"id\":\"req-1\","
                "\"client\":\"127.0.0.1:5000\",\"surface\":\"chat\",\"model\":\"llama\","
                "\"pool\":\"gpu\",\"replica\":\"http://a:8000\",\"tries\":1,\"status\":200,"
                "\"outcome\":\"ok\",\"reason\":\"ok\",\"stream\":true,\"good\":true,"
                "\"late\":null,\"bytes_in\":312,\"bytes_out\":20480,\"tokens_in\":25,"
                "\"tokens_out\":100,\"tokens_cached\":16,\"usage_known\":true,"
                "\"duration_ms\":2345.678,\"ttft_ms\":45.006,\"tpot_ms\":23.000,"
                "\"longest_gap_ms\":99.000,\"queue_ms\":0.000}\n");
}

static void test_text_line_has_the_same_fields(void **state)
{
    struct request_record r = served();
    r.good = false;
    r.late_ttft = r.late_tpot = true;
    expect_line(&r, ACCESS_LOG_TEXT,
                "time=2026-12-01T10:54:47.123Z id=req-1 client=127.0.0.1:5000 surface=chat "
                "model=llama pool=gpu replica=http://a:8000 tries=1 status=200 outcome=ok "
                "reason=ok stream=true good=false late=ttft+tpot bytes_in=312 bytes_out=20480 "
                "tokens_in=25 tokens_out=100 tokens_cached=16 usage_known=true "
                "duration_ms=2345.678 ttft_ms=45.006 tpot_ms=23.000 longest_gap_ms=99.000 "
                "queue_ms=0.000\n");
}

static struct json_doc *parse(const struct request_record *r)
{
    char line[ACCESS_LOG_LINE_MAX];
    size_t len = access_log_format_line(r, ACCESS_LOG_JSON, line, sizeof line);
    assert_true(len > 0 && line[len - 1] == '\n');
    assert_null(memchr(line, '\n', len - 1));
    struct json_doc *doc = json_parse(slice_of(line, len));
    assert_non_null(doc);
    return doc;
}

static void test_what_does_not_apply_is_null(void **state)
{
    struct request_record r = {.outcome = OUTCOME_CLIENT_FAULT, .status = 404};
    struct json_doc *doc = parse(&r);
    const struct json_value *root = json_root(doc);
    const char *const absent[] = {"id",   "client",  "surface", "model",          "pool", "replica",
                                  "good", "ttft_ms", "tpot_ms", "longest_gap_ms", "late", "reason"};
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
        assert_true(json_is_null(json_get(root, absent[i])));
    assert_int_equal(json_int(json_get(root, "status"), 0), 404);
    json_doc_free(doc);
}

static void test_shed_request_is_not_good(void **state)
{
    struct request_record r = {.outcome = OUTCOME_SHED, .generates = true};
    struct json_doc *doc = parse(&r);
    const struct json_value *good = json_get(json_root(doc), "good");
    assert_false(json_is_null(good));
    assert_false(json_bool(good, true));
    json_doc_free(doc);
}

static void test_hostile_model_name_stays_inside_its_string(void **state)
{
    struct request_record r = served();
    r.model = SLICE("a\"}\n\\\x1b[31m\xff\xc2\x9b\xe4\xbd\xa0 b=c");
    struct json_doc *doc = parse(&r);
    struct slice model = json_string(json_get(json_root(doc), "model"));
    assert_true(slice_eq(model, SLICE("a\"}\n\\\x1b[31m\xef\xbf\xbd\xc2\x9b\xe4\xbd\xa0 b=c")));
    json_doc_free(doc);

    char line[ACCESS_LOG_LINE_MAX];
    size_t len = access_log_format_line(&r, ACCESS_LOG_TEXT, line, sizeof line);
    assert_non_null(slice_find(slice_of(line, len),
                               SLICE(" model=\"a\\\"}\\u000a\\\\\\u001b[31m\xef\xbf\xbd\\u009b"
                                     "\xe4\xbd\xa0 b=c\" pool=gpu ")));
}

static void test_text_value_that_looks_like_absent_is_quoted(void **state)
{
    struct request_record r = served();
    r.model = SLICE("-");
    char line[ACCESS_LOG_LINE_MAX];
    size_t len = access_log_format_line(&r, ACCESS_LOG_TEXT, line, sizeof line);
    assert_non_null(slice_find(slice_of(line, len), SLICE(" model=\"-\" ")));
}

static void test_random_bytes_give_one_valid_bounded_line(void **state)
{
    const uint64_t seed = 77;
    struct rng rng;
    rng_seed(&rng, seed);
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 2000; round++) {
        char bytes[400];
        char text[sizeof bytes];
        for (size_t i = 0; i < sizeof bytes; i++) {
            bytes[i] = (char)(rng_below(&rng, 4) ? rng_below(&rng, 256) : 0x01);
            text[i] = bytes[i] ? bytes[i] : 1;
        }
        text[sizeof text - 1] = 0;
        struct request_record r = served();
        r.request_id = r.client = r.model = slice_of(bytes, sizeof bytes);
        r.pool = r.replica = r.surface = r.reason = text;
        r.bytes_in = r.bytes_out = r.tokens_in = r.tokens_out = r.tokens_cached = UINT64_MAX;
        r.duration_ns = r.ttft_ns = r.tpot_ns = r.longest_gap_ns = r.queue_ns = UINT64_MAX;
        json_doc_free(parse(&r));
        char line[ACCESS_LOG_LINE_MAX];
        size_t len = access_log_format_line(&r, ACCESS_LOG_TEXT, line, sizeof line);
        assert_true(len > 0);
        assert_int_equal(utf8_first_invalid(slice_of(line, len)), len);
        assert_ptr_equal(memchr(line, '\n', len), line + len - 1);
    }
}

static void test_line_that_does_not_fit_is_none(void **state)
{
    struct request_record r = served();
    char line[ACCESS_LOG_LINE_MAX];
    size_t whole = access_log_format_line(&r, ACCESS_LOG_JSON, line, sizeof line);
    for (size_t size = 0; size < whole; size++)
        assert_int_equal(access_log_format_line(&r, ACCESS_LOG_JSON, line, size), 0);
    assert_int_equal(access_log_format_line(&r, ACCESS_LOG_JSON, line, whole), whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_line_of_a_good_request),
        cmocka_unit_test(test_text_line_has_the_same_fields),
        cmocka_unit_test(test_what_does_not_apply_is_null),
        cmocka_unit_test(test_shed_request_is_not_good),
        cmocka_unit_test(test_hostile_model_name_stays_inside_its_string),
        cmocka_unit_test(test_text_value_that_looks_like_absent_is_quoted),
        cmocka_unit_test(test_random_bytes_give_one_valid_bounded_line),
        cmocka_unit_test(test_line_that_does_not_fit_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
