/* attempt.c - choosing a replica, asking it, and what its failures mean. */
#include <errno.h>

#include "base/clock.h"
#include "base/log.h"
#include "engines/engine.h"
#include "gateway/stream.h"
#include "gateway/worker.h"

enum { MAX_PICKS = 8 }; /* replicas that another worker may be trying at this very moment */

/* How often a waiting stream looks at its deadlines and at its replica's state. */
#define TICK_NS (1 * NS_PER_S)
/* A stream of a replica that nobody listens for any more ends after so much silence: a vLLM that
 * was told to end leaves its streams open for ever. One that is merely too busy for its checks goes
 * on. */
#define DOWN_SILENCE_NS    (2 * NS_PER_S)
#define MIN_RETRY_AFTER_MS 1000
#define MAX_RETRY_AFTER_MS 60000

static const struct upstream_events events;

/* ---- choosing ---- */

static void *policy_state(const struct stream *s)
{
    return s->fleet->policy_state[s->pool->index];
}

static struct replica *choose_in_pool(struct stream *s, const struct pool *pool, bool desperate,
                                      uint64_t now_ns)
{
    struct worker *w = s->worker;
    struct outbound *out = s->out;
    struct pool_view view;
    pool_view_init(&view, pool, w->settings.ramp_ns);
    view.desperate = desperate;
    view.tried_count = out->tried_count;
    memcpy(view.tried, out->tried, out->tried_count * sizeof *out->tried);
    for (int i = 0; i < MAX_PICKS && view.tried_count < ROUTE_MAX_TRIED; i++) {
        int at = pool->policy->pick(s->fleet->policy_state[pool->index], &view, &s->view, &w->rng,
                                    now_ns);
        if (at == ROUTE_NONE) {
            return NULL;
        }
        struct replica *r = pool->replicas[at];
        if (desperate || health_may_try(r, &w->settings.health, now_ns)) {
            return r;
        }
        view.tried[view.tried_count++] = r->id;
    }
    return NULL;
}

/* A pool is drawn by its size; the others stand in when it has nothing. */
static struct replica *choose(struct stream *s, uint64_t now_ns)
{
    const struct model *model = s->model;
    size_t total = 0, first = 0;
    for (size_t i = 0; i < model->pool_count; i++) {
        total += model->pools[i].replica_count;
    }
    if (model->pool_count > 1 && total) {
        uint64_t draw = rng_below(&s->worker->rng, total);
        while (draw >= model->pools[first].replica_count) {
            draw -= model->pools[first++].replica_count;
        }
    }
    for (int desperate = 0; desperate < 2; desperate++) {
        for (size_t i = 0; i < model->pool_count; i++) {
            const struct pool *pool = &model->pools[(first + i) % model->pool_count];
            struct replica *r = choose_in_pool(s, pool, desperate, now_ns);
            if (r) {
                s->pool = pool;
                return r;
            }
        }
    }
    return NULL;
}

/* ---- the request towards the engine ---- */

static char *put_number(char *at, uint64_t number)
{
    char digits[20];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    while (count) {
        *at++ = digits[--count];
    }
    return at;
}

static struct slice write_request_head(struct stream *s, const struct replica *r)
{
    struct outbound *out = s->out;
    const struct surface_info *surface = surface_info(s->surface);
    struct slice prefix = slice_str(r->path_prefix), path = slice_str(surface->path);
    struct slice host = slice_str(r->host), id = slice_str(s->request_id);
    struct slice auth = slice_of(r->authorization, r->authorization_len);
    size_t room = prefix.len + path.len + out->query.len + host.len + id.len + auth.len +
                  out->headers.len + 256;
    char *head = arena_alloc(&out->arena, room);
    if (!head) {
        return (struct slice){0};
    }
    char *at = slice_put(head, SLICE("POST "));
    at = slice_put(slice_put(slice_put(at, prefix), path), out->query);
    at = slice_put(slice_put(at, SLICE(" HTTP/1.1\r\nhost: ")), host);
    at = slice_put(slice_put(at, SLICE("\r\nx-request-id: ")), id);
    if (auth.len) {
        at = slice_put(slice_put(at, SLICE("\r\nauthorization: ")), auth);
    }
    at = slice_put(at, SLICE("\r\naccept-encoding: identity\r\ncontent-length: "));
    at = slice_put(put_number(at, out->plan.length), SLICE("\r\n"));
    at = slice_put(slice_put(at, out->headers), SLICE("\r\n"));
    return slice_of(head, (size_t)(at - head));
}

