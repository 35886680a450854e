#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/buf.h"
#include "base/rng.h"

#include "json_scan_oracle.h"

static enum weir_err count_member(void *ctx, const struct json_member *member)
{
    (*(size_t *)ctx)++;
    return WEIR_OK;
}

/* Scans a copy of the exact size, so that AddressSanitizer sees a read too far. */
static enum weir_err scan(struct slice text, struct json_scan_result *result)
{
    char *copy = heap_alloc(text.len);
    if (text.len)
        memcpy(copy, text.ptr, text.len);
    size_t members = 0;
    enum weir_err rc = json_scan(slice_of(copy, text.len), count_member, &members, result);
    heap_free(copy);
    return rc;
}

static void test_valid_objects_are_accepted(void **state)
{
    const char *const texts[] = {
        "{}",
        " \t\r\n{ } \n",
        "{\"\":\"\"}",
        "{\"a\":1}",
        "{\"a\":0,\"b\":-0,\"c\":-0.5e-10,\"d\":1E+2,\"e\":10.25,\"f\":1e999}",
        "{\"a\":true,\"b\":false,\"c\":null}",
        "{\"a\":[],\"b\":[[],{}],\"c\":{\"d\":{\"e\":[1,2]}}}",
        "{ \"a\" : [ 1 , 2 ] , \"b\" : { \"c\" : 3 } }",
        "{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\uABcd\"}",
        "{\"a\":\"\\ud83d\\ude00\\uD83D\\uDE00\"}",
        "{\"a\":\"\x7f\xc3\xa9\xe4\xbd\xa0\xf0\x9f\x98\x80\xef\xbf\xbf\"}",
        "{\"a\":1,\"a\":2}", /* duplicates are the caller's business */
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct json_scan_result result;
        if (scan(slice_str(texts[i]), &result) != WEIR_OK)
            fail_msg("%s: %s at %zu", texts[i], result.error_text, result.error_offset);
        assert_null(result.error_text);
        assert_null(json_scan_disagreement(slice_str(texts[i])));
    }
}

