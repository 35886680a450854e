#include "http/upstream.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/heap.h"

#define IDLE_NS  (60 * NS_PER_S)
#define SWEEP_NS (10 * NS_PER_S)

struct upstream_host {
    struct upstream_host *next; /* in its hash chain */
    uint32_t id;
    struct endpoint endpoint;  /* of the connections of this generation, the idle ones among them */
    uint32_t generation;       /* another endpoint, or the host was forgotten */
    struct upstream_conn idle; /* list head; most recently used first */
    size_t idle_count;
    size_t conn_count; /* idle or not; a host without any is freed by the sweep */
};

/* ---- hosts ---- */

static struct upstream_host **host_slot(struct upstream_pool *p, uint32_t id)
{
    struct upstream_host **slot = &p->hosts[(id * 2654435761u) & (p->host_cap - 1)];
    while (*slot && (*slot)->id != id) {
        slot = &(*slot)->next;
    }
    return slot;
}

static void grow_hosts(struct upstream_pool *p)
{
    struct upstream_host **old = p->hosts;
    size_t old_cap = p->host_cap;
    p->host_cap = old_cap ? old_cap * 2 : 64;
    p->hosts = heap_zalloc(p->host_cap * sizeof(struct upstream_host *));
    for (size_t i = 0; i < old_cap; i++) {
        while (old[i]) {
            struct upstream_host *host = old[i];
            old[i] = host->next;
            struct upstream_host **slot = host_slot(p, host->id);
            host->next = *slot;
            *slot = host;
        }
    }
    heap_free(old);
}

static struct upstream_host *host_get(struct upstream_pool *p, uint32_t id)
{
    if (p->host_count >= p->host_cap) {
        grow_hosts(p);
    }
    struct upstream_host **slot = host_slot(p, id);
    if (!*slot) {
        *slot = heap_zalloc(sizeof **slot);
        (*slot)->id = id;
        (*slot)->idle.next = (*slot)->idle.prev = &(*slot)->idle;
        p->host_count++;
    }
    return *slot;
}

/* ---- the life of a connection ---- */

static void unlink_idle(struct upstream_conn *conn)
{
    conn->next->prev = conn->prev;
    conn->prev->next = conn->next;
    conn->host->idle_count--;
}

static void conn_close(struct upstream_conn *conn)
{
    if (conn->state == UPSTREAM_IDLE) {
        unlink_idle(conn);
    }
    conn->state = UPSTREAM_DEAD;
    conn->owner = NULL;
    conn->host->conn_count--;
    loop_close(&conn->io);
    conn->next = conn->pool->dead;
    conn->pool->dead = conn;
}

static void on_connect_result(struct upstream_conn *conn)
{
    int errnum = 0;
    socklen_t len = sizeof errnum;
    if (getsockopt(conn->io.fd, SOL_SOCKET, SO_ERROR, &errnum, &len) != 0) {
        errnum = errno;
    }
    if (errnum == 0) {
        conn->state = UPSTREAM_BUSY;
        conn->events->on_connected(conn);
        return;
    }
    counter_add(&conn->pool->counters->connect_errors, 1);
    void *owner = conn->owner;
    conn_close(conn);
    conn->owner = owner; /* for the callback; the memory lives until the turn ends */
    conn->events->on_connect_failed(conn, errnum);
}

static void on_io(struct loop_fd *io, unsigned events)
{
    struct upstream_conn *conn = (struct upstream_conn *)io;
    if (events & LOOP_HANGUP) {
        conn->peer_closed = true;
    }
    if (conn->state == UPSTREAM_CONNECTING && (events & (LOOP_WRITE | LOOP_ERROR))) {
        on_connect_result(conn);
    } else if (conn->state == UPSTREAM_BUSY && (events & LOOP_WRITE)) {
        conn->events->on_writable(conn);
    }
    /* Also right behind the connect: an engine may refuse at once, in words or by a FIN. */
    if (!(events & (LOOP_READ | LOOP_HANGUP))) {
        return;
    }
    if (conn->state == UPSTREAM_BUSY) {
        conn->is_readable = true;
        conn->events->on_readable(conn);
    } else if (conn->state == UPSTREAM_IDLE) {
        conn_close(conn); /* closed by the engine, or it speaks unasked */
    }
}

static void free_dead(void *ctx)
{
    struct upstream_pool *p = ctx;
    while (p->dead) {
        struct upstream_conn *conn = p->dead;
        p->dead = conn->next;
        slab_put(&p->conns, conn);
    }
}

static void close_idle(struct upstream_host *host, uint64_t idle_before_ns)
{
    while (host->idle.prev != &host->idle && host->idle.prev->idle_since_ns <= idle_before_ns) {
        conn_close(host->idle.prev);
    }
}

/* Hosts come and go with reloads: one that is not used any more does not stay for ever. */
static void sweep_chain(struct upstream_pool *p, struct upstream_host **slot, uint64_t now_ns)
{
    while (*slot) {
        struct upstream_host *host = *slot;
        close_idle(host, now_ns > IDLE_NS ? now_ns - IDLE_NS : 0);
        if (host->conn_count == 0) {
            *slot = host->next;
            heap_free(host);
            p->host_count--;
        } else {
            slot = &host->next;
        }
    }
}

