/*
 * round_robin.c - each replica in turn.
 *
 * Workers start at random positions, so that they do not walk in step.
 */
#include "base/rng.h"
#include "routing/routing.h"

struct round_robin {
    bool started;
    size_t next;
};

static int pick(void *state, const struct pool_view *pool, const struct request_view *req,
                struct rng *rng, uint64_t now_ns)
{
    struct round_robin *self = state;
    if (pool->count == 0)
        return ROUTE_NONE;
    if (!self->started) {
        self->started = true;
        self->next = rng_below(rng, pool->count);
    }
    for (size_t i = 0; i < pool->count; i++) {
        size_t at = (self->next + i) % pool->count;
        if (route_takes_part(pool, at, rng, now_ns)) {
            self->next = at + 1;
            return (int)at;
        }
    }
    return route_first_usable(pool, rng, now_ns);
}

const struct route_policy route_round_robin = {
    .state_size = sizeof(struct round_robin),
    .pick = pick,
};
