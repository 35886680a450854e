/* answer.c - what goes to the client: heads, whole answers, the framing of long ones. */
#include <stdio.h>

#include "base/heap.h"
#include "gateway/relay.h"
#include "gateway/stream.h"
#include "gateway/worker.h"

/* A refusal for lack of capacity without a better figure: loads change about this fast. */
enum { SHED_RETRY_MS = 1000 };

/* ---- headers ---- */

/* Headers of a client's request that are the connection's, weir's own, or steer an engine past weir
 * (contracts of the engines). Everything else goes on. */
static bool is_kept_from_engine(struct slice name)
{
    static const struct slice names[] = {
        {"host", 4},
        {"expect", 6},
        {"authorization", 13},
        {"x-api-key", 9},
        {"api-key", 7},
        {"cookie", 6},
        {"accept-encoding", 15},
        {"x-request-id", 12},
        {"x-data-parallel-rank", 20},
        {"x-prefiller-host-port", 21},
        {"x-encoder-hosts-ports", 21},
        {"x-kv-cache-source-host-port", 27},
        {"x-smg-target-worker", 19},
        {"x-dynamo-worker-instance-id", 27},
        {"x-forwarded-for", 15},
        {"x-forwarded-host", 16},
        {"x-forwarded-proto", 17},
        {"forwarded", 9},
        {"x-real-ip", 9},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (slice_eq_nocase(names[i], name)) {
            return true;
        }
    }
    return false;
}

/* Headers of an engine's answer that are the connection's or that weir sets itself. */
static bool is_kept_from_client(struct slice name, bool is_sse)
{
    static const struct slice names[] = {
        {"server", 6},
        {"x-request-id", 12},
        {"request-id", 10},
        {"access-control-allow-origin", 27}, /* llama.cpp sends an empty one; CORS is weir's */
    };
    static const struct slice sse_names[] = {{"cache-control", 13}, {"x-accel-buffering", 17}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (slice_eq_nocase(names[i], name)) {
            return true;
        }
    }
    for (size_t i = 0; is_sse && i < sizeof sse_names / sizeof *sse_names; i++) {
        if (slice_eq_nocase(sse_names[i], name)) {
            return true;
        }
    }
    return false;
}

static size_t headers_length(const struct http_head *head)
{
    size_t total = 0;
    for (size_t i = 0; i < head->header_count; i++) {
        total += head->headers[i].name.len + head->headers[i].value.len + 4;
    }
    return total;
}

static char *put_header(char *at, struct slice name, struct slice value)
{
    return slice_put(slice_put(slice_put(slice_put(at, name), SLICE(": ")), value), SLICE("\r\n"));
}

struct slice answer_headers_kept(struct arena *arena, const struct http_head *head)
{
    char *out = arena_alloc(arena, headers_length(head) + 1);
    if (!out) {
        return (struct slice){0};
    }
    char *at = out;
    for (size_t i = 0; i < head->header_count; i++) {
        const struct http_header *h = &head->headers[i];
        if (!http_header_is_hop_by_hop(head, h->name) && !is_kept_from_engine(h->name)) {
            at = put_header(at, h->name, h->value);
        }
    }
    return slice_of(out, (size_t)(at - out));
}

static char *put_status_line(char *at, int status)
{
    at = slice_put(at, SLICE("HTTP/1.1 "));
    *at++ = (char)('0' + status / 100);
    *at++ = (char)('0' + status / 10 % 10);
    *at++ = (char)('0' + status % 10);
    *at++ = ' ';
    return slice_put(slice_put(at, slice_str(http_status_text(status))), SLICE("\r\n"));
}

static char *put_request_id(char *at, const struct stream *s)
{
    struct slice id = slice_str(s->request_id);
    at = put_header(at, SLICE("x-request-id"), id);
    return stream_is_anthropic(s) ? put_header(at, SLICE("request-id"), id) : at;
}

