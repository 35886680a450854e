#include "model/fleet.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/heap.h"

enum { ARENA_BLOCK = 16 << 10 };

struct fleet *fleet_new(uint64_t generation)
{
    struct arena *arena = heap_alloc(sizeof *arena);
    arena_init(arena, ARENA_BLOCK, SIZE_MAX); /* as large as the configuration, which is bounded */
    struct fleet *f = arena_zalloc(arena, sizeof *f);
    atomic_init(&f->refs, 1);
    f->generation = generation;
    f->arena = arena;
    return f;
}

static int by_ring_hash(const void *a, const void *b)
{
    uint64_t x = (*(struct replica *const *)a)->ring_hash;
    uint64_t y = (*(struct replica *const *)b)->ring_hash;
    return (x > y) - (x < y);
}

static enum weir_err add_name(struct fleet *f, struct model *m, const char *name, struct error *err)
{
    const struct model *other = map_get(&f->by_name, slice_str(name));
    if (other == m)
        return WEIR_OK; /* an alias that repeats the name is no harm */
    if (other)
        return error_set(err, WEIR_EEXIST,
                         "the name '%s' belongs to two models, %s and %s; rename one", name,
                         other->name, m->name);
    map_set(&f->by_name, slice_str(name), m);
    return WEIR_OK;
}

enum weir_err fleet_index(struct fleet *f, struct error *err)
{
    f->pool_count = 0;
    for (size_t i = 0; i < f->model_count; i++) {
        struct model *m = &f->models[i];
        enum weir_err rc = add_name(f, m, m->name, err);
        for (size_t k = 0; !rc && k < m->alias_count; k++)
            rc = add_name(f, m, m->aliases[k], err);
        if (rc)
            return rc;
        for (size_t k = 0; k < m->pool_count; k++) {
            struct pool *pool = &m->pools[k];
            pool->index = f->pool_count++;
            if (pool->replica_count > 1)
                qsort(pool->replicas, pool->replica_count, sizeof *pool->replicas, by_ring_hash);
        }
    }
    return WEIR_OK;
}

struct fleet *fleet_hold(struct fleet *f)
{
    atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    return f;
}

static void drop_replicas(const struct pool *pool)
{
    for (size_t i = 0; i < pool->replica_count; i++)
        if (pool->replicas[i]) /* a fleet whose building failed has holes */
            replica_drop(pool->replicas[i]);
}

void fleet_drop(struct fleet *f)
{
    uint32_t before = atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel);
    if (before == 0)
        WEIR_BUG("fleet %llu dropped more often than held", (unsigned long long)f->generation);
    if (before > 1)
        return;
    for (size_t i = 0; i < f->model_count; i++)
        for (size_t k = 0; k < f->models[i].pool_count; k++)
            drop_replicas(&f->models[i].pools[k]);
    map_free(&f->by_name);
    struct arena *arena = f->arena; /* the fleet itself lies in it */
    arena_free(arena);
    heap_free(arena);
}

const struct model *fleet_model(const struct fleet *f, struct slice name)
{
    return map_get(&f->by_name, name);
}
