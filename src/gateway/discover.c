#include "gateway/discover.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/heap.h"
#include "gateway/interview.h"
#include "net/address.h"
#include "net/loop.h"
#include "net/resolve.h"

enum { MAX_ACTIVE = 64 };

/* Between two tries at an engine that is not there yet. */
#define RETRY_NS (500 * NS_PER_MS)

struct candidate {
    struct interview interview; /* first: it hands itself back */
    struct discovery *discovery;
    struct discovered *result;
    struct base_url url;
    struct resolve *resolve;
    struct timer timer;
    struct candidate *next_queued;
    const struct engine *engine; /* once detected */
    char *authority, *path;
};

struct discovery {
    struct loop *loop;
    struct fetcher *fetcher;
    struct resolver *resolver;
    discover_fn fn;
    void *ctx;
    struct timer finish; /* when the last one is done; also keeps the callback out of the start */
    uint64_t deadline_ns;
    uint64_t timeout_ns;
    struct candidate *candidates;
    struct discovered *results;
    size_t count, open, active;
    struct candidate *queue_first, **queue_last;
    bool is_starting; /* in start_queued(), which a try that ends at once must not nest in */
};

static void free_discovery(struct discovery *d)
{
    for (size_t i = 0; i < d->count; i++) {
        struct candidate *c = &d->candidates[i];
        interview_stop(&c->interview);
        if (c->resolve)
            resolve_cancel(c->resolve);
        timer_cancel(d->loop, &c->timer);
        heap_free(c->authority);
        heap_free(c->path);
    }
    timer_cancel(d->loop, &d->finish);
    heap_free(d->candidates);
    heap_free(d->results);
    heap_free(d);
}

static void on_finish(struct timer *timer)
{
    struct discovery *d = (struct discovery *)((char *)timer - offsetof(struct discovery, finish));
    d->fn(d->ctx, d->results, d->count);
    free_discovery(d);
}

static void try_candidate(struct candidate *c);

static void start_queued(struct discovery *d)
{
    if (d->is_starting)
        return;
    d->is_starting = true;
    while (d->active < MAX_ACTIVE && d->queue_first) {
        struct candidate *c = d->queue_first;
        d->queue_first = c->next_queued;
        if (!d->queue_first)
            d->queue_last = &d->queue_first;
        d->active++;
        try_candidate(c);
    }
    d->is_starting = false;
}

static void enqueue(struct candidate *c)
{
    struct discovery *d = c->discovery;
    c->next_queued = NULL;
    *d->queue_last = c;
    d->queue_last = &c->next_queued;
}

static void close_candidate(struct candidate *c)
{
    struct discovery *d = c->discovery;
    if (--d->open == 0)
        timer_set(d->loop, &d->finish, 0);
}

/* A try is over and was the last one. */
static void end_try(struct candidate *c)
{
    c->discovery->active--;
    close_candidate(c);
    start_queued(c->discovery);
}

static void try_later(struct candidate *c)
{
    struct discovery *d = c->discovery;
    if (loop_now_ns(d->loop) + RETRY_NS >= d->deadline_ns) {
        end_try(c);
        return;
    }
    d->active--;
    timer_set(d->loop, &c->timer, RETRY_NS);
    start_queued(d);
}

static void after_detect(struct candidate *c)
{
    struct interview *iv = &c->interview;
    if (iv->engine && iv->seen == REPLICA_READY) {
        c->engine = iv->engine;
        c->result->facts = (struct engine_facts){0};
        interview_ask(iv, c->engine->once, &c->result->facts);
        return;
    }
    const char *advice = iv->seen == REPLICA_LOADING ? "; its model is still loading"
                         : slice_find(slice_str(iv->why), SLICE("answered"))
                             ? "; is this the address of an LLM engine, without a key?"
                             : "; is the engine running there?";
    snprintf(c->result->why, sizeof c->result->why, "%s%s", iv->why, advice);
    try_later(c);
}

static void after_ask(struct candidate *c)
{
    if (c->result->facts.model_count) {
        c->result->engine = c->engine;
        c->result->why[0] = '\0'; /* of earlier tries */
        end_try(c);
        return;
    }
    c->engine = NULL;
    snprintf(c->result->why, sizeof c->result->why,
             "it lists no model at /v1/models; name the models in a configuration file");
    try_later(c);
}

static void on_done(struct interview *iv)
{
    struct candidate *c = (struct candidate *)iv;
    if (c->engine)
        after_ask(c);
    else
        after_detect(c);
}

static void on_resolved(void *ctx, const struct resolve_answer *answer)
{
    struct candidate *c = ctx;
    c->resolve = NULL;
    if (answer->count == 0) {
        snprintf(c->result->why, sizeof c->result->why, "%s", answer->text);
        try_later(c);
        return;
    }
    c->interview.endpoint = answer->endpoints[0];
    interview_detect(&c->interview);
}

static void try_candidate(struct candidate *c)
{
    struct discovery *d = c->discovery;
    switch (address_from_host(c->url.host, c->url.port, c->url.is_unix, &c->interview.endpoint)) {
    case WEIR_OK:
        interview_detect(&c->interview);
        return;
    case WEIR_ENOTFOUND:
        c->resolve = resolve_start(d->resolver, c->url.host, c->url.port, on_resolved, c);
        return;
    default:
        snprintf(c->result->why, sizeof c->result->why, "the address cannot be used");
        end_try(c);
    }
}

static void on_retry(struct timer *timer)
{
    struct candidate *c = (struct candidate *)((char *)timer - offsetof(struct candidate, timer));
    enqueue(c);
    start_queued(c->discovery);
}

static void begin(struct candidate *c)
{
    struct error err;
    if (base_url_parse(slice_str(c->result->url), &c->url, &err) != WEIR_OK) {
        snprintf(c->result->why, sizeof c->result->why, "%s", err.text);
        close_candidate(c);
        return;
    }
    c->authority = heap_strdup(c->url.authority);
    c->path = heap_strdup(c->url.path);
    c->interview = (struct interview){
        .fetcher = c->discovery->fetcher,
        .authority = c->authority,
        .path_prefix = c->path,
        .timeout_ns = c->discovery->timeout_ns,
        .done = on_done,
    };
    enqueue(c);
}

struct discovery *discover_start(struct loop *loop, struct fetcher *fetcher,
                                 struct resolver *resolver, const char *const *urls, size_t count,
                                 uint64_t timeout_ns, uint64_t wait_ns, discover_fn fn, void *ctx)
{
    struct discovery *d = heap_zalloc(sizeof *d);
    *d = (struct discovery){
        .loop = loop,
        .fetcher = fetcher,
        .resolver = resolver,
        .fn = fn,
        .ctx = ctx,
        .finish = {.on_fire = on_finish},
        .deadline_ns = loop_now_ns(loop) + wait_ns,
        .timeout_ns = timeout_ns,
        .candidates = heap_zalloc(count * sizeof *d->candidates),
        .results = heap_zalloc(count * sizeof *d->results),
        .count = count,
        .open = count,
    };
    d->queue_last = &d->queue_first;
    for (size_t i = 0; i < count; i++) {
        struct candidate *c = &d->candidates[i];
        c->discovery = d;
        c->result = &d->results[i];
        c->timer.on_fire = on_retry;
        c->result->url = urls[i];
        begin(c);
    }
    start_queued(d);
    if (d->open == 0)
        timer_set(loop, &d->finish, 0);
    return d;
}

void discover_cancel(struct discovery *d)
{
    free_discovery(d);
}