static bool prepare(struct stream *s, const struct replica *r)
{
    struct outbound *out = s->out;
    const struct engine *engine = atomic_load_explicit(&r->engine, memory_order_relaxed);
    if (body_plan_edits(s->surface, out->body, &out->info, slice_str(s->pool->engine_model),
                        engine->has_usage_option, &out->arena, &out->plan) != WEIR_OK) {
        return false;
    }
    struct slice head = write_request_head(s, r);
    if (head.len == 0) {
        return false;
    }
    out->pieces[0] = (struct iovec){(void *)head.ptr, head.len};
    out->piece_count = 1 + body_pieces(out->body, &out->plan, out->pieces + 1);
    out->total = head.len + out->plan.length;
    out->sent = 0;
    return true;
}

static void arm(struct stream *s, uint64_t delay_ns)
{
    timer_set(s->worker->loop, &s->timer, delay_ns < TICK_NS ? delay_ns : TICK_NS);
}

/* The engine closed a kept-alive connection while we wrote on it: its right, and nobody's fault. */
static bool lost_the_race(const struct stream *s)
{
    return s->up && s->up->was_reused && !s->out->raced && !s->has_head &&
           buf_len(&s->partial) == 0;
}

static void connect_replica(struct stream *s, bool allow_reuse);

void attempt_broke_early(struct stream *s, int errnum)
{
    if (lost_the_race(s)) {
        s->out->raced = true;
        s->out->sent = 0;
        upstream_release(s->up, false);
        s->up = NULL;
        stream_enter(s, ST_CONNECT);
        connect_replica(s, false);
        return;
    }
    struct api_error error;
    api_error_set(&error, API_UPSTREAM, "the engine closed the connection before it answered%s%s",
                  errnum ? ": " : "", errnum ? strerror(errnum) : "");
    attempt_failed(s, HEALTH_FAULT, &error);
}

static void send_request(struct stream *s)
{
    struct outbound *out = s->out;
    struct iovec rest[2 + BODY_MAX_PIECES];
    size_t count = 0, skip = out->sent;
    for (size_t i = 0; i < out->piece_count; i++) {
        struct iovec piece = out->pieces[i];
        size_t drop = skip < piece.iov_len ? skip : piece.iov_len;
        skip -= drop;
        if (drop < piece.iov_len) {
            rest[count++] = (struct iovec){(char *)piece.iov_base + drop, piece.iov_len - drop};
        }
    }
    ssize_t n = upstream_write(s->up, rest, count);
    if (n < 0 && errno != EAGAIN) {
        /* It may have said why before it closed, as for a body that it finds too large. */
        s->up->peer_closed = s->up->is_readable = true;
        relay_read(s);
        return;
    }
    out->sent += n > 0 ? (size_t)n : 0;
    s->sent_ns = s->heard_ns = loop_now_ns(s->worker->loop);
}

static void on_connected(struct upstream_conn *up)
{
    struct stream *s = up->owner;
    stream_enter(s, ST_WAIT);
    s->sent_ns = loop_now_ns(s->worker->loop);
    arm(s, s->worker->settings.first_byte_ns);
    send_request(s);
}

static void on_writable(struct upstream_conn *up)
{
    struct stream *s = up->owner;
    if (s->state == ST_WAIT && s->out->sent < s->out->total) {
        send_request(s);
    }
}

static void on_readable(struct upstream_conn *up)
{
    relay_read(up->owner);
}

/* Want of descriptors or ports is ours, and no fault of the replica. */
static bool is_our_want(int errnum)
{
    return errnum == EMFILE || errnum == ENFILE || errnum == ENOBUFS || errnum == ENOMEM ||
           errnum == EADDRNOTAVAIL;
}

static void connect_failed(struct stream *s, int errnum)
{
    struct api_error error;
    if (is_our_want(errnum)) {
        api_error_set(&error, API_OVERLOADED, "weir cannot open another connection: %s",
                      strerror(errnum));
        attempt_failed(s, HEALTH_NONE, &error);
        return;
    }
    api_error_set(&error, API_NO_REPLICA, "the engine cannot be reached: %s", strerror(errnum));
    attempt_failed(s, HEALTH_FAULT, &error);
}

static void on_connect_failed(struct upstream_conn *up, int errnum)
{
    struct stream *s = up->owner;
    s->up = NULL;
    connect_failed(s, errnum);
}

static const struct upstream_events events = {
    .on_connected = on_connected,
    .on_connect_failed = on_connect_failed,
    .on_readable = on_readable,
    .on_writable = on_writable,
};

