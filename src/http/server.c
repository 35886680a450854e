#include "http/server.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/heap.h"
#include "net/address.h"

enum {
    FIRST_BLOCK_BYTES = 4096,
    GROW_STEP_BYTES = 64 * 1024,
    LINGER_BYTES = 1024 * 1024, /* read and dropped at most, so that a refusal is seen */
    CHUNK_OVERHEAD = 8,         /* raw bytes per body byte that a chunked body may cost */
};
#define LINGER_NS (2 * NS_PER_S)

/* ---- connections come and go ---- */

static void free_block(struct http_conn *conn)
{
    if (conn->in) {
        gauge_add(&conn->server->counters->body_bytes, -(int64_t)conn->in_cap);
        heap_free(conn->in);
        conn->in = NULL;
        conn->in_len = conn->in_cap = 0;
    }
}

static void conn_close(struct http_conn *conn)
{
    if (conn->state == HTTP_CONN_DEAD) {
        return;
    }
    struct http_server *s = conn->server;
    conn->state = HTTP_CONN_DEAD;
    loop_close(&conn->io);
    timer_cancel(s->loop, &conn->timer);
    free_block(conn);
    buf_free(&conn->out);
    heap_free(conn->chunks);
    conn->chunks = NULL;
    conn->next->prev = conn->prev;
    conn->prev->next = conn->next;
    conn->next = s->dead;
    s->dead = conn;
    s->open--;
    gauge_add(&s->counters->open, -1);
}

static void free_dead(struct http_server *s)
{
    while (s->dead) {
        struct http_conn *conn = s->dead;
        s->dead = conn->next;
        slab_put(&s->conns, conn);
    }
}

/* ---- writing ---- */

static void arm_write_timer(struct http_conn *conn)
{
    timer_set(conn->server->loop, &conn->timer, conn->server->limits.write_timeout_ns);
}

/* The socket is broken, or the client is gone: whoever works for it must know. */
static void conn_lost(struct http_conn *conn)
{
    if (conn->state == HTTP_CONN_HANDLE) {
        conn->server->handler->on_client_gone(conn);
    }
    conn_close(conn);
}

/* Keeps what the kernel did not take: everything behind the first `sent` bytes of the pieces. */
static bool keep_unsent(struct http_conn *conn, const struct iovec *pieces, size_t count,
                        size_t sent)
{
    for (size_t i = 0; i < count; i++) {
        if (sent >= pieces[i].iov_len) {
            sent -= pieces[i].iov_len;
            continue;
        }
        struct slice rest =
            slice_of((const char *)pieces[i].iov_base + sent, pieces[i].iov_len - sent);
        sent = 0;
        if (buf_append(&conn->out, rest) != WEIR_OK) {
            return false;
        }
    }
    return true;
}

static ssize_t write_pieces(int fd, const struct iovec *pieces, size_t count)
{
    ssize_t n;
    do {
        n = count == 1 ? write(fd, pieces[0].iov_base, pieces[0].iov_len)
                       : writev(fd, pieces, (int)count);
    } while (n < 0 && errno == EINTR);
    return n;
}

static size_t pieces_length(const struct iovec *pieces, size_t count)
{
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        total += pieces[i].iov_len;
    }
    return total;
}

bool http_conn_send(struct http_conn *conn, const struct iovec *pieces, size_t count)
{
    size_t total = pieces_length(pieces, count);
    conn->out_total += total;
    if (conn->state == HTTP_CONN_DEAD || total == 0) {
        return true;
    }
    size_t sent = 0;
    if (buf_len(&conn->out) == 0) {
        ssize_t n = write_pieces(conn->io.fd, pieces, count);
        if (n < 0 && errno != EAGAIN) {
            return true; /* the socket is broken and reports itself in this turn or the next */
        }
        sent = n < 0 ? 0 : (size_t)n;
        if (sent == total) {
            return true;
        }
        arm_write_timer(conn);
    }
    if (!keep_unsent(conn, pieces, count, sent)) {
        WEIR_BUG("a producer ignored back-pressure: %zu bytes unsent", buf_len(&conn->out));
    }
    conn->wants_writable = http_conn_is_full(conn);
    return !conn->wants_writable;
}

