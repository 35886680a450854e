#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/arena.h"
#include "model/fleet.h"

static const char any_engine;

static struct replica *make(const char *name)
{
    struct replica_identity identity = {.name = slice_str(name),
                                        .engine = (const struct engine *)&any_engine};
    return replica_new(&identity);
}

/* Two models: one with two pools of some replicas, one without any. */
static struct fleet *make_fleet(size_t replicas)
{
    static const char *const aliases[] = {"small", "tiny"};
    struct fleet *f = fleet_new(7);
    f->model_count = 2;
    f->models = arena_zalloc(f->arena, 2 * sizeof *f->models);
    struct model *m = &f->models[0];
    m->name = "llama";
    m->aliases = aliases;
    m->alias_count = 2;
    m->pool_count = 2;
    m->pools = arena_zalloc(f->arena, 2 * sizeof *m->pools);
    for (size_t k = 0; k < 2; k++) {
        struct pool *pool = &m->pools[k];
        pool->replica_count = replicas;
        pool->replicas = arena_zalloc(f->arena, replicas * sizeof(struct replica *));
        for (size_t i = 0; i < replicas; i++) {
            char name[32];
            snprintf(name, sizeof name, "http://%zu-%zu:80", k, i);
            pool->replicas[i] = make(name);
        }
    }
    f->models[1].name = "qwen";
    return f;
}

static void test_models_are_found_by_name_and_alias(void **state)
{
    struct fleet *f = make_fleet(1);
    assert_int_equal(fleet_index(f, NULL), WEIR_OK);
    assert_int_equal(f->generation, 7);
    assert_ptr_equal(fleet_model(f, SLICE("llama")), &f->models[0]);
    assert_ptr_equal(fleet_model(f, SLICE("small")), &f->models[0]);
    assert_ptr_equal(fleet_model(f, SLICE("tiny")), &f->models[0]);
    assert_ptr_equal(fleet_model(f, SLICE("qwen")), &f->models[1]);
    assert_null(fleet_model(f, SLICE("LLAMA")));
    assert_null(fleet_model(f, SLICE("")));
    assert_null(fleet_model(f, slice_of("qwen\0", 5)));
    fleet_drop(f);
}

static void test_pools_are_numbered_over_all_models(void **state)
{
    struct fleet *f = make_fleet(1);
    assert_int_equal(fleet_index(f, NULL), WEIR_OK);
    assert_int_equal(f->pool_count, 2);
    assert_int_equal(f->models[0].pools[0].index, 0);
    assert_int_equal(f->models[0].pools[1].index, 1);
    fleet_drop(f);
}

static void test_replicas_stand_in_ring_order(void **state)
{
    struct fleet *f = make_fleet(50);
    assert_int_equal(fleet_index(f, NULL), WEIR_OK);
    const struct pool *pool = &f->models[0].pools[1];
    for (size_t i = 1; i < pool->replica_count; i++)
        assert_true(pool->replicas[i - 1]->ring_hash < pool->replicas[i]->ring_hash);
    fleet_drop(f);
}

static void test_a_name_of_two_models_is_refused_in_words(void **state)
{
    struct fleet *f = make_fleet(1);
    struct error err;
    f->models[1].name = "tiny";
    assert_int_equal(fleet_index(f, &err), WEIR_EEXIST);
    assert_non_null(strstr(err.text, "tiny"));
    assert_non_null(strstr(err.text, "llama"));
    fleet_drop(f);
}

static void test_an_alias_may_repeat_its_own_name(void **state)
{
    static const char *const aliases[] = {"qwen"};
    struct fleet *f = make_fleet(1);
    f->models[1].aliases = aliases;
    f->models[1].alias_count = 1;
    assert_int_equal(fleet_index(f, NULL), WEIR_OK);
    fleet_drop(f);
}

static void test_the_last_drop_gives_the_replicas_back(void **state)
{
    struct fleet *f = make_fleet(1);
    assert_int_equal(fleet_index(f, NULL), WEIR_OK);
    struct replica *kept = replica_hold(f->models[0].pools[0].replicas[0]);
    fleet_hold(f);
    fleet_drop(f);
    assert_int_equal(atomic_load(&kept->refs), 2);
    fleet_drop(f);
    assert_int_equal(atomic_load(&kept->refs), 1);
    replica_drop(kept);
}

static void test_a_half_built_fleet_can_be_dropped(void **state)
{
    struct fleet *f = make_fleet(2);
    struct pool *pool = &f->models[0].pools[1];
    replica_drop(pool->replicas[1]);
    pool->replicas[1] = NULL;
    fleet_drop(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models_are_found_by_name_and_alias),
        cmocka_unit_test(test_pools_are_numbered_over_all_models),
        cmocka_unit_test(test_replicas_stand_in_ring_order),
        cmocka_unit_test(test_a_name_of_two_models_is_refused_in_words),
        cmocka_unit_test(test_an_alias_may_repeat_its_own_name),
        cmocka_unit_test(test_the_last_drop_gives_the_replicas_back),
        cmocka_unit_test(test_a_half_built_fleet_can_be_dropped),
    };
    return cmocka_run_group_tests_name("fleet", tests, NULL, NULL);
}
