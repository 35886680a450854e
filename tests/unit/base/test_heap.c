#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/heap.h"

static void test_empty_pieces_have_an_address(void **state)
{
    void *pieces[] = {heap_alloc(0), heap_zalloc(0), heap_realloc(NULL, 0)};
    for (size_t i = 0; i < 3; i++) {
        assert_non_null(pieces[i]);
        heap_free(pieces[i]);
    }
    heap_free(NULL);
    heap_free_secret(NULL, 10);
}

static void test_zalloc_is_zero_and_realloc_keeps(void **state)
{
    char *piece = heap_zalloc(100);
    for (int i = 0; i < 100; i++)
        assert_int_equal(piece[i], 0);
    piece[99] = 'x';
    piece = heap_realloc(piece, 5000);
    assert_int_equal(piece[99], 'x');
    heap_free_secret(piece, 5000);
}

static void test_strdup_terminates(void **state)
{
    char *copy = heap_strdup(slice_of("abcdef", 3));
    assert_string_equal(copy, "abc");
    heap_free(copy);
    copy = heap_strdup((struct slice){0});
    assert_string_equal(copy, "");
    heap_free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty_pieces_have_an_address),
        cmocka_unit_test(test_zalloc_is_zero_and_realloc_keeps),
        cmocka_unit_test(test_strdup_terminates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
