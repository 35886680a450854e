#include "gateway/stream.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/log.h"
#include "gateway/relay.h"
#include "gateway/worker.h"
#include "observe/access_log.h"
#include "observe/record.h"
#include "observe/traffic.h"

enum {
    BYTES_PER_TOKEN = 4,       /* of English text under today's tokenizers, roughly */
    FIRST_ANSWER_TOKENS = 128, /* assumed until a model has answered */
    MAX_MODEL_LABEL = 64,      /* of an unknown model's name, in the log */
};

/* ---- states ---- */

void stream_enter(struct stream *s, enum stream_state state)
{
    if (!stream_state_may(s->state, state)) {
        WEIR_BUG("request %s cannot go from %s to %s", s->request_id, stream_state_name(s->state),
                 stream_state_name(state));
    }
    s->state = state;
}

bool stream_is_anthropic(const struct stream *s)
{
    return s->conn->tag;
}

const struct usage *stream_usage(const struct stream *s)
{
    return s->counts_events ? &s->reader.usage : &s->usage;
}

/* ---- birth ---- */

static bool is_usable_request_id(struct slice id)
{
    if (id.len == 0 || id.len >= sizeof((struct stream *)0)->request_id) {
        return false;
    }
    for (size_t i = 0; i < id.len; i++) {
        if (id.ptr[i] <= ' ' || id.ptr[i] > '~' || id.ptr[i] == '"' || id.ptr[i] == '\\') {
            return false;
        }
    }
    return true;
}

static void take_request_id(struct stream *s, const struct http_head *head)
{
    struct slice given = head ? http_header_get(head, SLICE("x-request-id")) : (struct slice){0};
    if (is_usable_request_id(given)) {
        memcpy(s->request_id, given.ptr, given.len);
        return;
    }
    static const char digits[] = "0123456789abcdef";
    uint64_t bits[2] = {rng_next(&s->worker->rng), rng_next(&s->worker->rng)};
    char *at = s->request_id;
    memcpy(at, "req_", 4);
    for (int i = 0; i < 24; i++) {
        at[4 + i] = digits[(bits[i / 16] >> (4 * (i % 16))) & 15];
    }
}

static void on_timer(struct timer *timer)
{
    attempt_on_timer((struct stream *)((char *)timer - offsetof(struct stream, timer)));
}

static struct stream *stream_new(struct http_conn *conn, const struct http_head *head)
{
    struct worker *w = conn->server->ctx;
    struct stream *s = slab_get(&w->streams);
    s->worker = w;
    s->conn = conn;
    conn->user = s;
    s->timer.on_fire = on_timer;
    s->surface = SURFACE_NONE;
    s->start_ns = loop_now_ns(w->loop);
    s->start_wall_ns = clock_wall_ns();
    s->deadline_ns = w->settings.request_ns ? s->start_ns + w->settings.request_ns : 0;
    s->fleet = worker_fleet_hold(w->fleet);
    s->out = worker_take_outbound(w);
    buf_init(&s->partial, w->settings.event_bytes + RELAY_READ_BYTES + MAX_ANSWER_HEAD);
    buf_init(&s->held, w->settings.response_bytes);
    s->next = &w->all;
    s->prev = w->all.prev;
    s->prev->next = s->next->prev = s;
    gauge_add(&w->in_flight, 1);
    take_request_id(s, head);
    return s;
}

/* ---- what is asked ---- */

size_t stream_on_head(struct http_conn *conn, const struct http_head *head)
{
    struct worker *w = conn->server->ctx;
    char scratch[256];
    struct slice target = head->target;
    if (target.len >
        sizeof scratch) { /* too long for any path with a body; only the dialect counts */
        target.len = sizeof scratch;
    }
    struct surface_match match = surface_match(head->method, target, scratch);
    conn->tag = match.is_anthropic;
    return w->settings.body_bytes;
}

static void refuse(struct stream *s, enum api_error_kind kind, const char *text)
{
    struct api_error error;
    answer_error(s, api_error_set(&error, kind, "%s", text));
}

