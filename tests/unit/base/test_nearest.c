#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/nearest.h"

static const char *const words[] = {"serve", "check", "version", "help", "least-load"};

static const char *near(const char *word)
{
    return nearest_word(slice_str(word), words, sizeof(words) / sizeof(words[0]));
}

static void test_one_slip_of_each_kind_is_forgiven(void **state)
{
    assert_string_equal(near("serv"), "serve");   /* left out */
    assert_string_equal(near("seerve"), "serve"); /* put in */
    assert_string_equal(near("sarve"), "serve");  /* replaced */
    assert_string_equal(near("sevre"), "serve");  /* swapped */
    assert_string_equal(near("SERVE"), "serve");
    assert_string_equal(near("least_load"), "least-load");
}

static void test_nothing_is_suggested_for_what_is_nothing_like_it(void **state)
{
    assert_null(near("launch"));
    assert_null(near("x"));
    assert_null(near(""));
    assert_null(near("zzzz"));
}

static void test_nearest_wins_and_ties_go_to_the_first(void **state)
{
    static const char *const close[] = {"abcx", "abcd", "abcy"};
    assert_string_equal(nearest_word(SLICE("abcd"), close, 3), "abcd");
    assert_string_equal(nearest_word(SLICE("abcz"), close, 3), "abcx");
}

static void test_words_of_any_length_are_safe(void **state)
{
    char longest[64], too_long[65];
    memset(longest, 'a', sizeof(longest));
    memset(too_long, 'a', sizeof(too_long));
    longest[63] = too_long[64] = '\0';
    const char *const candidates[] = {too_long, longest};
    assert_ptr_equal(nearest_word(slice_of(longest, 62), candidates, 2), longest);
    assert_null(nearest_word(slice_str(too_long), candidates, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_slip_of_each_kind_is_forgiven),
        cmocka_unit_test(test_nothing_is_suggested_for_what_is_nothing_like_it),
        cmocka_unit_test(test_nearest_wins_and_ties_go_to_the_first),
        cmocka_unit_test(test_words_of_any_length_are_safe),
    };
    return cmocka_run_group_tests_name("nearest", tests, NULL, NULL);
}
