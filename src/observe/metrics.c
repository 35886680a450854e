#include "observe/metrics.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "observe/metric.h"

static const char *const type_names[] = {
    [TYPE_COUNTER] = "counter", [TYPE_GAUGE] = "gauge", [TYPE_HISTOGRAM] = "histogram"};

/* ---- writing: the first error sticks, so that rows need no checks ---- */

struct page {
    struct buf *out;
    enum weir_err rc;
    const struct metrics_input *in;
    const struct process_stats *process;
};

static void put(struct page *page, struct slice text)
{
    if (!page->rc)
        page->rc = buf_append(page->out, text);
}

static void put_str(struct page *page, const char *text)
{
    put(page, slice_str(text));
}

static void put_uint(struct page *page, uint64_t value)
{
    if (!page->rc)
        page->rc = buf_printf(page->out, "%" PRIu64, value);
}

static void put_number(struct page *page, double value)
{
    if (value >= 0 && value < 0x1p53 && value == (double)(uint64_t)value)
        put_uint(page, (uint64_t)value);
    else if (!page->rc)
        page->rc = json_put_number(page->out, value);
}

static void put_seconds(struct page *page, uint64_t us)
{
    put_number(page, (double)us / 1e6);
}

static void put_label_value(struct page *page, const char *value)
{
    size_t run = 0;
    size_t i = 0;
    for (; value[i]; i++) {
        if (value[i] != '\\' && value[i] != '"' && value[i] != '\n')
            continue;
        put(page, slice_of(value + run, i - run));
        put_str(page, value[i] == '\n' ? "\\n" : value[i] == '"' ? "\\\"" : "\\\\");
        run = i + 1;
    }
    put(page, slice_of(value + run, i - run));
}

struct label {
    const char *name;
    const char *value;
};

enum { MAX_LABELS = 5 };
struct labels {
    size_t count;
    struct label list[MAX_LABELS];
};

static void add_label(struct labels *labels, const char *name, const char *value)
{
    if (value)
        labels->list[labels->count++] = (struct label){name, value};
}

static void collect_labels(struct labels *labels, const struct metric *m,
                           const struct metric_subject *s, size_t variant)
{
    labels->count = 0;
    if (m->per == PER_GENAI) {
        add_label(labels, "gen_ai_request_model", s->traffic->model);
        add_label(labels, "gen_ai_provider_name", "weir");
    } else if (m->per != PER_PROCESS) {
        add_label(labels, "model", s->traffic ? s->traffic->model : s->model->name);
        add_label(labels, "pool", s->traffic ? s->traffic->pool : s->pool ? s->pool->name : NULL);
        add_label(labels, "replica", s->replica ? s->replica->name : NULL);
    }
    for (size_t i = 0; i < METRIC_SPLIT_LABELS; i++) {
        const struct metric_split_label *label = &metric_split_info(m->split)->labels[i];
        if (label->name)
            add_label(labels, label->name, label->word(s, variant));
    }
}

static void put_series(struct page *page, const char *name, const char *suffix,
                       const struct labels *labels, const char *le)
{
    put_str(page, name);
    put_str(page, suffix);
    const char *before = "{";
    for (size_t i = 0; i < labels->count; i++) {
        put_str(page, before);
        put_str(page, labels->list[i].name);
        put_str(page, "=\"");
        put_label_value(page, labels->list[i].value);
        put_str(page, "\"");
        before = ",";
    }
    if (le) {
        put_str(page, before);
        put_str(page, "le=\"");
        put_str(page, le);
        put_str(page, "\"");
    }
    put_str(page, labels->count || le ? "} " : " ");
}

static void put_buckets(struct page *page, const char *name, const struct labels *labels,
                        const struct metric_buckets *b)
{
    for (size_t i = 0; i < b->bound_count; i++) {
        char le[32];
        snprintf(le, sizeof le, "%.10g", (double)b->bounds_us[i] / 1e6);
        put_series(page, name, "_bucket", labels, le);
        put_uint(page, b->at_most[i]);
        put_str(page, "\n");
    }
    put_series(page, name, "_bucket", labels, "+Inf");
    put_uint(page, b->count);
    put_str(page, "\n");
    put_series(page, name, "_sum", labels, NULL);
    put_seconds(page, b->sum_us);
    put_str(page, "\n");
    put_series(page, name, "_count", labels, NULL);
    put_uint(page, b->count);
    put_str(page, "\n");
}