bool http_conn_is_full(const struct http_conn *conn)
{
    return buf_len(&conn->out) > conn->server->limits.out_mark_bytes;
}

/* True when nothing is left to send. */
static bool flush(struct http_conn *conn)
{
    struct slice rest = buf_slice(&conn->out);
    if (rest.len == 0) {
        return true;
    }
    struct iovec piece = {(void *)rest.ptr, rest.len};
    ssize_t n = write_pieces(conn->io.fd, &piece, 1);
    if (n < 0) {
        return false; /* a broken socket reports itself */
    }
    buf_consume(&conn->out, (size_t)n);
    if (buf_len(&conn->out) == 0) {
        buf_free(&conn->out);
        timer_cancel(conn->server->loop, &conn->timer);
        return true;
    }
    arm_write_timer(conn);
    return false;
}

/* ---- the end of an exchange ---- */

/*
 * Bytes that wait for the next request are looked at when this turn ends: a handler that answers at
 * once would otherwise recurse once per pipelined request.
 */
static void go_on_later(struct http_conn *conn)
{
    if (!conn->is_queued && (conn->in_len || conn->is_readable || conn->peer_closed)) {
        conn->is_queued = true;
        conn->next_again = conn->server->again;
        conn->server->again = conn;
    }
}

static void start_linger(struct http_conn *conn)
{
    conn->state = HTTP_CONN_LINGER;
    conn->raw_len = 0;
    free_block(conn);
    shutdown(conn->io.fd, SHUT_WR);
    timer_set(conn->server->loop, &conn->timer, LINGER_NS);
    go_on_later(conn);
}

/* Bytes behind the finished message move to the front. */
static void drop_message(struct http_conn *conn)
{
    size_t used = conn->head_len + (conn->is_chunked ? 0 : (size_t)conn->body_len);
    if (conn->head_len && conn->in_len > used) {
        memmove(conn->in, conn->in + used, conn->in_len - used);
        conn->in_len -= used;
    } else {
        free_block(conn);
    }
    conn->head_len = conn->scanned = 0;
}

static void wait_for_request(struct http_conn *conn)
{
    conn->state = HTTP_CONN_HEAD;
    timer_set(conn->server->loop, &conn->timer, conn->server->limits.idle_timeout_ns);
    go_on_later(conn);
}

static void end_exchange(struct http_conn *conn)
{
    if (!conn->keep_alive || conn->close_after || conn->server->is_draining) {
        if (conn->peer_closed) {
            conn_close(conn);
        } else {
            start_linger(conn);
        }
        return;
    }
    wait_for_request(conn);
}

void http_conn_forget_request(struct http_conn *conn)
{
    if (conn->head_len) {
        drop_message(conn);
    }
}

void http_conn_finish(struct http_conn *conn, bool keep_alive)
{
    if (conn->state == HTTP_CONN_DEAD) {
        return;
    }
    http_conn_forget_request(conn);
    conn->user = NULL;
    conn->keep_alive = conn->keep_alive && keep_alive;
    conn->wants_writable = false;
    conn->state = HTTP_CONN_FLUSH;
    if (buf_len(&conn->out) == 0) {
        end_exchange(conn);
    }
}

