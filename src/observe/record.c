#include "observe/record.h"

static uint64_t gaps(const struct request_record *r)
{
    return r->tokens_out > 1 ? r->tokens_out - 1 : 0;
}

static void measure(struct request_record *r, uint64_t first_ns, uint64_t last_ns)
{
    r->ttft_ns = r->stream ? first_ns : 0;
    r->tpot_ns =
        r->stream && first_ns && last_ns > first_ns && gaps(r) ? (last_ns - first_ns) / gaps(r) : 0;
}

static bool whole_is_late(const struct request_record *r, uint64_t slo_ttft_ns,
                          uint64_t slo_tpot_ns)
{
    if (slo_ttft_ns == 0 || (slo_tpot_ns == 0 && gaps(r) > 0))
        return false; /* without one of the promises no whole answer can break the other */
    uint64_t budget;
    /* The token count is the engine's word: one that overflows allows any duration. */
    if (__builtin_mul_overflow(gaps(r), slo_tpot_ns, &budget) ||
        __builtin_add_overflow(budget, slo_ttft_ns, &budget))
        return false;
    return r->duration_ns > budget;
}

void record_judge(struct request_record *r, uint64_t first_ns, uint64_t last_ns,
                  uint64_t slo_ttft_ns, uint64_t slo_tpot_ns)
{
    measure(r, first_ns, last_ns);
    r->good = r->late_ttft = r->late_tpot = false;
    if (r->outcome != OUTCOME_OK || !r->generates)
        return;

    if (r->stream) {
        uint64_t ttft_ns = first_ns ? first_ns : r->duration_ns;
        r->late_ttft = slo_ttft_ns && ttft_ns > slo_ttft_ns;
        r->late_tpot = slo_tpot_ns && r->tpot_ns > slo_tpot_ns;
    } else {
        r->late_ttft = whole_is_late(r, slo_ttft_ns, slo_tpot_ns);
    }
    r->good = !r->late_ttft && !r->late_tpot;
}
