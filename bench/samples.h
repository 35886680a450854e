/*
 * samples.h - measured times, kept one by one, so that quantiles are exact to the nanosecond.
 * Once full, the newest replace the oldest.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SAMPLES_MAX = 1 << 21 };

struct samples {
    uint64_t *values; /* heap; NULL until the first */
    size_t count;     /* ever added */
};

void samples_add(struct samples *s, uint64_t value);

/* The value of rank q (0..1); 0 when there are none. Sorts: call it when all are in. */
uint64_t samples_quantile(struct samples *s, double q);
