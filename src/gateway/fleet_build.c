#include "gateway/fleet_build.h"

#include <stdio.h>

#include "base/heap.h"
#include "engines/engine.h"
#include "net/address.h"
#include "observe/traffic.h"
#include "routing/routing.h"

/* ---- the answer book ---- */

struct answer_entry {
    char *name;
    _Atomic uint32_t tokens;
};

struct answer_book {
    struct map by_name; /* model name -> struct answer_entry * */
};

struct answer_book *answer_book_new(void)
{
    return heap_zalloc(sizeof(struct answer_book));
}

void answer_book_free(struct answer_book *book)
{
    size_t pos = 0;
    for (const struct map_entry *e; (e = map_next(&book->by_name, &pos));) {
        struct answer_entry *entry = e->value;
        heap_free(entry->name);
        heap_free(entry);
    }
    map_free(&book->by_name);
    heap_free(book);
}

static _Atomic uint32_t *answer_tokens(struct answer_book *book, struct slice model)
{
    struct answer_entry *entry = map_get(&book->by_name, model);
    if (!entry) {
        entry = heap_zalloc(sizeof *entry);
        entry->name = heap_strdup(model);
        map_set(&book->by_name, slice_str(entry->name), entry);
    }
    return &entry->tokens;
}

/* ---- building ---- */

struct builder {
    const struct fleet_sources *from;
    struct fleet *fleet;
    struct map known; /* "model\npool\nurl" -> struct replica * of the previous fleet */
    struct error *err;
};

static struct slice replica_key(struct arena *arena, const char *model, const char *pool,
                                const char *url)
{
    return slice_str(arena_printf(arena, "%s\n%s\n%s", model, pool, url));
}

static void remember_previous(struct builder *b)
{
    const struct fleet *previous = b->from->previous;
    for (size_t m = 0; previous && m < previous->model_count; m++) {
        const struct model *model = &previous->models[m];
        for (size_t p = 0; p < model->pool_count; p++) {
            const struct pool *pool = &model->pools[p];
            for (size_t r = 0; r < pool->replica_count; r++) {
                map_set(
                    &b->known,
                    replica_key(b->fleet->arena, model->name, pool->name, pool->replicas[r]->name),
                    pool->replicas[r]);
            }
        }
    }
}

static bool is_same_engine(const struct replica *r, const struct config_pool *pool,
                           struct slice authorization)
{
    const struct engine *engine = engine_find(slice_str(pool->engine));
    bool is_same_kind =
        engine ? !r->detect_engine && atomic_load(&r->engine) == engine : r->detect_engine;
    return is_same_kind &&
           slice_eq(slice_of(r->authorization, r->authorization_len), authorization);
}

static struct replica *make_replica(struct builder *b, const struct config_pool *pool,
                                    const char *url, struct slice authorization)
{
    struct base_url parts;
    if (base_url_parse(slice_str(url), &parts, b->err) != WEIR_OK) {
        return NULL;
    }
    const struct engine *engine = engine_find(slice_str(pool->engine));
    struct replica *r = replica_new(&(struct replica_identity){
        .name = slice_str(url),
        .host = parts.authority,
        .path_prefix = parts.path,
        .authorization = authorization,
        .engine = engine ? engine : engine_find(SLICE("openai")),
        .detect_engine = engine == NULL,
    });
    struct endpoint endpoint;
    if (address_from_host(parts.host, parts.port, parts.is_unix, &endpoint) == WEIR_OK) {
        replica_endpoint_set(r, &endpoint); /* else the prober resolves the name */
    }
    return r;
}

static struct replica *get_replica(struct builder *b, const struct config_model *model,
                                   const struct config_pool *pool, const char *url)
{
    struct arena *arena = b->fleet->arena;
    struct slice authorization = {0};
    if (pool->api_key) {
        authorization = slice_str(arena_printf(arena, "Bearer %s", pool->api_key));
    }
    struct replica *known = map_get(&b->known, replica_key(arena, model->name, pool->name, url));
    struct replica *r = known && is_same_engine(known, pool, authorization)
                            ? replica_hold(known)
                            : make_replica(b, pool, url, authorization);
    if (authorization.len) {
        explicit_bzero((char *)authorization.ptr, authorization.len);
    }
    return r;
}

