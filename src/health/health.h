/*
 * health.h - passive health of a replica, and the retry budget: pure, driven by serve and sim.
 *
 * Passive ejection: `eject_after` failures in a row put a replica out for `eject_base_ns`, doubled
 * at each ejection in a row up to `eject_max_ns`; a row ends when a replica has served for
 * `eject_max_ns` since its return. When the time is over one trial request may pass (half-open);
 * its success brings the replica back on a ramp, its failure ejects anew. Not more than
 * `eject_max_share` of a pool (but at least one replica of two or more) is out at once, so a bad
 * client or a bad release of weir's own cannot take the fleet away. Workers that eject different
 * replicas in the same instant may overshoot this by one each. A replica that is alone in its pool
 * is never ejected: there is nothing better.
 *
 * What counts: connect errors, resets and 5xx before the first byte, truncated answers, silence.
 * What never counts: 4xx, clients that left, 429/503/529 (the engine is busy, not broken).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/replica.h"

struct health_rules {
    uint32_t eject_after; /* failures in a row */
    uint64_t eject_base_ns;
    uint64_t eject_max_ns;
    double eject_max_share; /* 0..1 of a pool */
    uint64_t busy_ns;       /* how long a "busy" answer makes a replica less attractive */
    uint32_t down_after;    /* active checks failed in a row: DOWN */
    uint32_t up_after;      /* active checks passed in a row: READY */
};

enum health_outcome {
    HEALTH_GOOD,  /* a whole answer, or a 4xx: the engine works */
    HEALTH_BUSY,  /* 429, 503, 529 */
    HEALTH_FAULT, /* connect error, reset, other 5xx, truncation, silence */
    HEALTH_NONE   /* says nothing: the client left */
};

/* What changed, for the driver to log and count. */
enum health_change { HEALTH_SAME, HEALTH_EJECTED, HEALTH_RETURNED };

/*
 * May the request that chose `r` go there? True when `r` is not ejected. When its ejection is over
 * this marks the trial, and of several workers exactly one gets true; the others choose again, with
 * `r` among the tried. A request in a desperate view does not ask.
 */
bool health_may_try(struct replica *r, const struct health_rules *rules, uint64_t now_ns);

/*
 * A request on `r` ended. `out_count` of `pool_size` replicas are ejected now (see
 * health_ejected_count; both are read only when the outcome is a fault). Results of requests that
 * began before an ejection neither lengthen nor end it.
 */
enum health_change health_report(struct replica *r, const struct health_rules *rules,
                                 enum health_outcome outcome, size_t out_count, size_t pool_size,
                                 uint64_t now_ns);

size_t health_ejected_count(struct replica *const *replicas, size_t count, uint64_t now_ns);

/*
 * One active check ended with `seen` (READY, LOADING, DRAINING or DOWN). `streak` is the caller's,
 * per replica: checks in a row that said the same side. Returns the state to set. A replica that
 * comes back to READY starts a ramp and leaves ejection.
 */
struct health_streak {
    uint32_t passed, failed;
};
enum replica_state health_check(struct replica *r, struct health_streak *streak,
                                const struct health_rules *rules, enum replica_state seen,
                                uint64_t now_ns);

/*
 * Retry budget (a token bucket, as Finagle's and Envoy's): each request adds `ratio`, each retry
 * takes 1; `min_per_s` flows in with time, so that a quiet model can retry at all. One per worker
 * and model; a worker's share of min_per_s is the caller's to divide.
 */
struct retry_budget {
    double tokens;
    double ratio;
    double min_per_s;
    double cap;
    uint64_t updated_ns;
};
void retry_budget_init(struct retry_budget *b, double ratio, double min_per_s, uint64_t now_ns);
void retry_budget_deposit(struct retry_budget *b);
bool retry_budget_take(struct retry_budget *b, uint64_t now_ns);
