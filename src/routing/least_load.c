/*
 * least_load.c - the replica with the least work in front.
 *
 * Up to 128 replicas all are compared. Beyond that 64 are drawn at random: the best of 64 lies, on
 * average, among the best 1.6 % of the pool (1/65), and a decision costs the same at 10,000
 * replicas as at 100. The draw also keeps gateways that do not see each other's load from herding
 * onto one replica; in small pools equal loads are settled by lot for the same reason.
 */
#include "base/rng.h"
#include "routing/routing.h"

enum { SCAN_MAX = 128, SAMPLE = 64 };

struct best {
    int index;
    double load;
};

/* Of equals the one that was offered first stays. */
static bool offer(struct best *best, const struct pool_view *pool, size_t index, struct rng *rng,
                  uint64_t now_ns)
{
    if (!route_takes_part(pool, index, rng, now_ns))
        return false;
    double load = route_load(pool, pool->replicas[index], now_ns);
    if (best->index != ROUTE_NONE && load >= best->load)
        return load == best->load;
    *best = (struct best){(int)index, load};
    return false;
}

static void scan(struct best *best, const struct pool_view *pool, struct rng *rng, uint64_t now_ns)
{
    double load = -1.0;
    uint64_t equals = 1;
    for (size_t i = 0; i < pool->count; i++) {
        bool is_equal = offer(best, pool, i, rng, now_ns);
        if (best->load != load) {
            load = best->load;
            equals = 1;
        }
        if (is_equal && rng_below(rng, ++equals) == 0) /* each of n equals wins with 1/n */
            best->index = (int)i;
    }
}

/* Drawn in random order, so whoever comes first among equals is random already. */
static void sample(struct best *best, const struct pool_view *pool, struct rng *rng,
                   uint64_t now_ns)
{
    size_t drawn[SAMPLE];
    for (size_t i = 0; i < SAMPLE; i++) { /* all cache misses at once, not one after another */
        drawn[i] = rng_below(rng, pool->count);
        __builtin_prefetch(&pool->replicas[drawn[i]]);
    }
    for (size_t i = 0; i < SAMPLE; i++) {
        __builtin_prefetch(pool->replicas[drawn[i]]);
        __builtin_prefetch((const char *)pool->replicas[drawn[i]] + 64);
    }
    for (size_t i = 0; i < SAMPLE; i++)
        offer(best, pool, drawn[i], rng, now_ns);
}

static int pick(void *state, const struct pool_view *pool, const struct request_view *req,
                struct rng *rng, uint64_t now_ns)
{
    struct best best = {.index = ROUTE_NONE, .load = -1.0};
    if (pool->count > SCAN_MAX)
        sample(&best, pool, rng, now_ns);
    else
        scan(&best, pool, rng, now_ns);
    return best.index != ROUTE_NONE ? best.index : route_first_usable(pool, rng, now_ns);
}

const struct route_policy route_least_load = {.pick = pick};