static void test_malformed_text_is_refused_where_it_goes_wrong(void **state)
{
    static const struct {
        struct slice text;
        size_t offset;
    } rows[] = {
        {SLICE(""), 0},
        {SLICE("  "), 2},
        {SLICE("[]"), 0},
        {SLICE("\"a\""), 0},
        {SLICE("null"), 0},
        {SLICE("\xef\xbb\xbf{}"), 0}, /* byte order mark */
        {SLICE("{"), 1},
        {SLICE("{]"), 1},
        {SLICE("{a:1}"), 1},
        {SLICE("{'a':1}"), 1},
        {SLICE("{1:1}"), 1},
        {SLICE("{,}"), 1},
        {SLICE("{\"a\"}"), 4},
        {SLICE("{\"a\" 1}"), 5},
        {SLICE("{\"a\"::1}"), 5},
        {SLICE("{\"a\":}"), 5},
        {SLICE("{\"a\":1"), 6},
        {SLICE("{\"a\":1,}"), 7},
        {SLICE("{\"a\":1,,\"b\":2}"), 7},
        {SLICE("{\"a\":1 \"b\":2}"), 7},
        {SLICE("{\"a\":[1,]}"), 8},
        {SLICE("{\"a\":[,1]}"), 6},
        {SLICE("{\"a\":[1 2]}"), 8},
        {SLICE("{\"a\":[1}}"), 7},
        {SLICE("{\"a\":{\"b\":1]}"), 11},
        {SLICE("{\"a\":1}}"), 7},
        {SLICE("{\"a\":1} x"), 8},
        {SLICE("{\"a\":1}\0"), 7},
        {SLICE("{\"a\":01}"), 6},
        {SLICE("{\"a\":+1}"), 5},
        {SLICE("{\"a\":-}"), 6},
        {SLICE("{\"a\":-a}"), 6},
        {SLICE("{\"a\":.5}"), 5},
        {SLICE("{\"a\":1.}"), 7},
        {SLICE("{\"a\":1.e5}"), 7},
        {SLICE("{\"a\":1e}"), 7},
        {SLICE("{\"a\":1e+}"), 8},
        {SLICE("{\"a\":0x10}"), 6},
        {SLICE("{\"a\":1_0}"), 6},
        {SLICE("{\"a\":tru}"), 5},
        {SLICE("{\"a\":True}"), 5},
        {SLICE("{\"a\":truee}"), 9},
        {SLICE("{\"a\":nul"), 5},
        {SLICE("{\"a\":NaN}"), 5},
        {SLICE("{\"a\":Infinity}"), 5},
        {SLICE("{\"a\":-Infinity}"), 6},
        {SLICE("{\"a\":1/*c*/}"), 6},
        {SLICE("{\"a\":\"b}"), 8},
        {SLICE("{\"a\":\"\\x\"}"), 6},
        {SLICE("{\"a\":\"\\'\"}"), 6},
        {SLICE("{\"a\":\"\\U0041\"}"), 6},
        {SLICE("{\"a\":\"\\u004\"}"), 6},
        {SLICE("{\"a\":\"\\u00g0\"}"), 6},
        {SLICE("{\"a\":\"\\"), 7},
        {SLICE("{\"a\":\"\n\"}"), 6},
        {SLICE("{\"a\":\"\0\"}"), 6},
        {SLICE("{\"a\":\"\x1f\"}"), 6},
        {SLICE("{\"a\":\"x\xff\"}"), 7},
        {SLICE("{\"a\":\"\xc0\x80\"}"), 6},
        {SLICE("{\"a\":\"\xe4\xbd\"}"), 6},
        {SLICE("{\"a\":\"\xe4\xbd\xa0\xe0\x80\x80\"}"), 9},
        {SLICE("{\"a\":\"\xed\xa0\xbd\xed\xb8\x80\"}"), 6}, /* surrogates in UTF-8 (CESU-8) */
        {SLICE("{\"a\":\"\xf5\x80\x80\x80\"}"), 6},
        {SLICE("{\xff}"), 1},
        {SLICE("{\"\xff\":1}"), 2},
        {SLICE("{\"a\":\xc3\xa9}"), 5},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct json_scan_result result;
        enum weir_err rc = scan(rows[i].text, &result);
        if (rc != WEIR_ESYNTAX || result.error_offset != rows[i].offset || !result.error_text)
            fail_msg("row %zu, %.*s: rc %d at %zu", i, SLICE_ARG(rows[i].text), rc,
                     result.error_offset);
        assert_null(json_scan_disagreement(rows[i].text));
    }
}

