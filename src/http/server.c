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
#include "http/gather.h"
#include "net/address.h"

enum {
    /* Read and dropped at most, so that a client sees a refusal while it still sends its body. */
    LINGER_BYTES = 64 * 1024 * 1024,
    STEPS_PER_TURN = 16, /* about as many reads; then other connections get their turn */
};
#define LINGER_NS (2 * NS_PER_S)

/* ---- connections come and go ---- */

static void conn_close(struct http_conn *conn)
{
    if (conn->state == HTTP_CONN_DEAD) {
        return;
    }
    struct http_server *s = conn->server;
    conn->state = HTTP_CONN_DEAD;
    loop_close(&conn->io);
    timer_cancel(s->loop, &conn->timer);
    gather_free(conn);
    gauge_add(&s->counters->out_bytes, -(int64_t)buf_len(&conn->out));
    buf_free(&conn->out);
    conn->next->prev = conn->prev;
    conn->prev->next = conn->next;
    conn->next = s->dead;
    s->dead = conn;
    s->open--;
    gauge_add(&s->counters->open, -1);
}

/* Those that still stand on the list of connections to go on with are freed another time. */
static void free_dead(struct http_server *s)
{
    struct http_conn *list = s->dead;
    s->dead = NULL;
    while (list) {
        struct http_conn *conn = list;
        list = conn->next;
        if (conn->is_queued) {
            conn->next = s->dead;
            s->dead = conn;
        } else {
            slab_put(&s->conns, conn);
        }
    }
}

/* ---- writing ---- */

/* While a body is gathered the timer is the body's, even when a 100 Continue is still unsent. */
static void arm_write_timer(struct http_conn *conn)
{
    if (conn->state != HTTP_CONN_BODY) {
        timer_set(conn->server->loop, &conn->timer, conn->server->limits.write_timeout_ns);
    }
}

static void disarm_write_timer(struct http_conn *conn)
{
    if (conn->state != HTTP_CONN_BODY) {
        timer_cancel(conn->server->loop, &conn->timer);
    }
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
        gauge_add(&conn->server->counters->out_bytes, (int64_t)rest.len);
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
    if (conn->out.max < conn->server->limits.out_max_bytes) { /* the mark was raised with it */
        conn->out.max = conn->server->limits.out_max_bytes;
    }
    if (!keep_unsent(conn, pieces, count, sent)) {
        WEIR_BUG("a producer ignored back-pressure: %zu bytes unsent", buf_len(&conn->out));
    }
    conn->wants_writable = http_conn_is_full(conn);
    return !conn->wants_writable;
}

bool http_conn_is_full(const struct http_conn *conn)
{
    const struct http_server *s = conn->server;
    size_t unsent = buf_len(&conn->out);
    return unsent > s->limits.out_mark_bytes ||
           (unsent && gauge_get(&s->counters->out_bytes) > (int64_t)s->limits.out_memory_bytes);
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
    gauge_add(&conn->server->counters->out_bytes, -n);
    if (buf_len(&conn->out) == 0) {
        buf_free(&conn->out);
        disarm_write_timer(conn);
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
    gather_free(conn);
    shutdown(conn->io.fd, SHUT_WR);
    timer_set(conn->server->loop, &conn->timer, LINGER_NS);
    go_on_later(conn);
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
        start_linger(conn);
        return;
    }
    wait_for_request(conn);
}

void http_conn_forget_request(struct http_conn *conn)
{
    if (conn->head_len) {
        gather_drop_message(conn);
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

/* ---- reading ---- */

static enum gather_result step_linger(struct http_conn *conn)
{
    if (!conn->is_readable) {
        return GATHER_WAIT;
    }
    ssize_t n = gather_read(conn, conn->server->scratch, HTTP_SCRATCH_BYTES);
    if (n < 0 && errno == EAGAIN) {
        return GATHER_WAIT;
    }
    conn->raw_len += n > 0 ? (uint64_t)n : 0;
    return n <= 0 || conn->raw_len > LINGER_BYTES ? GATHER_ENDED : GATHER_AGAIN;
}

static enum gather_result step(struct http_conn *conn)
{
    switch (conn->state) {
    case HTTP_CONN_HEAD:
    case HTTP_CONN_BODY:
        return gather_step(conn);
    case HTTP_CONN_LINGER:
        return step_linger(conn);
    case HTTP_CONN_HANDLE:
    case HTTP_CONN_FLUSH:
    case HTTP_CONN_DEAD:
        break;
    }
    return GATHER_WAIT;
}

static void advance(struct http_conn *conn)
{
    enum gather_result result = GATHER_AGAIN;
    for (int i = 0; i < STEPS_PER_TURN && result == GATHER_AGAIN; i++) {
        result = step(conn);
    }
    if (result == GATHER_AGAIN) {
        go_on_later(conn);
    } else if (result == GATHER_ENDED) {
        conn_close(conn); /* between or inside requests nobody waits for an answer */
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
            gather_refuse(conn, HTTP_REFUSE_HEAD_TIMEOUT, NULL);
        }
        break;
    case HTTP_CONN_BODY:
        gather_refuse(conn, HTTP_REFUSE_BODY_TIMEOUT, NULL);
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
    free_dead(s);
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