void http_conn_abort(struct http_conn *conn)
{
    if (conn->state == HTTP_CONN_DEAD) {
        return;
    }
    conn->user = NULL;
    /* An RST, not a FIN: behind a half-sent body a FIN could pass for an end. */
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(conn->io.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    conn_close(conn);
}

/* ---- requests ---- */

static void refuse(struct http_conn *conn, enum http_refusal why, const char *text)
{
    counter_add(&conn->server->counters->bad_requests, 1);
    conn->state = HTTP_CONN_HANDLE;
    conn->keep_alive = false;
    conn->out_total = 0;
    timer_cancel(conn->server->loop, &conn->timer);
    conn->server->handler->on_refuse(conn, why, text);
}

static void handle(struct http_conn *conn)
{
    struct http_server *s = conn->server;
    timer_cancel(s->loop, &conn->timer);
    conn->state = HTTP_CONN_HANDLE;
    conn->out_total = 0;
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
        refuse(conn, HTTP_REFUSE_SYNTAX, "the chunked body is malformed");
        return false;
    }
    conn->body_len += body;
    size_t rest = raw - consumed; /* of the next message */
    memmove(at + body, at + consumed, rest);
    conn->in_len = (size_t)(at - conn->in) + body + rest;
    if (conn->body_len > conn->max_body ||
        conn->raw_len > CHUNK_OVERHEAD * (conn->max_body + GROW_STEP_BYTES)) {
        refuse(conn, HTTP_REFUSE_BODY_SIZE, NULL);
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
        refuse(conn, HTTP_REFUSE_BODY_SIZE, NULL);
        return;
    }
    if (!head->expects_continue && http_header_has(head, SLICE("expect"))) {
        refuse(conn, HTTP_REFUSE_EXPECT, "the only expectation understood is 100-continue");
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
        refuse(conn, HTTP_REFUSE_HEAD_SIZE, "the request line and headers are too long");
        return true;
    }
    if (head_len == 0) {
        return false;
    }
    const char *why;
    enum weir_err err = http1_parse_request(slice_of(conn->in, head_len), &s->head, &why);
    if (err != WEIR_OK) {
        refuse(conn, refusal_of(err), why);
        return true;
    }
    conn->head_len = head_len;
    start_body(conn, &s->head);
    return true;
}

/* ---- reading ---- */

/* Room for at least one more byte of what is being gathered, growing by doubling. */
static bool grow_block(struct http_conn *conn, size_t needed)
{
    struct http_server *s = conn->server;
    size_t cap = conn->in_cap * 2;
    if (cap < FIRST_BLOCK_BYTES) {
        cap = FIRST_BLOCK_BYTES;
    }
    if (cap > needed) {
        cap = needed;
    }
    int64_t more = (int64_t)(cap - conn->in_cap);
    if (gauge_get(&s->counters->body_bytes) + more > (int64_t)s->limits.body_memory_bytes) {
        return false;
    }
    gauge_add(&s->counters->body_bytes, more);
    conn->in = heap_realloc(conn->in, cap);
    conn->in_cap = cap;
    return true;
}

/* What the block may grow to: the whole message where its length is known. */
static size_t block_needed(const struct http_conn *conn)
{
    if (conn->state == HTTP_CONN_BODY && !conn->is_chunked) {
        return conn->head_len + (size_t)conn->body_len;
    }
    return conn->in_len + GROW_STEP_BYTES;
}

static ssize_t read_some(struct http_conn *conn, char *into, size_t room)
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

/* Keeps `len` bytes that were read into the scratch buffer. */
static bool keep_scratch(struct http_conn *conn, size_t len)
{
    while (conn->in_cap < len) {
        if (!grow_block(conn, len)) {
            return false;
        }
    }
    memcpy(conn->in, conn->server->scratch, len);
    conn->in_len = len;
    return true;
}

/* Reads once. 0: nothing more now, or the connection is gone; else the number of new bytes. */
static size_t gather(struct http_conn *conn)
{
    struct http_server *s = conn->server;
    bool into_scratch = conn->in_len == 0;
    if (!into_scratch && conn->in_len == conn->in_cap && !grow_block(conn, block_needed(conn))) {
        refuse(conn, HTTP_REFUSE_MEMORY, NULL);
        return 0;
    }
    char *at = into_scratch ? s->scratch : conn->in + conn->in_len;
    size_t room = into_scratch ? HTTP_SCRATCH_BYTES : conn->in_cap - conn->in_len;
    ssize_t n = read_some(conn, at, room);
    if (n < 0 && errno == EAGAIN) {
        return 0;
    }
    if (n <= 0) {
        conn_close(conn); /* between or inside requests nobody waits for an answer */
        return 0;
    }
    if (!into_scratch) {
        conn->in_len += (size_t)n;
    } else if (!keep_scratch(conn, (size_t)n)) {
        refuse(conn, HTTP_REFUSE_MEMORY, NULL);
        return 0;
    }
    return (size_t)n;
}