static void test_lone_surrogate_escapes_are_refused_with_their_offset(void **state)
{
    static const struct {
        const char *text;
        size_t offset;
    } rows[] = {
        {"{\"a\":\"x\\ud83d\"}", 7},           {"{\"a\":\"\\ude00\"}", 6},
        {"{\"a\":\"\\ud83d\\ud83d\"}", 6},     {"{\"a\":\"\\ud83dx\\ude00\"}", 6},
        {"{\"a\":\"\\ud83d\\n\"}", 6},         {"{\"a\":\"\\ud83d\\u0041\"}", 6},
        {"{\"a\":\"\\ud83d\\ude0\"}", 6},      {"{\"a\":\"\\ud83d\\ude00\\ude00\"}", 18},
        {"{\"a\":[{\"b\":\"\\uDBFF\"}]}", 12}, {"{\"\\udfff\":1}", 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct json_scan_result result;
        assert_int_equal(scan(slice_str(rows[i].text), &result), WEIR_ESYNTAX);
        assert_int_equal(result.error_offset, rows[i].offset);
        assert_non_null(strstr(result.error_text, "surrogate"));
    }
}

static void test_every_prefix_of_a_document_is_refused_at_its_end(void **state)
{
    static const char text[] =
        "{\"k\\u00e9\\ud83d\\ude00\":[-1.5e+3,true,false,null,\"\\\\\\\"\xf0\x9f"
        "\x98\x80\xe4\xbd\xa0\xc3\xa9\"],\"o\":{\"p\":{}}}";
    struct json_scan_result result;
    assert_int_equal(scan(slice_str(text), &result), WEIR_OK);
    for (size_t len = 0; len < sizeof text - 1; len++) {
        assert_int_equal(scan(slice_of(text, len), &result), WEIR_ESYNTAX);
        assert_true(result.error_offset <= len);
        assert_null(json_scan_disagreement(slice_of(text, len)));
    }
}

/* Sixteen bytes are looked at together; no special byte may get lost at any place in them. */
static void test_special_bytes_are_seen_at_every_place_of_a_long_string(void **state)
{
    static const struct {
        struct slice bytes;
        bool ok;
    } rows[] = {
        {SLICE("\\n"), true},
        {SLICE("\\\""), true},
        {SLICE("\\\\"), true},
        {SLICE("\\u00e9"), true},
        {SLICE("\xc3\xa9"), true},
        {SLICE("\xe4\xbd\xa0"), true},
        {SLICE("\xf0\x9f\x98\x80"), true},
        {SLICE("\x7f"), true},
        {SLICE("\""), false},
        {SLICE("\x1f"), false},
        {SLICE("\0"), false},
        {SLICE("\x80"), false},
        {SLICE("\xff"), false},
        {SLICE("\\ud800"), false},
        {SLICE("\xe0\x80\x80"), false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t before = 0; before < 40; before++) {
            for (size_t after = 1; after < 20; after++) {
                char text[100];
                int len = snprintf(text, sizeof text, "{\"a\":\"%.*s", (int)before,
                                   "........................................");
                memcpy(text + len, rows[i].bytes.ptr, rows[i].bytes.len);
                len += (int)rows[i].bytes.len;
                len += snprintf(text + len, sizeof text - (size_t)len, "%.*s\"}", (int)after,
                                "....................");
                struct json_scan_result result;
                enum weir_err rc = scan(slice_of(text, (size_t)len), &result);
                assert_int_equal(rc == WEIR_OK, rows[i].ok);
                if (!rows[i].ok)
                    assert_in_range(result.error_offset, 6 + before, 7 + before);
            }
        }
    }
}

static void nest(struct buf *b, size_t depth, const char *open, const char *close)
{
    buf_clear(b);
    assert_int_equal(buf_append(b, SLICE("{\"a\":")), WEIR_OK);
    for (size_t i = 1; i < depth; i++)
        assert_int_equal(buf_append(b, slice_str(open)), WEIR_OK);
    assert_int_equal(buf_append(b, SLICE("1")), WEIR_OK);
    for (size_t i = 1; i < depth; i++)
        assert_int_equal(buf_append(b, slice_str(close)), WEIR_OK);
    assert_int_equal(buf_append(b, SLICE("}")), WEIR_OK);
}

static void test_depth_is_bounded_at_the_bracket_too_many(void **state)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    struct json_scan_result result;
    for (size_t depth = 1; depth < 200; depth++) {
        nest(&b, depth, "[", "]");
        assert_int_equal(scan(buf_slice(&b), &result), depth <= 128 ? WEIR_OK : WEIR_ELIMIT);
        if (depth > 128)
            assert_int_equal(result.error_offset, 5 + 127);
        nest(&b, depth, "{\"x\":", "}");
        assert_int_equal(scan(buf_slice(&b), &result), depth <= 128 ? WEIR_OK : WEIR_ELIMIT);
        assert_null(json_scan_disagreement(buf_slice(&b)));
    }
    nest(&b, 100000, "[", "]");
    assert_int_equal(scan(buf_slice(&b), &result), WEIR_ELIMIT);
    buf_free(&b);
}

