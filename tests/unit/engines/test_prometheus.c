#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "engines/prometheus.h"

static size_t count_samples(const char *text)
{
    struct slice rest = slice_str(text);
    struct metric_sample sample;
    size_t count = 0;
    while (metric_next(&rest, &sample))
        count++;
    return count;
}

static void test_a_sample_is_taken_apart(void **state)
{
    struct slice rest =
        SLICE("# HELP a text\n# TYPE a gauge\n\na:b{x=\"1\",y=\"two\"} 4.5e1 1700\n");
    struct metric_sample s;
    assert_true(metric_next(&rest, &s));
    assert_true(slice_eq(s.name, SLICE("a:b")));
    assert_true(slice_eq(s.labels, SLICE("x=\"1\",y=\"two\"")));
    assert_true(s.value == 45.0);
    assert_false(metric_next(&rest, &s));
}

static void test_forms_that_must_be_read(void **state)
{
    assert_int_equal(count_samples("a 1"), 1); /* no newline at the end */
    assert_int_equal(count_samples("a 1\r\n"), 1);
    assert_int_equal(count_samples("a\t1\n"), 1);
    assert_int_equal(count_samples("a{} 1\n"), 1);
    assert_int_equal(count_samples("a {x=\"1\"} 1\n"), 1);
    assert_int_equal(count_samples("a{x=\"}\"} 1\n"), 1);
    assert_int_equal(count_samples("a{x=\"\\\"}\\\\\"} 1\n"), 1);
    assert_int_equal(count_samples("a_total 1 # {trace=\"x\"} 0.5\n# EOF\n"), 1);
    assert_int_equal(count_samples("a 1e400\na 2\n"), 1); /* overflows to infinity: skipped */
}

static void test_forms_that_cost_only_their_line(void **state)
{
    static const char *const bad[] = {
        "a NaN",       "a +Inf",      "a -Inf",     "a -1",    "a",        "a ",
        "{x=\"1\"} 1", "a{x=\"1\" 1", "a{x=\"1} 1", "a 1x",    "a 0x",     "<html>",
        "a{x=\"1\"}",  "} 1",         "a one",      "\"a\" 1", "a \x01 1", "a{",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s\ngood 1\n", bad[i]);
        assert_int_equal(count_samples(text), 1);
    }
}

static void test_a_number_longer_than_any_is_skipped(void **state)
{
    char text[400] = "a ";
    memset(text + 2, '1', 300);
    memcpy(text + 302, "\nb 1\n", 6);
    assert_int_equal(count_samples(text), 1);
}

static void test_labels_are_matched_by_whole_name(void **state)
{
    struct slice value, labels = SLICE("reason=\"a\\\"b\", x=\"2\",rea=\"3\",");
    assert_true(metric_label(labels, "rea", &value));
    assert_true(slice_eq(value, SLICE("3")));
    assert_true(metric_label(labels, "reason", &value));
    assert_true(slice_eq(value, SLICE("a\\\"b")));
    assert_false(metric_label(labels, "eason", &value));
    assert_false(metric_label(labels, "", &value));
    assert_false(metric_label(SLICE("x=1"), "x", &value));
    assert_false(metric_label(SLICE("x=\"1"), "x", &value));
}

static double read_one(const char *text, struct metric_want want)
{
    metric_read(slice_str(text), &want, 1);
    return metric_seen(&want) ? metric_value(&want) : -1;
}

static void test_samples_of_ranks_are_added_up(void **state)
{
    const char *text = "n{engine=\"0\"} 3\nn{engine=\"1\"} 4\nn_created 9\nnn 9\n";
    assert_true(read_one(text, (struct metric_want){.names = {"n"}}) == 7.0);
    assert_true(read_one(text, (struct metric_want){.names = {"n"}, .mean = true}) == 3.5);
    assert_true(read_one(text, (struct metric_want){
                                   .names = {"n"}, .label = "engine", .label_value = "1"}) == 4.0);
    assert_true(read_one(text, (struct metric_want){.names = {"m"}}) == -1.0);
}

static void test_both_spellings_of_a_counter_are_read(void **state)
{
    assert_true(read_one("c_total 5\n", (struct metric_want){.names = {"c"}}) == 5.0);
    assert_true(read_one("c 5\n", (struct metric_want){.names = {"c"}}) == 5.0);
    assert_true(read_one("_total 5\n", (struct metric_want){.names = {""}}) == -1.0);
}

static void test_old_and_new_names_are_not_counted_twice(void **state)
{
    struct metric_want want = {.names = {"new", "old"}};
    assert_true(read_one("old 5\nnew 6\nold 5\n", want) == 6.0);
    assert_true(read_one("old 5\n", want) == 5.0);
}

static void test_numbers_become_facts_without_overflow(void **state)
{
    struct metric_want want = {.names = {"n"}};
    metric_read(SLICE("n 1e300\nn 1e308\nn 1.7e308\n"), &want, 1);
    assert_int_equal(metric_u32(&want), UINT32_MAX);
    assert_true(metric_u64(&want) == UINT64_MAX);
    assert_int_equal(metric_ppm(&want), 1000000);
    want = (struct metric_want){.names = {"n"}};
    metric_read(SLICE("n 0.4999999\n"), &want, 1);
    assert_int_equal(metric_u32(&want), 0);
    assert_int_equal(metric_ppm(&want), 500000);
}

static void test_damaged_scrapes_never_read_beyond_their_end(void **state)
{
    static const char text[] =
        "# HELP a b\na{x=\"1\",y=\"\\\\\"} 4.5e1 17\nb_total 7 # {t=\"q\"} 1\n";
    const uint64_t seed = 11;
    print_message("seed %llu\n", (unsigned long long)seed);
    struct rng rng;
    rng_seed(&rng, seed);
    for (int i = 0; i < 20000; i++) {
        size_t len = rng_below(&rng, sizeof text);
        char *copy = malloc(len ? len : 1); /* exact, for the sanitizer */
        memcpy(copy, text, len);
        for (uint64_t k = rng_below(&rng, 4); k > 0 && len; k--)
            copy[rng_below(&rng, len)] = "{}\"\\,= \n\r#x1\0\xff"[rng_below(&rng, 14)];
        struct metric_want want = {.names = {"a", "b"}, .label = "y", .label_value = "1"};
        metric_read(slice_of(copy, len), &want, 1);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sample_is_taken_apart),
        cmocka_unit_test(test_forms_that_must_be_read),
        cmocka_unit_test(test_forms_that_cost_only_their_line),
        cmocka_unit_test(test_a_number_longer_than_any_is_skipped),
        cmocka_unit_test(test_labels_are_matched_by_whole_name),
        cmocka_unit_test(test_samples_of_ranks_are_added_up),
        cmocka_unit_test(test_both_spellings_of_a_counter_are_read),
        cmocka_unit_test(test_old_and_new_names_are_not_counted_twice),
        cmocka_unit_test(test_numbers_become_facts_without_overflow),
        cmocka_unit_test(test_damaged_scrapes_never_read_beyond_their_end),
    };
    return cmocka_run_group_tests_name("prometheus", tests, NULL, NULL);
}
