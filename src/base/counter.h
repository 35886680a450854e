/*
 * counter.h - numbers with one writing thread and any number of readers: relaxed load and store, so
 * the writer pays for no locked instruction.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

static inline void counter_add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static inline void gauge_add(_Atomic int64_t *gauge, int64_t n)
{
    atomic_store_explicit(gauge, atomic_load_explicit(gauge, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static inline uint64_t counter_get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static inline int64_t gauge_get(const _Atomic int64_t *gauge)
{
    return atomic_load_explicit(gauge, memory_order_relaxed);
}
