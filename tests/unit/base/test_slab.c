#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/slab.h"

static void test_freed_objects_come_back_last_first_and_zeroed(void **state)
{
    struct slab s;
    slab_init(&s, 40, 4);
    unsigned char *first = slab_get(&s);
    unsigned char *second = slab_get(&s);
    for (int i = 0; i < 40; i++)
        first[i] = 0xff;
    slab_put(&s, second);
    slab_put(&s, first);
    assert_int_equal(s.live, 0);
    assert_ptr_equal(slab_get(&s), first);
    for (int i = 0; i < 40; i++)
        assert_int_equal(first[i], 0);
    assert_ptr_equal(slab_get(&s), second);
    assert_int_equal(s.live, 2);
    slab_free_all(&s);
    assert_int_equal(s.live, 0);
}

static void test_objects_are_aligned_also_when_tiny(void **state)
{
    struct slab s;
    slab_init(&s, 1, 3);
    for (int i = 0; i < 10; i++)
        assert_int_equal((uintptr_t)slab_get(&s) % 16, 0);
    slab_free_all(&s);
}

static void test_slab_is_usable_after_all_was_freed(void **state)
{
    struct slab s;
    slab_init(&s, 24, 2);
    assert_non_null(slab_get(&s));
    slab_free_all(&s);
    assert_non_null(slab_get(&s));
    assert_int_equal(s.live, 1);
    slab_free_all(&s);
}

static void test_no_object_is_out_twice_and_memory_is_reused(void **state)
{
    enum { OBJECTS = 200, ROUNDS = 20000 };
    const uint64_t seed = 3;
    print_message("# seed %llu\n", (unsigned long long)seed);
    struct rng rng;
    rng_seed(&rng, seed);
    struct slab s;
    slab_init(&s, sizeof(uint64_t) * 5, 16);
    uint64_t *out[OBJECTS] = {0};
    size_t live = 0;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        size_t i = rng_below(&rng, OBJECTS);
        if (out[i]) {
            assert_true(out[i][0] == i + 1 && out[i][4] == i + 1); /* nobody wrote here */
            slab_put(&s, out[i]);
            out[i] = NULL;
            live--;
        } else {
            out[i] = slab_get(&s);
            assert_true(out[i][0] == 0 && out[i][4] == 0);
            out[i][0] = out[i][4] = i + 1;
            live++;
        }
        assert_int_equal(s.live, live);
    }
    slab_free_all(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_freed_objects_come_back_last_first_and_zeroed),
        cmocka_unit_test(test_objects_are_aligned_also_when_tiny),
        cmocka_unit_test(test_slab_is_usable_after_all_was_freed),
        cmocka_unit_test(test_no_object_is_out_twice_and_memory_is_reused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
