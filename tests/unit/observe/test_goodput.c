#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "observe/goodput.h"

struct setup {
    struct traffic_registry *registry;
    struct goodput_table *table;
    uint64_t now_ns;
};

static int set_up(void **state)
{
    static struct setup s;
    s = (struct setup){traffic_registry_new(2), goodput_table_new(), 1000 * NS_PER_S};
    *state = &s;
    return 0;
}

static int tear_down(void **state)
{
    struct setup *s = *state;
    goodput_table_free(s->table);
    traffic_registry_free(s->registry);
    return 0;
}

/* On both workers, so that shards are added up. */
static void serve(struct traffic *t, uint64_t offered, uint64_t good)
{
    t->shards[0].offered += offered;
    t->shards[1].good += good;
    t->shards[1].good_tokens_out += good * 10;
}

static void sample_after(struct setup *s, double seconds)
{
    s->now_ns += (uint64_t)(seconds * (double)NS_PER_S);
    goodput_sample(s->table, s->registry, s->now_ns);
}

static struct goodput_figures figures(struct setup *s, size_t index, enum goodput_window window)
{
    struct goodput_figures f;
    assert_true(goodput_figures(s->table, index, window, &f));
    return f;
}

static void test_traffic_that_was_never_sampled_has_no_figures(void **state)
{
    struct setup *s = *state;
    struct goodput_figures f;
    traffic_get(s->registry, SLICE("m"), SLICE(""));
    assert_false(goodput_figures(s->table, 0, GOODPUT_10S, &f));
    goodput_model_figures(s->table, traffic_of_model(s->registry, SLICE("m")), GOODPUT_10S, &f);
    assert_true(f.attainment == 1 && f.good_per_s == 0 && f.seconds == 0);
    goodput_model_figures(s->table, NULL, GOODPUT_10S, &f);
    assert_true(f.attainment == 1);
}

static void test_nothing_offered_is_an_attainment_of_one(void **state)
{
    struct setup *s = *state;
    traffic_get(s->registry, SLICE("m"), SLICE(""));
    sample_after(s, 0);
    sample_after(s, 1);
    struct goodput_figures f = figures(s, 0, GOODPUT_10S);
    assert_true(f.attainment == 1 && f.offered_per_s == 0 && f.seconds == 1);
}

static void test_young_process_is_covered_by_its_life(void **state)
{
    struct setup *s = *state;
    struct traffic *t = traffic_get(s->registry, SLICE("m"), SLICE(""));
    sample_after(s, 0);
    serve(t, 8, 6);
    sample_after(s, 2);
    for (int w = 0; w < GOODPUT_WINDOWS; w++) {
        struct goodput_figures f = figures(s, 0, (enum goodput_window)w);
        assert_true(f.seconds == 2);
        assert_true(f.good_per_s == 3);
        assert_true(f.offered_per_s == 4);
        assert_true(f.good_tokens_per_s == 30);
        assert_true(f.attainment == 0.75);
    }
}

static void test_old_requests_leave_short_windows_first(void **state)
{
    struct setup *s = *state;
    struct traffic *t = traffic_get(s->registry, SLICE("m"), SLICE(""));
    sample_after(s, 0);
    serve(t, 60, 60);
    sample_after(s, 1);
    for (int i = 0; i < 30; i++)
        sample_after(s, 1);
    assert_true(figures(s, 0, GOODPUT_10S).good_per_s == 0);
    assert_true(figures(s, 0, GOODPUT_1M).good_per_s > 1);
    for (int i = 0; i < 60; i++)
        sample_after(s, 1);
    assert_true(figures(s, 0, GOODPUT_1M).good_per_s == 0);
    assert_true(figures(s, 0, GOODPUT_5M).good_per_s > 0);
    for (int i = 0; i < 300; i++)
        sample_after(s, 1);
    assert_true(figures(s, 0, GOODPUT_5M).good_per_s == 0);
}

static void test_traffic_made_inside_a_window_counts_from_zero(void **state)
{
    struct setup *s = *state;
    sample_after(s, 0);
    for (int i = 0; i < 100; i++)
        sample_after(s, 1);
    struct traffic *t = traffic_get(s->registry, SLICE("m"), SLICE("p"));
    serve(t, 30, 30);
    sample_after(s, 1);
    struct goodput_figures f = figures(s, 0, GOODPUT_10S);
    assert_true(f.seconds >= 10);
    assert_true(f.good_per_s == 30 / f.seconds);
}

static void test_figures_of_a_model_add_up_its_pools(void **state)
{
    struct setup *s = *state;
    struct traffic *own = traffic_get(s->registry, SLICE("m"), SLICE(""));
    struct traffic *other = traffic_get(s->registry, SLICE("n"), SLICE(""));
    struct traffic *pool = traffic_get(s->registry, SLICE("m"), SLICE("p"));
    sample_after(s, 0);
    serve(own, 2, 0); /* shed */
    serve(pool, 6, 6);
    serve(other, 100, 0);
    sample_after(s, 2);
    struct goodput_figures f;
    goodput_model_figures(s->table, traffic_of_model(s->registry, SLICE("m")), GOODPUT_10S, &f);
    assert_true(f.good_per_s == 3 && f.offered_per_s == 4 && f.attainment == 0.75);
}

static void test_attainment_never_exceeds_one(void **state)
{
    struct setup *s = *state;
    struct traffic *t = traffic_get(s->registry, SLICE("m"), SLICE(""));
    sample_after(s, 0);
    serve(t, 1, 2); /* a request that the first sample saw half of */
    sample_after(s, 1);
    assert_true(figures(s, 0, GOODPUT_10S).attainment == 1);
}

/* Whatever the rhythm of sampling: a steady stream has its rate, over about the window's length. */
static void test_windows_cover_what_they_say_for_any_rhythm(void **state)
{
    struct setup *s = *state;
    const uint64_t seed = 20261201;
    struct rng rng;
    rng_seed(&rng, seed);
    print_message("# seed %llu\n", (unsigned long long)seed);
    struct traffic *t = traffic_get(s->registry, SLICE("m"), SLICE(""));
    sample_after(s, 0);
    for (int i = 0; i < 3000; i++) {
        uint64_t ms = 100 + rng_below(&rng, 1900);
        serve(t, ms, ms); /* one per millisecond */
        sample_after(s, (double)ms / 1e3);
        if (i < 600) /* until all windows are shorter than the life */
            continue;
        for (int w = 0; w < GOODPUT_WINDOWS; w++) {
            struct goodput_figures f = figures(s, 0, (enum goodput_window)w);
            double length = (double)goodput_window_seconds((enum goodput_window)w);
            assert_true(f.good_per_s > 999.99 && f.good_per_s < 1000.01);
            assert_true(f.seconds >= length);
            assert_true(f.seconds <= length * 1.05 + 2);
        }
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_traffic_that_was_never_sampled_has_no_figures),
        TEST(test_nothing_offered_is_an_attainment_of_one),
        TEST(test_young_process_is_covered_by_its_life),
        TEST(test_old_requests_leave_short_windows_first),
        TEST(test_traffic_made_inside_a_window_counts_from_zero),
        TEST(test_figures_of_a_model_add_up_its_pools),
        TEST(test_attainment_never_exceeds_one),
        TEST(test_windows_cover_what_they_say_for_any_rhythm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
