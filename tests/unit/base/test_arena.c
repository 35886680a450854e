#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/rng.h"

static void test_pieces_are_aligned_and_apart(void **state)
{
    struct arena a;
    arena_init(&a, 256, 1 << 20);
    char *last = NULL;
    for (size_t size = 0; size < 400; size++) {
        char *piece = arena_alloc(&a, size);
        assert_non_null(piece);
        assert_int_equal((uintptr_t)piece % 16, 0);
        assert_ptr_not_equal(piece, last);
        memset(piece, (int)size, size);
        last = piece;
    }
    arena_free(&a);
}

static void test_pieces_keep_their_bytes(void **state)
{
    enum { PIECES = 500 };
    const uint64_t seed = 2;
    print_message("# seed %llu\n", (unsigned long long)seed);
    struct rng rng;
    rng_seed(&rng, seed);
    struct arena a;
    arena_init(&a, 512, 1 << 20);
    unsigned char *pieces[PIECES];
    size_t sizes[PIECES];
    for (int i = 0; i < PIECES; i++) {
        sizes[i] = rng_below(&rng, rng_below(&rng, 10) ? 100 : 2000);
        pieces[i] = arena_alloc(&a, sizes[i]);
        memset(pieces[i], i & 0xff, sizes[i]);
    }
    for (int i = 0; i < PIECES; i++)
        for (size_t at = 0; at < sizes[i]; at++)
            assert_int_equal(pieces[i][at], i & 0xff);
    arena_free(&a);
}

static void test_maximum_refuses_and_reset_gives_it_back(void **state)
{
    struct arena a;
    arena_init(&a, 64, 160);
    assert_null(arena_alloc(&a, 161));
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_non_null(arena_alloc(&a, 100)); /* 112 with the alignment */
    assert_null(arena_alloc(&a, 49));
    assert_non_null(arena_alloc(&a, 48));
    assert_int_equal(a.used, 160);
    assert_null(arena_alloc(&a, 0));
    assert_null(arena_zalloc(&a, 1));
    assert_null(arena_strdup(&a, SLICE("")));
    assert_null(arena_printf(&a, "%d", 1));
    assert_null(arena_dup(&a, SLICE("x")).ptr);
    arena_reset(&a);
    assert_int_equal(a.used, 0);
    assert_non_null(arena_alloc(&a, 160));
    arena_free(&a);
}

static void test_every_limit_in_turn_refuses_once_and_for_all(void **state)
{
    for (size_t max = 0; max < 300; max++) {
        struct arena a;
        arena_init(&a, 64, max);
        size_t got = 0;
        while (arena_alloc(&a, 10))
            got++;
        assert_int_equal(got, max / 16);
        assert_true(a.used <= max);
        arena_free(&a);
    }
}

static void test_zalloc_is_zero_also_in_recycled_memory(void **state)
{
    struct arena a;
    arena_init(&a, 256, 1024);
    memset(arena_alloc(&a, 200), 0xff, 200);
    arena_reset(&a);
    const char *piece = arena_zalloc(&a, 200);
    for (int i = 0; i < 200; i++)
        assert_int_equal(piece[i], 0);
    arena_free(&a);
}

static void test_reset_keeps_one_block_whatever_came_first(void **state)
{
    struct arena a;
    arena_init(&a, 64, 1 << 20);
    assert_non_null(arena_alloc(&a, 5000));
    assert_non_null(arena_alloc(&a, 8));
    assert_non_null(arena_alloc(&a, 5000));
    assert_non_null(arena_alloc(&a, 60));
    arena_reset(&a);
    assert_non_null(a.blocks);
    assert_non_null(arena_alloc(&a, 8));
    arena_free(&a);
    assert_null(a.blocks);
    assert_non_null(arena_alloc(&a, 8)); /* usable after free */
    arena_free(&a);
}

static void test_a_large_piece_leaves_the_current_block_in_use(void **state)
{
    struct arena a;
    arena_init(&a, 256, 1 << 20);
    char *first = arena_alloc(&a, 16);
    assert_non_null(arena_alloc(&a, 5000));
    assert_ptr_equal(arena_alloc(&a, 16), first + 16);
    arena_free(&a);
}

static void test_copies_and_formats(void **state)
{
    struct arena a;
    arena_init(&a, 64, 1 << 20);
    struct slice copy = arena_dup(&a, SLICE("a\0b"));
    assert_true(slice_eq(copy, SLICE("a\0b")));
    assert_non_null(arena_dup(&a, (struct slice){0}).ptr);
    assert_string_equal(arena_strdup(&a, SLICE("text")), "text");
    assert_string_equal(arena_strdup(&a, (struct slice){0}), "");
    assert_string_equal(arena_printf(&a, "%s-%0100d", "x", 0) + 99, "000");
    arena_free(&a);
}

struct trail {
    struct arena *arena;
    char text[8];
    int len;
};

static void leave_a(void *ptr)
{
    struct trail *trail = ptr;
    trail->text[trail->len++] = 'a';
}

static void leave_b_and_register_a(void *ptr)
{
    struct trail *trail = ptr;
    trail->text[trail->len++] = 'b';
    arena_on_reset(trail->arena, leave_a, trail);
}

static void test_cleanups_run_once_last_first_and_past_the_maximum(void **state)
{
    struct arena a;
    arena_init(&a, 64, 16);
    assert_non_null(arena_alloc(&a, 16));
    struct trail trail = {.arena = &a};
    arena_on_reset(&a, leave_a, &trail);
    arena_on_reset(&a, leave_b_and_register_a, &trail);
    arena_reset(&a);
    assert_string_equal(trail.text, "baa");
    arena_reset(&a);
    arena_free(&a);
    assert_string_equal(trail.text, "baa");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_are_aligned_and_apart),
        cmocka_unit_test(test_pieces_keep_their_bytes),
        cmocka_unit_test(test_maximum_refuses_and_reset_gives_it_back),
        cmocka_unit_test(test_every_limit_in_turn_refuses_once_and_for_all),
        cmocka_unit_test(test_zalloc_is_zero_also_in_recycled_memory),
        cmocka_unit_test(test_reset_keeps_one_block_whatever_came_first),
        cmocka_unit_test(test_a_large_piece_leaves_the_current_block_in_use),
        cmocka_unit_test(test_copies_and_formats),
        cmocka_unit_test(test_cleanups_run_once_last_first_and_past_the_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