static enum weir_err add_replica(struct builder *b, const struct config_model *model,
                                 const struct config_pool *from, struct pool *to, const char *url)
{
    struct replica *r = get_replica(b, model, from, url);
    if (!r) {
        return WEIR_EINVAL;
    }
    to->replicas[to->replica_count++] = r;
    return WEIR_OK;
}

static enum weir_err build_pool(struct builder *b, const struct config_model *model,
                                const struct config_pool *from, struct pool *to)
{
    struct arena *arena = b->fleet->arena;
    size_t launched = from->launch ? from->launch->replicas : 0;
    to->name = arena_strdup(arena, slice_str(from->name));
    to->engine_model =
        arena_strdup(arena, slice_str(from->engine_model ? from->engine_model : model->name));
    to->policy = route_policy_find(slice_str(from->policy));
    to->traffic = traffic_get(b->from->traffic, slice_str(model->name), slice_str(from->name));
    to->replicas = arena_zalloc(arena, (from->replica_count + launched + 1) * sizeof *to->replicas);
    if (!to->policy || !to->traffic) {
        return error_set(b->err, WEIR_ELIMIT, "too many pools, or an unknown routing policy");
    }
    enum weir_err err = WEIR_OK;
    for (size_t i = 0; i < from->replica_count && err == WEIR_OK; i++) {
        err = add_replica(b, model, from, to, from->replicas[i]);
    }
    for (size_t i = 0; i < launched && err == WEIR_OK; i++) {
        char url[64];
        if (!b->from->launched_url ||
            !b->from->launched_url(b->from->ctx, model, from, i, url, sizeof url)) {
            return error_set(b->err, WEIR_EIO, "no free port for an engine of %s", model->name);
        }
        err = add_replica(b, model, from, to, url);
    }
    return err;
}

static enum weir_err build_model(struct builder *b, const struct config_model *from,
                                 struct model *to)
{
    struct arena *arena = b->fleet->arena;
    to->name = arena_strdup(arena, slice_str(from->name));
    const char **aliases = arena_zalloc(arena, (from->alias_count + 1) * sizeof *aliases);
    for (size_t i = 0; i < from->alias_count; i++) {
        aliases[i] = arena_strdup(arena, slice_str(from->aliases[i]));
    }
    to->aliases = aliases;
    to->alias_count = from->alias_count;
    to->slo = (struct slo){.ttft_ns = from->slo_ttft_ns, .tpot_ns = from->slo_tpot_ns};
    to->created_wall_s = b->from->wall_s;
    to->traffic = traffic_get(b->from->traffic, slice_str(from->name), SLICE(""));
    to->answer_tokens = answer_tokens(b->from->answers, slice_str(from->name));
    to->pools = arena_zalloc(arena, (from->pool_count + 1) * sizeof *to->pools);
    if (!to->traffic) {
        return error_set(b->err, WEIR_ELIMIT, "more than %d models and pools were ever served",
                         TRAFFIC_MAX);
    }
    enum weir_err err = WEIR_OK;
    for (size_t i = 0; i < from->pool_count && err == WEIR_OK; i++) {
        to->pool_count++;
        err = build_pool(b, from, &from->pools[i], &to->pools[i]);
    }
    return err;
}

struct fleet *fleet_build(const struct fleet_sources *sources, struct error *err)
{
    const struct config *config = sources->config;
    struct builder b = {.from = sources, .fleet = fleet_new(sources->generation), .err = err};
    b.fleet->models =
        arena_zalloc(b.fleet->arena, (config->model_count + 1) * sizeof *b.fleet->models);
    remember_previous(&b);
    enum weir_err result = WEIR_OK;
    for (size_t i = 0; i < config->model_count && result == WEIR_OK; i++) {
        b.fleet->model_count++;
        result = build_model(&b, &config->models[i], &b.fleet->models[i]);
    }
    map_free(&b.known);
    if (result == WEIR_OK) {
        result = fleet_index(b.fleet, err);
    }
    if (result != WEIR_OK) {
        fleet_drop(b.fleet);
        return NULL;
    }
    return b.fleet;
}
