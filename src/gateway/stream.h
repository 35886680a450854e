/*
 * stream.h - one request, from its head to its settlement: the state machine of the gateway.
 *
 *   on_request ─▶ READ ─▶ CONNECT ─▶ WAIT ─▶ RELAY ─▶ SETTLE ─▶ DEAD
 *                             ▲        │
 *                             └────────┘ another replica, while the client has seen no byte
 *
 * A stream lives and dies on one worker. stream.c moves it and settles it; attempt.c chooses a
 * replica, sends the request and decides what a failure means; relay.c reads the answer and passes
 * it on; answer.c writes what weir itself says; inquiry.c answers what needs no engine.
 *
 * What is needed only until the first byte of the answer goes out (request bytes, headers, edits,
 * the last refusal) is in `struct outbound` and is given back then: a streaming request holds
 * nothing but this struct.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/arena.h"
#include "base/buf.h"
#include "dialects/body.h"
#include "dialects/errors.h"
#include "dialects/stream.h"
#include "dialects/surface.h"
#include "dialects/usage.h"
#include "gateway/stream_state.h"
#include "health/health.h"
#include "http/http1.h"
#include "http/server.h"
#include "http/sse.h"
#include "http/upstream.h"
#include "model/fleet.h"
#include "model/request.h"
#include "net/loop.h"
#include "observe/outcome.h"
#include "routing/routing.h"

struct worker;
struct worker_fleet;

/* How the body of the engine's answer is passed on. */
enum relay_mode {
    RELAY_HOLD, /* gathered whole: small answers and errors, so that a cut never looks like an end
                 */
    RELAY_SSE,  /* event by event */
    RELAY_RAW   /* as it comes: too large to hold, compressed, or an unending event */
};

/* An engine's refusal, kept in case nothing better comes. All in the arena. */
struct last_answer {
    int status;           /* 0: none */
    struct slice headers; /* those that are passed on, each with CRLF */
    struct slice body;
    bool context_overflow;
};

struct outbound {
    struct outbound *next; /* the worker's free list */
    struct arena arena;
    struct slice body; /* as the client sent it; in the connection's block */
    struct body_info info;
    struct slice query;
    struct slice headers; /* of the client's, those that are passed on, each with CRLF */
    struct body_plan plan;
    struct iovec pieces[2 + BODY_MAX_PIECES]; /* head and edited body */
    size_t piece_count;
    size_t sent; /* bytes of the pieces that were written */
    size_t total;
    uint32_t tried[ROUTE_MAX_TRIED];
    size_t tried_count;
    bool raced; /* one free retry after a kept-alive connection turned out closed */
    struct last_answer last;
    struct slice answer_head; /* status line and headers for the client, without framing */
};

struct stream {
    struct stream *next, *prev; /* all streams of the worker; the dead list uses next */
    struct worker *worker;
    struct http_conn *conn; /* until SETTLE */
    enum stream_state state;
    enum surface surface;
    struct timer timer;
    uint64_t deadline_ns; /* of the whole request; 0: none */

    uint64_t start_ns, start_wall_ns;
    uint64_t sent_ns;           /* the last byte of the request went out */
    uint64_t heard_ns;          /* the engine last said anything */
    uint64_t first_ns, last_ns; /* first and last content; 0: none yet */
    uint64_t longest_gap_ns;
    uint64_t bytes_in, bytes_out; /* of bodies */

    struct worker_fleet *fleet; /* held */
    const struct model *model;
    const struct pool *pool; /* of the current attempt, or the last one */
    size_t model_index;
    struct replica_claim claim; /* what this attempt has taken from its replica */
    struct replica *replica;    /* held; of the current attempt, or the last one */
    struct request_view view;
    struct upstream_conn *up; /* NULL: none */
    struct outbound *out;     /* NULL once the first byte went out */
    uint32_t tries;

    /* The answer. */
    int status; /* the engine's, then as the client sees it; 0: none yet */
    enum relay_mode mode;
    enum http_framing framing; /* of the engine's body */
    bool has_head;             /* the engine's final head was read */
    bool up_keep_alive;
    bool is_started;     /* the client has been sent a byte */
    bool is_chunked_out; /* towards the client */
    bool is_paused;      /* the client is slow: the engine is not read */
    bool is_head;        /* HEAD: no body is sent */
    bool is_stream;      /* the client asked for events */
    bool wants_usage;    /* and for the usage chunk */
    bool counts_events;  /* a 200 with events: reader is in use */
    bool is_queued;      /* on the worker's list of streams to go on with */
    struct stream *next_again;
    uint64_t length, left;      /* framed by length: bytes in all, and still to come */
    size_t head_scanned;        /* of the head in `partial` */
    bool is_json;               /* the engine says so */
    bool had_extra;             /* bytes came behind the answer: the connection is not reused */
    struct http1_chunks chunks; /* RELAY chunked */
    struct sse_cursor cursor;
    struct buf partial; /* of a head or an event that is not whole yet */
    struct buf held;    /* body held back: prelude of a stream, or a whole answer */
    struct stream_reader reader;
    uint32_t claimed_events; /* content events already given back to the claim */

    struct usage usage; /* of a whole answer; of events it is in the reader */
    enum outcome outcome;
    const char *reason; /* static */
    char request_id[72];
};

/* ---- stream.c ---- */

/* For http_handler. */
size_t stream_on_head(struct http_conn *conn, const struct http_head *head);
void stream_on_request(struct http_conn *conn, const struct http_head *head, struct slice body);
void stream_on_refuse(struct http_conn *conn, enum http_refusal why, const char *text);
void stream_on_client_gone(struct http_conn *conn);
void stream_on_writable(struct http_conn *conn);

void stream_enter(struct stream *s, enum stream_state state);

/* The request is over and the response was handed to the connection whole. */
void stream_settle(struct stream *s, enum outcome outcome, const char *reason, bool keep_alive);

/* The transfer cannot be completed: the client's connection is broken off, so that it notices. */
void stream_cut(struct stream *s, const char *reason);

/* Ends every stream of a worker (second SIGTERM, drain deadline). */
void stream_end_all(struct worker *w, const char *reason);

/* Goes on with a stream that still had bytes to read when its share of a turn was used up. */
void stream_go_on_later(struct stream *s);
void stream_run_again(struct worker *w);

bool stream_is_anthropic(const struct stream *s);

/* What the engine has reported so far. */
const struct usage *stream_usage(const struct stream *s);

/* ---- attempt.c ---- */

/* Chooses a replica and asks it; answers the client when there is none. */
void attempt_start(struct stream *s);

/*
 * The attempt failed before the client saw a byte: give the replica back, judge it, try another one
 * if there is budget, else answer with the last real refusal or with `error`.
 */
void attempt_failed(struct stream *s, enum health_outcome judged, const struct api_error *error);

/* The connection ended before any byte of an answer: retried once if it was a kept-alive one. */
void attempt_broke_early(struct stream *s, int errnum);

/* Lets go of the engine. `reusable`: its answer was read to the end. */
void attempt_end(struct stream *s, enum health_outcome judged, bool completed, bool reusable);

void attempt_on_timer(struct stream *s);

/* ---- relay.c ---- */

/* Reads what the engine has sent, as far as the client's back-pressure allows. */
void relay_read(struct stream *s);
void relay_reset(struct stream *s); /* before each attempt */
void relay_drop_held(struct stream *s);

/* The engine fell silent or broke off in the middle of an answer. */
void relay_broken(struct stream *s, const struct api_error *error, enum health_outcome judged);

/* ---- answer.c ---- */

/* Whole answers of weir's own. They settle the stream. */
void answer_error(struct stream *s, const struct api_error *error);
void answer_json(struct stream *s, int status, struct slice body);
void answer_last(struct stream *s); /* the engine's own refusal */

/* An engine's whole answer, as it came. */
void answer_whole(struct stream *s, struct slice body);

/* Status line and headers of an engine's answer, for the client, into the arena. */
struct slice answer_head_from(struct stream *s, const struct http_head *head, bool is_sse);
struct slice answer_headers_kept(struct arena *arena, const struct http_head *head);

/*
 * Begins a response whose length is not known: sends head, held bytes and `body`, in one write if
 * the kernel allows. answer_more() goes on, answer_last_chunk() ends; `is_end` joins the end to it.
 * False: the client is slow, wait.
 */
bool answer_begin(struct stream *s, struct slice body, bool is_end);
bool answer_more(struct stream *s, struct slice body, bool is_end);

/* ---- inquiry.c ---- */

/* Models and health. False: not such a request. */
bool inquiry_answer(struct stream *s, const struct surface_match *match);