static void on_sweep(struct timer *timer)
{
    struct upstream_pool *p =
        (struct upstream_pool *)((char *)timer - offsetof(struct upstream_pool, sweep));
    for (size_t i = 0; i < p->host_cap; i++) {
        sweep_chain(p, &p->hosts[i], loop_now_ns(p->loop));
    }
    timer_set(p->loop, &p->sweep, SWEEP_NS);
}

/* ---- the pool ---- */

void upstream_pool_init(struct upstream_pool *p, struct loop *loop, size_t max_idle,
                        struct upstream_counters *counters)
{
    *p = (struct upstream_pool){.loop = loop, .max_idle = max_idle, .counters = counters};
    slab_init(&p->conns, sizeof(struct upstream_conn), 64);
    grow_hosts(p);
    p->sweep.on_fire = on_sweep;
    timer_set(loop, &p->sweep, SWEEP_NS);
    loop_at_turn_end(loop, free_dead, p);
}

void upstream_pool_close(struct upstream_pool *p)
{
    timer_cancel(p->loop, &p->sweep);
    for (size_t i = 0; i < p->host_cap; i++) {
        while (p->hosts[i]) {
            struct upstream_host *host = p->hosts[i];
            close_idle(host, UINT64_MAX);
            p->hosts[i] = host->next;
            heap_free(host);
        }
    }
    free_dead(p);
    slab_free_all(&p->conns);
    heap_free(p->hosts);
}

/* Idle connections are closed now, busy ones when their owners let go. */
static void start_generation(struct upstream_host *host)
{
    close_idle(host, UINT64_MAX);
    host->generation++;
}

static struct upstream_conn *take_idle(struct upstream_host *host)
{
    struct upstream_conn *conn = host->idle.next;
    if (conn == &host->idle) {
        return NULL;
    }
    unlink_idle(conn);
    conn->was_reused = true;
    conn->state = UPSTREAM_BUSY;
    return conn;
}

static enum weir_err start_connect(struct upstream_conn *conn, const struct endpoint *endpoint,
                                   int *errnum)
{
    int fd = socket((int)endpoint->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        *errnum = errno;
        return WEIR_EIO;
    }
    int on = 1; /* fails on Unix sockets, which have no delay to turn off */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    int result = connect(fd, (const struct sockaddr *)endpoint->bytes, endpoint->length);
    if ((result != 0 && errno != EINPROGRESS) ||
        loop_add(conn->pool->loop, &conn->io, fd) != WEIR_OK) {
        *errnum = errno;
        close(fd);
        return WEIR_EIO;
    }
    conn->state = result == 0 ? UPSTREAM_BUSY : UPSTREAM_CONNECTING;
    return WEIR_OK;
}

enum weir_err upstream_take(struct upstream_pool *p, uint32_t host_id,
                            const struct endpoint *endpoint, bool allow_reuse,
                            const struct upstream_events *events, void *owner,
                            struct upstream_conn **out, int *errnum)
{
    struct upstream_host *host = host_get(p, host_id);
    if (memcmp(&host->endpoint, endpoint, sizeof *endpoint) != 0) {
        start_generation(host); /* the name resolves to another address now */
        host->endpoint = *endpoint;
    }
    struct upstream_conn *conn = allow_reuse ? take_idle(host) : NULL;
    if (conn) {
        counter_add(&p->counters->reuses, 1);
    } else {
        conn = slab_get(&p->conns);
        conn->io = (struct loop_fd){.fd = -1, .on_event = on_io};
        conn->pool = p;
        conn->host = host;
        counter_add(&p->counters->connects, 1);
        enum weir_err err = start_connect(conn, endpoint, errnum);
        if (err != WEIR_OK) {
            counter_add(&p->counters->connect_errors, 1);
            slab_put(&p->conns, conn);
            return err;
        }
        conn->generation = host->generation;
        host->conn_count++;
    }
    conn->events = events;
    conn->owner = owner;
    *out = conn;
    return WEIR_OK;
}

void upstream_release(struct upstream_conn *conn, bool reusable)
{
    struct upstream_host *host = conn->host;
    if (conn->state != UPSTREAM_BUSY || !reusable || conn->peer_closed || conn->is_readable ||
        conn->generation != host->generation || host->idle_count >= conn->pool->max_idle) {
        conn_close(conn);
        return;
    }
    conn->state = UPSTREAM_IDLE;
    conn->owner = NULL;
    conn->idle_since_ns = loop_now_ns(conn->pool->loop);
    conn->next = host->idle.next;
    conn->prev = &host->idle;
    conn->next->prev = conn->prev->next = conn;
    host->idle_count++;
}

ssize_t upstream_read(struct upstream_conn *conn, char *into, size_t room)
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

ssize_t upstream_write(struct upstream_conn *conn, const struct iovec *pieces, size_t count)
{
    ssize_t n;
    do {
        n = writev(conn->io.fd, pieces, (int)count);
    } while (n < 0 && errno == EINTR);
    return n;
}

void upstream_forget_host(struct upstream_pool *p, uint32_t host_id)
{
    struct upstream_host **slot = host_slot(p, host_id);
    if (*slot) {
        start_generation(*slot);
    }
}