/* Every bit of the stack is an object or an array by turns; the wrong bracket is always seen. */
static void test_brackets_must_match_at_every_depth(void **state)
{
    for (size_t depth = 2; depth <= 128; depth++) {
        for (int flip = 0; flip < 2; flip++) {
            char text[2000] = "{\"a\":", closers[129] = "";
            size_t len = 5, n = 0;
            for (size_t d = 2; d <= depth; d++) {
                bool object = d % 3 == 0;
                memcpy(text + len, object ? "{\"x\":" : "[", object ? 5 : 1);
                len += object ? 5 : 1;
                closers[n++] = object ? '}' : ']';
            }
            text[len++] = '0';
            if (flip)
                closers[0] = closers[0] == ']' ? '}' : ']'; /* the outermost of them */
            while (n > 0)
                text[len++] = closers[--n];
            text[len++] = '}';
            struct json_scan_result result;
            assert_int_equal(scan(slice_of(text, len), &result), flip ? WEIR_ESYNTAX : WEIR_OK);
            if (flip)
                assert_int_equal(result.error_offset, len - 2);
        }
    }
}

struct seen {
    struct json_member members[8];
    size_t count;
    size_t stop_after; /* 0: never */
};

static enum weir_err note_member(void *ctx, const struct json_member *member)
{
    struct seen *seen = ctx;
    seen->members[seen->count++] = *member;
    return seen->count == seen->stop_after ? WEIR_EEXIST : WEIR_OK;
}

static void test_members_are_reported_in_order_with_their_bytes(void **state)
{
    struct slice text =
        SLICE(" {\"model\" : \"m\\n\" ,\"n\":-1.5 ,\"mod\\u0065l\":[1, {\"model\":2} ]\n,"
              "\"o\":{\"stream\":true},\"t\":false,\"z\":null} ");
    static const struct {
        const char *key, *value;
        enum json_kind kind;
        bool escaped;
    } want[] = {
        {"model", "\"m\\n\"", JSON_STRING, false},
        {"n", "-1.5", JSON_NUMBER, false},
        {"mod\\u0065l", "[1, {\"model\":2} ]", JSON_ARRAY, true},
        {"o", "{\"stream\":true}", JSON_OBJECT, false},
        {"t", "false", JSON_BOOL, false},
        {"z", "null", JSON_NULL, false},
    };
    struct seen seen = {0};
    struct json_scan_result result;
    assert_int_equal(json_scan(text, note_member, &seen, &result), WEIR_OK);
    assert_int_equal(seen.count, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_true(slice_eq(seen.members[i].key, slice_str(want[i].key)));
        assert_true(slice_eq(seen.members[i].value, slice_str(want[i].value)));
        assert_int_equal(seen.members[i].kind, want[i].kind);
        assert_int_equal(seen.members[i].key_escaped, want[i].escaped);
    }
    assert_int_equal(result.object_start, 1);
    assert_int_equal(result.object_end, text.len - 2);
    assert_false(result.object_empty);
}

static void test_empty_object_is_told_apart(void **state)
{
    struct json_scan_result result;
    assert_int_equal(scan(SLICE(" { \n} "), &result), WEIR_OK);
    assert_true(result.object_empty);
    assert_int_equal(result.object_start, 1);
    assert_int_equal(result.object_end, 4);
}

static void test_callback_ends_the_scan_with_its_own_code(void **state)
{
    struct seen seen = {.stop_after = 2};
    struct json_scan_result result;
    struct slice text = SLICE("{\"a\":1,\"a\":2,\"c\":3}");
    assert_int_equal(json_scan(text, note_member, &seen, &result), WEIR_EEXIST);
    assert_int_equal(seen.count, 2);
    assert_null(result.error_text);
    assert_int_equal(result.error_offset, 11);
}

