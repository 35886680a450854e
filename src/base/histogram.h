/*
 * histogram.h - log-linear, mergeable, fixed size: 8 cells per power of two up to 2^40 units, so
 * any quantile is at most 1/8 (12.5 %) above the exact value, half of that on average. 0 to 7 are
 * exact; values that are too large count in the last cell. The unit is the caller's (weir:
 * microseconds).
 *
 * One thread writes (record, merge into), any thread reads (merge from, quantile): cells are
 * relaxed atomics, written with load + store, so that the writer pays for no locked instruction.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum { HISTOGRAM_SUB_BITS = 3, HISTOGRAM_TOP_BIT = 40 };
enum { HISTOGRAM_CELLS = (HISTOGRAM_TOP_BIT - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS };

struct histogram {
    _Atomic uint64_t cells[HISTOGRAM_CELLS];
    _Atomic uint64_t count;
    _Atomic uint64_t sum;
};

void histogram_record(struct histogram *h, uint64_t value);
void histogram_merge(struct histogram *into, const struct histogram *from);

/* Upper edge of the cell that holds quantile q (0..1), the value of that rank; 0 when empty. */
uint64_t histogram_quantile(const struct histogram *h, double q);

/*
 * How many recorded values are <= `bound`, counting a cell when its upper edge is <= bound:
 * for Prometheus buckets, whose bounds should be cell edges to be exact.
 */
uint64_t histogram_count_le(const struct histogram *h, uint64_t bound);

/* Cell index of a value, and the largest value of a cell (of the last: 2^40 - 1). */
uint32_t histogram_cell(uint64_t value);
uint64_t histogram_cell_upper(uint32_t cell);