/* Each step returns whether another one should follow at once. */
static bool step_head(struct http_conn *conn)
{
    if (conn->in_len > conn->scanned && try_head(conn)) {
        return conn->state == HTTP_CONN_BODY;
    }
    bool was_idle = conn->in_len == 0;
    if (!conn->is_readable || gather(conn) == 0) {
        return false;
    }
    if (was_idle) {
        timer_set(conn->server->loop, &conn->timer, conn->server->limits.head_timeout_ns);
    }
    return true;
}

static bool step_body(struct http_conn *conn)
{
    struct http_server *s = conn->server;
    size_t got = conn->is_readable ? gather(conn) : 0;
    if (got == 0) {
        return false;
    }
    timer_set(s->loop, &conn->timer, s->limits.body_timeout_ns);
    bool is_whole = conn->is_chunked ? decode_chunks(conn, got)
                                     : conn->in_len - conn->head_len >= conn->body_len;
    if (is_whole) {
        handle_later(conn);
    }
    return conn->state == HTTP_CONN_BODY;
}

static bool step_linger(struct http_conn *conn)
{
    if (!conn->is_readable) {
        return false;
    }
    ssize_t n = read_some(conn, conn->server->scratch, HTTP_SCRATCH_BYTES);
    if (n < 0 && errno == EAGAIN) {
        return false;
    }
    conn->raw_len += n > 0 ? (uint64_t)n : 0;
    if (n <= 0 || conn->raw_len > LINGER_BYTES) {
        conn_close(conn);
        return false;
    }
    return true;
}

static bool step(struct http_conn *conn)
{
    switch (conn->state) {
    case HTTP_CONN_HEAD:
        return step_head(conn);
    case HTTP_CONN_BODY:
        return step_body(conn);
    case HTTP_CONN_LINGER:
        return step_linger(conn);
    case HTTP_CONN_HANDLE:
    case HTTP_CONN_FLUSH:
    case HTTP_CONN_DEAD:
        break;
    }
    return false;
}

static void advance(struct http_conn *conn)
{
    while (step(conn)) {
    }
}

/* ---- events ---- */

static void on_room(struct http_conn *conn)
{
    if (buf_len(&conn->out) == 0) {
        return;
    }
    bool is_empty = flush(conn);
    if (conn->state == HTTP_CONN_FLUSH && is_empty) {
        end_exchange(conn);
    } else if (conn->state == HTTP_CONN_HANDLE && conn->wants_writable &&
               !http_conn_is_full(conn)) {
        conn->wants_writable = false;
        conn->server->handler->on_writable(conn);
    }
}

static void on_io(struct loop_fd *io, unsigned events)
{
    struct http_conn *conn = (struct http_conn *)io;
    if (events & LOOP_HANGUP) {
        conn->peer_closed = true;
    }
    if (events & (LOOP_READ | LOOP_HANGUP)) {
        conn->is_readable = true;
        advance(conn);
    }
    if (conn->peer_closed) {
        bool has_left = (events & LOOP_ERROR) || !conn->server->limits.tolerate_half_close;
        if ((conn->state == HTTP_CONN_HANDLE && has_left) ||
            (conn->state == HTTP_CONN_FLUSH && (events & LOOP_ERROR))) {
            conn_lost(conn);
        }
    }
    if ((events & LOOP_WRITE) && conn->state != HTTP_CONN_DEAD) {
        on_room(conn);
    }
}

