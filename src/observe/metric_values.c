#include "observe/metric.h"

#include "base/clock.h"
#include "base/counter.h"
#include "base/log.h"

/* The getters of metrics.def, in its order. */

static bool is(double *out, double value)
{
    *out = value;
    return true;
}

/* ---- per traffic ---- */

/* Sums over the workers; `field` is a member of struct traffic_shard. */
#define SHARD_SUM(name, field)                                                                     \
    bool value_##name(const struct metric_subject *s, size_t variant, double *out)                 \
    {                                                                                              \
        uint64_t sum = 0;                                                                          \
        for (size_t i = 0; i < s->traffic->shard_count; i++)                                       \
            sum += counter_get(&s->traffic->shards[i].field);                                      \
        return is(out, (double)sum);                                                               \
    }

SHARD_SUM(requests, requests[variant])
SHARD_SUM(offered, offered)
SHARD_SUM(good, good)
SHARD_SUM(good_tokens, good_tokens_out)
SHARD_SUM(bytes_in, bytes_in)
SHARD_SUM(bytes_out, bytes_out)
SHARD_SUM(retries, retries)

bool value_late(const struct metric_subject *s, size_t variant, double *out)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < s->traffic->shard_count; i++) {
        const struct traffic_shard *shard = &s->traffic->shards[i];
        sum += counter_get(variant == PROMISE_TTFT ? &shard->late_ttft : &shard->late_tpot);
    }
    return is(out, (double)sum);
}

bool value_tokens(const struct metric_subject *s, size_t variant, double *out)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < s->traffic->shard_count; i++) {
        const struct traffic_shard *shard = &s->traffic->shards[i];
        const _Atomic uint64_t *const by_direction[DIRECTIONS] = {
            [DIRECTION_IN] = &shard->tokens_in,
            [DIRECTION_OUT] = &shard->tokens_out,
            [DIRECTION_CACHED] = &shard->tokens_cached};
        sum += counter_get(by_direction[variant]);
    }
    return is(out, (double)sum);
}

/* ---- per model ---- */

static struct goodput_figures window_of(const struct metric_subject *s, size_t variant)
{
    struct goodput_figures figures;
    goodput_model_figures(s->in->goodput,
                          traffic_of_model(s->in->traffic, slice_str(s->model->name)),
                          (enum goodput_window)variant, &figures);
    return figures;
}

bool value_goodput(const struct metric_subject *s, size_t variant, double *out)
{
    return is(out, window_of(s, variant).good_per_s);
}

bool value_offered_rate(const struct metric_subject *s, size_t variant, double *out)
{
    return is(out, window_of(s, variant).offered_per_s);
}

bool value_attainment(const struct metric_subject *s, size_t variant, double *out)
{
    return is(out, window_of(s, variant).attainment);
}

bool value_good_token_rate(const struct metric_subject *s, size_t variant, double *out)
{
    return is(out, window_of(s, variant).good_tokens_per_s);
}

static bool seconds_unless_zero(uint64_t ns, double *out)
{
    return ns && is(out, (double)ns / (double)NS_PER_S);
}

bool value_slo_ttft(const struct metric_subject *s, size_t variant, double *out)
{
    return seconds_unless_zero(s->model->slo.ttft_ns, out);
}

bool value_slo_tpot(const struct metric_subject *s, size_t variant, double *out)
{
    return seconds_unless_zero(s->model->slo.tpot_ns, out);
}

/* ---- histograms per traffic ---- */

/*
 * Bounds are 2^k and 1.5 * 2^k microseconds, which are edges of histogram cells, so that no
 * observation is in a wrong bucket (recorded values are whole microseconds, rounded down: a bound
 * has everything below it).
 */
static void set_bounds(struct metric_buckets *b, int first_log2, int last_log2, bool with_halves)
{
    for (int k = first_log2; k <= last_log2; k++) {
        b->bounds_us[b->bound_count++] = 1ull << k;
        if (with_halves && k < last_log2)
            b->bounds_us[b->bound_count++] = 3ull << (k - 1);
    }
}

static void count_cells(struct metric_buckets *b, const struct histogram *h)
{
    for (size_t i = 0; i < b->bound_count; i++)
        b->at_most[i] = histogram_count_le(h, b->bounds_us[i] - 1);
    b->count = counter_get(&h->count);
    b->sum_us = counter_get(&h->sum);
}

