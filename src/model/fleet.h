/*
 * fleet.h - one immutable picture of what is served: models, their pools, their replicas.
 *
 * The control thread builds a fleet from a configuration and hands it to the workers by mailbox;
 * each worker, and each request that needs an old one, holds a reference. Nothing in it changes
 * but the live atomics inside the replicas. Traffic counters and learned numbers belong to model
 * and pool *names*, so they are carried from fleet to fleet and never start anew on a reload.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/map.h"
#include "model/replica.h"

struct arena;
struct route_policy; /* routing/routing.h */
struct traffic;      /* observe/traffic.h */

struct slo {
    uint64_t ttft_ns; /* 0: no promise */
    uint64_t tpot_ns; /* 0: no promise */
};

struct pool {
    const char *name;
    const char *engine_model;  /* the name the engine knows; what is written into the body */
    size_t index;              /* position among all pools of the fleet: a worker's policy state */
    struct replica **replicas; /* one reference each; in ring order once fleet_index() ran */
    size_t replica_count;
    const struct route_policy *policy;
    struct traffic *traffic; /* borrowed from the process-wide registry; lives as long as it */
};

struct model {
    const char *name;
    const char *const *aliases;
    size_t alias_count;
    struct slo slo;
    struct pool *pools;
    size_t pool_count;
    uint64_t created_wall_s;         /* for GET /v1/models */
    struct traffic *traffic;         /* requests that reached no pool */
    _Atomic uint32_t *answer_tokens; /* running mean of answers, shared by all fleets; relaxed */
};

struct fleet {
    _Atomic uint32_t refs;
    uint64_t generation;
    struct arena *arena; /* owns everything here but the replicas */
    struct model *models;
    size_t model_count;
    size_t pool_count;  /* over all models */
    struct map by_name; /* model names and aliases -> struct model * */
};

/*
 * Building one: fleet_new(), fill in models and pools (memory from fleet->arena, a reference per
 * replica), then fleet_index(), then share it. An unfinished fleet may be dropped.
 */
struct fleet *fleet_new(uint64_t generation); /* one reference */

/*
 * Fills in by_name, pool_count and each pool's index, and sorts each pool's replicas by ring_hash,
 * which is the order that hashing policies search in. WEIR_EEXIST when two models share a name.
 */
WEIR_MUST_USE enum weir_err fleet_index(struct fleet *f, struct error *err);

struct fleet *fleet_hold(struct fleet *f);
void fleet_drop(struct fleet *f); /* the last one drops the replicas and frees the arena */

/* By name or alias; NULL when there is none. */
const struct model *fleet_model(const struct fleet *f, struct slice name);