static void refuse_path(struct stream *s, const struct surface_match *match)
{
    struct api_error error;
    if (match->wrong_method) {
        api_error_set(&error, API_WRONG_METHOD, "this path takes %s only", match->allow);
        error.allow = match->allow;
    } else {
        api_error_set(&error, API_UNKNOWN_PATH,
                      "no such path here; served are /v1/chat/completions, /v1/completions, "
                      "/v1/embeddings, /v1/responses, /v1/messages, /v1/rerank, /v1/score, "
                      "/tokenize, /detokenize and GET /v1/models");
    }
    answer_error(s, &error);
}

static bool find_model(struct stream *s)
{
    struct fleet *fleet = s->fleet->fleet;
    struct slice name = s->out->info.model;
    s->model =
        name.len ? fleet_model(fleet, name) : (fleet->model_count == 1 ? &fleet->models[0] : NULL);
    if (s->model) {
        s->model_index = (size_t)(s->model - fleet->models);
        return true;
    }
    struct api_error error;
    if (name.len == 0) {
        api_error_set(&error, API_BAD_REQUEST, "\"model\" is missing, and more than one is served");
        snprintf(error.param, sizeof error.param, "model");
    } else {
        size_t shown = name.len > MAX_MODEL_LABEL ? MAX_MODEL_LABEL : name.len;
        api_error_set(&error, API_UNKNOWN_MODEL,
                      "the model `%.*s` does not exist; GET /v1/models lists what is served",
                      (int)shown, name.ptr);
    }
    answer_error(s, &error);
    return false;
}

static uint64_t hash_session(const struct stream *s, const struct http_head *head)
{
    struct slice session = http_header_get(head, slice_str(s->worker->settings.session_header));
    if (session.len == 0) {
        session = s->out->info.user;
    }
    return session.len ? map_hash(session) : 0;
}

static void estimate(struct stream *s, const struct http_head *head)
{
    const struct body_info *info = &s->out->info;
    uint32_t usual = atomic_load_explicit(s->model->answer_tokens, memory_order_relaxed);
    uint64_t expected = usual ? usual : FIRST_ANSWER_TOKENS;
    if (info->max_tokens && info->max_tokens < expected) {
        expected = info->max_tokens;
    }
    expected *= info->n;
    bool generates = surface_info(s->surface)->generates;
    s->view = (struct request_view){
        .id_hash = map_hash(slice_str(s->request_id)),
        .session_hash = hash_session(s, head),
        .prompt_tokens = info->prompt_bytes / BYTES_PER_TOKEN + 1,
        .output_tokens = generates ? (uint32_t)(expected > 1000000 ? 1000000 : expected) : 0,
        .stream = info->stream,
    };
}

void stream_on_request(struct http_conn *conn, const struct http_head *head, struct slice body)
{
    struct stream *s = stream_new(conn, head);
    struct outbound *out = s->out;
    s->bytes_in = body.len;
    char *scratch = arena_alloc(&out->arena, head->target.len + 1);
    struct surface_match match = surface_match(head->method, head->target, scratch);
    s->surface = match.surface;
    s->is_head = slice_eq(head->method, SLICE("HEAD"));
    if (match.surface == SURFACE_NONE) {
        refuse_path(s, &match);
        return;
    }
    if (inquiry_answer(s, &match)) {
        return;
    }
    struct api_error error;
    if (http_header_has(head, SLICE("content-encoding"))) {
        refuse(s, API_MEDIA_TYPE, "compressed request bodies are not taken; send plain JSON");
        return;
    }
    out->body = body;
    if (body_inspect(s->surface, body, &out->arena, &out->info, &error) != WEIR_OK) {
        answer_error(s, &error);
        return;
    }
    s->is_stream = out->info.stream;
    s->wants_usage = out->info.wants_usage;
    if (!find_model(s)) {
        return;
    }
    estimate(s, head);
    out->query = arena_dup(&out->arena, match.query);
    out->headers = answer_headers_kept(&out->arena, head);
    retry_budget_deposit(&s->fleet->budgets[s->model_index]);
    attempt_start(s);
}

