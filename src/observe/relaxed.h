/*
 * relaxed.h - counters with one writer and many readers. Load and store, not fetch_add: the writer
 * is alone, and a locked instruction costs ten times as much.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

static inline uint64_t relaxed_get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static inline void relaxed_add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, relaxed_get(counter) + n, memory_order_relaxed);
}
