#include "base/histogram.h"

enum { SUB_COUNT = 1 << HISTOGRAM_SUB_BITS };

/*
 * The first SUB_COUNT cells hold one small value each; from there on a power of two is cut into
 * SUB_COUNT equal cells, addressed by the bits that follow the highest one.
 */
uint32_t histogram_cell(uint64_t value)
{
    if (value < SUB_COUNT)
        return (uint32_t)value;
    if (value >> HISTOGRAM_TOP_BIT)
        return HISTOGRAM_CELLS - 1;
    uint32_t shift = 63 - HISTOGRAM_SUB_BITS - (uint32_t)__builtin_clzll(value);
    return (shift << HISTOGRAM_SUB_BITS) + (uint32_t)(value >> shift);
}

uint64_t histogram_cell_upper(uint32_t cell)
{
    if (cell < SUB_COUNT)
        return cell;
    if (cell >= HISTOGRAM_CELLS)
        cell = HISTOGRAM_CELLS - 1;
    uint32_t shift = (cell >> HISTOGRAM_SUB_BITS) - 1;
    uint64_t sub = (cell & (SUB_COUNT - 1)) + SUB_COUNT;
    return ((sub + 1) << shift) - 1;
}

static uint64_t read_cell(const _Atomic uint64_t *cell)
{
    return atomic_load_explicit(cell, memory_order_relaxed);
}

/* Load and store, not fetch_add: the writer is alone, and a locked instruction costs ten times. */
static void add(_Atomic uint64_t *cell, uint64_t n)
{
    atomic_store_explicit(cell, read_cell(cell) + n, memory_order_relaxed);
}

void histogram_record(struct histogram *h, uint64_t value)
{
    add(&h->cells[histogram_cell(value)], 1);
    add(&h->count, 1);
    add(&h->sum, value);
}

/* The count comes from the cells that were read, so that both agree while another thread writes. */
void histogram_merge(struct histogram *into, const struct histogram *from)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < HISTOGRAM_CELLS; i++) {
        uint64_t n = read_cell(&from->cells[i]);
        if (n)
            add(&into->cells[i], n);
        count += n;
    }
    add(&into->count, count);
    add(&into->sum, read_cell(&from->sum));
}

uint64_t histogram_quantile(const struct histogram *h, double q)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < HISTOGRAM_CELLS; i++)
        total += read_cell(&h->cells[i]);
    if (total == 0)
        return 0;

    double exact = (q < 0 ? 0 : q > 1 ? 1 : q) * (double)total;
    uint64_t rank = (uint64_t)exact;
    rank += (double)rank < exact || rank == 0; /* the smallest whole rank not below q * total */

    /* Cells only grow, so this second pass reaches any rank within the first pass's total. */
    uint64_t seen = 0;
    for (uint32_t i = 0; i < HISTOGRAM_CELLS; i++) {
        seen += read_cell(&h->cells[i]);
        if (seen >= rank)
            return histogram_cell_upper(i);
    }
    return histogram_cell_upper(HISTOGRAM_CELLS - 1);
}

uint64_t histogram_count_le(const struct histogram *h, uint64_t bound)
{
    uint64_t seen = 0;
    for (uint32_t i = 0; i < HISTOGRAM_CELLS && histogram_cell_upper(i) <= bound; i++)
        seen += read_cell(&h->cells[i]);
    return seen;
}
