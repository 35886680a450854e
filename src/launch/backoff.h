/*
 * backoff.h - the pause before an engine that ended by itself is started again: one second, doubled
 * each time up to a minute; anew once a process was ready and lived for a minute.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct backoff {
    uint64_t last_ns; /* the pause before the latest start; 0: none yet. A zeroed struct is fresh */
};

/* The process ended after `lived_ns`; returns the pause before the next start. */
uint64_t backoff_next(struct backoff *b, uint64_t lived_ns, bool was_ready);
