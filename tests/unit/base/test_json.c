#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/json.h"
#include "base/rng.h"
#include "base/utf8.h"

static const char sample[] = "{\"s\":\"a\\u00e9\\n\",\"i\":-5,\"u\":18446744073709551615,\"d\":2.0,"
                             "\"f\":0.5,\"t\":true,\"n\":null,\"a\":[1,[2],{\"x\":3},\"\"],"
                             "\"o\":{},\"s\":\"second\"}";

static void test_getters_read_what_is_there(void **state)
{
    struct json_doc *doc = json_parse(slice_str(sample));
    assert_non_null(doc);
    const struct json_value *root = json_root(doc);
    assert_true(json_is_object(root));
    assert_int_equal(json_count(root), 10);
    assert_true(slice_eq(json_string(json_get(root, "s")), SLICE("a\xc3\xa9\n"))); /* the first */
    assert_int_equal(json_int(json_get(root, "i"), 9), -5);
    assert_int_equal(json_int(json_get(root, "d"), 9), 2);
    assert_int_equal(json_int(json_get(root, "f"), 9), 9);
    assert_int_equal(json_int(json_get(root, "u"), 9), 9);
    assert_true(json_number(json_get(root, "u"), 9) == 18446744073709551615.0);
    assert_true(json_number(json_get(root, "f"), 9) == 0.5);
    assert_true(json_bool(json_get(root, "t"), false));
    assert_true(json_is_null(json_get(root, "n")));
    assert_int_equal(json_count(json_get(root, "a")), 4);
    assert_int_equal(json_int(json_at(json_at(json_get(root, "a"), 1), 0), 9), 2);
    assert_null(json_at(json_get(root, "a"), 4));
    json_doc_free(doc);
}

static void test_missing_and_wrong_types_give_the_fallback(void **state)
{
    struct json_doc *doc = json_parse(slice_str(sample));
    const struct json_value *root = json_root(doc);
    const struct json_value *wrong[] = {NULL, json_get(root, "absent"), json_get(root, "a"), root};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(json_string(wrong[i]).len, 0);
        assert_int_equal(json_int(wrong[i], 7), 7);
        assert_true(json_number(wrong[i], 7) == 7);
        assert_true(json_bool(wrong[i], true));
        assert_false(json_is_null(wrong[i]) || json_is_string(wrong[i]) ||
                     json_is_number(wrong[i]));
        assert_null(json_at(json_get(wrong[i], "nothing"), 0));
    }
    const struct json_value *text = json_get(root, "s");
    assert_null(json_get(text, "x"));
    assert_null(json_at(text, 0));
    assert_int_equal(json_count(text), 0);
    assert_null(json_root(NULL));
    json_doc_free(doc);
    json_doc_free(NULL);
}

static void test_walks_follow_the_document(void **state)
{
    struct json_doc *doc = json_parse(slice_str(sample));
    const struct json_value *root = json_root(doc), *value;
    struct slice key;
    size_t pos = 0, count = 0;
    char keys[16] = "";
    while (json_next_member(root, &pos, &key, &value))
        keys[count++] = key.ptr[0];
    assert_string_equal(keys, "siudftnaos");
    assert_true(slice_eq(json_string(value), SLICE("second")));

    pos = count = 0;
    while (json_next_element(json_get(root, "a"), &pos, &value))
        assert_ptr_equal(value, json_at(json_get(root, "a"), count++));
    assert_int_equal(count, 4);

    pos = 0;
    assert_false(json_next_member(json_get(root, "o"), &pos, &key, &value));
    assert_false(json_next_member(json_get(root, "a"), &pos, &key, &value));
    assert_false(json_next_element(root, &pos, &value));
    assert_false(json_next_member(NULL, &pos, &key, &value));
    json_doc_free(doc);
}