static void connect_replica(struct stream *s, bool allow_reuse)
{
    struct worker *w = s->worker;
    struct endpoint endpoint;
    if (!replica_endpoint_get(s->replica, &endpoint)) {
        struct api_error error;
        api_error_set(&error, API_NO_REPLICA, "the engine's name does not resolve");
        attempt_failed(s, HEALTH_FAULT, &error);
        return;
    }
    int errnum;
    if (upstream_take(&w->upstreams, s->replica->id, &endpoint, allow_reuse, &events, s, &s->up,
                      &errnum) != WEIR_OK) {
        connect_failed(s, errnum);
        return;
    }
    if (s->up->state == UPSTREAM_BUSY) {
        on_connected(s->up);
    } else {
        arm(s, w->settings.connect_ns);
        s->sent_ns = loop_now_ns(w->loop);
    }
}

/* ---- beginning and ending ---- */

static uint32_t soonest_return_ms(const struct stream *s, uint64_t now_ns)
{
    uint64_t soonest_ns = UINT64_MAX;
    for (size_t i = 0; i < s->model->pool_count; i++) {
        const struct pool *pool = &s->model->pools[i];
        for (size_t j = 0; j < pool->replica_count; j++) {
            uint64_t until_ns = atomic_load_explicit(&pool->replicas[j]->health.ejected_until_ns,
                                                     memory_order_relaxed);
            if (until_ns > now_ns && until_ns < soonest_ns) {
                soonest_ns = until_ns;
            }
        }
    }
    uint64_t ms = soonest_ns == UINT64_MAX ? 0 : (soonest_ns - now_ns) / NS_PER_MS;
    return ms < MIN_RETRY_AFTER_MS   ? MIN_RETRY_AFTER_MS
           : ms > MAX_RETRY_AFTER_MS ? MAX_RETRY_AFTER_MS
                                     : (uint32_t)ms;
}

/* Nothing is left to try: the engine's own words if there are any, else ours. */
static void give_up(struct stream *s, const struct api_error *error)
{
    if (s->out->last.status) {
        answer_last(s);
        return;
    }
    struct api_error final;
    if (error) {
        final = *error;
    } else {
        api_error_set(&final, API_NO_REPLICA, "no engine of `%s` can take requests now",
                      s->model->name);
    }
    if (final.kind == API_NO_REPLICA) {
        final.retry_after_ms = soonest_return_ms(s, loop_now_ns(s->worker->loop));
    }
    answer_error(s, &final);
}

static void begin(struct stream *s, struct replica *r, uint64_t now_ns)
{
    if (s->replica) {
        replica_drop(s->replica);
    }
    s->replica = replica_hold(r);
    s->tries++;
    s->out->raced = false;
    if (s->out->tried_count < ROUTE_MAX_TRIED) {
        s->out->tried[s->out->tried_count++] = r->id;
    }
    replica_claim_take(&s->claim, r, s->view.prompt_tokens, s->view.output_tokens);
    if (s->pool->policy->on_start) {
        s->pool->policy->on_start(policy_state(s), r->id, &s->view, now_ns);
    }
    relay_reset(s);
    stream_enter(s, ST_CONNECT);
    if (!prepare(s, r)) {
        struct api_error error;
        api_error_set(&error, API_HEAD_TOO_LARGE, "the request's headers are too large to forward");
        attempt_end(s, HEALTH_NONE, false, false);
        answer_error(s, &error);
        return;
    }
    connect_replica(s, true);
}

static void try_next(struct stream *s, const struct api_error *error)
{
    uint64_t now_ns = loop_now_ns(s->worker->loop);
    struct replica *r = choose(s, now_ns);
    if (r) {
        begin(s, r, now_ns);
    } else {
        give_up(s, error);
    }
}

void attempt_start(struct stream *s)
{
    try_next(s, NULL);
}

static void judge(struct stream *s, enum health_outcome judged)
{
    struct worker *w = s->worker;
    uint64_t now_ns = loop_now_ns(w->loop);
    size_t out_count = judged == HEALTH_FAULT
                           ? health_ejected_count(s->pool->replicas, s->pool->replica_count, now_ns)
                           : 0;
    enum health_change change = health_report(s->replica, &w->settings.health, judged, out_count,
                                              s->pool->replica_count, now_ns);
    if (change == HEALTH_EJECTED) {
        log_warn("replica ejected", "%s of %s failed too often in a row; it is tried again later",
                 s->replica->name, s->model->name);
    } else if (change == HEALTH_RETURNED) {
        log_info("replica returned", "%s of %s works again", s->replica->name, s->model->name);
    }
}

