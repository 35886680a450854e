/*
 * upstream.h - connections towards engines: connect, keep alive, hand out again.
 *
 * One pool per loop; idle connections are kept per host, last used first, and closed when the
 * engine closes them, says anything unasked, moves to another address, or after a minute. What is
 * sent and read over a connection is its owner's business; this file only moves bytes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/endpoint.h"
#include "base/error.h"
#include "base/slab.h"
#include "net/loop.h"

enum upstream_state {
    UPSTREAM_CONNECTING,
    UPSTREAM_BUSY, /* has an owner */
    UPSTREAM_IDLE, /* on its host's idle list */
    UPSTREAM_DEAD  /* closed; freed at the end of the turn */
};

struct upstream_host;

struct upstream_conn {
    struct loop_fd io; /* first */
    struct upstream_pool *pool;
    struct upstream_host *host;
    struct upstream_conn *next, *prev; /* idle list; the dead list uses next */
    enum upstream_state state;
    uint32_t generation; /* of the host, when it was connected */
    bool was_reused;     /* had served another request before this owner */
    bool is_readable;    /* the kernel may hold bytes that were not read yet */
    bool peer_closed;    /* FIN or RST was seen */
    uint64_t idle_since_ns;
    const struct upstream_events *events;
    void *owner;
};

/* All from the loop, never from inside upstream_take(). */
struct upstream_events {
    void (*on_connected)(struct upstream_conn *conn);
    void (*on_connect_failed)(struct upstream_conn *conn, int errnum); /* already closed */
    void (*on_readable)(struct upstream_conn *conn); /* bytes, or the end of them */
    void (*on_writable)(struct upstream_conn *conn);
};

/* Written by the pool's thread, read by any. */
struct upstream_counters {
    _Atomic uint64_t connects;
    _Atomic uint64_t reuses;
    _Atomic uint64_t connect_errors;
};

struct upstream_pool {
    struct loop *loop;
    size_t max_idle; /* per host */
    struct upstream_counters *counters;
    struct slab conns;
    struct upstream_host **hosts; /* by id, chained; power of two */
    size_t host_cap, host_count;
    struct upstream_conn *dead;
    struct timer sweep;
};

void upstream_pool_init(struct upstream_pool *p, struct loop *loop, size_t max_idle,
                        struct upstream_counters *counters);
void upstream_pool_close(struct upstream_pool *p); /* owners must have let go */

/*
 * A connection to the host `host_id` (an id that is never used for another host) at `endpoint`:
 * BUSY at once when an idle one is there (`allow_reuse`) or the connect was immediate, else
 * CONNECTING. WEIR_EIO: no socket could be made; *errnum says why.
 */
WEIR_MUST_USE enum weir_err upstream_take(struct upstream_pool *p, uint32_t host_id,
                                          const struct endpoint *endpoint, bool allow_reuse,
                                          const struct upstream_events *events, void *owner,
                                          struct upstream_conn **out, int *errnum);

/* The owner lets go: kept for the next one, or closed. Closing cancels the engine's work. */
void upstream_release(struct upstream_conn *conn, bool reusable);

/* read(): > 0 bytes, 0 end, -1 with errno (EAGAIN: wait for on_readable). */
ssize_t upstream_read(struct upstream_conn *conn, char *into, size_t room);

/* writev(): -1 with errno; short writes: wait for on_writable. */
ssize_t upstream_write(struct upstream_conn *conn, const struct iovec *pieces, size_t count);

/* The host is no longer used: idle connections are closed now, busy ones when they are released. */
void upstream_forget_host(struct upstream_pool *p, uint32_t host_id);