static void on_timer(struct timer *timer)
{
    struct http_conn *conn =
        (struct http_conn *)((char *)timer - offsetof(struct http_conn, timer));
    switch (conn->state) {
    case HTTP_CONN_HEAD:
        if (conn->in_len == 0) {
            conn_close(conn);
        } else {
            refuse(conn, HTTP_REFUSE_HEAD_TIMEOUT, NULL);
        }
        break;
    case HTTP_CONN_BODY:
        refuse(conn, HTTP_REFUSE_BODY_TIMEOUT, NULL);
        break;
    case HTTP_CONN_HANDLE:
    case HTTP_CONN_FLUSH:
        conn_lost(conn);
        break;
    case HTTP_CONN_LINGER:
        conn_close(conn);
        break;
    case HTTP_CONN_DEAD:
        break;
    }
}

/* Goes on with connections that finished an exchange; each may finish another one meanwhile. */
static void run_again(struct http_server *s)
{
    struct http_conn *list = s->again;
    s->again = NULL;
    while (list) {
        struct http_conn *conn = list;
        list = conn->next_again;
        conn->is_queued = false;
        advance(conn);
        if (conn->state == HTTP_CONN_HANDLE && conn->peer_closed &&
            !s->limits.tolerate_half_close) {
            conn_lost(conn);
        }
    }
    if (s->again) {
        loop_wake(s->loop); /* the others get their turn first */
    }
}

static void on_turn_end(void *ctx)
{
    struct http_server *s = ctx;
    run_again(s);
    if (!s->again) { /* a dead connection may still stand on that list */
        free_dead(s);
    }
}

/* ---- the server ---- */

void http_server_init(struct http_server *s, struct loop *loop, const struct http_handler *handler,
                      void *ctx, const struct http_server_limits *limits,
                      struct http_server_counters *counters)
{
    *s = (struct http_server){
        .loop = loop, .handler = handler, .ctx = ctx, .limits = *limits, .counters = counters};
    slab_init(&s->conns, sizeof(struct http_conn), 64);
    s->all.next = s->all.prev = &s->all;
    s->scratch = heap_alloc(HTTP_SCRATCH_BYTES);
    loop_at_turn_end(loop, on_turn_end, s);
}

void http_server_close(struct http_server *s)
{
    while (s->all.next != &s->all) {
        struct http_conn *conn = s->all.next;
        conn_lost(conn);
    }
    s->again = NULL;
    free_dead(s);
    slab_free_all(&s->conns);
    heap_free(s->scratch);
}

void http_server_adopt(struct http_server *s, int descriptor, const struct endpoint *peer)
{
    counter_add(&s->counters->accepted, 1);
    if (s->open >= s->limits.connections) {
        counter_add(&s->counters->refused, 1);
        close(descriptor);
        return;
    }
    struct http_conn *conn = slab_get(&s->conns);
    conn->io = (struct loop_fd){.fd = -1, .on_event = on_io};
    conn->timer.on_fire = on_timer;
    conn->server = s;
    buf_init(&conn->out, s->limits.out_max_bytes);
    address_format(peer, conn->peer, sizeof conn->peer);
    if (loop_add(s->loop, &conn->io, descriptor) != WEIR_OK) {
        counter_add(&s->counters->refused, 1);
        close(descriptor);
        slab_put(&s->conns, conn);
        return;
    }
    int on = 1; /* fails on Unix sockets, which have no delay to turn off */
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    conn->next = &s->all;
    conn->prev = s->all.prev;
    conn->prev->next = conn->next->prev = conn;
    s->open++;
    gauge_add(&s->counters->open, 1);
    conn->state = HTTP_CONN_HEAD;
    timer_set(s->loop, &conn->timer, s->limits.head_timeout_ns);
}

void http_server_drain(struct http_server *s)
{
    s->is_draining = true;
    for (struct http_conn *conn = s->all.next; conn != &s->all;) {
        struct http_conn *next = conn->next;
        if (conn->state == HTTP_CONN_HEAD && conn->in_len == 0) {
            conn_close(conn);
        }
        conn = next;
    }
}