void attempt_end(struct stream *s, enum health_outcome judged, bool completed, bool reusable)
{
    if (s->up) {
        upstream_release(s->up, reusable);
        s->up = NULL;
    }
    if (!s->claim.replica) {
        return; /* no attempt is under way */
    }
    replica_claim_release(&s->claim);
    if (s->pool->policy->on_end) {
        struct route_result result = {
            .completed = completed,
            .tokens_out = (uint32_t)stream_usage(s)->output_tokens,
            .tokens_cached = (uint32_t)stream_usage(s)->cached_tokens,
            .ttft_ns = s->first_ns ? s->first_ns - s->start_ns : 0,
        };
        s->pool->policy->on_end(policy_state(s), s->replica->id, &result,
                                loop_now_ns(s->worker->loop));
    }
    judge(s, judged);
}

static bool may_retry(struct stream *s)
{
    uint64_t now_ns = loop_now_ns(s->worker->loop);
    return s->tries < s->worker->settings.attempts && s->out->tried_count < ROUTE_MAX_TRIED &&
           (!s->deadline_ns || now_ns < s->deadline_ns) &&
           retry_budget_take(&s->fleet->budgets[s->model_index], now_ns);
}

void attempt_failed(struct stream *s, enum health_outcome judged, const struct api_error *error)
{
    attempt_end(s, judged, false, false);
    if (!may_retry(s)) {
        give_up(s, error);
        return;
    }
    try_next(s, error);
}

/* ---- time ---- */

static void time_out(struct stream *s, const char *what, enum health_outcome judged)
{
    struct api_error error;
    api_error_set(&error, API_UPSTREAM_TIMEOUT, "%s", what);
    if (s->state == ST_RELAY) {
        relay_broken(s, &error, judged);
        return;
    }
    attempt_end(s, judged, false, false); /* a second engine would take just as long */
    answer_error(s, &error);
}

static bool is_down_and_silent(const struct stream *s, uint64_t now_ns)
{
    return replica_state(s->replica) == REPLICA_DOWN &&
           atomic_load_explicit(&s->replica->refuses, memory_order_relaxed) &&
           now_ns - s->heard_ns >= DOWN_SILENCE_NS;
}

static void check_wait(struct stream *s, uint64_t now_ns)
{
    if (now_ns - s->sent_ns >= s->worker->settings.first_byte_ns) {
        time_out(s, "the engine did not begin to answer in time", HEALTH_FAULT);
    } else if (is_down_and_silent(s, now_ns)) {
        attempt_broke_early(s, 0);
    } else {
        arm(s, s->sent_ns + s->worker->settings.first_byte_ns - now_ns);
    }
}

static void check_relay(struct stream *s, uint64_t now_ns)
{
    uint64_t limit_ns = s->worker->settings.between_events_ns;
    if (s->is_paused) {
        arm(s, TICK_NS); /* the client is slow; its own timer runs in the connection */
    } else if (now_ns - s->heard_ns >= limit_ns) {
        time_out(s, "the engine fell silent in the middle of its answer", HEALTH_FAULT);
    } else if (is_down_and_silent(s, now_ns)) {
        time_out(s, "the engine went down in the middle of its answer", HEALTH_FAULT);
    } else {
        arm(s, s->heard_ns + limit_ns - now_ns);
    }
}

void attempt_on_timer(struct stream *s)
{
    uint64_t now_ns = loop_now_ns(s->worker->loop);
    if (s->deadline_ns && now_ns >= s->deadline_ns) {
        time_out(s, "the request took longer than timeouts.request", HEALTH_NONE);
        return;
    }
    struct api_error error;
    switch (s->state) {
    case ST_CONNECT:
        if (now_ns - s->sent_ns < s->worker->settings.connect_ns) {
            arm(s, s->sent_ns + s->worker->settings.connect_ns - now_ns);
            return;
        }
        api_error_set(&error, API_UPSTREAM_TIMEOUT,
                      "the engine did not accept a connection in time");
        attempt_failed(s, HEALTH_FAULT, &error);
        break;
    case ST_WAIT:
        check_wait(s, now_ns);
        break;
    case ST_RELAY:
        check_relay(s, now_ns);
        break;
    case ST_READ:
    case ST_SETTLE:
    case ST_DEAD:
    case ST_COUNT:
        break;
    }
}
