#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/slice.h"

static void test_nocase_folds_ascii_letters_only(void **state)
{
    assert_true(slice_eq_nocase(SLICE("Content-TYPE"), SLICE("content-type")));
    assert_false(slice_eq_nocase(SLICE("content-type"), SLICE("content-typo")));
    assert_false(slice_eq_nocase(SLICE("a"), SLICE("ab")));
    assert_false(slice_eq_nocase(SLICE("@"), SLICE("`"))); /* differ by 0x20, no letters */
    assert_false(slice_eq_nocase(SLICE("\xc3\x84"), SLICE("\xc3\xa4")));
    assert_true(slice_eq_nocase((struct slice){0}, SLICE("")));
}

static void test_trim_takes_blanks_off_both_ends(void **state)
{
    assert_true(slice_eq(slice_trim(SLICE(" \t a b\t ")), SLICE("a b")));
    assert_int_equal(slice_trim(SLICE(" \t ")).len, 0);
    assert_int_equal(slice_trim((struct slice){0}).len, 0);
    assert_true(slice_eq(slice_trim(SLICE("\na\n")), SLICE("\na\n")));
}

static void test_find_returns_the_first(void **state)
{
    struct slice s = SLICE("data: data: x");
    assert_ptr_equal(slice_find(s, SLICE("data:")), s.ptr);
    assert_ptr_equal(slice_find(s, SLICE("x")), s.ptr + 12);
    assert_null(slice_find(s, SLICE("y")));
    assert_ptr_equal(slice_find(s, SLICE("")), s.ptr);
    assert_null(slice_find((struct slice){0}, SLICE("x")));
}

static void test_from_never_leaves_the_slice(void **state)
{
    assert_true(slice_eq(slice_from(SLICE("abc"), 1), SLICE("bc")));
    assert_int_equal(slice_from(SLICE("abc"), 3).len, 0);
    assert_int_equal(slice_from(SLICE("abc"), 9).len, 0);
}

static void test_to_u64_takes_digits_up_to_the_maximum(void **state)
{
    uint64_t value = 7;
    assert_true(slice_to_u64(SLICE("0"), &value));
    assert_int_equal(value, 0);
    assert_true(slice_to_u64(SLICE("18446744073709551615"), &value));
    assert_true(value == UINT64_MAX);
    assert_true(slice_to_u64(SLICE("0000000000000000000000012"), &value));
    assert_int_equal(value, 12);
}

static void test_to_u64_refuses_all_else_and_leaves_the_value(void **state)
{
    const char *const wrong[] = {"",
                                 "-1",
                                 "+1",
                                 " 1",
                                 "1 ",
                                 "1.0",
                                 "0x1",
                                 "1e3",
                                 "1_0",
                                 "\xd9\xa1",
                                 "18446744073709551616",
                                 "99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint64_t value = 7;
        assert_false(slice_to_u64(slice_str(wrong[i]), &value));
        assert_int_equal(value, 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nocase_folds_ascii_letters_only),
        cmocka_unit_test(test_trim_takes_blanks_off_both_ends),
        cmocka_unit_test(test_find_returns_the_first),
        cmocka_unit_test(test_from_never_leaves_the_slice),
        cmocka_unit_test(test_to_u64_takes_digits_up_to_the_maximum),
        cmocka_unit_test(test_to_u64_refuses_all_else_and_leaves_the_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
