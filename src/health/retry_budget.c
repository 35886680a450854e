#include "health/health.h"

#include "base/clock.h"

/*
 * What may be saved up: the floor of 10 seconds, as Finagle has it, and the deposits of 1000
 * requests. It is what a replica that dies may cost at once; more would let a storm through that
 * was paid for yesterday.
 */
#define SAVE_SECONDS  10.0
#define SAVE_REQUESTS 1000.0

void retry_budget_init(struct retry_budget *b, double ratio, double min_per_s, uint64_t now_ns)
{
    *b = (struct retry_budget){
        .tokens = min_per_s * SAVE_SECONDS,
        .ratio = ratio,
        .min_per_s = min_per_s,
        .cap = min_per_s * SAVE_SECONDS + ratio * SAVE_REQUESTS,
        .updated_ns = now_ns,
    };
}

static void add(struct retry_budget *b, double tokens)
{
    b->tokens = b->tokens + tokens < b->cap ? b->tokens + tokens : b->cap;
}

void retry_budget_deposit(struct retry_budget *b)
{
    add(b, b->ratio);
}

bool retry_budget_take(struct retry_budget *b, uint64_t now_ns)
{
    if (now_ns > b->updated_ns) {
        add(b, (double)(now_ns - b->updated_ns) / (double)NS_PER_S * b->min_per_s);
        b->updated_ns = now_ns;
    }
    if (b->tokens < 1.0)
        return false;
    b->tokens -= 1.0;
    return true;
}