struct slice answer_head_from(struct stream *s, const struct http_head *head, bool is_sse)
{
    size_t room = headers_length(head) + 3 * sizeof s->request_id + 256;
    char *out = arena_alloc(&s->out->arena, room);
    if (!out) {
        WEIR_BUG("the heads of one request need more than its arena");
    }
    char *at = put_status_line(out, head->status);
    for (size_t i = 0; i < head->header_count; i++) {
        const struct http_header *h = &head->headers[i];
        if (!http_header_is_hop_by_hop(head, h->name) && !is_kept_from_client(h->name, is_sse)) {
            at = put_header(at, h->name, h->value);
        }
    }
    at = put_request_id(at, s);
    if (is_sse) {
        at = slice_put(at, SLICE("cache-control: no-cache\r\nx-accel-buffering: no\r\n"));
    }
    return slice_of(out, (size_t)(at - out));
}

static struct slice connection_header(const struct stream *s)
{
    const struct http_conn *conn = s->conn;
    if (!conn->keep_alive || conn->server->is_draining) {
        return SLICE("connection: close\r\n");
    }
    return conn->is_http11 ? (struct slice){0} : SLICE("connection: keep-alive\r\n");
}

/* ---- whole answers ---- */

static struct iovec piece_of(struct slice s)
{
    return (struct iovec){(void *)s.ptr, s.len};
}

/* `head`: status line and headers so far. Adds the framing, sends it all. */
static void send_whole(struct stream *s, struct slice head, struct slice body)
{
    char tail[128];
    int len = snprintf(tail, sizeof tail, "%.*scontent-length: %zu\r\n\r\n",
                       SLICE_ARG(connection_header(s)), body.len);
    s->bytes_out += body.len;
    struct iovec pieces[] = {piece_of(head), {tail, (size_t)len}, piece_of(body)};
    http_conn_send(s->conn, pieces, s->is_head ? 2 : 3);
}

void answer_whole(struct stream *s, struct slice body)
{
    send_whole(s, s->out->answer_head, body);
}

void answer_json(struct stream *s, int status, struct slice body)
{
    char head[512];
    char *at = put_status_line(head, status);
    at = slice_put(at, SLICE("content-type: application/json\r\n"));
    at = put_request_id(at, s);
    s->status = status;
    send_whole(s, slice_of(head, (size_t)(at - head)), body);
    stream_settle(s, status < 400 ? OUTCOME_OK : OUTCOME_FAILED, status < 400 ? "ok" : "not_ready",
                  true);
}

static enum outcome outcome_of(enum api_error_kind kind, int status)
{
    if (kind == API_OVERLOADED || kind == API_NO_REPLICA || kind == API_SHUTTING_DOWN) {
        return OUTCOME_SHED;
    }
    return status < 500 ? OUTCOME_CLIENT_FAULT : OUTCOME_FAILED;
}

/* When to come back (contracts of the API: whole seconds, and ms), and with which method. */
static char *put_advice(char *at, size_t room, const struct api_error *error)
{
    size_t used = 0;
    uint32_t after_ms = error->retry_after_ms;
    if (after_ms == 0 && outcome_of(error->kind, 503) == OUTCOME_SHED) {
        after_ms = SHED_RETRY_MS;
    }
    if (after_ms) {
        used = (size_t)snprintf(at, room, "retry-after: %u\r\nretry-after-ms: %u\r\n",
                                (after_ms + 999) / 1000, after_ms);
    }
    if (error->no_retry) {
        used += (size_t)snprintf(at + used, room - used, "x-should-retry: false\r\n");
    }
    if (error->allow) {
        used += (size_t)snprintf(at + used, room - used, "allow: %s\r\n", error->allow);
    }
    return at + used;
}

/* A refused request may have a body that nobody reads: such a connection cannot go on. */
static bool can_keep_alive(const struct api_error *error)
{
    switch (error->kind) {
    case API_TOO_LARGE:
    case API_HEAD_TOO_LARGE:
    case API_REQUEST_TIMEOUT:
        return false;
    default:
        return true;
    }
}

