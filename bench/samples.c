#include "samples.h"

#include <stdlib.h>

#include "base/heap.h"

void samples_add(struct samples *s, uint64_t value)
{
    if (!s->values)
        s->values = heap_alloc(SAMPLES_MAX * sizeof(s->values[0]));
    s->values[s->count++ % SAMPLES_MAX] = value;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

uint64_t samples_quantile(struct samples *s, double q)
{
    size_t kept = s->count < SAMPLES_MAX ? s->count : SAMPLES_MAX;
    if (kept == 0)
        return 0;
    qsort(s->values, kept, sizeof(s->values[0]), by_value);
    return s->values[(size_t)(q * (double)(kept - 1) + 0.5)];
}
