#include "observe/traffic.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/heap.h"
#include "base/map.h"
#include "observe/record.h"

struct traffic_registry {
    pthread_mutex_t lock; /* for the maps and for adding */
    size_t shard_count;
    struct map by_key;    /* traffic_key() -> struct traffic * */
    struct map by_model;  /* model -> the newest struct traffic * of it */
    _Atomic size_t count; /* published after the entry: readers need no lock */
    struct traffic *all[TRAFFIC_MAX];
};

struct traffic_registry *traffic_registry_new(size_t shard_count)
{
    struct traffic_registry *registry = heap_zalloc(sizeof *registry);
    registry->shard_count = shard_count;
    pthread_mutex_init(&registry->lock, NULL);
    return registry;
}

static void traffic_free(struct traffic *t)
{
    heap_free(t->shards);
    heap_free((char *)t->model);
    heap_free(t);
}

void traffic_registry_free(struct traffic_registry *registry)
{
    if (!registry)
        return;
    size_t count = traffic_count(registry);
    for (size_t i = 0; i < count; i++)
        traffic_free(registry->all[i]);
    map_free(&registry->by_key);
    map_free(&registry->by_model);
    pthread_mutex_destroy(&registry->lock);
    heap_free(registry);
}

/* "model\0pool\0": the two names of a traffic, and in this form its key. Owned by the caller. */
static struct slice join_names(struct slice model, struct slice pool)
{
    size_t len = model.len + pool.len + 2;
    char *text = heap_zalloc(len);
    if (model.len)
        memcpy(text, model.ptr, model.len);
    if (pool.len)
        memcpy(text + model.len + 1, pool.ptr, pool.len);
    return slice_of(text, len);
}

static struct traffic *add(struct traffic_registry *registry, struct slice key, size_t model_len)
{
    size_t index = atomic_load_explicit(&registry->count, memory_order_relaxed);
    struct traffic *t = heap_zalloc(sizeof *t);
    t->model = key.ptr;
    t->pool = key.ptr + model_len + 1;
    t->index = index;
    t->shard_count = registry->shard_count;
    t->shards = heap_zalloc(t->shard_count * sizeof *t->shards);
    map_set(&registry->by_key, key, t);
    t->next_of_model = map_set(&registry->by_model, slice_of(t->model, model_len), t);
    registry->all[index] = t;
    atomic_store_explicit(&registry->count, index + 1, memory_order_release);
    return t;
}

struct traffic *traffic_get(struct traffic_registry *registry, struct slice model,
                            struct slice pool)
{
    struct slice key = join_names(model, pool);
    pthread_mutex_lock(&registry->lock);
    struct traffic *t = map_get(&registry->by_key, key);
    if (!t && traffic_count(registry) < TRAFFIC_MAX) {
        t = add(registry, key, model.len);
        key.ptr = NULL; /* taken */
    }
    pthread_mutex_unlock(&registry->lock);
    heap_free((char *)key.ptr);
    return t;
}

size_t traffic_count(const struct traffic_registry *registry)
{
    return atomic_load_explicit(&registry->count, memory_order_acquire);
}

struct traffic *traffic_at(const struct traffic_registry *registry, size_t index)
{
    return registry->all[index];
}

const struct traffic *traffic_of_model(const struct traffic_registry *registry, struct slice model)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&registry->lock; /* reading changes only the lock */
    pthread_mutex_lock(lock);
    const struct traffic *newest = map_get(&registry->by_model, model);
    pthread_mutex_unlock(lock);
    return newest;
}

static void record_promise(struct traffic_shard *shard, const struct request_record *r)
{
    counter_add(&shard->offered, record_is_offered(r));
    counter_add(&shard->late_ttft, r->late_ttft);
    counter_add(&shard->late_tpot, r->late_tpot);
    counter_add(&shard->good, r->good);
    counter_add(&shard->good_tokens_out, r->good ? r->tokens_out : 0);
}

static void record_volume(struct traffic_shard *shard, const struct request_record *r)
{
    counter_add(&shard->retries, r->tries > 1 ? r->tries - 1 : 0);
    counter_add(&shard->tokens_in, r->tokens_in);
    counter_add(&shard->tokens_out, r->tokens_out);
    counter_add(&shard->tokens_cached, r->tokens_cached);
    counter_add(&shard->bytes_in, r->bytes_in);
    counter_add(&shard->bytes_out, r->bytes_out);
}

static void record_times(struct traffic_shard *shard, const struct request_record *r)
{
    histogram_record(&shard->duration, r->duration_ns / NS_PER_US);
    if (r->tries > 0 || r->queue_ns > 0)
        histogram_record(&shard->queue, r->queue_ns / NS_PER_US);
    if (r->ttft_ns == 0)
        return;
    histogram_record(&shard->ttft, r->ttft_ns / NS_PER_US);
    if (r->outcome == OUTCOME_OK && r->tokens_out > 1)
        histogram_record(&shard->tpot, r->tpot_ns / NS_PER_US);
}

void traffic_record(struct traffic_shard *shard, const struct request_record *r)
{
    counter_add(&shard->requests[r->outcome], 1);
    record_promise(shard, r);
    record_volume(shard, r);
    record_times(shard, r);
    genai_record(&shard->genai, r);
}