#define SHARD_BUCKETS(name, first_log2, last_log2, with_halves)                                    \
    bool buckets_##name(const struct metric_subject *s, size_t variant,                            \
                        struct metric_buckets *out)                                                \
    {                                                                                              \
        struct histogram sum = {0};                                                                \
        for (size_t i = 0; i < s->traffic->shard_count; i++)                                       \
            histogram_merge(&sum, &s->traffic->shards[i].name);                                    \
        set_bounds(out, first_log2, last_log2, with_halves);                                       \
        count_cells(out, &sum);                                                                    \
        return true;                                                                               \
    }

SHARD_BUCKETS(ttft, 10, 28, true)      /* 1 ms to 268 s */
SHARD_BUCKETS(tpot, 9, 23, true)       /* 0.5 ms to 8.4 s */
SHARD_BUCKETS(itl, 9, 24, true)        /* 0.5 ms to 16.8 s */
SHARD_BUCKETS(queue, 10, 27, false)    /* 1 ms to 134 s */
SHARD_BUCKETS(duration, 10, 30, false) /* 1 ms to 18 min */

/* ---- OpenTelemetry: exact cells, all traffic of a model ---- */

static void add_cells(struct metric_buckets *b, const _Atomic uint64_t *cells,
                      const _Atomic uint64_t *sum_us)
{
    uint64_t seen = 0;
    for (size_t i = 0; i < b->bound_count; i++) {
        seen += counter_get(&cells[i]);
        b->at_most[i] += seen;
    }
    b->count += seen + counter_get(&cells[b->bound_count]);
    b->sum_us += counter_get(sum_us);
}

/* `at`: how to index the cells. A combination that never occurred has no series. */
#define GENAI_BUCKETS(name, bounds, at)                                                            \
    bool buckets_genai_##name(const struct metric_subject *s, size_t variant,                      \
                              struct metric_buckets *out)                                          \
    {                                                                                              \
        out->bound_count = sizeof bounds / sizeof bounds[0];                                       \
        memcpy(out->bounds_us, bounds, sizeof bounds);                                             \
        for (const struct traffic *t = s->traffic; t; t = t->next_of_model)                        \
            for (size_t i = 0; i < t->shard_count; i++)                                            \
                add_cells(out, t->shards[i].genai.name at, &t->shards[i].genai.name##_sum_us at);  \
        return out->count > 0;                                                                     \
    }

GENAI_BUCKETS(duration, genai_duration_bounds_us, [variant / OUTCOMES][variant % OUTCOMES])
GENAI_BUCKETS(ttft, genai_ttft_bounds_us, [variant])
GENAI_BUCKETS(tpot, genai_tpot_bounds_us, [variant])

/* ---- per replica ---- */

bool value_replica_state(const struct metric_subject *s, size_t variant, double *out)
{
    return is(out, replica_state(s->replica) == (enum replica_state)variant);
}

bool value_replica_ejected(const struct metric_subject *s, size_t variant, double *out)
{
    return is(out, replica_ejection(s->replica, s->in->now_ns) != REPLICA_IN);
}

bool value_replica_in_flight(const struct metric_subject *s, size_t variant, double *out)
{
    return is(out, (double)replica_in_flight(s->replica));
}

bool value_replica_speed(const struct metric_subject *s, size_t variant, double *out)
{
    uint64_t mtok_s = counter_get(&s->replica->speed_mtok_s);
    return mtok_s && is(out, (double)mtok_s / 1000);
}

static bool has_report(const struct replica *r)
{
    return counter_get(&r->report.taken_ns) != 0;
}

bool value_replica_report_age(const struct metric_subject *s, size_t variant, double *out)
{
    uint64_t taken_ns = counter_get(&s->replica->report.taken_ns);
    uint64_t age_ns = s->in->now_ns > taken_ns ? s->in->now_ns - taken_ns : 0;
    return taken_ns && is(out, (double)age_ns / (double)NS_PER_S);
}

/* `field` is a member of struct replica_report. */
#define REPORTED(name, field, divisor)                                                             \
    bool value_replica_##name(const struct metric_subject *s, size_t variant, double *out)         \
    {                                                                                              \
        double value =                                                                             \
            (double)atomic_load_explicit(&s->replica->report.field, memory_order_relaxed);         \
        return has_report(s->replica) && is(out, value / (divisor));                               \
    }

REPORTED(running, running, 1)
REPORTED(waiting, waiting, 1)
REPORTED(kv_used, kv_used_ppm, 1e6)
REPORTED(prefix_queries, prefix_queries, 1)
REPORTED(prefix_hits, prefix_hits, 1)
REPORTED(preemptions, preemptions, 1)
REPORTED(refusals, refusals, 1)

bool value_replica_kv_size(const struct metric_subject *s, size_t variant, double *out)
{
    uint64_t tokens = counter_get(&s->replica->report.kv_tokens);
    return tokens && is(out, (double)tokens);
}

bool value_replica_prefix_hit_ratio(const struct metric_subject *s, size_t variant, double *out)
{
    uint64_t queries = counter_get(&s->replica->report.prefix_queries);
    uint64_t hits = counter_get(&s->replica->report.prefix_hits);
    /* The two were read at different moments, and they are an engine's word. */
    return queries && is(out, hits < queries ? (double)hits / (double)queries : 1);
}

/* ---- the process ---- */

/* `field` is a member of struct worker_counters. */
#define WORKER_SUM(name, field)                                                                    \
    bool value_##name(const struct metric_subject *s, size_t variant, double *out)                 \
    {                                                                                              \
        double sum = 0;                                                                            \
        for (size_t i = 0; i < s->in->worker_count; i++)                                           \
            sum += (double)atomic_load_explicit(&s->in->workers[i].field, memory_order_relaxed);   \
        return is(out, sum);                                                                       \
    }

WORKER_SUM(connections_accepted, connections_accepted)
WORKER_SUM(connections_refused, connections_refused)
WORKER_SUM(connections_open, connections_open)
WORKER_SUM(requests_in_flight, requests_in_flight)
WORKER_SUM(parse_errors, parse_errors)
WORKER_SUM(upstream_connects, upstream_connects)
WORKER_SUM(upstream_reuses, upstream_reuses)
WORKER_SUM(upstream_connect_errors, upstream_connect_errors)
WORKER_SUM(body_bytes, body_bytes)
WORKER_SUM(loop_turns, loop_turns)

bool value_refused(const struct metric_subject *s, size_t variant, double *out)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < s->in->worker_count; i++) {
        const struct worker_counters *w = &s->in->workers[i];
        sum += counter_get(variant == REASON_UNKNOWN_MODEL ? &w->refused_unknown_model
                                                           : &w->refused_other);
    }
    return is(out, (double)sum);
}

