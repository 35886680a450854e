/*
 * worker.h - one thread that serves: its loop, its listeners, its connections, its streams.
 *
 * Workers share nothing on the request path. The control thread talks to them by mailbox: a new
 * fleet, drain, end. What they count is read by others from relaxed atomics.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "base/slab.h"
#include "config/config.h"
#include "gateway/settings.h"
#include "gateway/stream.h"
#include "health/health.h"
#include "http/server.h"
#include "http/upstream.h"
#include "model/fleet.h"
#include "net/listener.h"
#include "net/loop.h"
#include "observe/access_log.h"

/* A fleet as one worker uses it: with its own policy state and retry budgets. */
struct worker_fleet {
    struct fleet *fleet;          /* held */
    uint32_t refs;                /* streams, and the worker while it is current; one thread */
    void **policy_state;          /* by pool index */
    struct retry_budget *budgets; /* by position of the model */
    struct arena arena;
};

struct worker {
    size_t index;
    pthread_t thread;
    bool is_started;
    struct loop *control_loop;
    void (*on_done)(void *ctx);
    void *ctx;
    struct loop *loop;
    struct listener *listeners;
    size_t listener_count;
    struct http_server server;
    struct http_server_counters server_counters;
    struct upstream_pool upstreams;
    struct upstream_counters upstream_counters;
    struct worker_settings settings;
    struct worker_fleet *fleet;
    struct rng rng;
    struct access_log_ring *access_log; /* NULL: off */
    const _Atomic bool *is_ready;       /* the process's readiness, for /health/ready */
    bool is_draining;

    struct slab streams;
    struct stream all; /* list head */
    struct stream *dead;
    uint32_t turn_reads, turn_events; /* of event streams, in this turn */
    struct stream *again;
    struct outbound *free_outbounds;
    size_t free_outbound_count;
    char *scratch; /* one read of an engine, with room around it; see relay.c */

    uint64_t held_bytes; /* of answers that are held whole, or whose first content has not come */
    _Atomic int64_t in_flight;
    _Atomic uint64_t refused_unknown_model;
    _Atomic uint64_t refused_other;
};

struct worker_options {
    size_t index, worker_count;
    const struct config *config; /* borrowed for the call */
    const int *sockets;          /* bound and listening, taken over; one per listen address */
    size_t socket_count;
    struct fleet *fleet;                /* a reference is taken */
    struct access_log_ring *access_log; /* kept; NULL: off */
    const _Atomic bool *is_ready;       /* kept */
    struct loop *control_loop;          /* gets on_done(ctx) when this worker's loop has ended */
    void (*on_done)(void *ctx);
    void *ctx;
};

struct worker *worker_new(const struct worker_options *options, struct error *err);
void worker_free(struct worker *w); /* after worker_join() */

WEIR_MUST_USE enum weir_err worker_start(struct worker *w, struct error *err);
void worker_join(struct worker *w); /* returns at once if it was never started */

/* From any thread, by mailbox. */
void worker_set_fleet(struct worker *w, struct fleet *fleet); /* a reference is taken */
void worker_set_config(struct worker *w, const struct config *config, size_t worker_count);
void worker_forget_replica(struct worker *w,
                           uint32_t replica_id); /* idle connections to it close */
void worker_drain(struct worker *w); /* no new connections; the loop ends when it is empty */
void worker_end(struct worker *w);   /* breaks off what is left, and ends the loop */

/* On the worker's thread. */
struct worker_fleet *worker_fleet_hold(struct worker_fleet *f);
void worker_fleet_drop(struct worker_fleet *f);
struct outbound *worker_take_outbound(struct worker *w);
void worker_put_outbound(struct worker *w, struct outbound *out);
void worker_check_drained(struct worker *w);
