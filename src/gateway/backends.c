#include "gateway/backends.h"

#include <string.h>

#include "base/log.h"
#include "gateway/discover.h"
#include "net/fetch.h"
#include "net/loop.h"
#include "net/resolve.h"

struct grouping {
    const struct config *base;
    struct loop *loop;
    struct arena arena;
    struct config_model *models; /* at most one per listed model of a backend */
    size_t model_count;
    size_t known_count; /* backends that answered */
    struct error *err;
};

static struct config_model *find_model(struct grouping *g, const char *name)
{
    for (size_t i = 0; i < g->model_count; i++) {
        if (strcmp(g->models[i].name, name) == 0) {
            return &g->models[i];
        }
    }
    struct config_model *model = &g->models[g->model_count++];
    model->name = arena_strdup(&g->arena, slice_str(name));
    return model;
}

/* Replicas of one model and one kind of engine are a pool, which bears the engine's name. */
static struct config_pool *find_pool(struct grouping *g, struct config_model *model,
                                     const struct engine *engine, size_t max_replicas)
{
    struct config_pool *pools = (struct config_pool *)model->pools;
    for (size_t i = 0; i < model->pool_count; i++) {
        if (strcmp(pools[i].engine, engine->name) == 0) {
            return &pools[i];
        }
    }
    struct config_pool *grown = arena_zalloc(&g->arena, (model->pool_count + 1) * sizeof *grown);
    if (model->pool_count) {
        memcpy(grown, pools, model->pool_count * sizeof *grown);
    }
    struct config_pool *pool = &grown[model->pool_count++];
    model->pools = grown;
    pool->name = pool->engine = engine->name;
    pool->policy = g->base->policy;
    pool->replicas = arena_zalloc(&g->arena, max_replicas * sizeof *pool->replicas);
    return pool;
}

static void on_discovered(void *ctx, const struct discovered *results, size_t count)
{
    struct grouping *g = ctx;
    size_t most = 1;
    for (size_t i = 0; i < count; i++) {
        most += results[i].facts.model_count;
    }
    g->models = arena_zalloc(&g->arena, most * sizeof *g->models);
    for (size_t i = 0; i < count; i++) {
        const struct discovered *d = &results[i];
        if (!d->engine) {
            log_warn("backend", "%s is left out: %s", d->url, d->why);
            error_set(g->err, WEIR_ENOTFOUND, "%s: %s", d->url, d->why);
            continue;
        }
        g->known_count++;
        log_info("backend", "%s is %s %s with %zu model(s)", d->url, d->engine->name,
                 d->facts.version, d->facts.model_count);
        for (size_t m = 0; m < d->facts.model_count; m++) {
            struct config_model *model = find_model(g, d->facts.models[m]);
            struct config_pool *pool = find_pool(g, model, d->engine, count);
            ((const char **)pool->replicas)[pool->replica_count++] = d->url;
        }
    }
    loop_stop(g->loop);
}

struct config *backends_discover(const struct config *base, uint64_t wait_ns, struct error *err)
{
    struct grouping g = {.base = base, .err = err};
    g.loop = loop_new(err);
    struct fetcher *fetcher = g.loop ? fetcher_new(g.loop, err) : NULL;
    struct resolver *resolver = fetcher ? resolver_new(g.loop, err) : NULL;
    struct config *config = NULL;
    arena_init(&g.arena, 16 * 1024, SIZE_MAX);
    if (resolver) {
        discover_start(g.loop, fetcher, resolver, base->backends, base->backend_count,
                       base->health.timeout_ns, wait_ns, on_discovered, &g);
        loop_run(g.loop);
        if (g.known_count) {
            config = config_with_models(base, g.models, g.model_count);
        }
    }
    if (resolver) {
        resolver_free(resolver);
    }
    if (fetcher) {
        fetcher_free(fetcher);
    }
    if (g.loop) {
        loop_free(g.loop);
    }
    arena_free(&g.arena);
    return config;
}