void stream_on_refuse(struct http_conn *conn, enum http_refusal why, const char *text)
{
    static const struct {
        enum api_error_kind kind;
        const char *text;
    } answers[] = {
        [HTTP_REFUSE_SYNTAX] = {API_BAD_REQUEST, "this is not well-formed HTTP/1.1"},
        [HTTP_REFUSE_VERSION] = {API_BAD_REQUEST, "only HTTP/1.0 and HTTP/1.1 are spoken here"},
        [HTTP_REFUSE_HEAD_SIZE] = {API_HEAD_TOO_LARGE,
                                   "the request line and headers are too large"},
        [HTTP_REFUSE_BODY_SIZE] = {API_TOO_LARGE, "the request body is larger than limits.body"},
        [HTTP_REFUSE_MEMORY] = {API_OVERLOADED, "too many large requests at once; try again"},
        [HTTP_REFUSE_HEAD_TIMEOUT] = {API_REQUEST_TIMEOUT, "the request's head came too slowly"},
        [HTTP_REFUSE_BODY_TIMEOUT] = {API_REQUEST_TIMEOUT, "the request's body came too slowly"},
        [HTTP_REFUSE_EXPECT] = {API_BAD_REQUEST, "the only expectation known is 100-continue"},
    };
    struct stream *s = stream_new(conn, NULL);
    struct api_error error;
    api_error_set(&error, answers[why].kind, "%s%s%s", answers[why].text, text ? ": " : "",
                  text ? text : "");
    if (why == HTTP_REFUSE_MEMORY) {
        error.retry_after_ms = 1000;
    }
    answer_error(s, &error);
}

/* ---- the client's side while it is served ---- */

void stream_on_client_gone(struct http_conn *conn)
{
    struct stream *s = conn->user;
    if (!s) {
        return;
    }
    if (s->is_started && s->counts_events && stream_reader_complete(&s->reader)) {
        /* It has the whole answer and did not wait for the end of its framing, as SDKs do. */
        attempt_end(s, HEALTH_GOOD, true, false);
        stream_settle(s, OUTCOME_OK, "ok", false);
        return;
    }
    attempt_end(s, HEALTH_NONE, false, false); /* closing cancels the engine's work */
    s->status = 499;
    stream_settle(s, OUTCOME_ABANDONED, conn->peer_closed ? "client_left" : "client_stalled",
                  false);
}

void stream_on_writable(struct http_conn *conn)
{
    struct stream *s = conn->user;
    if (s && s->is_paused) {
        s->is_paused = false;
        s->heard_ns = loop_now_ns(s->worker->loop); /* the silence was ours */
        relay_read(s);
    }
}

/* ---- the end ---- */

static void learn(struct stream *s, uint64_t tokens_out)
{
    if (s->outcome != OUTCOME_OK || !surface_info(s->surface)->generates || tokens_out == 0) {
        return;
    }
    if (s->last_ns > s->first_ns) {
        replica_learn_speed(s->replica, (uint32_t)tokens_out, s->last_ns - s->first_ns);
    }
    /* A moving average over some sixteen answers; racing workers lose a sample, which is harmless.
     */
    uint32_t usual = atomic_load_explicit(s->model->answer_tokens, memory_order_relaxed);
    uint32_t sample = tokens_out > 1000000 ? 1000000 : (uint32_t)tokens_out;
    uint32_t next = usual ? (uint32_t)((15ull * usual + sample + 8) / 16) : sample;
    atomic_store_explicit(s->model->answer_tokens, next ? next : 1, memory_order_relaxed);
}

static struct slice model_label(const struct stream *s)
{
    if (s->model) {
        return slice_str(s->model->name);
    }
    struct slice asked = s->out ? s->out->info.model : (struct slice){0};
    asked.len = asked.len > MAX_MODEL_LABEL ? MAX_MODEL_LABEL : asked.len;
    return asked;
}

