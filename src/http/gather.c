#include "http/gather.h"

#include <errno.h>
#include <unistd.h>

#include "base/counter.h"
#include "base/heap.h"

enum {
    FIRST_BLOCK_BYTES = 4096,
    GROW_STEP_BYTES = 64 * 1024,
    CHUNK_OVERHEAD = 8, /* raw bytes per body byte that a chunked body may cost */
};

/* ---- the block: bytes of the current message and of what follows it ---- */

static void resize_block(struct http_conn *conn, size_t cap)
{
    gauge_add(&conn->server->counters->body_bytes, (int64_t)cap - (int64_t)conn->in_cap);
    conn->in = heap_realloc(conn->in, cap);
    conn->in_cap = cap;
}

static void free_block(struct http_conn *conn)
{
    if (conn->in) {
        gauge_add(&conn->server->counters->body_bytes, -(int64_t)conn->in_cap);
        heap_free(conn->in);
        conn->in = NULL;
        conn->in_len = conn->in_cap = 0;
    }
}

void gather_free(struct http_conn *conn)
{
    free_block(conn);
    heap_free(conn->chunks);
    conn->chunks = NULL;
}

/* One byte of a next request must not keep a large body's memory for as long as an answer streams.
 */
static void shrink_block(struct http_conn *conn)
{
    size_t cap = conn->in_len > FIRST_BLOCK_BYTES ? conn->in_len : FIRST_BLOCK_BYTES;
    if (conn->in_cap / 2 >= cap) {
        resize_block(conn, cap);
    }
}

void gather_drop_message(struct http_conn *conn)
{
    size_t used = conn->head_len + (conn->is_chunked ? 0 : (size_t)conn->body_len);
    if (conn->in_len > used) {
        memmove(conn->in, conn->in + used, conn->in_len - used);
        conn->in_len -= used;
        shrink_block(conn);
    } else {
        free_block(conn);
    }
    conn->head_len = conn->scanned = 0;
}

/* False: all request bodies together would be over their bound. */
static bool grow_block(struct http_conn *conn, size_t cap)
{
    struct http_server *s = conn->server;
    int64_t more = (int64_t)(cap - conn->in_cap);
    if (gauge_get(&s->counters->body_bytes) + more > (int64_t)s->limits.body_memory_bytes) {
        return false;
    }
    resize_block(conn, cap);
    return true;
}

/*
 * The next size of a full block. A declared length is not believed before it comes: doubling, up to
 * the whole message. Without one a quarter more each time, so that copying stays linear.
 */
static size_t next_size(const struct http_conn *conn)
{
    if (conn->state == HTTP_CONN_BODY && !conn->is_chunked) {
        size_t whole = conn->head_len + (size_t)conn->body_len;
        return conn->in_cap * 2 < whole ? conn->in_cap * 2 : whole;
    }
    return conn->in_len + GROW_STEP_BYTES + conn->in_len / 4;
}

/* ---- to the handler ---- */

static void begin_exchange(struct http_conn *conn)
{
    struct http_server *s = conn->server;
    conn->state = HTTP_CONN_HANDLE;
    if (conn->out.max < s->limits.out_max_bytes) { /* a reload has raised it */
        conn->out.max = s->limits.out_max_bytes;
    }
    if (buf_len(&conn->out)) { /* of a 100 Continue */
        timer_set(s->loop, &conn->timer, s->limits.write_timeout_ns);
    } else {
        timer_cancel(s->loop, &conn->timer);
    }
}

void gather_refuse(struct http_conn *conn, enum http_refusal why, const char *text)
{
    counter_add(&conn->server->counters->bad_requests, 1);
    begin_exchange(conn);
    conn->keep_alive = false;
    conn->server->handler->on_refuse(conn, why, text);
}

static void handle(struct http_conn *conn)
{
    struct http_server *s = conn->server;
    begin_exchange(conn);
    heap_free(conn->chunks);
    conn->chunks = NULL;
    s->handler->on_request(conn, &s->head,
                           slice_of(conn->in + conn->head_len, (size_t)conn->body_len));
}

