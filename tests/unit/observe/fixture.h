/*
 * fixture.h - a small fleet with traffic, for what writes pages about it: model "llama" (promises
 * 500 ms and 50 ms) with pools "gpu" (two replicas) and "cpu" (one), model "embed" with an empty
 * pool.
 */
#pragma once

#include <stdlib.h>

#include "base/arena.h"
#include "base/clock.h"
#include "engines/engine.h"
#include "observe/metrics.h"
#include "observe/record.h"

enum { FIXTURE_WORKERS = 2 };

struct fixture {
    struct fleet *fleet;
    struct traffic_registry *registry;
    struct goodput_table *goodput;
    struct worker_counters workers[FIXTURE_WORKERS];
    struct metrics_input in;
    struct buf page;
};

static inline void fixture_pool(struct fixture *f, struct model *m, struct pool *pool,
                                const char *name, const char *const *urls, size_t count)
{
    static const struct engine engine = {.name = "vllm"};
    pool->name = name;
    pool->engine_model = m->name;
    pool->replica_count = count;
    pool->replicas = arena_zalloc(f->fleet->arena, (count + 1) * sizeof *pool->replicas);
    for (size_t i = 0; i < count; i++)
        pool->replicas[i] = replica_new(&(struct replica_identity){
            .name = slice_str(urls[i]), .host = slice_str(urls[i]), .engine = &engine});
    pool->traffic = traffic_get(f->registry, slice_str(m->name), slice_str(name));
}

static inline struct model *fixture_model(struct fixture *f, size_t index, const char *name,
                                          size_t pool_count)
{
    struct model *m = &f->fleet->models[index];
    m->name = name;
    m->pool_count = pool_count;
    m->pools = arena_zalloc(f->fleet->arena, pool_count * sizeof *m->pools);
    m->traffic = traffic_get(f->registry, slice_str(name), SLICE(""));
    return m;
}

static inline void fixture_init(struct fixture *f)
{
    *f = (struct fixture){.fleet = fleet_new(3),
                          .registry = traffic_registry_new(FIXTURE_WORKERS),
                          .goodput = goodput_table_new()};
    buf_init(&f->page, 16 << 20);
    f->fleet->model_count = 2;
    f->fleet->models = arena_zalloc(f->fleet->arena, 2 * sizeof *f->fleet->models);

    struct model *llama = fixture_model(f, 0, "llama", 2);
    llama->slo = (struct slo){.ttft_ns = 500 * NS_PER_MS, .tpot_ns = 50 * NS_PER_MS};
    fixture_pool(f, llama, &llama->pools[0], "gpu",
                 (const char *const[]){"http://a:8000", "http://b:8000"}, 2);
    fixture_pool(f, llama, &llama->pools[1], "cpu", (const char *const[]){"http://c:8080"}, 1);
    struct model *embed = fixture_model(f, 1, "embed", 1);
    fixture_pool(f, embed, &embed->pools[0], "default", NULL, 0);
    if (fleet_index(f->fleet, NULL))
        abort();

    f->in = (struct metrics_input){.fleet = f->fleet,
                                   .traffic = f->registry,
                                   .goodput = f->goodput,
                                   .workers = f->workers,
                                   .worker_count = FIXTURE_WORKERS,
                                   .now_ns = 1000 * NS_PER_S,
                                   .started_ns = 900 * NS_PER_S,
                                   .started_wall_ns = 1796122487123 * NS_PER_MS,
                                   .config_generation = 3,
                                   .version = "0.1.0"};
    goodput_sample(f->goodput, f->registry, f->in.now_ns);
}

static inline void fixture_free(struct fixture *f)
{
    buf_free(&f->page);
    fleet_drop(f->fleet);
    goodput_table_free(f->goodput);
    traffic_registry_free(f->registry);
}

/* One streamed chat request of `tokens`, recorded on one of the workers. */
static inline void fixture_serve(struct traffic *t, size_t worker, enum outcome outcome,
                                 uint64_t ttft_ms, uint64_t tpot_ms, uint64_t tokens)
{
    uint64_t last_ms = ttft_ms + tpot_ms * (tokens - 1);
    struct request_record r = {.operation = "chat",
                               .outcome = outcome,
                               .generates = true,
                               .stream = true,
                               .tries = 1,
                               .tokens_in = 10,
                               .tokens_out = tokens,
                               .duration_ns = last_ms * NS_PER_MS};
    record_judge(&r, ttft_ms * NS_PER_MS, last_ms * NS_PER_MS, 500 * NS_PER_MS, 50 * NS_PER_MS);
    traffic_record(&t->shards[worker], &r);
}

static inline void fixture_sample_after(struct fixture *f, uint64_t seconds)
{
    f->in.now_ns += seconds * NS_PER_S;
    goodput_sample(f->goodput, f->registry, f->in.now_ns);
}
