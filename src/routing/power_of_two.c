/*
 * power_of_two.c - the less loaded of two replicas drawn at random.
 *
 * Two draws take most of the imbalance that one leaves (Mitzenmacher 2001) for the least possible
 * cost per decision. Draws that hit a replica out of service are repeated, a few times.
 */
#include "base/rng.h"
#include "routing/routing.h"

enum { DRAWS = 16 };

static int pick(void *state, const struct pool_view *pool, const struct request_view *req,
                struct rng *rng, uint64_t now_ns)
{
    int first = ROUTE_NONE;
    for (int i = 0; i < DRAWS && pool->count; i++) {
        int drawn = (int)rng_below(rng, pool->count);
        if (drawn == first || !route_takes_part(pool, (size_t)drawn, rng, now_ns))
            continue;
        if (first == ROUTE_NONE) {
            first = drawn;
            continue;
        }
        double one = route_load(pool, pool->replicas[first], now_ns);
        double other = route_load(pool, pool->replicas[drawn], now_ns);
        return other < one ? drawn : first; /* equal: `first` was drawn at random already */
    }
    return first != ROUTE_NONE ? first : route_first_usable(pool, rng, now_ns);
}

const struct route_policy route_power_of_two = {.pick = pick};
