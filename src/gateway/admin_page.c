#include "gateway/admin_page.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/json.h"
#include "engines/engine.h"
#include "observe/metrics.h"
#include "routing/routing.h"

/* Made from web/status.html by tools/embed.py. */
extern const char admin_page_bytes[];
extern const size_t admin_page_bytes_len;

struct slice admin_page_html(void)
{
    return slice_of(admin_page_bytes, admin_page_bytes_len);
}

/* ---- JSON: the first error sticks, and commas set themselves ---- */

struct writer {
    struct buf *out;
    enum weir_err rc;
    bool needs_comma;
};

static void put(struct writer *w, struct slice text)
{
    if (!w->rc)
        w->rc = buf_append(w->out, text);
}

static void begin_value(struct writer *w)
{
    if (w->needs_comma)
        put(w, SLICE(","));
    w->needs_comma = true;
}

static void put_key(struct writer *w, const char *key)
{
    begin_value(w);
    put(w, SLICE("\""));
    put(w, slice_str(key));
    put(w, SLICE("\":"));
    w->needs_comma = false;
}

/* `key` NULL: an element of an array, here and below. */
static void begin(struct writer *w, const char *key, struct slice bracket)
{
    if (key)
        put_key(w, key);
    begin_value(w);
    put(w, bracket);
    w->needs_comma = false;
}

static void end(struct writer *w, struct slice bracket)
{
    put(w, bracket);
    w->needs_comma = true;
}

static void put_text(struct writer *w, const char *key, const char *text)
{
    if (key)
        put_key(w, key);
    begin_value(w);
    if (!text)
        put(w, SLICE("null"));
    else if (!w->rc)
        w->rc = json_put_string(w->out, slice_str(text));
}

static void put_uint(struct writer *w, const char *key, uint64_t value)
{
    put_key(w, key);
    begin_value(w);
    if (!w->rc)
        w->rc = buf_printf(w->out, "%" PRIu64, value);
}

static void put_number_if(struct writer *w, const char *key, double value, bool applies)
{
    put_key(w, key);
    begin_value(w);
    if (!applies)
        put(w, SLICE("null"));
    else if (!w->rc)
        w->rc = json_put_number(w->out, value);
}

static void put_number(struct writer *w, const char *key, double value)
{
    put_number_if(w, key, value, true);
}

static void put_bool(struct writer *w, const char *key, bool value)
{
    put_key(w, key);
    begin_value(w);
    put(w, value ? SLICE("true") : SLICE("false"));
}

/* ---- traffic ---- */

static const struct {
    const char *key;
    size_t offset; /* of a struct histogram in struct traffic_shard */
} times[] = {{"ttft_ms", offsetof(struct traffic_shard, ttft)},
             {"tpot_ms", offsetof(struct traffic_shard, tpot)},
             {"itl_ms", offsetof(struct traffic_shard, itl)},
             {"queue_ms", offsetof(struct traffic_shard, queue)},
             {"duration_ms", offsetof(struct traffic_shard, duration)}};

static void merge(struct histogram *into, const struct traffic *t, size_t offset)
{
    for (size_t i = 0; i < t->shard_count; i++)
        histogram_merge(into, (const struct histogram *)((const char *)&t->shards[i] + offset));
}

static void put_quantiles(struct writer *w, const char *key, const struct histogram *h)
{
    bool any = counter_get(&h->count) > 0;
    begin(w, key, SLICE("{"));
    put_number_if(w, "p50", (double)histogram_quantile(h, 0.5) / 1e3, any);
    put_number_if(w, "p99", (double)histogram_quantile(h, 0.99) / 1e3, any);
    end(w, SLICE("}"));
}

/* Of one traffic, or of it and the others of its model. NULL is allowed. */
static void put_times(struct writer *w, const struct traffic *first, bool whole_model)
{
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        struct histogram sum = {0};
        for (const struct traffic *t = first; t; t = whole_model ? t->next_of_model : NULL)
            merge(&sum, t, times[i].offset);
        put_quantiles(w, times[i].key, &sum);
    }
}