void answer_error(struct stream *s, const struct api_error *error)
{
    bool is_anthropic = stream_is_anthropic(s);
    char head[640];
    s->status = api_error_status(error, is_anthropic);
    s->conn->keep_alive = s->conn->keep_alive && can_keep_alive(error);
    char *at = put_status_line(head, s->status);
    at = slice_put(at, SLICE("content-type: application/json\r\n"));
    at = put_request_id(at, s);
    at = put_advice(at, sizeof head - (size_t)(at - head), error);
    struct buf body;
    buf_init(&body, 4096);
    if (api_error_write_body(error, is_anthropic, slice_str(s->request_id), &body) != WEIR_OK) {
        WEIR_BUG("an error text of bounded length does not fit into 4 kB");
    }
    send_whole(s, slice_of(head, (size_t)(at - head)), buf_slice(&body));
    buf_free(&body);
    stream_settle(s, outcome_of(error->kind, s->status), api_error_reason(error->kind), true);
}

/*
 * The headers of a refusal in `held`, line by line, into `at`: all but the status line and, for a
 * body that weir rewrites, its type. Tells whether the engine itself says when to come back.
 */
static char *put_refusal_headers(char *at, struct slice held, bool is_rewritten, bool *says_when)
{
    static const struct slice type = {"content-type", 12}, when = {"retry-after", 11};
    for (bool is_first = true; held.len; is_first = false) {
        const char *end = memchr(held.ptr, '\n', held.len);
        size_t len = end ? (size_t)(end - held.ptr) + 1 : held.len;
        struct slice line = slice_of(held.ptr, len);
        struct slice name = slice_of(line.ptr, len < type.len ? len : type.len);
        bool is_type = slice_eq_nocase(name, type);
        name.len = name.len < when.len ? name.len : when.len;
        *says_when = *says_when || slice_eq_nocase(name, when);
        if (!is_first && !(is_type && is_rewritten)) {
            at = slice_put(at, line);
        }
        held = slice_from(held, len);
    }
    return at;
}

static bool is_busy_status(int status)
{
    return status == 429 || status == 503 || status == 529;
}

static enum outcome outcome_of_refusal(int status)
{
    return status == 503 || status == 529 ? OUTCOME_SHED
           : status < 500                 ? OUTCOME_CLIENT_FAULT
                                          : OUTCOME_FAILED;
}

void answer_last(struct stream *s)
{
    const struct last_answer *last = &s->out->last;
    struct slice body = last->body;
    struct api_error error;
    struct buf rewritten;
    buf_init(&rewritten, 4096);
    s->status = last->status;
    bool is_rewritten = api_error_from_engine(surface_info(s->surface)->dialect, last->status,
                                              last->context_overflow, body, &error);
    if (is_rewritten) {
        s->status = api_error_status(&error, stream_is_anthropic(s));
        if (api_error_write_body(&error, stream_is_anthropic(s), slice_str(s->request_id),
                                 &rewritten) != WEIR_OK) {
            WEIR_BUG("an error text of bounded length does not fit into 4 kB");
        }
        body = buf_slice(&rewritten);
    }
    bool says_when = false;
    char *head = heap_alloc(last->headers.len + 256);
    char *at = put_status_line(head, s->status);
    at = put_refusal_headers(at, last->headers, is_rewritten, &says_when);
    if (is_rewritten) {
        at = slice_put(at, SLICE("content-type: application/json\r\n"));
    }
    if (is_busy_status(last->status) && !says_when) {
        at = slice_put(at, SLICE("retry-after: 1\r\nretry-after-ms: 1000\r\n"));
    }
    send_whole(s, slice_of(head, (size_t)(at - head)), body);
    buf_free(&rewritten);
    heap_free(head);
    const char *reason = is_busy_status(last->status) ? "engine_busy"
                         : last->context_overflow     ? api_error_reason(API_CONTEXT_LENGTH)
                                                      : "engine_refused";
    stream_settle(s, outcome_of_refusal(last->status), reason, true);
}

/* ---- long answers ---- */

/* "1f4\r\n" right before `end`; returns where it begins. */
static char *put_size_line_before(char *end, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    *--end = '\n';
    *--end = '\r';
    do {
        *--end = digits[size & 15];
        size >>= 4;
    } while (size);
    return end;
}