static void fill_record(const struct stream *s, struct request_record *r)
{
    const struct surface_info *surface =
        s->surface == SURFACE_NONE ? NULL : surface_info(s->surface);
    uint64_t now_ns = loop_now_ns(s->worker->loop);
    const struct usage *usage = stream_usage(s);
    *r = (struct request_record){
        .request_id = slice_str(s->request_id),
        .client = slice_str(s->conn->peer),
        .model = model_label(s),
        .pool = s->pool ? s->pool->name : NULL,
        .replica = s->replica ? s->replica->name : NULL,
        .surface = surface ? surface->name : "none",
        .operation = surface ? surface->operation : "",
        .reason = s->reason,
        .outcome = s->outcome,
        .status = s->status,
        .tries = s->tries,
        .stream = s->is_stream,
        .generates = surface && surface->generates,
        .usage_known = usage->known,
        .bytes_in = s->bytes_in,
        .bytes_out = s->bytes_out,
        .tokens_in = usage->known || !s->tries ? usage->prompt_tokens : s->view.prompt_tokens,
        .tokens_out =
            !usage->known && s->counts_events ? s->reader.content_events : usage->output_tokens,
        .tokens_cached = usage->cached_tokens,
        .start_wall_ns = s->start_wall_ns,
        .duration_ns = now_ns - s->start_ns,
        .longest_gap_ns = s->longest_gap_ns,
    };
    uint64_t first_ns = s->first_ns ? s->first_ns - s->start_ns : 0;
    uint64_t last_ns = s->last_ns ? s->last_ns - s->start_ns : 0;
    record_judge(r, first_ns, last_ns, s->model ? s->model->slo.ttft_ns : 0,
                 s->model ? s->model->slo.tpot_ns : 0);
}

/* Own answers to GET are not traffic of a model; they are logged and nothing else. */
static void record(struct stream *s)
{
    struct worker *w = s->worker;
    struct request_record r;
    fill_record(s, &r);
    learn(s, r.tokens_out);
    const struct traffic *traffic = s->tries   ? s->pool->traffic
                                    : s->model ? s->model->traffic
                                               : NULL;
    if (traffic) {
        traffic_record(&traffic->shards[w->index], &r);
    } else if (s->status >= 400) {
        bool is_unknown = s->reason == api_error_reason(API_UNKNOWN_MODEL);
        counter_add(is_unknown ? &w->refused_unknown_model : &w->refused_other, 1);
    }
    if (w->access_log) {
        access_log_write(w->access_log, &r);
    }
}

static void settle(struct stream *s, enum outcome outcome, const char *reason,
                   void (*leave)(struct http_conn *))
{
    struct worker *w = s->worker;
    s->outcome = outcome;
    s->reason = reason;
    stream_enter(s, ST_SETTLE);
    timer_cancel(w->loop, &s->timer);
    record(s);
    if (s->out) {
        worker_put_outbound(w, s->out);
        s->out = NULL;
    }
    s->conn->user = NULL;
    leave(s->conn);
    s->conn = NULL;
    buf_free(&s->partial);
    relay_drop_held(s);
    if (s->replica) {
        replica_drop(s->replica);
    }
    worker_fleet_drop(s->fleet);
    gauge_add(&w->in_flight, -1);
    stream_enter(s, ST_DEAD);
    s->next->prev = s->prev;
    s->prev->next = s->next;
    s->next = w->dead;
    w->dead = s;
}

static void leave_open(struct http_conn *conn)
{
    http_conn_finish(conn, true);
}

static void leave_closed(struct http_conn *conn)
{
    http_conn_finish(conn, false);
}

void stream_settle(struct stream *s, enum outcome outcome, const char *reason, bool keep_alive)
{
    settle(s, outcome, reason, keep_alive ? leave_open : leave_closed);
}

void stream_cut(struct stream *s, const char *reason)
{
    settle(s, OUTCOME_FAILED, reason, http_conn_abort);
}

void stream_end_all(struct worker *w, const char *reason)
{
    while (w->all.next != &w->all) {
        struct stream *s = w->all.next;
        struct api_error error;
        api_error_set(&error, API_SHUTTING_DOWN, "weir is shutting down");
        if (s->is_started) {
            relay_broken(s, &error, HEALTH_NONE);
        } else {
            attempt_end(s, HEALTH_NONE, false, false);
            answer_error(s, &error);
        }
    }
    log_info("drain", "all requests ended: %s", reason);
}

/* ---- turns ---- */

void stream_go_on_later(struct stream *s)
{
    if (!s->is_queued) {
        s->is_queued = true;
        s->next_again = s->worker->again;
        s->worker->again = s;
        loop_wake(s->worker->loop);
    }
}

void stream_run_again(struct worker *w)
{
    struct stream *list = w->again;
    w->again = NULL;
    while (list) {
        struct stream *s = list;
        list = s->next_again;
        s->is_queued = false;
        if (s->state != ST_DEAD && s->up) {
            relay_read(s);
        }
    }
}
