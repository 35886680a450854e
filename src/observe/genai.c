#include "observe/genai.h"

#include <string.h>

#include "base/clock.h"
#include "base/counter.h"
#include "observe/record.h"

const uint64_t genai_duration_bounds_us[GENAI_DURATION_BOUNDS] = {
    10000,   20000,   40000,   80000,    160000,   320000,   640000,
    1280000, 2560000, 5120000, 10240000, 20480000, 40960000, 81920000};

const uint64_t genai_ttft_bounds_us[GENAI_TTFT_BOUNDS] = {
    1000,   5000,   10000,  20000,   40000,   60000,   80000,   100000,
    250000, 500000, 750000, 1000000, 2500000, 5000000, 7500000, 10000000};

const uint64_t genai_tpot_bounds_us[GENAI_TPOT_BOUNDS] = {10000,  25000,   50000,  75000,  100000,
                                                          150000, 200000,  300000, 400000, 500000,
                                                          750000, 1000000, 2500000};

static const char *const operation_names[GENAI_OPERATIONS] = {
    [GENAI_CHAT] = "chat",
    [GENAI_TEXT_COMPLETION] = "text_completion",
    [GENAI_EMBEDDINGS] = "embeddings",
    [GENAI_OTHER] = "_OTHER", /* as other OpenTelemetry conventions call what has no known value */
};

const char *genai_operation_name(enum genai_operation operation)
{
    return operation_names[operation];
}

static enum genai_operation find_operation(const char *name)
{
    for (int i = 0; name && i < GENAI_OTHER; i++)
        if (strcmp(name, operation_names[i]) == 0)
            return (enum genai_operation)i;
    return GENAI_OTHER;
}

static void count(_Atomic uint64_t *cells, const uint64_t *bounds_us, size_t bound_count,
                  _Atomic uint64_t *sum_us, uint64_t value_ns)
{
    size_t i = 0;
    while (i < bound_count && value_ns > bounds_us[i] * NS_PER_US)
        i++;
    counter_add(&cells[i], 1);
    counter_add(sum_us, value_ns / NS_PER_US);
}

void genai_record(struct genai_shard *shard, const struct request_record *r)
{
    enum genai_operation op = find_operation(r->operation);
    count(shard->duration[op][r->outcome], genai_duration_bounds_us, GENAI_DURATION_BOUNDS,
          &shard->duration_sum_us[op][r->outcome], r->duration_ns);
    if (r->outcome != OUTCOME_OK || !r->ttft_ns)
        return;
    count(shard->ttft[op], genai_ttft_bounds_us, GENAI_TTFT_BOUNDS, &shard->ttft_sum_us[op],
          r->ttft_ns);
    if (r->tokens_out > 1)
        count(shard->tpot[op], genai_tpot_bounds_us, GENAI_TPOT_BOUNDS, &shard->tpot_sum_us[op],
              r->tpot_ns);
}
