/*
 * record.h - one finished request: what the access log, the metrics and (later) the ledger say.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "observe/traffic.h"

struct request_record {
    struct slice request_id;
    struct slice client;        /* address */
    struct slice model;         /* as configured; what the client wrote when unknown, cut to 64 bytes */
    const char *pool;           /* NULL: none */
    const char *replica;        /* NULL: none */
    const char *surface;        /* "chat" */
    const char *operation;      /* gen_ai.operation.name */
    const char *reason;         /* short stable word: "ok", "client_left", "no_replica", … */
    enum outcome outcome;
    int status;                 /* as the client saw it; 499 when it left first */
    uint32_t tries;             /* engines asked; 0: none */
    bool stream;
    bool generates;
    bool usage_known;           /* tokens are the engine's own figures; else estimates */
    bool good;
    bool late_ttft, late_tpot;
    uint64_t bytes_in, bytes_out;
    uint64_t tokens_in, tokens_out, tokens_cached;
    uint64_t start_wall_ns;
    uint64_t duration_ns, ttft_ns, tpot_ns, longest_gap_ns, queue_ns; /* 0: does not apply */
};

/*
 * Fills good, late_ttft, late_tpot and tpot_ns from the times and the promise: TPOT is
 * (last - first content) / (tokens - 1), 0 for one token, which meets any promise (as vLLM counts).
 * A promise of 0 is always met. first_ns and last_ns are since arrival.
 */
void record_judge(struct request_record *r, uint64_t first_ns, uint64_t last_ns,
                  uint64_t slo_ttft_ns, uint64_t slo_tpot_ns);