static bool is_in_scratch(const struct worker *w, struct slice body)
{
    const char *scratch = relay_scratch(w);
    return body.ptr >= scratch && body.ptr + body.len <= scratch + RELAY_READ_BYTES;
}

#define CHUNK_END      "\r\n"
#define CHUNK_END_LAST "\r\n0\r\n\r\n"
#define LAST_CHUNK     "0\r\n\r\n"

/* The body stands in the scratch buffer: frame it in place, one write. */
static bool send_in_place(struct stream *s, struct slice body, bool is_end)
{
    char *start = put_size_line_before((char *)body.ptr, body.len);
    char *end = (char *)body.ptr + body.len;
    end = slice_put(end, is_end ? SLICE(CHUNK_END_LAST) : SLICE(CHUNK_END));
    struct iovec piece = {start, (size_t)(end - start)};
    return http_conn_send(s->conn, &piece, 1);
}

bool answer_more(struct stream *s, struct slice body, bool is_end)
{
    bool goes_on;
    s->bytes_out += body.len;
    if (!s->is_chunked_out) {
        struct iovec piece = piece_of(body);
        goes_on = http_conn_send(s->conn, &piece, 1);
        s->conn->keep_alive =
            s->conn->keep_alive && s->mode == RELAY_RAW && s->framing == HTTP_BODY_LENGTH;
    } else if (body.len == 0) {
        struct iovec piece = {LAST_CHUNK, is_end ? sizeof LAST_CHUNK - 1 : 0};
        goes_on = http_conn_send(s->conn, &piece, 1);
    } else if (is_in_scratch(s->worker, body)) {
        goes_on = send_in_place(s, body, is_end);
    } else {
        char line[20];
        char *start = put_size_line_before(line + sizeof line, body.len);
        struct iovec pieces[] = {{start, (size_t)(line + sizeof line - start)},
                                 piece_of(body),
                                 piece_of(is_end ? SLICE(CHUNK_END_LAST) : SLICE(CHUNK_END))};
        goes_on = http_conn_send(s->conn, pieces, 3);
    }
    s->is_paused = !goes_on;
    return goes_on;
}

bool answer_begin(struct stream *s, struct slice body, bool is_end)
{
    struct slice held = buf_slice(&s->held);
    bool by_length = s->mode == RELAY_RAW && s->framing == HTTP_BODY_LENGTH && !s->counts_events;
    s->is_chunked_out = !by_length && s->conn->is_http11;
    if (!by_length && !s->conn->is_http11) {
        s->conn->keep_alive = false; /* HTTP/1.0: only the close can end it */
    }
    size_t size = held.len + body.len;
    s->bytes_out += size;
    char framing[128], line[24] = "";
    if (s->is_chunked_out && size) {
        snprintf(line, sizeof line, "%zx\r\n", size);
    }
    int len = by_length ? snprintf(framing, sizeof framing, "%.*scontent-length: %llu\r\n\r\n",
                                   SLICE_ARG(connection_header(s)), (unsigned long long)s->length)
                        : snprintf(framing, sizeof framing, "%.*s%s\r\n%s",
                                   SLICE_ARG(connection_header(s)),
                                   s->is_chunked_out ? "transfer-encoding: chunked\r\n" : "", line);
    struct slice end = {0};
    if (s->is_chunked_out) {
        end = is_end ? (size ? SLICE(CHUNK_END_LAST) : SLICE(LAST_CHUNK))
                     : (size ? SLICE(CHUNK_END) : (struct slice){0});
    }
    struct iovec pieces[] = {piece_of(s->out->answer_head),
                             {framing, (size_t)len},
                             piece_of(held),
                             piece_of(body),
                             piece_of(end)};
    bool goes_on = http_conn_send(s->conn, pieces, 5);
    s->is_paused = !goes_on;
    s->is_started = true;
    stream_enter(s, ST_RELAY);
    relay_drop_held(s);
    if (s->out->sent < s->out->total) {
        s->up_keep_alive = false; /* the rest of the request is never sent */
    }
    worker_put_outbound(s->worker, s->out);
    s->out = NULL;
    http_conn_forget_request(s->conn);
    return goes_on;
}
