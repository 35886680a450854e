#include "gateway/worker.h"

#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/heap.h"
#include "base/log.h"
#include "gateway/relay.h"
#include "net/address.h"

enum {
    OUTBOUND_BLOCK_BYTES = 8 * 1024,
    OUTBOUND_MAX_BYTES = 64 * 1024 * 1024, /* limits.head, a few heads and refusals per attempt */
    FREE_OUTBOUNDS = 256,                  /* kept for the next requests */
};

static const struct http_handler handler = {
    .on_head = stream_on_head,
    .on_request = stream_on_request,
    .on_refuse = stream_on_refuse,
    .on_client_gone = stream_on_client_gone,
    .on_writable = stream_on_writable,
};

/* ---- the fleet as this worker uses it ---- */

static struct worker_fleet *worker_fleet_new(struct worker *w, struct fleet *fleet)
{
    struct worker_fleet *f = heap_zalloc(sizeof *f);
    f->fleet = fleet; /* the caller's reference */
    f->refs = 1;
    arena_init(&f->arena, 4096, SIZE_MAX);
    f->policy_state = arena_zalloc(&f->arena, (fleet->pool_count + 1) * sizeof *f->policy_state);
    f->budgets = arena_zalloc(&f->arena, (fleet->model_count + 1) * sizeof *f->budgets);
    uint64_t now_ns = loop_now_ns(w->loop);
    for (size_t i = 0; i < fleet->model_count; i++) {
        const struct model *model = &fleet->models[i];
        retry_budget_init(&f->budgets[i], w->settings.retry_ratio, w->settings.retry_min_per_s,
                          now_ns);
        for (size_t j = 0; j < model->pool_count; j++) {
            const struct pool *pool = &model->pools[j];
            if (pool->policy->state_size) {
                f->policy_state[pool->index] = arena_zalloc(&f->arena, pool->policy->state_size);
            }
        }
    }
    return f;
}

struct worker_fleet *worker_fleet_hold(struct worker_fleet *f)
{
    f->refs++;
    return f;
}

void worker_fleet_drop(struct worker_fleet *f)
{
    if (--f->refs == 0) {
        fleet_drop(f->fleet);
        arena_free(&f->arena);
        heap_free(f);
    }
}

/* ---- memory of requests ---- */

struct outbound *worker_take_outbound(struct worker *w)
{
    struct outbound *out = w->free_outbounds;
    if (out) {
        w->free_outbounds = out->next;
        w->free_outbound_count--;
        return out;
    }
    out = heap_zalloc(sizeof *out);
    arena_init(&out->arena, OUTBOUND_BLOCK_BYTES, OUTBOUND_MAX_BYTES);
    return out;
}

static void free_outbound(struct outbound *out)
{
    arena_free(&out->arena);
    heap_free(out);
}

void worker_put_outbound(struct worker *w, struct outbound *out)
{
    if (w->free_outbound_count == FREE_OUTBOUNDS) {
        free_outbound(out);
        return;
    }
    arena_reset(&out->arena);
    out->tried_count = 0;
    out->last.status = 0;
    out->info = (struct body_info){0};
    out->next = w->free_outbounds;
    w->free_outbounds = out;
    w->free_outbound_count++;
}

/* ---- the thread ---- */

enum { REST_READS = 8 };
#define REST_NS (50 * NS_PER_US)

/*
 * Many streams whose events come several at a time: the engines are faster than our turns, and no
 * reader waits for a single event. A short rest lets each read and each write carry more of them.
 */
static void rest_if_ahead(struct worker *w)
{
    if (w->turn_reads >= REST_READS && w->turn_events * 4 >= w->turn_reads * 5) {
        loop_rest(w->loop, REST_NS);
    }
    w->turn_reads = w->turn_events = 0;
}

/* But for those that still stand on the list of streams to go on with. */
static void free_dead(struct worker *w)
{
    struct stream *list = w->dead;
    w->dead = NULL;
    while (list) {
        struct stream *s = list;
        list = s->next;
        if (s->is_queued) {
            s->next = w->dead;
            w->dead = s;
        } else {
            slab_put(&w->streams, s);
        }
    }
}

static void on_turn_end(void *ctx)
{
    struct worker *w = ctx;
    rest_if_ahead(w);
    stream_run_again(w);
    free_dead(w);
    worker_check_drained(w);
}

static void on_accept(void *ctx, int descriptor, const struct endpoint *peer)
{
    struct worker *w = ctx;
    http_server_adopt(&w->server, descriptor, peer);
}

static void *run(void *ctx)
{
    struct worker *w = ctx;
    char name[16];
    snprintf(name, sizeof name, "weir/%zu", w->index);
    pthread_setname_np(pthread_self(), name);
    loop_run(w->loop);
    loop_post(w->control_loop, w->on_done, w->ctx);
    return NULL;
}

static enum weir_err start_listeners(struct worker *w, const int *sockets, size_t count,
                                     struct error *err)
{
    w->listeners = heap_zalloc(count * sizeof *w->listeners);
    for (size_t i = 0; i < count; i++) {
        if (listener_start(&w->listeners[i], w->loop, sockets[i], on_accept, w) != WEIR_OK) {
            return error_set(err, WEIR_EIO, "cannot watch a listening socket");
        }
        w->listener_count++;
    }
    return WEIR_OK;
}

