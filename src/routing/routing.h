/*
 * routing.h - which replica serves a request.
 *
 * A policy is pure. It reads a view of the pool and of the request and returns a position in the
 * pool. It does no I/O, takes no lock, allocates nothing, learns the time only from `now_ns` and
 * is random only through `rng`: serve and sim run the same object code, and a seed replays a run.
 *
 * To add one, write routing/NAME.c with `const struct route_policy route_NAME` and give it a row
 * in policies.def. Nothing else changes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/replica.h"
#include "model/request.h"

struct pool; /* model/fleet.h */
struct rng;  /* base/rng.h */

enum { ROUTE_NONE = -1 }; /* no replica can take it; the driver decides what follows */

enum { ROUTE_MAX_TRIED = 16 };

/* Borrowed for one call. */
struct pool_view {
    struct replica *const *replicas;
    size_t count;
    uint32_t tried[ROUTE_MAX_TRIED]; /* ids this request has failed on; not to be chosen again */
    size_t tried_count;
    bool desperate;   /* second round: ejected and unknown replicas may be chosen too */
    bool ring_order;  /* `replicas` is sorted by ring_hash (fleet_index() does): hashing is O(1) */
    uint64_t ramp_ns; /* how long a returning replica takes to its full share; 0: at once */
};

/* A first round's view of a pool of an indexed fleet. */
void pool_view_init(struct pool_view *view, const struct pool *pool, uint64_t ramp_ns);

struct route_result {
    bool completed;         /* the engine ended the response; false: it failed or the client left */
    uint32_t tokens_out;    /* as the engine reported, else as counted */
    uint32_t tokens_cached; /* prompt tokens found in the engine's cache; 0 if unknown */
    uint64_t ttft_ns;       /* 0 if no content byte came */
};

struct route_policy {
    /* Bytes of state per worker and pool; the caller allocates and zeroes it. 0: stateless. */
    size_t state_size;

    /* Position of the chosen replica in `pool`, or ROUTE_NONE. Valid for this view only. */
    int (*pick)(void *state, const struct pool_view *pool, const struct request_view *req,
                struct rng *rng, uint64_t now_ns);

    /*
     * Called exactly once when a request starts on a replica and exactly once when it leaves it,
     * also on failover: a retried request is two pairs. Ids outlive fleets. Optional.
     */
    void (*on_start)(void *state, uint32_t replica_id, const struct request_view *req,
                     uint64_t now_ns);
    void (*on_end)(void *state, uint32_t replica_id, const struct route_result *result,
                   uint64_t now_ns);
};

/* The policy that the configuration calls `name`, or NULL. Static lifetime. */
const struct route_policy *route_policy_find(struct slice name);

/* The word of a policy, and the whole table in order for `--list routing` (NULL at the end). */
const char *route_policy_name(const struct route_policy *policy);
bool route_policy_at(size_t index, const char **name, const char **help);

/*
 * May this replica be chosen at all: not tried, its state lets it, and it is not ejected, or its
 * turn for a trial has come. In a desperate view everything but DRAINING and tried ones may.
 */
bool route_usable(const struct pool_view *pool, size_t index, uint64_t now_ns);

/* Above 0, up to 1: the share of its fair load that a returning replica should get now. */
double route_ramp(const struct pool_view *pool, const struct replica *r, uint64_t now_ns);

/*
 * Usable, and this time a candidate: a returning replica takes part in a share `route_ramp` of
 * the decisions. Policies fall back to route_usable() when nobody takes part.
 */
bool route_takes_part(const struct pool_view *pool, size_t index, struct rng *rng, uint64_t now_ns);

/* The first usable replica at or behind a random position, or ROUTE_NONE: the last resort,
 * O(count). */
int route_first_usable(const struct pool_view *pool, struct rng *rng, uint64_t now_ns);

/*
 * Work in front of a new request, in seconds as far as speeds are known, in relative units else:
 * (prompt + output tokens in flight + what other clients of the engine have there) over learned
 * speed and ramp, with a penalty while the engine says it is busy, and in desperate views a large
 * one for what is wrong with the replica. Comparable between replicas of one view.
 */
double route_load(const struct pool_view *pool, const struct replica *r, uint64_t now_ns);
