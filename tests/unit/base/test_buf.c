#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/buf.h"
#include "base/rng.h"

static void assert_content(const struct buf *b, struct slice want)
{
    assert_true(slice_eq(buf_slice(b), want));
    assert_true(b->start <= b->end && b->end <= b->cap && b->cap <= b->max);
}

static void test_append_stops_at_the_maximum_and_changes_nothing(void **state)
{
    struct buf b;
    buf_init(&b, 8);
    assert_int_equal(buf_append(&b, SLICE("12345")), WEIR_OK);
    assert_int_equal(buf_append(&b, SLICE("6789")), WEIR_ELIMIT);
    assert_content(&b, SLICE("12345"));
    assert_int_equal(buf_append(&b, SLICE("678")), WEIR_OK);
    assert_content(&b, SLICE("12345678"));
    assert_int_equal(buf_append(&b, SLICE("9")), WEIR_ELIMIT);
    assert_int_equal(buf_append(&b, SLICE("")), WEIR_OK);
    buf_free(&b);
    assert_int_equal(b.max, 8);
}

static void test_consumed_room_can_be_used_again(void **state)
{
    struct buf b;
    buf_init(&b, 8);
    assert_int_equal(buf_append(&b, SLICE("12345678")), WEIR_OK);
    buf_consume(&b, 3);
    assert_int_equal(buf_append(&b, SLICE("abc")), WEIR_OK);
    assert_content(&b, SLICE("45678abc"));
    buf_free(&b);
}

static void test_emptied_buffer_starts_over_and_keeps_its_memory(void **state)
{
    struct buf b;
    buf_init(&b, 100);
    assert_int_equal(buf_append(&b, SLICE("hello")), WEIR_OK);
    char *ptr = b.ptr;
    buf_consume(&b, 5);
    assert_int_equal(b.start, 0);
    assert_ptr_equal(b.ptr, ptr);
    buf_free(&b);
}

static void test_zeroed_buffer_with_a_maximum_is_valid(void **state)
{
    struct buf b = {.max = 10};
    assert_null(buf_slice(&b).ptr);
    buf_consume(&b, 0);
    assert_int_equal(buf_printf(&b, "%d", 42), WEIR_OK);
    assert_content(&b, SLICE("42"));
    buf_free(&b);
}

static void test_reserve_gives_what_commit_keeps(void **state)
{
    struct buf b;
    buf_init(&b, 1000);
    char *room;
    assert_int_equal(buf_reserve(&b, 1001, &room), WEIR_ELIMIT);
    assert_int_equal(buf_reserve(&b, SIZE_MAX, &room), WEIR_ELIMIT);
    assert_int_equal(buf_reserve(&b, 1000, &room), WEIR_OK);
    memset(room, 'x', 1000);
    buf_commit(&b, 2);
    assert_content(&b, SLICE("xx"));
    assert_int_equal(buf_reserve(&b, SIZE_MAX, &room), WEIR_ELIMIT);
    buf_free(&b);
}

static void test_printf_fills_to_the_last_byte(void **state)
{
    for (int max = 1; max < 600; max++) {
        struct buf b;
        buf_init(&b, (size_t)max);
        assert_int_equal(buf_printf(&b, "%0*d", max, 7), WEIR_OK);
        assert_int_equal(buf_len(&b), max);
        assert_int_equal(b.ptr[max - 1], '7');
        assert_int_equal(buf_printf(&b, "%d", 1), WEIR_ELIMIT);
        assert_int_equal(buf_printf(&b, "%s", ""), WEIR_OK);
        assert_int_equal(buf_len(&b), max);
        buf_free(&b);
    }
}

/* Against a flat array that never moves. */
static void test_any_sequence_keeps_the_bytes(void **state)
{
    enum { MAX = 3000, TOTAL = 1 << 20 };
    const uint64_t seed = 1;
    print_message("# seed %llu\n", (unsigned long long)seed);
    struct rng rng;
    rng_seed(&rng, seed);
    static char model[TOTAL + MAX];
    size_t from = 0, to = 0;
    struct buf b;
    buf_init(&b, MAX);
    while (to < TOTAL) {
        size_t len = rng_below(&rng, 900);
        if (rng_below(&rng, 2)) {
            for (size_t i = 0; i < len; i++)
                model[to + i] = (char)rng_next(&rng);
            enum weir_err rc = buf_append(&b, slice_of(model + to, len));
            assert_int_equal(rc, to - from + len > MAX ? WEIR_ELIMIT : WEIR_OK);
            to += rc ? 0 : len;
        } else {
            len = len < to - from ? len : to - from;
            buf_consume(&b, len);
            from += len;
        }
        assert_content(&b, slice_of(model + from, to - from));
    }
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append_stops_at_the_maximum_and_changes_nothing),
        cmocka_unit_test(test_consumed_room_can_be_used_again),
        cmocka_unit_test(test_emptied_buffer_starts_over_and_keeps_its_memory),
        cmocka_unit_test(test_zeroed_buffer_with_a_maximum_is_valid),
        cmocka_unit_test(test_reserve_gives_what_commit_keeps),
        cmocka_unit_test(test_printf_fills_to_the_last_byte),
        cmocka_unit_test(test_any_sequence_keeps_the_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
