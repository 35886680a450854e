#include "observe/goodput.h"

#include "base/clock.h"
#include "base/counter.h"
#include "base/heap.h"

/*
 * Each window has a ring of its own, with samples a twentieth of the window apart: 22 cover it
 * whatever its length, where one ring for all would hold 300 per traffic.
 */
enum { STEPS = 20, SLOTS = STEPS + 2 };

struct sample {
    uint64_t offered;
    uint64_t good;
    uint64_t good_tokens;
};

/* One traffic. A slot from before it was made is zero, as its counters were. */
struct track {
    struct sample latest;
    struct sample slots[GOODPUT_WINDOWS][SLOTS];
};

/* When the slots of all tracks were taken. */
struct ring {
    uint64_t taken_ns[SLOTS];
    size_t head; /* the next to be written */
    size_t used;
};

struct goodput_table {
    uint64_t latest_ns; /* 0: never sampled */
    struct ring rings[GOODPUT_WINDOWS];
    size_t track_count;
    struct track *tracks[TRAFFIC_MAX];
};

static const struct {
    const char *name;
    uint64_t seconds;
} windows[GOODPUT_WINDOWS] = {
    [GOODPUT_10S] = {"10s", 10}, [GOODPUT_1M] = {"1m", 60}, [GOODPUT_5M] = {"5m", 300}};

uint64_t goodput_window_seconds(enum goodput_window window)
{
    return windows[window].seconds;
}

const char *goodput_window_name(enum goodput_window window)
{
    return windows[window].name;
}

struct goodput_table *goodput_table_new(void)
{
    return heap_zalloc(sizeof(struct goodput_table));
}

void goodput_table_free(struct goodput_table *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < table->track_count; i++)
        heap_free(table->tracks[i]);
    heap_free(table);
}

static struct sample take(const struct traffic *t)
{
    struct sample sum = {0};
    for (size_t i = 0; i < t->shard_count; i++) {
        sum.good += counter_get(&t->shards[i].good);
        sum.good_tokens += counter_get(&t->shards[i].good_tokens_out);
        sum.offered += counter_get(&t->shards[i].offered);
    }
    return sum;
}

static size_t newest_slot(const struct ring *ring)
{
    return (ring->head + SLOTS - 1) % SLOTS;
}

static bool is_due(const struct ring *ring, enum goodput_window window, uint64_t now_ns)
{
    uint64_t step_ns = windows[window].seconds * NS_PER_S / STEPS;
    return ring->used == 0 || now_ns - ring->taken_ns[newest_slot(ring)] >= step_ns;
}

static void keep(struct goodput_table *table, enum goodput_window window, uint64_t now_ns)
{
    struct ring *ring = &table->rings[window];
    for (size_t i = 0; i < table->track_count; i++)
        table->tracks[i]->slots[window][ring->head] = table->tracks[i]->latest;
    ring->taken_ns[ring->head] = now_ns;
    ring->head = (ring->head + 1) % SLOTS;
    if (ring->used < SLOTS)
        ring->used++;
}

void goodput_sample(struct goodput_table *table, const struct traffic_registry *registry,
                    uint64_t now_ns)
{
    size_t count = traffic_count(registry);
    for (size_t i = table->track_count; i < count; i++)
        table->tracks[i] = heap_zalloc(sizeof *table->tracks[i]);
    table->track_count = count;
    for (size_t i = 0; i < count; i++)
        table->tracks[i]->latest = take(traffic_at(registry, i));
    table->latest_ns = now_ns;
    for (int w = 0; w < GOODPUT_WINDOWS; w++)
        if (is_due(&table->rings[w], (enum goodput_window)w, now_ns))
            keep(table, (enum goodput_window)w, now_ns);
}

/* The newest slot that is as old as the window is long; the oldest there is while none is. */
static size_t base_slot(const struct goodput_table *table, enum goodput_window window)
{
    const struct ring *ring = &table->rings[window];
    uint64_t length_ns = windows[window].seconds * NS_PER_S;
    size_t slot = newest_slot(ring);
    for (size_t back = 1; back < ring->used; back++) {
        if (table->latest_ns - ring->taken_ns[slot] >= length_ns)
            break;
        slot = (slot + SLOTS - 1) % SLOTS;
    }
    return slot;
}

static void add_difference(struct sample *sum, const struct track *track,
                           enum goodput_window window, size_t base)
{
    const struct sample *from = &track->slots[window][base];
    sum->offered += track->latest.offered - from->offered;
    sum->good += track->latest.good - from->good;
    sum->good_tokens += track->latest.good_tokens - from->good_tokens;
}

static struct goodput_figures to_figures(const struct sample *sum, uint64_t covered_ns)
{
    double seconds = (double)covered_ns / (double)NS_PER_S;
    double per_s = covered_ns ? 1 / seconds : 0;
    /* A request that ended between two loads of a sample may be in one of them only. */
    bool all_good = sum->good >= sum->offered;
    return (struct goodput_figures){
        .good_per_s = (double)sum->good * per_s,
        .offered_per_s = (double)sum->offered * per_s,
        .good_tokens_per_s = (double)sum->good_tokens * per_s,
        .attainment = all_good ? 1 : (double)sum->good / (double)sum->offered,
        .seconds = seconds,
    };
}

static uint64_t covered_ns(const struct goodput_table *table, enum goodput_window window,
                           size_t base)
{
    return table->latest_ns - table->rings[window].taken_ns[base];
}

bool goodput_figures(const struct goodput_table *table, size_t index, enum goodput_window window,
                     struct goodput_figures *out)
{
    if (index >= table->track_count)
        return false;
    struct sample sum = {0};
    size_t base = base_slot(table, window);
    add_difference(&sum, table->tracks[index], window, base);
    *out = to_figures(&sum, covered_ns(table, window, base));
    return true;
}

void goodput_model_figures(const struct goodput_table *table, const struct traffic *newest,
                           enum goodput_window window, struct goodput_figures *out)
{
    struct sample sum = {0};
    size_t base = base_slot(table, window);
    for (const struct traffic *t = newest; t; t = t->next_of_model)
        if (t->index < table->track_count)
            add_difference(&sum, table->tracks[t->index], window, base);
    *out = to_figures(&sum, covered_ns(table, window, base));
}