struct counts {
    uint64_t requests[OUTCOMES];
    uint64_t offered, good, late_ttft, late_tpot, retries;
    uint64_t tokens_in, tokens_out, tokens_cached;
};

static void add_counts(struct counts *c, const struct traffic *t)
{
    for (size_t i = 0; i < t->shard_count; i++) {
        const struct traffic_shard *s = &t->shards[i];
        for (int k = 0; k < OUTCOMES; k++)
            c->requests[k] += counter_get(&s->requests[k]);
        c->offered += counter_get(&s->offered);
        c->good += counter_get(&s->good);
        c->late_ttft += counter_get(&s->late_ttft);
        c->late_tpot += counter_get(&s->late_tpot);
        c->retries += counter_get(&s->retries);
        c->tokens_in += counter_get(&s->tokens_in);
        c->tokens_out += counter_get(&s->tokens_out);
        c->tokens_cached += counter_get(&s->tokens_cached);
    }
}

static void put_counts(struct writer *w, const struct traffic *newest)
{
    struct counts c = {0};
    for (const struct traffic *t = newest; t; t = t->next_of_model)
        add_counts(&c, t);
    begin(w, "requests", SLICE("{"));
    for (int k = 0; k < OUTCOMES; k++)
        put_uint(w, outcome_name((enum outcome)k), c.requests[k]);
    put_uint(w, "offered", c.offered);
    put_uint(w, "good", c.good);
    put_uint(w, "late_ttft", c.late_ttft);
    put_uint(w, "late_tpot", c.late_tpot);
    put_uint(w, "retries", c.retries);
    end(w, SLICE("}"));
    begin(w, "tokens", SLICE("{"));
    put_uint(w, "in", c.tokens_in);
    put_uint(w, "out", c.tokens_out);
    put_uint(w, "cached", c.tokens_cached);
    end(w, SLICE("}"));
}

static void put_windows(struct writer *w, const struct goodput_table *table,
                        const struct traffic *newest)
{
    begin(w, "windows", SLICE("{"));
    for (int i = 0; i < GOODPUT_WINDOWS; i++) {
        struct goodput_figures f;
        goodput_model_figures(table, newest, (enum goodput_window)i, &f);
        begin(w, goodput_window_name((enum goodput_window)i), SLICE("{"));
        put_number(w, "seconds", f.seconds);
        put_number(w, "good_per_s", f.good_per_s);
        put_number(w, "offered_per_s", f.offered_per_s);
        put_number(w, "good_tokens_per_s", f.good_tokens_per_s);
        put_number_if(w, "attainment", f.attainment, f.offered_per_s > 0);
        end(w, SLICE("}"));
    }
    end(w, SLICE("}"));
}

/* ---- the fleet ---- */

static void put_report(struct writer *w, const struct replica *r, uint64_t now_ns)
{
    const struct replica_report *report = &r->report;
    uint64_t taken_ns = counter_get(&report->taken_ns);
    uint64_t queries = counter_get(&report->prefix_queries);
    uint64_t hits = counter_get(&report->prefix_hits);
    uint64_t kv_tokens = counter_get(&report->kv_tokens);
    bool known = taken_ns != 0;
    uint64_t age_ns = now_ns > taken_ns ? now_ns - taken_ns : 0;
    put_number_if(w, "report_age_s", (double)age_ns / (double)NS_PER_S, known);
    put_number_if(w, "running", atomic_load_explicit(&report->running, memory_order_relaxed),
                  known);
    put_number_if(w, "waiting", atomic_load_explicit(&report->waiting, memory_order_relaxed),
                  known);
    put_number_if(w, "kv_used",
                  atomic_load_explicit(&report->kv_used_ppm, memory_order_relaxed) / 1e6, known);
    put_number_if(w, "kv_tokens", (double)kv_tokens, kv_tokens > 0);
    put_number_if(w, "prefix_hit_ratio",
                  queries && hits < queries ? (double)hits / (double)queries : 1, queries > 0);
}

