#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/map.h"
#include "base/rng.h"

static void test_zeroed_map_is_empty(void **state)
{
    struct map m = {0};
    size_t pos = 0;
    assert_null(map_get(&m, SLICE("a")));
    assert_null(map_remove(&m, SLICE("a")));
    assert_null(map_next(&m, &pos));
    map_free(&m);
}

static void test_set_replaces_value_and_key_bytes(void **state)
{
    struct map m = {0};
    char old_key[] = "tenant", new_key[] = "tenant";
    int one, two;
    assert_null(map_set(&m, slice_str(old_key), &one));
    assert_ptr_equal(map_set(&m, slice_str(new_key), &two), &one);
    old_key[0] = '?'; /* gone with the old value */
    assert_ptr_equal(map_get(&m, SLICE("tenant")), &two);
    assert_int_equal(m.count, 1);
    map_free(&m);
}

static void test_keys_are_bytes(void **state)
{
    struct map m = {0};
    int a, b, c;
    map_set(&m, SLICE("k\0a"), &a);
    map_set(&m, SLICE("k\0b"), &b);
    map_set(&m, (struct slice){0}, &c);
    assert_ptr_equal(map_get(&m, SLICE("k\0a")), &a);
    assert_ptr_equal(map_get(&m, SLICE("k\0b")), &b);
    assert_ptr_equal(map_get(&m, SLICE("")), &c);
    assert_null(map_get(&m, SLICE("k")));
    map_free(&m);
}

static void test_equal_bytes_hash_equally_wherever_they_lie(void **state)
{
    char text[300];
    memset(text, 'x', sizeof text);
    for (size_t len = 0; len < 299; len++)
        assert_true(map_hash(slice_of(text, len)) == map_hash(slice_of(text + 1, len)));
    assert_true(map_hash(SLICE("a")) != map_hash(SLICE("b")));
}

enum { KEYS = 5000 };
static char names[KEYS][16];
static int values[KEYS];

static struct slice name(size_t i)
{
    return slice_str(names[i]);
}

/* What the map must hold, by key number; NULL: absent. */
static void assert_holds(const struct map *m, int *const *oracle, size_t count)
{
    assert_int_equal(m->count, count);
    for (size_t i = 0; i < KEYS; i++)
        assert_ptr_equal(map_get(m, name(i)), oracle[i]);
    size_t pos = 0, seen = 0;
    for (const struct map_entry *entry; (entry = map_next(m, &pos)); seen++)
        assert_ptr_equal(map_get(m, entry->key), entry->value);
    assert_int_equal(seen, count);
}

static void test_sets_and_removals_agree_with_an_array(void **state)
{
    const uint64_t seed = 4;
    print_message("# seed %llu\n", (unsigned long long)seed);
    struct rng rng;
    rng_seed(&rng, seed);
    for (size_t i = 0; i < KEYS; i++)
        snprintf(names[i], sizeof names[i], "key-%zu", i);

    struct map m = {0};
    static int *oracle[KEYS];
    size_t count = 0;
    for (int round = 0; round < 20; round++) {
        /* odd rounds shrink, even ones grow, so probe chains are cut and joined */
        uint64_t sets_of_8 = round % 2 ? 2 : 6;
        for (int step = 0; step < 4000; step++) {
            size_t i = rng_below(&rng, KEYS);
            int *value = rng_below(&rng, 8) < sets_of_8 ? &values[rng_below(&rng, KEYS)] : NULL;
            int *old = value ? map_set(&m, name(i), value) : map_remove(&m, name(i));
            assert_ptr_equal(old, oracle[i]);
            count += (value != NULL);
            count -= (old != NULL);
            oracle[i] = value;
        }
        assert_holds(&m, oracle, count);
    }
    for (size_t i = 0; i < KEYS; i++) {
        assert_ptr_equal(map_remove(&m, name(i)), oracle[i]);
        oracle[i] = NULL;
    }
    assert_holds(&m, oracle, 0);
    map_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zeroed_map_is_empty),
        cmocka_unit_test(test_set_replaces_value_and_key_bytes),
        cmocka_unit_test(test_keys_are_bytes),
        cmocka_unit_test(test_equal_bytes_hash_equally_wherever_they_lie),
        cmocka_unit_test(test_sets_and_removals_agree_with_an_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
