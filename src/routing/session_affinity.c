/*
 * session_affinity.c - a session stays on one replica unless that one is overloaded.
 *
 * Rendezvous hashing: each candidate gets a score from the session and the replica's ring_hash
 * (its name, so all gateways agree and a reload changes nothing), and the highest usable one wins.
 * When a replica goes, only its own sessions move, and they spread over all others; when it comes
 * back they return, over the ramp in a fixed order, so none moves twice.
 *
 * Bounded load: a candidate with more than twice the mean of requests in flight plus a few is
 * passed over for the next in hash order, so a hot session costs its own replica and nobody's
 * balance.
 *
 * Candidates are all replicas of a pool up to 128, and beyond that the 64 that follow the session's
 * point on the ring of ring_hash order: two sessions at one point share their window, a replica
 * stands in the windows of the 64 gaps before it. The mean of 64 gaps varies by 1/sqrt(64) = 12 %
 * between replicas, which the bound absorbs, and taking one replica away moves its own sessions and
 * as many again at the windows' ends: 2 in 10,000 instead of 1. A decision costs one search and 64
 * looks at any pool size. A pool that is not in ring order is scanned whole: slower, never wrong.
 *
 * A request without a session goes by least load.
 */
#include "base/rng.h"
#include "routing/routing.h"

enum { SCAN_MAX = 128, WINDOW = 64, SLACK_REQUESTS = 4 };

#define LOAD_BOUND 2.0

extern const struct route_policy route_least_load;

/* Positions first, first + 1, … of the pool, around its end. */
struct window {
    size_t first;
    size_t count;
};

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static uint64_t score(uint64_t session, const struct replica *r)
{
    return mix(mix(session) ^ r->ring_hash);
}

/* The first position whose hash is at or above `point`; 0 when there is none: the ring closes. */
static size_t ring_search(const struct pool_view *pool, uint64_t point)
{
    size_t low = 0, high = pool->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (pool->replicas[middle]->ring_hash < point)
            low = middle + 1;
        else
            high = middle;
    }
    return low < pool->count ? low : 0;
}

static struct window choose_window(const struct pool_view *pool, uint64_t session)
{
    if (pool->count <= SCAN_MAX || !pool->ring_order)
        return (struct window){0, pool->count};
    return (struct window){ring_search(pool, mix(~session)), WINDOW};
}

static size_t at(const struct pool_view *pool, struct window w, size_t i)
{
    size_t index = w.first + i;
    return index < pool->count ? index : index - pool->count;
}

/* Highest number of requests in flight that a candidate may have; negative: nobody is usable. */
static double load_bound(const struct pool_view *pool, struct window w, uint64_t now_ns)
{
    size_t usable = 0;
    int64_t requests = 0;
    for (size_t i = 0; i < w.count; i++) {
        size_t index = at(pool, w, i);
        if (!route_usable(pool, index, now_ns))
            continue;
        usable++;
        requests += replica_in_flight(pool->replicas[index]);
    }
    if (usable == 0)
        return -1.0;
    return LOAD_BOUND * (double)requests / (double)usable + SLACK_REQUESTS;
}

/* Whether the session goes back to a returning replica yet: the lower its lot, the earlier. */
static bool may_return(const struct pool_view *pool, const struct replica *r, uint64_t score_,
                       uint64_t now_ns)
{
    double ramp = route_ramp(pool, r, now_ns);
    return ramp >= 1.0 || (double)(mix(score_) >> 11) * 0x1.0p-53 < ramp;
}

static int highest(const struct pool_view *pool, struct window w, uint64_t session, double bound,
                   uint64_t now_ns)
{
    int best = ROUTE_NONE;
    uint64_t best_score = 0;
    for (size_t i = 0; i < w.count; i++) {
        size_t index = at(pool, w, i);
        const struct replica *r = pool->replicas[index];
        uint64_t s = score(session, r);
        if (best != ROUTE_NONE && s <= best_score)
            continue;
        if (!route_usable(pool, index, now_ns) || (double)replica_in_flight(r) > bound ||
            !may_return(pool, r, s, now_ns))
            continue;
        best = (int)index;
        best_score = s;
    }
    return best;
}

static int pick(void *state, const struct pool_view *pool, const struct request_view *req,
                struct rng *rng, uint64_t now_ns)
{
    if (req->session_hash == 0)
        return route_least_load.pick(NULL, pool, req, rng, now_ns);
    struct window w = choose_window(pool, req->session_hash);
    double bound = load_bound(pool, w, now_ns);
    int best = bound < 0 ? ROUTE_NONE : highest(pool, w, req->session_hash, bound, now_ns);
    /* Nobody in the window, or only such as are still on the ramp and wait for other sessions. */
    return best != ROUTE_NONE ? best : route_least_load.pick(NULL, pool, req, rng, now_ns);
}

const struct route_policy route_session_affinity = {.pick = pick};