struct worker *worker_new(const struct worker_options *options, struct error *err)
{
    struct loop *loop = loop_new(err);
    if (!loop) {
        return NULL;
    }
    struct worker *w = heap_zalloc(sizeof *w);
    w->index = options->index;
    w->loop = loop;
    w->access_log = options->access_log;
    w->is_ready = options->is_ready;
    w->control_loop = options->control_loop;
    w->on_done = options->on_done;
    w->ctx = options->ctx;
    uint64_t seed;
    rng_secret(&seed, sizeof seed);
    rng_seed(&w->rng, seed);
    w->settings = settings_of_worker(options->config, options->worker_count);
    struct http_server_limits limits = settings_of_server(options->config, options->worker_count);
    http_server_init(&w->server, loop, &handler, w, &limits, &w->server_counters);
    upstream_pool_init(&w->upstreams, loop, options->config->limits.upstream_idle,
                       &w->upstream_counters);
    slab_init(&w->streams, sizeof(struct stream), 32);
    w->all.next = w->all.prev = &w->all;
    w->scratch = heap_alloc(RELAY_SCRATCH_BYTES);
    w->fleet = worker_fleet_new(w, fleet_hold(options->fleet));
    loop_at_turn_end(loop, on_turn_end, w);
    if (start_listeners(w, options->sockets, options->socket_count, err) != WEIR_OK) {
        worker_free(w);
        return NULL;
    }
    return w;
}

void worker_free(struct worker *w)
{
    for (size_t i = 0; i < w->listener_count; i++) {
        listener_stop(&w->listeners[i]);
    }
    http_server_close(&w->server);
    stream_run_again(w); /* all have ended: this only empties the list */
    free_dead(w);
    upstream_pool_close(&w->upstreams);
    worker_fleet_drop(w->fleet);
    while (w->free_outbounds) {
        struct outbound *out = w->free_outbounds;
        w->free_outbounds = out->next;
        free_outbound(out);
    }
    slab_free_all(&w->streams);
    loop_free(w->loop);
    heap_free(w->listeners);
    heap_free(w->scratch);
    heap_free(w);
}

enum weir_err worker_start(struct worker *w, struct error *err)
{
    int errnum = pthread_create(&w->thread, NULL, run, w);
    w->is_started = errnum == 0;
    return errnum ? error_set_errno(err, errnum, "cannot start a worker thread") : WEIR_OK;
}

void worker_join(struct worker *w)
{
    if (w->is_started) {
        pthread_join(w->thread, NULL);
    }
}

/* ---- messages from the control thread ---- */

struct message {
    struct worker *worker;
    uint32_t replica_id;
    struct fleet *fleet;
    struct worker_settings settings;
    struct http_server_limits limits;
};

/* Idle connections to replicas that the new fleet lacks are closed now, busy ones after their use.
 */
static void forget_removed(struct worker *w, const struct fleet *old, const struct fleet *fresh)
{
    struct map kept = {0};
    for (size_t m = 0; m < fresh->model_count; m++) {
        for (size_t p = 0; p < fresh->models[m].pool_count; p++) {
            const struct pool *pool = &fresh->models[m].pools[p];
            for (size_t r = 0; r < pool->replica_count; r++) {
                map_set(&kept, slice_of((const char *)&pool->replicas[r]->id, sizeof(uint32_t)),
                        pool->replicas[r]);
            }
        }
    }
    for (size_t m = 0; m < old->model_count; m++) {
        for (size_t p = 0; p < old->models[m].pool_count; p++) {
            const struct pool *pool = &old->models[m].pools[p];
            for (size_t r = 0; r < pool->replica_count; r++) {
                uint32_t id = pool->replicas[r]->id;
                if (!map_get(&kept, slice_of((const char *)&id, sizeof id))) {
                    upstream_forget_host(&w->upstreams, id);
                }
            }
        }
    }
    map_free(&kept);
}

static void do_set_fleet(void *ctx)
{
    struct message *m = ctx;
    struct worker *w = m->worker;
    struct worker_fleet *old = w->fleet;
    w->fleet = worker_fleet_new(w, m->fleet);
    forget_removed(w, old->fleet, m->fleet);
    worker_fleet_drop(old);
    heap_free(m);
}

static void do_set_config(void *ctx)
{
    struct message *m = ctx;
    m->worker->settings = m->settings;
    m->worker->server.limits = m->limits;
    heap_free(m);
}

static struct message *message_new(struct worker *w)
{
    struct message *m = heap_zalloc(sizeof *m);
    m->worker = w;
    return m;
}

void worker_set_fleet(struct worker *w, struct fleet *fleet)
{
    struct message *m = message_new(w);
    m->fleet = fleet_hold(fleet);
    loop_post(w->loop, do_set_fleet, m);
}

void worker_set_config(struct worker *w, const struct config *config, size_t worker_count)
{
    struct message *m = message_new(w);
    m->settings = settings_of_worker(config, worker_count);
    m->limits = settings_of_server(config, worker_count);
    loop_post(w->loop, do_set_config, m);
}

static void do_forget_replica(void *ctx)
{
    struct message *m = ctx;
    upstream_forget_host(&m->worker->upstreams, m->replica_id);
    heap_free(m);
}

void worker_forget_replica(struct worker *w, uint32_t replica_id)
{
    struct message *m = message_new(w);
    m->replica_id = replica_id;
    loop_post(w->loop, do_forget_replica, m);
}

static void do_drain(void *ctx)
{
    struct worker *w = ctx;
    w->is_draining = true;
    for (size_t i = 0; i < w->listener_count; i++) {
        listener_stop(&w->listeners[i]);
    }
    http_server_drain(&w->server);
}

void worker_check_drained(struct worker *w)
{
    if (w->is_draining && w->server.open == 0) {
        loop_stop(w->loop);
    }
}

void worker_drain(struct worker *w)
{
    loop_post(w->loop, do_drain, w);
}

static void do_end(void *ctx)
{
    struct worker *w = ctx;
    do_drain(w);
    stream_end_all(w, "the time to drain is over");
    loop_stop(w->loop);
}

void worker_end(struct worker *w)
{
    loop_post(w->loop, do_end, w);
}
