/*
 * record.h - one finished request: what the access log, the metrics and (later) the ledger say.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "observe/outcome.h"

struct request_record {
    struct slice request_id;
    struct slice client;   /* address */
    struct slice model;    /* as configured; what the client wrote when unknown, cut to 64 bytes */
    const char *pool;      /* NULL: none */
    const char *replica;   /* NULL: none */
    const char *surface;   /* "chat" */
    const char *operation; /* gen_ai.operation.name */
    const char *reason;    /* short stable word: "ok", "client_left", "no_replica", … */
    enum outcome outcome;
    int status;     /* as the client saw it; 499 when it left first */
    uint32_t tries; /* engines asked; 0: none */
    bool stream;
    bool generates;
    bool usage_known; /* tokens are the engine's own figures; else estimates */
    bool good;        /* the rest of this line and the next by record_judge() */
    bool late_ttft, late_tpot;
    uint64_t bytes_in, bytes_out;
    uint64_t tokens_in, tokens_out, tokens_cached;
    uint64_t start_wall_ns;
    uint64_t duration_ns;
    uint64_t ttft_ns, tpot_ns;         /* by record_judge(); 0: does not apply */
    uint64_t longest_gap_ns, queue_ns; /* 0: does not apply */
};

/*
 * Fills good, late_ttft, late_tpot, ttft_ns and tpot_ns from the times, the promise, and the rest
 * of the record (outcome, stream, generates, tokens_out, duration_ns). `first_ns` and `last_ns`
 * are the first and the last content since arrival, 0 when there was none. A promise of 0 is
 * always met; a promise is kept at exactly its value. Only a completed, generating request is
 * judged; all others are neither good nor late.
 *
 * Streamed: TTFT is first_ns; TPOT is (last - first) / (tokens - 1), and 0, which meets any
 * promise, for one token (as vLLM counts). An answer without content is judged by its duration.
 *
 * Not streamed: the gateway sees the whole answer at once, so neither figure exists (both stay 0).
 * It is good when it came no later than a stream within both promises would have ended:
 * duration <= TTFT promise + (tokens - 1) * TPOT promise. Otherwise it counts as late_ttft: even
 * with every token as slow as promised, the first would have been late.
 */
void record_judge(struct request_record *r, uint64_t first_ns, uint64_t last_ns,
                  uint64_t slo_ttft_ns, uint64_t slo_tpot_ns);

/* Whether the request counts in the attainment's denominator: it generates, and its fate was ours.
 */
static inline bool record_is_offered(const struct request_record *r)
{
    return r->generates &&
           (r->outcome == OUTCOME_OK || r->outcome == OUTCOME_SHED || r->outcome == OUTCOME_FAILED);
}
