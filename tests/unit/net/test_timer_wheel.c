#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "net/loop.h"
#include "net/timer_wheel.h"

enum { COUNT = 400 };
static const uint64_t tick_ns = WHEEL_TICK_NS;

/* A timer and what the oracle knows of it. */
struct entry {
    struct timer timer; /* first */
    bool is_armed;
    uint64_t deadline_ns;
    uint64_t last_tick; /* by this one it must have fired */
};

static struct {
    struct timer_wheel *wheel;
    struct rng rng;
    uint64_t now_ns;
    struct entry entries[COUNT];
    size_t fired;
    bool stirs; /* callbacks add and remove other timers */
} f;

/* Of every magnitude, so that each level of the wheel is used. */
static uint64_t random_delay(uint64_t levels)
{
    uint64_t bits = rng_below(&f.rng, 8 * levels + 1);
    return rng_below(&f.rng, (tick_ns << bits) + 1);
}

static void arm(struct entry *e, uint64_t deadline_ns)
{
    uint64_t due = (deadline_ns + tick_ns - 1) / tick_ns, next = f.now_ns / tick_ns + 1;
    if (e->is_armed) {
        timer_wheel_remove(f.wheel, &e->timer);
    }
    e->is_armed = true;
    e->deadline_ns = deadline_ns;
    e->last_tick = due > next ? due : next;
    timer_wheel_add(f.wheel, &e->timer, deadline_ns);
}

static void disarm(struct entry *e)
{
    if (e->is_armed) {
        timer_wheel_remove(f.wheel, &e->timer);
        e->is_armed = false;
    }
}

static void stir(void)
{
    struct entry *e = &f.entries[rng_below(&f.rng, COUNT)];
    switch (rng_below(&f.rng, 4)) {
    case 0:
        disarm(e);
        break;
    case 1: /* in the past */
        arm(e, f.now_ns - rng_below(&f.rng, f.now_ns));
        break;
    default:
        arm(e, f.now_ns + random_delay(2));
    }
}

static void on_fire(struct timer *timer)
{
    struct entry *e = (struct entry *)timer;
    assert_true(e->is_armed);                /* once, and not after a removal */
    assert_true(e->deadline_ns <= f.now_ns); /* never early */
    assert_false(timer_is_set(timer));       /* unlinked before the callback */
    e->is_armed = false;
    f.fired++;
    if (f.stirs) {
        stir();
        stir();
    }
}

static void start(uint64_t now_ns, uint64_t seed)
{
    memset(&f, 0, sizeof f);
    f.now_ns = now_ns;
    rng_seed(&f.rng, seed);
    f.wheel = timer_wheel_new(now_ns);
    for (size_t i = 0; i < COUNT; i++) {
        f.entries[i].timer.on_fire = on_fire;
    }
}

static void advance_to(uint64_t now_ns)
{
    f.now_ns = now_ns;
    timer_wheel_advance(f.wheel, now_ns);
}

static void assert_none_is_late(void)
{
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(!f.entries[i].is_armed || f.entries[i].last_tick > f.now_ns / tick_ns);
        assert_int_equal(timer_is_set(&f.entries[i].timer), f.entries[i].is_armed);
    }
}

/* Sleeping for so long must not miss any, and must not be a busy loop. */
static uint64_t checked_wait(void)
{
    uint64_t wait_ns = timer_wheel_wait(f.wheel, f.now_ns, NS_PER_S);
    assert_true(wait_ns > 0 && wait_ns <= NS_PER_S);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(!f.entries[i].is_armed ||
                    f.entries[i].last_tick * tick_ns >= f.now_ns + wait_ns);
    }
    return wait_ns;
}

static void test_timers_agree_with_an_oracle(void **state)
{
    const uint64_t seed = 11;
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (uint64_t round = 0; round < 20; round++) {
        start((round + 1) * 123456789012345, seed + round);
        f.stirs = round % 2;
        for (int step = 0; step < 600; step++) {
            for (uint64_t i = rng_below(&f.rng, 8); i > 0; i--) {
                stir();
            }
            uint64_t wait_ns = checked_wait();
            bool sleeps = rng_below(&f.rng, 4) != 0;
            advance_to(f.now_ns + (sleeps ? wait_ns : random_delay(1)));
            assert_none_is_late();
        }
        assert_true(f.fired > 100);
        timer_wheel_free(f.wheel);
    }
}

