/*
 * metrics.h - the /metrics page. Rows are in metrics.def; values come from traffic shards, replicas
 * of the current fleet and the process. Label values are names from the configuration, never what
 * a client sent. Text format 0.0.4.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "model/fleet.h"
#include "observe/goodput.h"
#include "observe/traffic.h"

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Numbers of the process that only the driver knows. One per worker, written by it, relaxed. */
struct worker_counters {
    _Atomic uint64_t connections_accepted;
    _Atomic int64_t connections_open;
    _Atomic int64_t requests_in_flight;
    _Atomic uint64_t connections_refused; /* over a limit, or no descriptors */
    _Atomic uint64_t parse_errors;        /* requests that were not HTTP */
    _Atomic uint64_t upstream_connects;
    _Atomic uint64_t upstream_reuses;
    _Atomic uint64_t upstream_connect_errors;
    _Atomic uint64_t refused_unknown_model; /* requests without a model of ours have no traffic */
    _Atomic uint64_t refused_other;
    _Atomic uint64_t loop_turns;
    _Atomic int64_t body_bytes; /* request bodies in memory now */
};

struct metrics_input {
    const struct fleet *fleet; /* borrowed */
    const struct traffic_registry *traffic;
    const struct goodput_table *goodput;
    const struct worker_counters *workers;
    size_t worker_count;
    uint64_t now_ns;
    uint64_t started_ns; /* on the clock of now_ns; 0: uptime is left out */
    uint64_t started_wall_ns;
    uint64_t config_generation;
    uint64_t config_reload_failures;
    uint64_t access_log_lost;
    const char *version;
};

/* By the thread that samples `goodput`. WEIR_ELIMIT when `out` cannot hold the page. */
WEIR_MUST_USE enum weir_err metrics_write(const struct metrics_input *in, struct buf *out);

/* The reference page: a Markdown table of all rows. */
WEIR_MUST_USE enum weir_err metrics_write_reference(struct buf *out);