static void put_variant(struct page *page, const struct metric *m, const struct metric_subject *s,
                        size_t variant)
{
    struct labels labels;
    collect_labels(&labels, m, s, variant);
    struct metric_buckets buckets = {0};
    double value;
    if (m->buckets && m->buckets(s, variant, &buckets)) {
        put_buckets(page, m->name, &labels, &buckets);
    } else if (m->value && m->value(s, variant, &value)) {
        put_series(page, m->name, "", &labels, NULL);
        put_number(page, value);
        put_str(page, "\n");
    }
}

static void put_subject(struct page *page, const struct metric *m, struct metric_subject s)
{
    s.in = page->in;
    s.process = page->process;
    for (size_t variant = 0; variant < metric_split_info(m->split)->variants; variant++)
        put_variant(page, m, &s, variant);
}

/* ---- one per … ---- */

static void put_all_traffic(struct page *page, const struct metric *m)
{
    size_t count = traffic_count(page->in->traffic);
    for (size_t i = 0; i < count; i++)
        put_subject(page, m, (struct metric_subject){.traffic = traffic_at(page->in->traffic, i)});
}

/* The first traffic of each model ends its chain; the newest begins it. */
static void put_all_genai(struct page *page, const struct metric *m)
{
    size_t count = traffic_count(page->in->traffic);
    for (size_t i = 0; i < count; i++) {
        const struct traffic *t = traffic_at(page->in->traffic, i);
        if (!t->next_of_model)
            put_subject(page, m,
                        (struct metric_subject){
                            .traffic = traffic_of_model(page->in->traffic, slice_str(t->model))});
    }
}

static void put_all_models(struct page *page, const struct metric *m)
{
    const struct fleet *fleet = page->in->fleet;
    for (size_t i = 0; i < fleet->model_count; i++)
        put_subject(page, m, (struct metric_subject){.model = &fleet->models[i]});
}

static void put_pool_replicas(struct page *page, const struct metric *m, const struct model *model,
                              const struct pool *pool)
{
    for (size_t i = 0; i < pool->replica_count; i++)
        put_subject(
            page, m,
            (struct metric_subject){.model = model, .pool = pool, .replica = pool->replicas[i]});
}

static void put_all_replicas(struct page *page, const struct metric *m)
{
    const struct fleet *fleet = page->in->fleet;
    for (size_t i = 0; i < fleet->model_count; i++)
        for (size_t k = 0; k < fleet->models[i].pool_count; k++)
            put_pool_replicas(page, m, &fleet->models[i], &fleet->models[i].pools[k]);
}

static void put_family(struct page *page, const struct metric *m)
{
    if (!page->rc)
        page->rc = buf_printf(page->out, "# HELP %s %s\n# TYPE %s %s\n", m->name, m->help, m->name,
                              type_names[m->type]);
    switch (m->per) {
    case PER_PROCESS:
        put_subject(page, m, (struct metric_subject){0});
        break;
    case PER_TRAFFIC:
        put_all_traffic(page, m);
        break;
    case PER_GENAI:
        put_all_genai(page, m);
        break;
    case PER_MODEL:
        put_all_models(page, m);
        break;
    case PER_REPLICA:
        put_all_replicas(page, m);
        break;
    }
}

enum weir_err metrics_write(const struct metrics_input *in, struct buf *out)
{
    struct process_stats process;
    process_stats_read(&process);
    struct page page = {.out = out, .in = in, .process = &process};
    for (size_t i = 0; i < metric_count && !page.rc; i++)
        put_family(&page, &metric_table[i]);
    return page.rc;
}

/* ---- the reference ---- */

static const char *const per_labels[] = {
    [PER_PROCESS] = "",
    [PER_MODEL] = "model",
    [PER_TRAFFIC] = "model, pool",
    [PER_GENAI] = "gen_ai_request_model, gen_ai_provider_name",
    [PER_REPLICA] = "model, pool, replica",
};

static void put_reference_row(struct page *page, const struct metric *m)
{
    put_str(page, "| `");
    put_str(page, m->name);
    put_str(page, "` | ");
    put_str(page, type_names[m->type]);
    put_str(page, " | ");
    put_str(page, per_labels[m->per]);
    for (size_t i = 0; i < METRIC_SPLIT_LABELS; i++) {
        const struct metric_split_label *label = &metric_split_info(m->split)->labels[i];
        if (!label->name)
            continue;
        put_str(page, i || per_labels[m->per][0] ? ", " : "");
        put_str(page, label->name);
    }
    put_str(page, " | ");
    put_str(page, m->unit);
    put_str(page, " | ");
    put_str(page, m->help);
    put_str(page, " |\n");
}

enum weir_err metrics_write_reference(struct buf *out)
{
    struct page page = {.out = out};
    put_str(&page, "| metric | type | labels | unit | what it says |\n"
                   "| --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < metric_count; i++)
        put_reference_row(&page, &metric_table[i]);
    return page.rc;
}