static void test_malformed_text_is_refused(void **state)
{
    const char *const wrong[] = {
        "",       " ",   "{",        "[1,]", "{\"a\":1,}", "{} {}",   "01",       "1.",
        "nul",    "NaN", "Infinity", "'a'",  "\"\\x\"",    "// c\n1", "\"\xff\"", "\xef\xbb\xbf{}",
        "\"\n\"", "\"a"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_null(json_parse(slice_str(wrong[i])));
    assert_null(json_parse((struct slice){0}));
}

static void test_depth_is_bounded(void **state)
{
    static char text[300];
    for (size_t depth = 127; depth <= 130; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        struct json_doc *doc = json_parse(slice_of(text, 2 * depth));
        assert_int_equal(doc != NULL, depth <= 128);
        json_doc_free(doc);
    }
    /* side by side is not deep */
    struct buf b;
    buf_init(&b, 10000);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(buf_append(&b, i ? SLICE(",[{}]") : SLICE("[[{}]")), WEIR_OK);
    assert_int_equal(buf_append(&b, SLICE("]")), WEIR_OK);
    struct json_doc *doc = json_parse(buf_slice(&b));
    assert_int_equal(json_count(json_root(doc)), 1000);
    json_doc_free(doc);
    buf_free(&b);
}

static void test_one_huge_number_does_not_spoil_the_rest(void **state)
{
    struct json_doc *doc =
        json_parse(SLICE("{\"a\":1e999,\"b\":36893488147419103232,\"c\":1,\"d\":-1e-999}"));
    assert_non_null(doc);
    const struct json_value *root = json_root(doc);
    assert_true(json_is_number(json_get(root, "a")));
    assert_true(json_number(json_get(root, "a"), 7) == 7);
    assert_true(json_number(json_get(root, "b"), 7) == 0x1p65);
    assert_int_equal(json_int(json_get(root, "b"), 7), 7);
    assert_int_equal(json_int(json_get(root, "c"), 7), 1);
    json_doc_free(doc);
}

static void assert_writes(struct slice text, const char *want)
{
    struct buf b;
    buf_init(&b, 1000);
    assert_int_equal(json_put_string(&b, text), WEIR_OK);
    assert_true(slice_eq(buf_slice(&b), slice_str(want)));
    buf_free(&b);
}

static void test_strings_are_escaped_for_json_sse_and_html(void **state)
{
    assert_writes(SLICE(""), "\"\"");
    assert_writes((struct slice){0}, "\"\"");
    assert_writes(SLICE("plain \x7f"), "\"plain \x7f\"");
    assert_writes(SLICE("\"\\/"), "\"\\\"\\\\/\"");
    assert_writes(SLICE("\b\t\n\f\r\x01\x1f\0"), "\"\\b\\t\\n\\f\\r\\u0001\\u001f\\u0000\"");
    assert_writes(SLICE("</script><"), "\"<\\/script><\"");
    assert_writes(SLICE("a\xe2\x80\xa8z\xe2\x80\xa9"), "\"a\\u2028z\\u2029\"");
    assert_writes(SLICE("\xe2\x80\xa7\xc3\xa9\xf0\x9f\x98\x80"),
                  "\"\xe2\x80\xa7\xc3\xa9\xf0\x9f\x98\x80\"");
    assert_writes(SLICE("a\xff\xe4\xbd"), "\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
}

static void test_any_bytes_become_valid_json_and_valid_utf8_comes_back(void **state)
{
    const uint64_t seed = 7;
    print_message("# seed %llu\n", (unsigned long long)seed);
    struct rng rng;
    rng_seed(&rng, seed);
    static const char alphabet[] = "a\"\\/<\n\x01\xe2\x80\xa8\xa9\xc3\xf0\x9f\x98";
    for (int round = 0; round < 20000; round++) {
        char text[12];
        size_t len = rng_below(&rng, sizeof text);
        for (size_t i = 0; i < len; i++)
            text[i] = alphabet[rng_below(&rng, sizeof alphabet)];
        struct slice in = slice_of(text, len);
        struct buf b;
        buf_init(&b, 200);
        assert_int_equal(json_put_string(&b, in), WEIR_OK);
        struct json_doc *doc = json_parse(buf_slice(&b));
        assert_non_null(doc);
        if (utf8_first_invalid(in) == len)
            assert_true(slice_eq(json_string(json_root(doc)), in));
        json_doc_free(doc);
        buf_free(&b);
    }
}

static void test_a_string_that_does_not_fit_adds_nothing(void **state)
{
    struct slice text = SLICE("ab\"cd\ne\x01"); /* 17 bytes when written, 19 with "xx" */
    for (size_t max = 2; max <= 19; max++) {
        struct buf b;
        buf_init(&b, max);
        assert_int_equal(buf_append(&b, SLICE("xx")), WEIR_OK);
        enum weir_err rc = json_put_string(&b, text);
        assert_int_equal(rc, max < 19 ? WEIR_ELIMIT : WEIR_OK);
        assert_int_equal(buf_len(&b), max < 19 ? 2 : 19);
        buf_free(&b);
    }
}

static void test_numbers_read_back_as_the_same_double(void **state)
{
    const uint64_t seed = 8;
    print_message("# seed %llu\n", (unsigned long long)seed);
    struct rng rng;
    rng_seed(&rng, seed);
    struct buf b;
    buf_init(&b, 100);
    for (int round = 0; round < 20000; round++) {
        uint64_t bits = rng_next(&rng);
        double value;
        memcpy(&value, &bits, sizeof value);
        buf_clear(&b);
        assert_int_equal(json_put_number(&b, value), WEIR_OK);
        struct json_doc *doc = json_parse(buf_slice(&b));
        assert_non_null(doc);
        if (isfinite(value))
            assert_true(json_number(json_root(doc), 0) == value);
        else
            assert_true(json_is_null(json_root(doc)));
        json_doc_free(doc);
    }
    buf_clear(&b);
    assert_int_equal(json_put_number(&b, 0.1), WEIR_OK);
    assert_true(slice_eq(buf_slice(&b), SLICE("0.1")));
    buf_clear(&b);
    assert_int_equal(json_put_number(&b, 120), WEIR_OK);
    assert_true(slice_eq(buf_slice(&b), SLICE("120")));
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_getters_read_what_is_there),
        cmocka_unit_test(test_missing_and_wrong_types_give_the_fallback),
        cmocka_unit_test(test_walks_follow_the_document),
        cmocka_unit_test(test_malformed_text_is_refused),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_one_huge_number_does_not_spoil_the_rest),
        cmocka_unit_test(test_strings_are_escaped_for_json_sse_and_html),
        cmocka_unit_test(test_any_bytes_become_valid_json_and_valid_utf8_comes_back),
        cmocka_unit_test(test_a_string_that_does_not_fit_adds_nothing),
        cmocka_unit_test(test_numbers_read_back_as_the_same_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