/* Woken only when wait() says so, a timer fires within the tick of its deadline. */
static void test_sleeping_as_long_as_told_is_never_more_than_a_tick_late(void **state)
{
    const uint64_t seed = 12;
    print_message("# seed %llu\n", (unsigned long long)seed);
    start(987654321, seed);
    for (size_t i = 0; i < COUNT; i++) {
        arm(&f.entries[i], f.now_ns + random_delay(2));
    }
    while (f.fired < COUNT) {
        size_t before = f.fired;
        uint64_t slept_from = f.now_ns;
        advance_to(f.now_ns + checked_wait());
        assert_none_is_late();
        assert_true(f.fired > before || f.now_ns > slept_from);
    }
    assert_int_equal(timer_wheel_wait(f.wheel, f.now_ns, NS_PER_S), NS_PER_S); /* none is left */
    timer_wheel_free(f.wheel);
}

/* On both sides of each level's reach, from starts on both sides of each level's end. */
static void test_each_level_fires_on_its_tick(void **state)
{
    static const uint64_t starts[] = {1, 255, 256, 65535, 65536, (1u << 24) - 1, (1ull << 32) - 3};
    static const uint64_t delays[] = {1, 2, 255, 256, 257, 511, 512, 65535, 65536, 65537};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        for (size_t j = 0; j < sizeof delays / sizeof *delays; j++) {
            start(starts[i] * tick_ns, 1);
            arm(&f.entries[0], (starts[i] + delays[j]) * tick_ns);
            advance_to((starts[i] + delays[j]) * tick_ns - 1);
            assert_int_equal(f.fired, 0);
            advance_to(f.now_ns + 1);
            assert_int_equal(f.fired, 1);
            timer_wheel_free(f.wheel);
        }
    }
}

static void test_days_are_within_reach(void **state)
{
    for (uint64_t delay = (1u << 24) - 1; delay <= (1u << 24) + 1; delay++) { /* 18.6 hours */
        start(3 * tick_ns + 17, 1);
        arm(&f.entries[0], f.now_ns + delay * tick_ns);
        advance_to(f.entries[0].deadline_ns - 1);
        assert_int_equal(f.fired, 0);
        advance_to(f.now_ns + tick_ns);
        assert_int_equal(f.fired, 1);
        timer_wheel_free(f.wheel);
    }
}

static void test_late_caller_fires_all_that_are_due(void **state)
{
    start(5 * tick_ns, 1);
    for (size_t i = 0; i < COUNT; i++) {
        arm(&f.entries[i], f.now_ns + i * 7 * tick_ns);
    }
    advance_to(f.now_ns + COUNT * 7 * tick_ns);
    assert_int_equal(f.fired, COUNT);
    timer_wheel_free(f.wheel);
}

static void on_fire_removing_all(struct timer *timer)
{
    on_fire(timer);
    for (size_t i = 0; i < COUNT; i++) {
        disarm(&f.entries[i]);
    }
}

static void test_callback_may_remove_those_due_in_the_same_tick(void **state)
{
    start(tick_ns, 1);
    for (size_t i = 0; i < COUNT; i++) {
        f.entries[i].timer.on_fire = on_fire_removing_all;
        arm(&f.entries[i], 9 * tick_ns);
    }
    advance_to(20 * tick_ns);
    assert_int_equal(f.fired, 1);
    timer_wheel_free(f.wheel);
}

static void on_fire_again(struct timer *timer)
{
    on_fire(timer);
    arm((struct entry *)timer, f.now_ns); /* due at once */
}

static void test_timer_that_arms_itself_does_not_hold_the_caller(void **state)
{
    start(tick_ns, 1);
    f.entries[0].timer.on_fire = on_fire_again;
    arm(&f.entries[0], 2 * tick_ns);
    advance_to(10 * tick_ns);
    assert_true(f.fired <= 9); /* at most once a tick */
    assert_true(f.entries[0].is_armed);
    timer_wheel_free(f.wheel);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timers_agree_with_an_oracle),
        cmocka_unit_test(test_sleeping_as_long_as_told_is_never_more_than_a_tick_late),
        cmocka_unit_test(test_each_level_fires_on_its_tick),
        cmocka_unit_test(test_days_are_within_reach),
        cmocka_unit_test(test_late_caller_fires_all_that_are_due),
        cmocka_unit_test(test_callback_may_remove_those_due_in_the_same_tick),
        cmocka_unit_test(test_timer_that_arms_itself_does_not_hold_the_caller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
