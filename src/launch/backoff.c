#include "launch/backoff.h"

#include "base/clock.h"

static const uint64_t first_pause_ns = 1 * NS_PER_S;
static const uint64_t longest_pause_ns = 60 * NS_PER_S;
static const uint64_t long_life_ns = 60 * NS_PER_S; /* shorter: ready or not, it keeps failing */

uint64_t backoff_next(struct backoff *b, uint64_t lived_ns, bool was_ready)
{
    if (b->last_ns == 0 || (was_ready && lived_ns >= long_life_ns))
        b->last_ns = first_pause_ns;
    else
        b->last_ns = b->last_ns < longest_pause_ns / 2 ? 2 * b->last_ns : longest_pause_ns;
    return b->last_ns;
}
