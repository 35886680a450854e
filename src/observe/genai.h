/*
 * genai.h - the histograms that OpenTelemetry's GenAI conventions define for servers
 * (gen_ai.server.*): fixed bounds, exact counts, kept per operation because the convention
 * requires that attribute. Once per request, so a short search of the bounds is cheap enough; the
 * per-token histograms are log-linear ones (base/histogram.h).
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/outcome.h"

struct request_record; /* observe/record.h */

/* gen_ai.operation.name: the well-known ones that weir serves, and the rest as "_OTHER". */
enum genai_operation {
    GENAI_CHAT,
    GENAI_TEXT_COMPLETION,
    GENAI_EMBEDDINGS,
    GENAI_OTHER,
    GENAI_OPERATIONS
};

enum { GENAI_DURATION_BOUNDS = 14, GENAI_TTFT_BOUNDS = 16, GENAI_TPOT_BOUNDS = 13 };

/* Upper bounds in microseconds, inclusive; one cell more than bounds takes the rest. */
extern const uint64_t genai_duration_bounds_us[GENAI_DURATION_BOUNDS];
extern const uint64_t genai_ttft_bounds_us[GENAI_TTFT_BOUNDS];
extern const uint64_t genai_tpot_bounds_us[GENAI_TPOT_BOUNDS];

/* One writer; readers load relaxed. */
struct genai_shard {
    _Atomic uint64_t duration[GENAI_OPERATIONS][OUTCOMES][GENAI_DURATION_BOUNDS + 1];
    _Atomic uint64_t duration_sum_us[GENAI_OPERATIONS][OUTCOMES];
    _Atomic uint64_t ttft[GENAI_OPERATIONS][GENAI_TTFT_BOUNDS + 1]; /* completed requests only */
    _Atomic uint64_t ttft_sum_us[GENAI_OPERATIONS];
    _Atomic uint64_t tpot[GENAI_OPERATIONS][GENAI_TPOT_BOUNDS + 1]; /* completed requests only */
    _Atomic uint64_t tpot_sum_us[GENAI_OPERATIONS];
};

void genai_record(struct genai_shard *shard, const struct request_record *record);

/* The attribute's value. Static lifetime. */
const char *genai_operation_name(enum genai_operation operation);
