#include "routing/routing.h"

#include "base/clock.h"
#include "base/rng.h"
#include "model/fleet.h"

#define ROW(symbol, word, text) extern const struct route_policy route_##symbol;
#include "routing/policies.def"
#undef ROW

static const struct {
    const char *name, *help;
    const struct route_policy *policy;
} policies[] = {
#define ROW(symbol, word, text) {.name = word, .help = text, .policy = &route_##symbol},
#include "routing/policies.def"
#undef ROW
};

enum { POLICY_COUNT = sizeof policies / sizeof policies[0] };

/*
 * Weights of work, in quarters of an output token. A token read costs less than a token written:
 * between 1/2 (CPU engines) and 1/10 (GPUs with a full batch). A request in flight weighs something
 * even when its estimates have run out. What other clients have in the engine is known only as a
 * number of requests.
 */
enum { PROMPT_WEIGHT = 1, OUTPUT_WEIGHT = 4, REQUEST_WEIGHT = 64, FOREIGN_WEIGHT = 512 };

/* Confidence in an engine's report fades to nothing over this age: it is often wrong by then. */
#define REPORT_FADE_NS (15 * NS_PER_S)

/* Seconds of imagined work per second that the engine will still be called busy. */
#define BUSY_WEIGHT 4.0

/* The first requests after a return must come through too, or the ramp never proves anything. */
#define RAMP_MIN 0.05

const struct route_policy *route_policy_find(struct slice name)
{
    for (size_t i = 0; i < POLICY_COUNT; i++)
        if (slice_eq(slice_str(policies[i].name), name))
            return policies[i].policy;
    return NULL;
}

const char *route_policy_name(const struct route_policy *policy)
{
    for (size_t i = 0; i < POLICY_COUNT; i++)
        if (policies[i].policy == policy)
            return policies[i].name;
    return NULL;
}

bool route_policy_at(size_t index, const char **name, const char **help)
{
    if (index >= POLICY_COUNT)
        return false;
    *name = policies[index].name;
    *help = policies[index].help;
    return true;
}

void pool_view_init(struct pool_view *view, const struct pool *pool, uint64_t ramp_ns)
{
    view->replicas = pool->replicas;
    view->count = pool->replica_count;
    view->tried_count = 0;
    view->desperate = false;
    view->ring_order = true;
    view->ramp_ns = ramp_ns;
}

static bool was_tried(const struct pool_view *pool, uint32_t id)
{
    for (size_t i = 0; i < pool->tried_count; i++)
        if (pool->tried[i] == id)
            return true;
    return false;
}

bool route_usable(const struct pool_view *pool, size_t index, uint64_t now_ns)
{
    const struct replica *r = pool->replicas[index];
    enum replica_state state = replica_state(r);
    if (pool->desperate ? state == REPLICA_DRAINING : state != REPLICA_READY)
        return false;
    bool is_ejected = atomic_load_explicit(&r->health.ejected_until_ns, memory_order_relaxed) != 0;
    if (is_ejected && !pool->desperate && replica_ejection(r, now_ns) == REPLICA_OUT)
        return false;
    return pool->tried_count == 0 || !was_tried(pool, r->id);
}

double route_ramp(const struct pool_view *pool, const struct replica *r, uint64_t now_ns)
{
    uint64_t returned = atomic_load_explicit(&r->health.returned_ns, memory_order_relaxed);
    if (returned == 0 || pool->ramp_ns == 0 || now_ns >= returned + pool->ramp_ns)
        return 1.0;
    double share = now_ns > returned ? (double)(now_ns - returned) / (double)pool->ramp_ns : 0.0;
    return share > RAMP_MIN ? share : RAMP_MIN;
}

bool route_takes_part(const struct pool_view *pool, size_t index, struct rng *rng, uint64_t now_ns)
{
    const struct replica *r = pool->replicas[index];
    if (!route_usable(pool, index, now_ns))
        return false;
    if (atomic_load_explicit(&r->health.returned_ns, memory_order_relaxed) == 0)
        return true;
    double ramp = route_ramp(pool, r, now_ns);
    return ramp >= 1.0 || rng_unit(rng) < ramp;
}

int route_first_usable(const struct pool_view *pool, struct rng *rng, uint64_t now_ns)
{
    size_t start = pool->count ? rng_below(rng, pool->count) : 0;
    for (size_t i = 0; i < pool->count; i++) {
        size_t at = start + i < pool->count ? start + i : start + i - pool->count;
        if (route_usable(pool, at, now_ns))
            return (int)at;
    }
    return ROUTE_NONE;
}

static int64_t load(const _Atomic int64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/*
 * Requests that the engine reports beyond those that weir has there now. The report is from a
 * moment ago and ours is from now: while our own load grows this errs to the low side, so nobody
 * is held for full on our own account twice.
 */
static double foreign_requests(const struct replica *r, int64_t own, uint64_t now_ns)
{
    uint64_t taken = atomic_load_explicit(&r->report.taken_ns, memory_order_relaxed);
    if (taken == 0)
        return 0.0;
    int64_t foreign = (int64_t)atomic_load_explicit(&r->report.running, memory_order_relaxed) +
                      (int64_t)atomic_load_explicit(&r->report.waiting, memory_order_relaxed) - own;
    uint64_t age = now_ns > taken ? now_ns - taken : 0;
    if (foreign <= 0 || age >= REPORT_FADE_NS)
        return 0.0;
    return (double)foreign * (1.0 - (double)age / (double)REPORT_FADE_NS);
}

/* Among replicas that should not be chosen at all, the likeliest to answer comes first. */
static double desperation(const struct replica *r, uint64_t now_ns)
{
    static const double seconds[REPLICA_STATES] = {
        [REPLICA_UNKNOWN] = 1e4, [REPLICA_LOADING] = 1e6, [REPLICA_DOWN] = 1e5};
    double ejected = replica_ejection(r, now_ns) == REPLICA_OUT ? 1e3 : 0.0;
    return seconds[replica_state(r)] + ejected;
}

double route_load(const struct pool_view *pool, const struct replica *r, uint64_t now_ns)
{
    int64_t own = load(&r->load.requests);
    int64_t known = load(&r->load.prompt_tokens) * PROMPT_WEIGHT +
                    load(&r->load.output_tokens) * OUTPUT_WEIGHT + own * REQUEST_WEIGHT;
    double work = (double)known + foreign_requests(r, own, now_ns) * FOREIGN_WEIGHT;
    double seconds = work / OUTPUT_WEIGHT / replica_speed(r);
    if (atomic_load_explicit(&r->health.returned_ns, memory_order_relaxed) != 0)
        seconds /= route_ramp(pool, r, now_ns);
    uint64_t busy = atomic_load_explicit(&r->health.busy_until_ns, memory_order_relaxed);
    if (busy > now_ns)
        seconds += (double)(busy - now_ns) / (double)NS_PER_S * BUSY_WEIGHT;
    return pool->desperate ? seconds + desperation(r, now_ns) : seconds;
}
