/* pool.h - a pool of ready replicas for tests of routing: in ring order, nothing in flight. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/rng.h"
#include "model/fleet.h"
#include "routing/routing.h"

enum { POOL_MAX = 10000 };

#define NOW (1000 * NS_PER_S)

struct test_pool {
    struct replica *replicas[POOL_MAX];
    struct pool_view view;
    struct rng rng;
    char state[256]; /* of the policy; zeroed */
};

static int pool_by_ring(const void *a, const void *b)
{
    uint64_t x = (*(struct replica *const *)a)->ring_hash;
    uint64_t y = (*(struct replica *const *)b)->ring_hash;
    return (x > y) - (x < y);
}

static inline struct test_pool *pool_new(size_t count, uint64_t seed)
{
    static const char any_engine;
    struct test_pool *p = calloc(1, sizeof *p);
    for (size_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "http://replica-%zu:8000", i);
        struct replica_identity identity = {.name = slice_str(name),
                                            .engine = (const struct engine *)&any_engine};
        p->replicas[i] = replica_new(&identity);
        atomic_store(&p->replicas[i]->state, REPLICA_READY);
    }
    qsort(p->replicas, count, sizeof p->replicas[0], pool_by_ring);
    struct pool pool = {.replicas = p->replicas, .replica_count = count};
    pool_view_init(&p->view, &pool, 10 * NS_PER_S);
    rng_seed(&p->rng, seed);
    return p;
}

static inline void pool_free(struct test_pool *p)
{
    for (size_t i = 0; i < p->view.count; i++)
        replica_drop(p->replicas[i]);
    free(p);
}

static inline int pool_pick(struct test_pool *p, const struct route_policy *policy,
                            uint64_t session)
{
    struct request_view req = {.session_hash = session, .prompt_tokens = 100, .output_tokens = 100};
    return policy->pick(p->state, &p->view, &req, &p->rng, NOW);
}

static inline void pool_set_state(struct test_pool *p, size_t index, enum replica_state state)
{
    atomic_store(&p->replicas[index]->state, state);
}

static inline void pool_add_load(struct test_pool *p, size_t index, int64_t requests,
                                 int64_t tokens)
{
    atomic_fetch_add(&p->replicas[index]->load.requests, requests);
    atomic_fetch_add(&p->replicas[index]->load.output_tokens, tokens);
}

static inline void pool_eject(struct test_pool *p, size_t index, uint64_t until_ns)
{
    atomic_store(&p->replicas[index]->health.ejected_until_ns, until_ns);
}