/* The head was parsed in an earlier turn and another one has taken its place since. */
static void handle_later(struct http_conn *conn)
{
    const char *why;
    if (http1_parse_request(slice_of(conn->in, conn->head_len), &conn->server->head, &why) !=
        WEIR_OK) {
        WEIR_BUG("a head that parsed once does not parse again: %s", why);
    }
    handle(conn);
}

/* Decodes the raw bytes at the end of the block, `raw` of them. True when the body is whole. */
static bool decode_chunks(struct http_conn *conn, size_t raw)
{
    char *at = conn->in + conn->in_len - raw;
    size_t body, consumed;
    conn->raw_len += raw;
    if (http1_chunks_decode(conn->chunks, at, raw, &body, &consumed) != WEIR_OK) {
        gather_refuse(conn, HTTP_REFUSE_SYNTAX, "the chunked body is malformed");
        return false;
    }
    conn->body_len += body;
    size_t rest = raw - consumed; /* of the next message */
    memmove(at + body, at + consumed, rest);
    conn->in_len = (size_t)(at - conn->in) + body + rest;
    if (conn->body_len > conn->max_body ||
        conn->raw_len > CHUNK_OVERHEAD * (conn->max_body + GROW_STEP_BYTES)) {
        gather_refuse(conn, HTTP_REFUSE_BODY_SIZE, NULL);
        return false;
    }
    if (conn->chunks->is_done) {
        conn->is_chunked = false; /* from here on the body is body_len bytes behind the head */
        return true;
    }
    return false;
}

static void say_continue(struct http_conn *conn)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct iovec piece = {(void *)text, sizeof text - 1};
    http_conn_send(conn, &piece, 1);
}

static enum http_refusal refusal_of(enum weir_err err)
{
    return err == WEIR_ELIMIT         ? HTTP_REFUSE_HEAD_SIZE
           : err == WEIR_EUNSUPPORTED ? HTTP_REFUSE_VERSION
                                      : HTTP_REFUSE_SYNTAX;
}

/* The head has just been parsed: what follows it? */
static void start_body(struct http_conn *conn, const struct http_head *head)
{
    struct http_server *s = conn->server;
    conn->max_body = s->handler->on_head(conn, head);
    size_t here = conn->in_len - conn->head_len;
    conn->keep_alive = head->keep_alive;
    conn->is_http11 = head->is_http11;
    conn->is_chunked = head->framing == HTTP_BODY_CHUNKED;
    conn->body_len = conn->is_chunked ? 0 : head->content_length;
    conn->raw_len = 0;
    if (!conn->is_chunked && head->content_length > conn->max_body) {
        gather_refuse(conn, HTTP_REFUSE_BODY_SIZE, NULL);
        return;
    }
    if (head->is_http11 && !head->expects_continue && http_header_has(head, SLICE("expect"))) {
        gather_refuse(conn, HTTP_REFUSE_EXPECT, "the only expectation understood is 100-continue");
        return;
    }
    conn->state = HTTP_CONN_BODY;
    if (conn->is_chunked) {
        conn->chunks = heap_alloc(sizeof *conn->chunks);
        http1_chunks_init(conn->chunks);
        if (here && decode_chunks(conn, here)) {
            handle(conn);
            return;
        }
        if (conn->state != HTTP_CONN_BODY) {
            return;
        }
    } else if (here >= conn->body_len) {
        handle(conn);
        return;
    }
    if (head->expects_continue && here == 0) {
        say_continue(conn);
    }
    timer_set(s->loop, &conn->timer, s->limits.body_timeout_ns);
}

/* True when the head was whole and was acted upon. */
static bool try_head(struct http_conn *conn)
{
    struct http_server *s = conn->server;
    struct slice bytes = slice_of(conn->in, conn->in_len);
    size_t head_len = http1_head_length(bytes, &conn->scanned);
    if (head_len > s->limits.head_bytes || (head_len == 0 && conn->in_len > s->limits.head_bytes)) {
        gather_refuse(conn, HTTP_REFUSE_HEAD_SIZE, "the request line and headers are too long");
        return true;
    }
    if (head_len == 0) {
        return false;
    }
    const char *why;
    enum weir_err err = http1_parse_request(slice_of(conn->in, head_len), &s->head, &why);
    if (err != WEIR_OK) {
        gather_refuse(conn, refusal_of(err), why);
        return true;
    }
    conn->head_len = head_len;
    start_body(conn, &s->head);
    return true;
}

