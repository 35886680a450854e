/*
 * turns.h - a loop for tests, run for a number of turns without waiting, or until something holds.
 * Include after cmocka.h.
 */
#pragma once

#include <string.h>

#include "base/clock.h"
#include "net/loop.h"

#define TURNS_PATIENCE_NS (20 * NS_PER_S) /* a test that waits so long has failed */

static struct {
    struct loop *loop;
    size_t left;
    bool (*holds)(void *ctx);
    void *ctx;
    struct timer patience;
} turns;

static void turns_on_end(void *ctx)
{
    if (turns.holds ? turns.holds(turns.ctx) : --turns.left == 0) {
        loop_stop(turns.loop);
    } else if (!turns.holds) {
        loop_wake(turns.loop); /* the next turn does not wait */
    }
}

static void turns_on_patience(struct timer *timer)
{
    fail_msg("what was waited for did not come");
}

/* Takes one of the loop's hooks. Register others first: they are called before it. */
static inline void turns_init(struct loop *loop)
{
    memset(&turns, 0, sizeof turns);
    turns.loop = loop;
    turns.patience.on_fire = turns_on_patience;
    loop_at_turn_end(loop, turns_on_end, NULL);
}

static inline void turns_run(size_t count)
{
    turns.left = count;
    turns.holds = NULL;
    loop_wake(turns.loop);
    loop_run(turns.loop);
}

/* Waits for events and timers until holds(ctx) at the end of a turn. */
static inline void turns_until(bool (*holds)(void *ctx), void *ctx)
{
    turns.holds = holds;
    turns.ctx = ctx;
    timer_set(turns.loop, &turns.patience, TURNS_PATIENCE_NS);
    loop_wake(turns.loop);
    loop_run(turns.loop);
    timer_cancel(turns.loop, &turns.patience);
    turns.holds = NULL;
}