static void test_spells_compares_after_unescaping(void **state)
{
    assert_true(json_spells(SLICE("model"), SLICE("model")));
    assert_true(json_spells(SLICE("mod\\u0065l"), SLICE("model")));
    assert_true(json_spells(SLICE("\\u006d\\u006F\\u0064\\u0065\\u006c"), SLICE("model")));
    assert_true(json_spells(SLICE(""), SLICE("")));
    assert_true(json_spells((struct slice){0}, (struct slice){0}));
    assert_true(json_spells(SLICE("\\ud83d\\ude00"), SLICE("\xf0\x9f\x98\x80")));
    assert_true(json_spells(SLICE("a\\u0000b"), SLICE("a\0b")));
    assert_false(json_spells(SLICE("model"), SLICE("mode")));
    assert_false(json_spells(SLICE("mode"), SLICE("model")));
    assert_false(json_spells(SLICE("mod\\u0045l"), SLICE("model")));
    assert_false(json_spells(SLICE("\\ud83d\\ude00"), SLICE("\xf0\x9f\x98")));
    assert_false(json_spells(SLICE("\\n"), SLICE("n")));
}

static void test_unescape_survives_what_the_scan_would_refuse(void **state)
{
    const char *const texts[] = {"\\",      "a\\",       "\\u",     "\\u12",
                                 "\\ud800", "\\ud800\\", "\\udc00", "\\ud800\\u0",
                                 "\\q",     "\\\xff",    "\\uzzzz", "\\ud83d\\ud83d"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct slice raw = slice_str(texts[i]);
        char *out = heap_alloc(raw.len);
        assert_true(slice_eq(slice_of(out, json_unescape(raw, out)), raw));
        assert_true(json_spells(raw, raw));
        heap_free(out);
    }
}

static void test_unescape_works_in_place(void **state)
{
    char text[] = "a\\n\\u00e9\\u4f60\\ud83d\\ude00\\\\z";
    size_t len = json_unescape(slice_str(text), text);
    assert_true(slice_eq(slice_of(text, len), SLICE("a\n\xc3\xa9\xe4\xbd\xa0\xf0\x9f\x98\x80\\z")));
}

/* -- random documents, and the same with random damage -- */

static void put(struct buf *b, const char *text)
{
    assert_int_equal(buf_append(b, slice_str(text)), WEIR_OK);
}

static void put_string(struct buf *b, struct rng *rng)
{
    static const char *const pieces[] = {"a",
                                         "model",
                                         "the quick brown fox jumps",
                                         "\\n",
                                         "\\\"",
                                         "\\\\",
                                         "\\u0041",
                                         "\\u00e9",
                                         "\\ud83d\\ude00",
                                         "\xc3\xa9",
                                         "\xe4\xbd\xa0",
                                         "\xf0\x9f\x98\x80",
                                         "{",
                                         "]",
                                         ":",
                                         ","};
    put(b, "\"");
    for (uint64_t n = rng_below(rng, 6); n > 0; n--)
        put(b, pieces[rng_below(rng, sizeof pieces / sizeof *pieces)]);
    put(b, "\"");
}

static void put_value(struct buf *b, struct rng *rng, int depth)
{
    static const char *const scalars[] = {
        "true", "false", "null", "0",     "-1",
        "12.5", "1e9",   "-0.0", "1e999", "123456789012345678901"};
    static const char *const spaces[] = {"", "", "", " ", "\n", "\t \r"};
    uint64_t what = rng_below(rng, depth > 4 ? 4 : 8);
    put(b, spaces[rng_below(rng, 6)]);
    if (what < 2) {
        put_string(b, rng);
    } else if (what < 4) {
        put(b, scalars[rng_below(rng, sizeof scalars / sizeof *scalars)]);
    } else {
        bool object = what < 6;
        put(b, object ? "{" : "[");
        for (uint64_t i = 0, n = rng_below(rng, 5); i < n; i++) {
            put(b, i ? "," : "");
            if (object) {
                put_string(b, rng);
                put(b, ":");
            }
            put_value(b, rng, depth + 1);
        }
        put(b, object ? "}" : "]");
    }
    put(b, spaces[rng_below(rng, 6)]);
}