/* ---- reading ---- */

ssize_t gather_read(struct http_conn *conn, char *into, size_t room)
{
    ssize_t n;
    do {
        n = read(conn->io.fd, into, room);
    } while (n < 0 && errno == EINTR);
    if (n < (ssize_t)room && !conn->peer_closed) {
        conn->is_readable = false; /* the next byte brings a new event */
    }
    return n;
}

/* Many bytes keep the buffer that they were read into, and the server gets another one. */
static bool take_scratch(struct http_conn *conn)
{
    if (!grow_block(conn, HTTP_SCRATCH_BYTES)) {
        return false;
    }
    char *block = conn->in;
    conn->in = conn->server->scratch;
    conn->server->scratch = block;
    return true;
}

/*
 * Keeps `len` bytes that were read into the scratch buffer. Copying a prompt of 24 kB made its
 * request up to a third dearer, so only small messages are copied, into a block of their size.
 */
static bool keep_scratch(struct http_conn *conn, size_t len)
{
    if (len > FIRST_BLOCK_BYTES) {
        if (!take_scratch(conn)) {
            return false;
        }
    } else {
        if (conn->in_cap < len && !grow_block(conn, FIRST_BLOCK_BYTES)) {
            return false;
        }
        memcpy(conn->in, conn->server->scratch, len);
    }
    conn->in_len = len;
    return true;
}

/* Reads once. Bytes that are new; 0: none now, or refused; -1: there will be no more. */
static ssize_t gather(struct http_conn *conn)
{
    struct http_server *s = conn->server;
    bool into_scratch = conn->in_len == 0;
    if (!into_scratch && conn->in_len == conn->in_cap && !grow_block(conn, next_size(conn))) {
        gather_refuse(conn, HTTP_REFUSE_MEMORY, NULL);
        return 0;
    }
    char *at = into_scratch ? s->scratch : conn->in + conn->in_len;
    size_t room = into_scratch ? HTTP_SCRATCH_BYTES : conn->in_cap - conn->in_len;
    ssize_t n = gather_read(conn, at, room);
    if (n <= 0) {
        return n < 0 && errno == EAGAIN ? 0 : -1;
    }
    if (!into_scratch) {
        conn->in_len += (size_t)n;
    } else if (!keep_scratch(conn, (size_t)n)) {
        gather_refuse(conn, HTTP_REFUSE_MEMORY, NULL);
        return 0;
    }
    return n;
}

static enum gather_result result_of(const struct http_conn *conn)
{
    return conn->state == HTTP_CONN_BODY ? GATHER_AGAIN : GATHER_WAIT;
}

static enum gather_result step_head(struct http_conn *conn)
{
    if (conn->in_len > conn->scanned && try_head(conn)) {
        return result_of(conn);
    }
    bool was_idle = conn->in_len == 0;
    ssize_t n = conn->is_readable ? gather(conn) : 0;
    if (n <= 0) {
        return n < 0 ? GATHER_ENDED : GATHER_WAIT;
    }
    if (was_idle) {
        timer_set(conn->server->loop, &conn->timer, conn->server->limits.head_timeout_ns);
    }
    return GATHER_AGAIN;
}

static enum gather_result step_body(struct http_conn *conn)
{
    struct http_server *s = conn->server;
    ssize_t n = conn->is_readable ? gather(conn) : 0;
    if (n <= 0) {
        return n < 0 ? GATHER_ENDED : GATHER_WAIT;
    }
    timer_set(s->loop, &conn->timer, s->limits.body_timeout_ns);
    bool is_whole = conn->is_chunked ? decode_chunks(conn, (size_t)n)
                                     : conn->in_len - conn->head_len >= conn->body_len;
    if (is_whole) {
        handle_later(conn);
    }
    return result_of(conn);
}

enum gather_result gather_step(struct http_conn *conn)
{
    return conn->state == HTTP_CONN_HEAD ? step_head(conn) : step_body(conn);
}
