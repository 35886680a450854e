/*
 * metric.h - what a row of metrics.def is made of: what there is one series of, by what it is
 * split, and the functions that read the numbers. Private to the metrics page.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/metrics.h"
#include "observe/process_stats.h"

/* "One per": which subjects a family has series of, and their labels. */
enum metric_per {
    PER_PROCESS, /* none */
    PER_MODEL,   /* model: those of the current fleet */
    PER_TRAFFIC, /* model, pool: all that ever had a name, so that no counter goes away */
    PER_GENAI,   /* gen_ai_request_model, gen_ai_provider_name: all pools of a model */
    PER_REPLICA, /* model, pool, replica: those of the current fleet */
};

/* "Split by": labels that each subject's series have on top. */
enum metric_split {
    BY_NOTHING,
    BY_OUTCOME,
    BY_PROMISE,
    BY_DIRECTION,
    BY_WINDOW,
    BY_STATE,
    BY_REASON,
    BY_VERSION,
    BY_OPERATION,
    BY_OPERATION_ERROR, /* two labels: variant = operation * OUTCOMES + outcome */
    METRIC_SPLITS
};

enum metric_promise { PROMISE_TTFT, PROMISE_TPOT, PROMISES };
enum metric_direction { DIRECTION_IN, DIRECTION_OUT, DIRECTION_CACHED, DIRECTIONS };
enum metric_reason { REASON_UNKNOWN_MODEL, REASON_OTHER, REASONS };

/* What the getters read. Members that the row's "one per" does not name are NULL. */
struct metric_subject {
    const struct metrics_input *in;
    const struct process_stats *process;
    const struct model *model;
    const struct pool *pool;
    const struct replica *replica;
    const struct traffic *traffic; /* PER_GENAI: the newest of the model */
};

enum { METRIC_MAX_BOUNDS = 40 };
struct metric_buckets {
    size_t bound_count;
    uint64_t bounds_us[METRIC_MAX_BOUNDS];
    uint64_t at_most[METRIC_MAX_BOUNDS]; /* observations up to that bound, as Prometheus counts */
    uint64_t count;
    uint64_t sum_us;
};

/* `variant` counts the values of the split. False: this series does not exist (yet). */
typedef bool metric_value_fn(const struct metric_subject *s, size_t variant, double *out);
typedef bool metric_buckets_fn(const struct metric_subject *s, size_t variant,
                               struct metric_buckets *out);

enum metric_type { TYPE_COUNTER, TYPE_GAUGE, TYPE_HISTOGRAM };

struct metric {
    const char *name;
    enum metric_type type;
    enum metric_per per;
    enum metric_split split;
    const char *unit;
    const char *help;
    metric_value_fn *value;     /* counters and gauges */
    metric_buckets_fn *buckets; /* histograms */
};

extern const struct metric metric_table[];
extern const size_t metric_count;

enum { METRIC_SPLIT_LABELS = 2 };

struct metric_split_info {
    size_t variants;
    struct metric_split_label {
        const char *name; /* NULL: no more labels */
        const char *(*word)(const struct metric_subject *s,
                            size_t variant); /* NULL: leave it out */
    } labels[METRIC_SPLIT_LABELS];
};

const struct metric_split_info *metric_split_info(enum metric_split split);

/* The getters, in metric_values.c. */
#define COUNTER(name, per, by, unit, getter, help)   metric_value_fn value_##getter;
#define GAUGE(name, per, by, unit, getter, help)     metric_value_fn value_##getter;
#define HISTOGRAM(name, per, by, unit, getter, help) metric_buckets_fn buckets_##getter;
#include "observe/metrics.def"
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM
