/*
 * server.h - the server's side of HTTP/1 connections: bytes in, whole requests out, bytes out.
 *
 * One http_server per loop. It owns connections from accept to close: reading with bounds in size
 * and time, keep-alive, pipelining (one request at a time; further bytes wait in the kernel),
 * Expect, back-pressure towards whoever produces the response, and a close that lets the client
 * read what was said. What a request means is the handler's business.
 *
 * Memory: an idle or streaming connection owns no buffer. Request bytes are kept, head and body in
 * one block, until http_conn_forget_request() or the end of the exchange.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/buf.h"
#include "base/endpoint.h"
#include "base/slab.h"
#include "base/slice.h"
#include "http/http1.h"
#include "http/message.h"
#include "net/loop.h"

/* Why a request is refused before the handler saw it whole. */
enum http_refusal {
    HTTP_REFUSE_SYNTAX,       /* 400: malformed; the connection closes */
    HTTP_REFUSE_VERSION,      /* 505 */
    HTTP_REFUSE_HEAD_SIZE,    /* 431 */
    HTTP_REFUSE_BODY_SIZE,    /* 413 */
    HTTP_REFUSE_MEMORY,       /* 503: all request bodies together are over their bound */
    HTTP_REFUSE_HEAD_TIMEOUT, /* 408 */
    HTTP_REFUSE_BODY_TIMEOUT, /* 408 */
    HTTP_REFUSE_EXPECT        /* 417 */
};

enum http_conn_state {
    HTTP_CONN_HEAD,   /* idle, or gathering a head */
    HTTP_CONN_BODY,   /* gathering a body */
    HTTP_CONN_HANDLE, /* the handler has the request; timer: a client that takes no byte */
    HTTP_CONN_FLUSH,  /* response complete, some of it unsent */
    HTTP_CONN_LINGER, /* response sent, our side shut; reads and drops until the client closes */
    HTTP_CONN_DEAD    /* closed; freed at the end of the turn */
};

struct http_conn {
    struct loop_fd io; /* first */
    struct timer timer;
    struct http_server *server;
    struct http_conn *next, *prev; /* all open connections of the server; the dead list uses next */
    struct http_conn *next_again;
    void *user; /* the handler's, for the exchange; cleared at its end */

    enum http_conn_state state;
    uint8_t tag;      /* the handler's, set in on_head, for refusals later */
    bool is_readable; /* the kernel may hold bytes that were not read yet */
    bool peer_closed; /* FIN was seen; bytes before it may still be unread */
    bool is_queued;   /* on the server's list of connections to go on with */
    bool keep_alive;  /* another request may follow this one */
    bool is_http11;   /* of the request being handled */
    bool is_chunked;
    bool close_after;    /* drain: this exchange is the last */
    bool wants_writable; /* call on_writable when unsent bytes fall below the mark */

    char *in; /* bytes of the current message, and of what follows it */
    size_t in_len, in_cap;
    size_t scanned;              /* of the head, see http1_head_length() */
    size_t head_len;             /* 0 until the head is whole */
    uint64_t body_len;           /* declared, or decoded so far */
    uint64_t raw_len;            /* chunked: bytes read for this body, framing included */
    size_t max_body;             /* what on_head() allowed */
    struct http1_chunks *chunks; /* while a chunked body is read */

    struct buf out; /* unsent bytes of the response */
    char peer[64];  /* "1.2.3.4:5678" */
};

struct http_handler {
    /*
     * The head is whole, the body is not here yet. Sets conn->tag. `head` is valid during the call.
     * Returns the largest body that it takes for this request.
     */
    size_t (*on_head)(struct http_conn *conn, const struct http_head *head);

    /* The request is whole. `body` is valid until http_conn_forget_request() or the end. */
    void (*on_request)(struct http_conn *conn, const struct http_head *head, struct slice body);

    /* Must answer with http_conn_send() and end with http_conn_finish(conn, false). */
    void (*on_refuse)(struct http_conn *conn, enum http_refusal why, const char *text);

    /* The client left during HANDLE. The handler stops its work; conn->user is cleared after. */
    void (*on_client_gone)(struct http_conn *conn);

    /* Unsent bytes fell below the mark after http_conn_send() had said to wait. */
    void (*on_writable)(struct http_conn *conn);
};

struct http_server_limits {
    size_t head_bytes;
    size_t body_memory_bytes; /* of this server */
    size_t out_mark_bytes;    /* unsent bytes above which the producer should wait */
    size_t out_memory_bytes; /* of this server: when all together have more, every producer waits */
    size_t out_max_bytes;    /* unsent bytes a connection may hold at all */
    uint32_t connections;
    uint64_t head_timeout_ns, body_timeout_ns, idle_timeout_ns, write_timeout_ns;
    bool tolerate_half_close;
};

/* Written by the server's thread, read by any: relaxed. */
struct http_server_counters {
    _Atomic uint64_t accepted;
    _Atomic int64_t open;
    _Atomic uint64_t refused;
    _Atomic uint64_t bad_requests;
    _Atomic int64_t body_bytes; /* of requests, in memory */
    _Atomic int64_t out_bytes;  /* of responses, not yet taken by the clients' sockets */
};

struct http_server {
    struct loop *loop;
    const struct http_handler *handler;
    void *ctx; /* the handler's */
    struct http_server_limits limits;
    struct http_server_counters *counters;
    struct slab conns;
    struct http_conn all; /* list head */
    struct http_conn *dead;
    struct http_conn *again; /* ready for their next request at the end of this turn */
    size_t open;
    bool is_draining;
    struct http_head head; /* of the request being parsed; valid during callbacks */
    char *scratch;         /* one read */
};

enum { HTTP_SCRATCH_BYTES = 64 * 1024 };

/* `counters` outlives the server. Registers a turn-end hook with the loop. */
void http_server_init(struct http_server *s, struct loop *loop, const struct http_handler *handler,
                      void *ctx, const struct http_server_limits *limits,
                      struct http_server_counters *counters);
void http_server_close(struct http_server *s); /* closes all connections at once */

/* Takes an accepted, non-blocking socket. `peer` as address_format() writes it. */
void http_server_adopt(struct http_server *s, int descriptor, const struct endpoint *peer);

/* No keep-alive any more: idle connections close now, busy ones after their exchange. */
void http_server_drain(struct http_server *s);

/*
 * Sends bytes of the response, or keeps what the kernel does not take now. The bytes are copied if
 * kept. False: unsent bytes are over the mark, the producer should wait for on_writable().
 * A connection that failed swallows bytes; its end is reported by on_client_gone().
 */
bool http_conn_send(struct http_conn *conn, const struct iovec *pieces, size_t count);

/* Is there more unsent than the mark, or anything while all connections together have too much? */
bool http_conn_is_full(const struct http_conn *conn);

/* The exchange is over. Closes after flushing unless both sides want to keep the connection. */
void http_conn_finish(struct http_conn *conn, bool keep_alive);

/* Ends the connection now, unsent bytes lost: the client sees a broken transfer. */
void http_conn_abort(struct http_conn *conn);

/* The bytes of the request are not needed any more. */
void http_conn_forget_request(struct http_conn *conn);