bool value_access_log_lost(const struct metric_subject *s, size_t variant, double *out)
{
    return is(out, (double)s->in->access_log_lost);
}

bool value_log_lost(const struct metric_subject *s, size_t variant, double *out)
{
    return is(out, (double)log_lost());
}

bool value_config_generation(const struct metric_subject *s, size_t variant, double *out)
{
    return is(out, (double)s->in->config_generation);
}

bool value_reload_failures(const struct metric_subject *s, size_t variant, double *out)
{
    return is(out, (double)s->in->config_reload_failures);
}

bool value_one(const struct metric_subject *s, size_t variant, double *out)
{
    return is(out, 1);
}

bool value_uptime(const struct metric_subject *s, size_t variant, double *out)
{
    return s->in->started_ns &&
           is(out, (double)(s->in->now_ns - s->in->started_ns) / (double)NS_PER_S);
}

bool value_start_time(const struct metric_subject *s, size_t variant, double *out)
{
    return is(out, (double)(s->in->started_wall_ns / NS_PER_MS) / 1e3); /* a double holds no ns */
}

bool value_cpu_seconds(const struct metric_subject *s, size_t variant, double *out)
{
    return is(out, s->process->cpu_seconds);
}

bool value_resident_bytes(const struct metric_subject *s, size_t variant, double *out)
{
    return is(out, (double)s->process->resident_bytes);
}

bool value_virtual_bytes(const struct metric_subject *s, size_t variant, double *out)
{
    return is(out, (double)s->process->virtual_bytes);
}

bool value_open_fds(const struct metric_subject *s, size_t variant, double *out)
{
    return is(out, (double)s->process->open_fds);
}

bool value_max_fds(const struct metric_subject *s, size_t variant, double *out)
{
    return s->process->max_fds && is(out, (double)s->process->max_fds);
}
