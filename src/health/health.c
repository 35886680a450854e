#include "health/health.h"

enum { MAX_DOUBLINGS = 20 };

#define LOAD(field)         atomic_load_explicit(&(field), memory_order_relaxed)
#define STORE(field, value) atomic_store_explicit(&(field), value, memory_order_relaxed)

/* The one decision that is taken once: of several workers the one whose exchange works acts on it.
 */
static bool swap(_Atomic uint64_t *field, uint64_t from, uint64_t to)
{
    return atomic_compare_exchange_strong_explicit(field, &from, to, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

static void start_ramp(struct replica *r, uint64_t now_ns)
{
    STORE(r->health.failures, 0);
    STORE(r->health.trial_ns, 0);
    STORE(r->health.returned_ns, now_ns);
}

bool health_may_try(struct replica *r, const struct health_rules *rules, uint64_t now_ns)
{
    switch (replica_ejection(r, now_ns)) {
    case REPLICA_IN:
        return true;
    case REPLICA_OUT:
        return false;
    case REPLICA_TRIAL_DUE:
        break;
    }
    uint64_t until = LOAD(r->health.ejected_until_ns);
    uint64_t trial = LOAD(r->health.trial_ns);
    bool is_running = trial != 0 && now_ns < trial + REPLICA_TRIAL_NS;
    if (is_running || !swap(&r->health.trial_ns, trial, now_ns))
        return false;
    if (LOAD(r->health.ejected_until_ns) == until)
        return true;
    swap(&r->health.trial_ns, now_ns, 0); /* meanwhile another trial ended, either way */
    return LOAD(r->health.ejected_until_ns) == 0;
}

static uint64_t ejection_time(const struct health_rules *rules, uint32_t ejections)
{
    uint32_t doublings = ejections < MAX_DOUBLINGS ? ejections : MAX_DOUBLINGS;
    uint64_t time;
    if (__builtin_mul_overflow(rules->eject_base_ns, 1ull << doublings, &time) ||
        time > rules->eject_max_ns)
        return rules->eject_max_ns;
    return time;
}

static enum health_change eject(struct replica *r, const struct health_rules *rules, uint64_t from,
                                uint64_t now_ns)
{
    uint64_t returned = LOAD(r->health.returned_ns);
    bool row_is_over = from == 0 && returned != 0 && now_ns >= returned + rules->eject_max_ns;
    uint32_t ejections = row_is_over ? 0 : LOAD(r->health.ejections);
    if (!swap(&r->health.ejected_until_ns, from, now_ns + ejection_time(rules, ejections)))
        return HEALTH_SAME; /* another worker was first */
    STORE(r->health.ejections, ejections + 1);
    STORE(r->health.trial_ns, 0);
    STORE(r->health.failures, 0);
    return HEALTH_EJECTED;
}

static bool may_eject_one_more(const struct health_rules *rules, size_t out_count, size_t pool_size)
{
    if (pool_size < 2)
        return false;
    double allowed = rules->eject_max_share * (double)pool_size;
    return out_count == 0 || (double)(out_count + 1) <= allowed;
}

/* Is this perhaps the trial's end? Only then may a result touch an ejection. */
static bool in_trial(const struct replica *r, uint64_t until, uint64_t now_ns)
{
    return until != 0 && now_ns >= until && LOAD(r->health.trial_ns) != 0;
}

static enum health_change report_fault(struct replica *r, const struct health_rules *rules,
                                       size_t out_count, size_t pool_size, uint64_t now_ns)
{
    uint64_t until = LOAD(r->health.ejected_until_ns);
    if (in_trial(r, until, now_ns))
        return eject(r, rules, until, now_ns);
    if (until != 0)
        return HEALTH_SAME;
    uint32_t failures = atomic_fetch_add_explicit(&r->health.failures, 1, memory_order_relaxed) + 1;
    if (failures < rules->eject_after || !may_eject_one_more(rules, out_count, pool_size))
        return HEALTH_SAME;
    return eject(r, rules, 0, now_ns);
}

static enum health_change report_good(struct replica *r, uint64_t now_ns)
{
    uint64_t until = LOAD(r->health.ejected_until_ns);
    if (until == 0) {
        if (LOAD(r->health.failures) != 0) /* no write, no cache line taken from others */
            STORE(r->health.failures, 0);
        return HEALTH_SAME;
    }
    if (!in_trial(r, until, now_ns) || !swap(&r->health.ejected_until_ns, until, 0))
        return HEALTH_SAME;
    start_ramp(r, now_ns);
    return HEALTH_RETURNED;
}

/* A trial that proved nothing: the next request may be one. */
static void release_trial(struct replica *r, uint64_t now_ns)
{
    if (in_trial(r, LOAD(r->health.ejected_until_ns), now_ns))
        STORE(r->health.trial_ns, 0);
}

enum health_change health_report(struct replica *r, const struct health_rules *rules,
                                 enum health_outcome outcome, size_t out_count, size_t pool_size,
                                 uint64_t now_ns)
{
    switch (outcome) {
    case HEALTH_GOOD:
        return report_good(r, now_ns);
    case HEALTH_FAULT:
        return report_fault(r, rules, out_count, pool_size, now_ns);
    case HEALTH_BUSY:
        STORE(r->health.busy_until_ns, now_ns + rules->busy_ns);
        release_trial(r, now_ns);
        return HEALTH_SAME;
    case HEALTH_NONE:
        release_trial(r, now_ns);
        return HEALTH_SAME;
    }
    return HEALTH_SAME;
}

size_t health_ejected_count(struct replica *const *replicas, size_t count, uint64_t now_ns)
{
    size_t out = 0;
    for (size_t i = 0; i < count; i++)
        out += replica_ejection(replicas[i], now_ns) != REPLICA_IN;
    return out;
}

static enum replica_state became_ready(struct replica *r, enum replica_state before,
                                       uint64_t now_ns)
{
    /* From UNKNOWN it was weir that was new, not the replica: no ramp. */
    if (before == REPLICA_UNKNOWN)
        return REPLICA_READY;
    start_ramp(r, now_ns);
    STORE(r->health.ejected_until_ns, 0);
    return REPLICA_READY;
}

enum replica_state health_check(struct replica *r, struct health_streak *streak,
                                const struct health_rules *rules, enum replica_state seen,
                                uint64_t now_ns)
{
    enum replica_state state = replica_state(r);
    switch (seen) {
    case REPLICA_READY:
        streak->failed = 0;
        streak->passed++;
        if (state == REPLICA_READY)
            return state;
        /* Only who was down has to prove itself; an engine that has loaded says so once. */
        if (state == REPLICA_DOWN && streak->passed < rules->up_after)
            return state;
        return became_ready(r, state, now_ns);
    case REPLICA_DOWN:
        streak->passed = 0;
        streak->failed++;
        return streak->failed >= rules->down_after ? REPLICA_DOWN : state;
    case REPLICA_LOADING:
    case REPLICA_DRAINING:
        *streak = (struct health_streak){0};
        return seen;
    case REPLICA_UNKNOWN:
    case REPLICA_STATES:
        break;
    }
    return state;
}
