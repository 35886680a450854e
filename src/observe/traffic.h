/*
 * traffic.h - counters and histograms of requests, per model and pool, sharded by worker.
 *
 * Each request is recorded exactly once: in the traffic of the pool that served it last, or of its
 * model when it reached none. A shard has one writer, its worker; readers add shards up. Traffic
 * belongs to names and lives as long as the process: reloads never start a counter anew.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/histogram.h"
#include "base/slice.h"
#include "observe/genai.h"
#include "observe/outcome.h"

struct request_record; /* observe/record.h */

/* About 15 kB; pages that no request touched take no memory. */
struct traffic_shard {
    _Atomic uint64_t requests[OUTCOMES];
    _Atomic uint64_t good;                 /* completed within both promises */
    _Atomic uint64_t late_ttft, late_tpot; /* completed, but missed this promise */
    _Atomic uint64_t offered;              /* generating requests that count for attainment */
    _Atomic uint64_t retries;
    _Atomic uint64_t tokens_in, tokens_out, tokens_cached, good_tokens_out;
    _Atomic uint64_t bytes_in, bytes_out;
    /*
     * Microseconds. duration: every request. ttft: each streamed one with content, however it
     * ended. tpot: completed ones of two tokens and more. queue: those that an engine was asked
     * for, or that waited.
     */
    struct histogram duration, ttft, tpot, itl, queue;
    struct genai_shard genai;
    char apart[64]; /* a cache line between two workers, however the heap aligns */
};

struct traffic {
    const char *model;                   /* owned */
    const char *pool;                    /* owned; "" for the model's own */
    size_t index;                        /* as in traffic_at() */
    const struct traffic *next_of_model; /* the one of the same model made before; NULL: none */
    size_t shard_count;
    struct traffic_shard *shards; /* one per worker */
};

/* The process-wide registry. One lock, never on the request path. */
struct traffic_registry;
struct traffic_registry *traffic_registry_new(size_t shard_count);
void traffic_registry_free(struct traffic_registry *registry);

/* The traffic of (model, pool), made at the first call. At most TRAFFIC_MAX; then NULL. */
enum { TRAFFIC_MAX = 4096 };
struct traffic *traffic_get(struct traffic_registry *registry, struct slice model,
                            struct slice pool);

/* In the order in which they were made. Any thread. */
size_t traffic_count(const struct traffic_registry *registry);
struct traffic *traffic_at(const struct traffic_registry *registry, size_t index);

/* The newest traffic of a model; next_of_model leads to the others. NULL when there is none. */
const struct traffic *traffic_of_model(const struct traffic_registry *registry, struct slice model);

/* Once per request, by the worker that owns `shard`. */
void traffic_record(struct traffic_shard *shard, const struct request_record *record);

/* Once per content event but the first: the gap before it. On the per-token path. */
static inline void traffic_gap(struct traffic_shard *shard, uint64_t gap_us)
{
    histogram_record(&shard->itl, gap_us);
}
