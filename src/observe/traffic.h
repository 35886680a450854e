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

/* How a request ended, for the client's side of the promise. */
enum outcome {
    OUTCOME_OK,          /* completed; good or late is decided by the SLO */
    OUTCOME_CLIENT_FAULT,/* 4xx: the client's own, ours or relayed; not in the attainment */
    OUTCOME_ABANDONED,   /* the client left (499); counted apart */
    OUTCOME_SHED,        /* weir refused for lack of capacity: 503/529 before any engine answered */
    OUTCOME_FAILED,      /* 5xx, truncation, timeout */
    OUTCOMES
};

struct request_record; /* observe/record.h */

struct traffic_shard {
    _Atomic uint64_t requests[OUTCOMES];
    _Atomic uint64_t good;           /* completed within both promises */
    _Atomic uint64_t late_ttft, late_tpot; /* completed, but missed this promise */
    _Atomic uint64_t offered;        /* generating requests that count for attainment */
    _Atomic uint64_t retries;
    _Atomic uint64_t tokens_in, tokens_out, tokens_cached, good_tokens_out;
    _Atomic uint64_t bytes_in, bytes_out;
    /* microseconds */
    struct histogram duration, ttft, tpot, itl, queue;
};

struct traffic {
    const char *model; /* owned */
    const char *pool;  /* owned; "" for the model's own */
    size_t shard_count;
    struct traffic_shard *shards; /* one per worker, cache-line apart */
};

/* The process-wide registry; one lock, control thread and reload only. */
struct traffic_registry;
struct traffic_registry *traffic_registry_new(size_t shard_count);
void traffic_registry_free(struct traffic_registry *registry);

/* The traffic of (model, pool), made at the first call. At most TRAFFIC_MAX; then NULL. */
enum { TRAFFIC_MAX = 4096 };
struct traffic *traffic_get(struct traffic_registry *registry, struct slice model,
                            struct slice pool);
size_t traffic_count(const struct traffic_registry *registry);
struct traffic *traffic_at(const struct traffic_registry *registry, size_t index);

/* Once per request, by the worker that owns `shard`. */
void traffic_record(struct traffic_shard *shard, const struct request_record *record);

/* Once per content event but the first: the gap before it. On the per-token path. */
static inline void traffic_gap(struct traffic_shard *shard, uint64_t gap_us)
{
    histogram_record(&shard->itl, gap_us);
}