static void put_object(struct buf *b, struct rng *rng)
{
    put(b, "{");
    for (uint64_t i = 0, n = rng_below(rng, 5); i < n; i++) {
        put(b, i ? "," : "");
        put_string(b, rng);
        put(b, ":");
        put_value(b, rng, 1);
    }
    put(b, "}");
}

static void damage(char *text, size_t *len, struct rng *rng)
{
    static const char bytes[] = "{}[],:\"\\0159-+.eEtrufalsn \n\x01\x80\xc3\xe4\xed\xff";
    size_t at = rng_below(rng, *len);
    char byte = bytes[rng_below(rng, sizeof bytes)];
    switch (rng_below(rng, 4)) {
    case 0: /* another byte */
        text[at] = byte;
        break;
    case 1: /* a byte less */
        memmove(text + at, text + at + 1, *len - at - 1);
        (*len)--;
        break;
    case 2: /* a byte more */
        memmove(text + at + 1, text + at, *len - at);
        text[at] = byte;
        (*len)++;
        break;
    default: /* two swapped */
        byte = text[at];
        text[at] = text[*len - 1 - at];
        text[*len - 1 - at] = byte;
    }
}

static void test_damaged_documents_get_the_same_verdict_as_from_the_parser(void **state)
{
    const uint64_t seed = 9;
    print_message("# seed %llu\n", (unsigned long long)seed);
    struct rng rng;
    rng_seed(&rng, seed);
    struct buf b;
    buf_init(&b, 1 << 20);
    size_t accepted = 0, refused = 0;
    for (int round = 0; round < 10000; round++) {
        buf_clear(&b);
        put_object(&b, &rng);
        size_t len = buf_len(&b), changes = rng_below(&rng, 4);
        char *text = heap_alloc(len + changes);
        memcpy(text, b.ptr, len);
        for (size_t i = 0; i < changes && len > 0; i++)
            damage(text, &len, &rng);
        const char *difference = json_scan_disagreement(slice_of(text, len));
        if (difference)
            fail_msg("round %d: %s: %.*s", round, difference, (int)len, text);
        struct json_scan_result result;
        enum weir_err rc = scan(slice_of(text, len), &result);
        accepted += rc == WEIR_OK;
        refused += rc != WEIR_OK;
        assert_true(changes > 0 || rc == WEIR_OK);
        heap_free(text);
    }
    assert_true(accepted > 1000 && refused > 1000); /* both verdicts were put to the test */
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid_objects_are_accepted),
        cmocka_unit_test(test_malformed_text_is_refused_where_it_goes_wrong),
        cmocka_unit_test(test_lone_surrogate_escapes_are_refused_with_their_offset),
        cmocka_unit_test(test_every_prefix_of_a_document_is_refused_at_its_end),
        cmocka_unit_test(test_special_bytes_are_seen_at_every_place_of_a_long_string),
        cmocka_unit_test(test_depth_is_bounded_at_the_bracket_too_many),
        cmocka_unit_test(test_brackets_must_match_at_every_depth),
        cmocka_unit_test(test_members_are_reported_in_order_with_their_bytes),
        cmocka_unit_test(test_empty_object_is_told_apart),
        cmocka_unit_test(test_callback_ends_the_scan_with_its_own_code),
        cmocka_unit_test(test_spells_compares_after_unescaping),
        cmocka_unit_test(test_unescape_survives_what_the_scan_would_refuse),
        cmocka_unit_test(test_unescape_works_in_place),
        cmocka_unit_test(test_damaged_documents_get_the_same_verdict_as_from_the_parser),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