static void put_replica(struct writer *w, const struct replica *r, uint64_t now_ns)
{
    const struct engine *engine = atomic_load_explicit(&r->engine, memory_order_relaxed);
    uint64_t speed_mtok_s = counter_get(&r->speed_mtok_s);
    uint32_t context = atomic_load_explicit(&r->max_context_tokens, memory_order_relaxed);
    begin(w, NULL, SLICE("{"));
    put_text(w, "name", r->name);
    put_text(w, "engine", engine->name);
    put_text(w, "state", replica_state_name(replica_state(r)));
    put_bool(w, "ejected", replica_ejection(r, now_ns) != REPLICA_IN);
    put_number(w, "in_flight", (double)replica_in_flight(r));
    put_number_if(w, "tokens_per_s", (double)speed_mtok_s / 1e3, speed_mtok_s > 0);
    put_number_if(w, "max_context_tokens", context, context > 0);
    put_report(w, r, now_ns);
    end(w, SLICE("}"));
}

static void put_pool(struct writer *w, const struct pool *pool, uint64_t now_ns)
{
    begin(w, NULL, SLICE("{"));
    put_text(w, "name", pool->name);
    put_text(w, "policy", pool->policy ? route_policy_name(pool->policy) : NULL);
    put_text(w, "engine_model", pool->engine_model);
    put_times(w, pool->traffic, false);
    begin(w, "replicas", SLICE("["));
    for (size_t i = 0; i < pool->replica_count; i++)
        put_replica(w, pool->replicas[i], now_ns);
    end(w, SLICE("]"));
    end(w, SLICE("}"));
}

static void put_slo(struct writer *w, const struct slo *slo)
{
    begin(w, "slo", SLICE("{"));
    put_number_if(w, "ttft_ms", (double)slo->ttft_ns / 1e6, slo->ttft_ns > 0);
    put_number_if(w, "tpot_ms", (double)slo->tpot_ns / 1e6, slo->tpot_ns > 0);
    end(w, SLICE("}"));
}

static void put_model(struct writer *w, const struct metrics_input *in, const struct model *m)
{
    const struct traffic *newest = traffic_of_model(in->traffic, slice_str(m->name));
    begin(w, NULL, SLICE("{"));
    put_text(w, "name", m->name);
    begin(w, "aliases", SLICE("["));
    for (size_t i = 0; i < m->alias_count; i++)
        put_text(w, NULL, m->aliases[i]);
    end(w, SLICE("]"));
    put_slo(w, &m->slo);
    put_windows(w, in->goodput, newest);
    put_counts(w, newest);
    put_times(w, newest, true);
    begin(w, "pools", SLICE("["));
    for (size_t i = 0; i < m->pool_count; i++)
        put_pool(w, &m->pools[i], in->now_ns);
    end(w, SLICE("]"));
    end(w, SLICE("}"));
}

/* ---- the process ---- */

static void put_process(struct writer *w, const struct metrics_input *in)
{
    int64_t connections = 0, in_flight = 0;
    for (size_t i = 0; i < in->worker_count; i++) {
        const struct worker_counters *c = &in->workers[i];
        connections += atomic_load_explicit(&c->connections_open, memory_order_relaxed);
        in_flight += atomic_load_explicit(&c->requests_in_flight, memory_order_relaxed);
    }
    put_text(w, "version", in->version);
    put_number_if(w, "uptime_s", (double)(in->now_ns - in->started_ns) / (double)NS_PER_S,
                  in->started_ns > 0);
    put_uint(w, "workers", in->worker_count);
    put_number(w, "connections", (double)connections);
    put_number(w, "in_flight", (double)in_flight);
    put_uint(w, "config_generation", in->config_generation);
    put_uint(w, "config_reload_failures", in->config_reload_failures);
    put_uint(w, "access_log_lost", in->access_log_lost);
}

enum weir_err admin_write_status(const struct metrics_input *in, struct buf *out)
{
    struct writer w = {.out = out};
    begin(&w, NULL, SLICE("{"));
    put_process(&w, in);
    begin(&w, "models", SLICE("["));
    for (size_t i = 0; i < in->fleet->model_count; i++)
        put_model(&w, in, &in->fleet->models[i]);
    end(&w, SLICE("]"));
    end(&w, SLICE("}"));
    put(&w, SLICE("\n"));
    return w.rc;
}
