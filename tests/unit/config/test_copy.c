#include "expect.h"

/* All in the caller's memory, lists without a closing NULL: what discovery has. */
static struct config *discovered(void)
{
    const char *replicas[] = {"http://a:8000", "http://b:8000"};
    struct config_pool pool = {
        .name = "vllm", .engine = "vllm", .replicas = replicas, .replica_count = 2};
    struct config_model model = {.name = "org/m", .pools = &pool, .pool_count = 1};
    struct config *base = expect_config(SLICE("backends: [http://a:8000, http://b:8000]\n"
                                              "routing: {policy: power-of-two}\n"
                                              "limits: {body: 1MiB}\n"));
    struct config *made = config_with_models(base, &model, 1);
    config_free(base);
    memset(replicas, 0, sizeof replicas);
    return made;
}

static void test_models_take_the_place_of_backends(void **state)
{
    struct config *c = discovered();
    assert_int_equal(c->backend_count, 0);
    assert_int_equal(c->model_count, 1);
    assert_int_equal(c->limits.body_bytes, 1 << 20);
    const struct config_pool *pool = &c->models[0].pools[0];
    assert_string_equal(pool->replicas[1], "http://b:8000");
    assert_null(pool->replicas[2]);
    assert_string_equal(pool->policy, "power-of-two");
    config_free(c);
}

static void test_what_was_discovered_can_be_printed_and_loaded(void **state)
{
    struct buf text;
    struct config *c = discovered();
    buf_init(&text, 1 << 20);
    assert_int_equal(config_show(c, &text), WEIR_OK);
    struct config *back = expect_config(buf_slice(&text));
    assert_string_equal(back->models[0].name, "org/m");
    assert_string_equal(back->models[0].pools[0].engine, "vllm");
    assert_int_equal(back->models[0].pools[0].replica_count, 2);
    config_free(back);
    config_free(c);
    buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models_take_the_place_of_backends),
        cmocka_unit_test(test_what_was_discovered_can_be_printed_and_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
