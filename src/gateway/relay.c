/*
 * relay.c - the engine's answer: read, deframed, understood, passed on.
 *
 * Every read goes into the worker's one scratch buffer, which has room around it for the framing
 * towards the client; an event that came whole is sent from where it was read. Only an event or a
 * head that is not whole yet is kept, in the stream's own buffer.
 */
#include <errno.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/json.h"
#include "engines/engine.h"
#include "gateway/relay.h"
#include "gateway/stream.h"
#include "gateway/worker.h"
#include "observe/traffic.h"

enum {
    MAX_KEPT_REFUSAL = 64 * 1024,
    READS_PER_TURN = 8, /* then other streams get their turn */
    EVENTS_PER_CLAIM_UPDATE =
        32, /* the shared load is told of progress this often, not per token */
};

void relay_drop_held(struct stream *s)
{
    s->worker->held_bytes -= buf_len(&s->held);
    buf_free(&s->held);
}

/* False: the bound of one answer, or of all together, is reached. */
static bool hold(struct stream *s, struct slice bytes)
{
    struct worker *w = s->worker;
    int64_t unsent = gauge_get(&w->server_counters.out_bytes);
    if (w->held_bytes + (uint64_t)unsent + bytes.len > w->settings.response_memory_bytes ||
        buf_append(&s->held, bytes) != WEIR_OK) {
        return false;
    }
    w->held_bytes += bytes.len;
    return true;
}

void relay_reset(struct stream *s)
{
    s->status = 0;
    s->has_head = s->up_keep_alive = s->had_extra = s->counts_events = false;
    s->head_scanned = 0;
    s->cursor = (struct sse_cursor){0};
    s->claimed_events = 0;
    s->usage = (struct usage){0};
    buf_clear(&s->partial);
    relay_drop_held(s);
}

static bool is_reusable(const struct stream *s)
{
    return s->up_keep_alive && !s->had_extra && (!s->out || s->out->sent == s->out->total);
}

/* ---- how an answer ends ---- */

static void succeed(struct stream *s)
{
    attempt_end(s, HEALTH_GOOD, true, is_reusable(s));
    stream_settle(s, OUTCOME_OK, "ok", true);
}

void relay_broken(struct stream *s, const struct api_error *error, enum health_outcome judged)
{
    if (s->mode == RELAY_SSE && stream_reader_complete(&s->reader)) {
        /* The whole answer was there; only the end of its framing was not. */
        attempt_end(s, HEALTH_GOOD, true, false);
        answer_more(s, (struct slice){0}, true);
        stream_settle(s, OUTCOME_OK, "ok", true);
        return;
    }
    const char *reason = api_error_reason(error->kind);
    attempt_end(s, judged, false, false);
    struct buf event;
    buf_init(&event, 4096);
    if (s->mode != RELAY_SSE ||
        api_error_write_event(error, surface_info(s->surface)->dialect, slice_str(s->request_id),
                              s->reader.sequence, &event) != WEIR_OK) {
        stream_cut(s, reason); /* nothing but a broken transfer can say it here */
    } else {
        answer_more(s, buf_slice(&event), true);
        stream_settle(s, OUTCOME_FAILED, reason, true);
    }
    buf_free(&event);
}

/* Before the client has seen a byte another replica may do better; afterwards it is told. */
static void fail(struct stream *s, enum health_outcome judged, const struct api_error *error)
{
    if (s->is_started) {
        relay_broken(s, error, judged);
    } else {
        attempt_failed(s, judged, error);
    }
}

static void fail_garbled(struct stream *s, const char *what)
{
    struct api_error error;
    api_error_set(&error, API_UPSTREAM_GARBLED, "the engine's answer is not usable: %s", what);
    fail(s, HEALTH_FAULT, &error);
}

static void fail_truncated(struct stream *s, int errnum)
{
    struct api_error error;
    api_error_set(&error, API_UPSTREAM, "the engine broke off in the middle of its answer%s%s",
                  errnum ? ": " : "", errnum ? strerror(errnum) : "");
    fail(s, HEALTH_FAULT, &error);
}

/* ---- refusals ---- */

/* Some engines quote the key that they refuse. It is weir's, and the client must not see it. */
static void hide_key(const struct replica *r, struct slice body)
{
    struct slice key = slice_of(r->authorization, r->authorization_len);
    struct slice scheme = SLICE("Bearer ");
    if (slice_starts(key, scheme)) {
        key = slice_from(key, scheme.len);
    }
    for (const char *at; key.len && (at = slice_find(body, key));) {
        memset((char *)at, '*', key.len);
        body = slice_from(body, (size_t)(at - body.ptr) + key.len);
    }
}

static void keep_refusal(struct stream *s, struct slice body, bool context_overflow)
{
    struct outbound *out = s->out;
    struct slice copy = {0}; /* the status is what counts of a refusal of endless length */
    if (body.len <= MAX_KEPT_REFUSAL) {
        copy = arena_dup(&out->arena, body);
    }
    hide_key(s->replica, copy);
    out->last = (struct last_answer){
        .status = s->status,
        .headers = out->answer_head,
        .body = copy,
        .context_overflow = context_overflow,
    };
}

static void on_refusal(struct stream *s, struct slice body)
{
    const struct engine *engine = atomic_load_explicit(&s->replica->engine, memory_order_relaxed);
    enum engine_verdict verdict = engine_classify(engine, s->status, body);
    keep_refusal(s, body, verdict == ENGINE_CONTEXT_OVERFLOW);
    enum health_outcome judged = HEALTH_FAULT;
    switch (verdict) {
    case ENGINE_CLIENT_FAULT:
    case ENGINE_CONTEXT_OVERFLOW:
        attempt_end(s, HEALTH_GOOD, true, is_reusable(s));
        answer_last(s);
        return;
    case ENGINE_BUSY:
    case ENGINE_LOADING:
    case ENGINE_DRAINING:
        judged = HEALTH_BUSY;
        break;
    case ENGINE_OK:
    case ENGINE_FAULT:
        break;
    }
    attempt_end(s, judged, false, is_reusable(s));
    attempt_failed(s, judged, NULL);
}

/* ---- whole answers ---- */

static bool is_whole_json(struct slice body)
{
    struct json_doc *doc = json_parse(body);
    json_doc_free(doc);
    return doc != NULL;
}

static void on_whole(struct stream *s, struct slice body)
{
    if (s->status >= 400) {
        on_refusal(s, body);
        return;
    }
    if (s->status >= 300) {
        fail_garbled(s, "a redirect");
        return;
    }
    if (s->framing == HTTP_BODY_UNTIL_CLOSE && s->is_json && !is_whole_json(body)) {
        fail_truncated(s, 0); /* nothing but the text itself can tell a cut from an end here */
        return;
    }
    usage_read_body(body, &s->usage);
    s->first_ns = s->last_ns = loop_now_ns(s->worker->loop);
    answer_whole(s, body);
    succeed(s);
}

static void pass_raw(struct stream *s, struct slice body, bool is_end)
{
    if (s->is_started) {
        answer_more(s, body, is_end);
    } else {
        answer_begin(s, body, is_end);
    }
    if (is_end) {
        succeed(s);
    }
}

static void pass_hold(struct stream *s, struct slice body, bool is_end)
{
    if (is_end && buf_len(&s->held) == 0) {
        on_whole(s, body);
        return;
    }
    if (hold(s, body)) {
        if (is_end) {
            on_whole(s, buf_slice(&s->held));
        }
    } else if (s->status < 300) {
        s->mode = RELAY_RAW; /* too large to hold: from here on it is passed on as it comes */
        pass_raw(s, body, is_end);
    } else {
        fail_garbled(s, "an error of endless length");
    }
}

/* ---- events ---- */

static void on_content(struct stream *s)
{
    uint64_t now_ns = loop_now_ns(s->worker->loop);
    if (s->first_ns == 0) {
        s->first_ns = s->last_ns = now_ns;
        replica_claim_first_token(&s->claim);
        return;
    }
    uint64_t gap_ns = now_ns - s->last_ns;
    s->last_ns = now_ns;
    traffic_gap(&s->pool->traffic->shards[s->worker->index], gap_ns / NS_PER_US);
    if (gap_ns > s->longest_gap_ns) {
        s->longest_gap_ns = gap_ns;
    }
    if (s->reader.content_events - s->claimed_events >= EVENTS_PER_CLAIM_UPDATE) {
        replica_claim_progress(&s->claim, EVENTS_PER_CLAIM_UPDATE);
        s->claimed_events += EVENTS_PER_CLAIM_UPDATE;
    }
}

enum event_fate { EVENT_PASS, EVENT_DROP, EVENT_HOLD, EVENT_FAIL };

static enum event_fate judge_event(struct stream *s, enum stream_event kind, bool is_line_end,
                                   bool will_start)
{
    switch (kind) {
    case STREAM_META: /* before the content a comment is nothing, but a line end belongs to an event
                       */
        return s->is_started || will_start        ? EVENT_PASS
               : is_line_end && buf_len(&s->held) ? EVENT_HOLD
                                                  : EVENT_DROP;
    case STREAM_PRELUDE:
        return s->is_started || will_start ? EVENT_PASS : EVENT_HOLD;
    case STREAM_USAGE:
        return s->wants_usage ? EVENT_PASS : EVENT_DROP;
    case STREAM_ERROR:
        return EVENT_FAIL;
    case STREAM_CONTENT:
        on_content(s);
        return EVENT_PASS;
    case STREAM_DONE: /* a client must not take for an end what is none */
        return stream_reader_complete(&s->reader) ? EVENT_PASS : EVENT_DROP;
    case STREAM_FINISH:
        break;
    }
    return EVENT_PASS;
}

/* What one batch of events came to. Positions are offsets into the batch. */
struct batch {
    size_t passed; /* bytes to send, moved together at the front */
    size_t taken;  /* bytes of whole events */
    bool failed;   /* an error event, or more prelude than can be held */
    bool told;     /* and the engine's own event, which goes out, says it */
};

/* `is_tail`: the blank line was added by us; what is not understood then is a torn event. */
static struct batch read_events(struct stream *s, char *bytes, size_t len, bool is_tail)
{
    struct batch b = {0};
    while (b.taken < len && !b.failed) {
        size_t n = sse_event_length(&s->cursor, slice_of(bytes + b.taken, len - b.taken));
        if (n == 0) {
            break;
        }
        s->cursor = (struct sse_cursor){0};
        struct slice event = slice_of(bytes + b.taken, n);
        bool is_line_end = event.ptr[0] == '\n' || event.ptr[0] == '\r';
        enum stream_event kind = is_tail ? stream_reader_tail(&s->reader, event)
                                         : stream_reader_event(&s->reader, event);
        enum event_fate fate = is_tail && kind == STREAM_META
                                   ? EVENT_DROP
                                   : judge_event(s, kind, is_line_end, b.passed > 0);
        b.taken += n;
        s->worker->turn_events++;
        if (fate == EVENT_PASS) {
            if (bytes + b.passed !=
                event.ptr) { /* nothing was left out before it: the usual case */
                memmove(bytes + b.passed, event.ptr, n);
            }
            b.passed += n;
        } else if (fate == EVENT_FAIL || (fate == EVENT_HOLD && !hold(s, event))) {
            b.failed = true;
            b.told =
                fate == EVENT_FAIL && s->reader.error_is_native && (s->is_started || b.passed > 0);
        }
        if (b.told) {
            memmove(bytes + b.passed, event.ptr, n);
            b.passed += n;
        }
    }
    return b;
}

/* The engine said in-band that it failed. */
static void on_error_event(struct stream *s)
{
    const struct api_error *error = &s->reader.error;
    if (!s->reader.saw_error) {
        fail_garbled(s, "more events before any content than can be held");
        return;
    }
    int status = api_error_status(error, false);
    bool is_busy = status == 429 || status == 503;
    if (s->is_started || status >= 500 || is_busy) {
        fail(s, is_busy ? HEALTH_BUSY : HEALTH_FAULT, error);
        return;
    }
    struct api_error copy = *error; /* the reader is the next attempt's */
    attempt_end(s, HEALTH_GOOD, true, false);
    answer_error(s, &copy);
}

/* The client has read of the failure in the engine's own words. */
static void end_told(struct stream *s)
{
    int status = api_error_status(&s->reader.error, false);
    attempt_end(s, status == 429 || status == 503 ? HEALTH_BUSY : HEALTH_FAULT, false, false);
    stream_settle(s, OUTCOME_FAILED, api_error_reason(s->reader.error.kind), true);
}

static void send_events(struct stream *s, struct slice events, bool is_end)
{
    if (s->is_started) {
        answer_more(s, events, is_end);
    } else if (events.len) {
        answer_begin(s, events, is_end);
    }
}

/* All events are in; was it a whole answer? */
static void on_events_end(struct stream *s)
{
    if (stream_reader_complete(&s->reader) && s->is_started) {
        succeed(s);
    } else {
        struct api_error error;
        api_error_set(&error, API_UPSTREAM,
                      "the engine ended its stream without finishing the answer");
        fail(s, HEALTH_FAULT, &error);
    }
}

/* An event longer than limits.event: relayed without reading it any more. */
static void stop_reading_events(struct stream *s, bool is_end)
{
    s->reader.usage_unknown = true;
    s->mode = RELAY_RAW;
    pass_raw(s, buf_slice(&s->partial), is_end);
    buf_free(&s->partial);
}

/* Room for it was made in stream_new(): what is kept is at most an event and one read. */
static void keep_partial(struct stream *s, struct slice bytes)
{
    if (buf_append(&s->partial, bytes) != WEIR_OK) {
        WEIR_BUG("%zu bytes and one read do not fit", buf_len(&s->partial));
    }
}

static void pass_events(struct stream *s, char *bytes, size_t len, bool is_end);

/* The last event lacks its blank line, as some servers do. */
static void pass_tail(struct stream *s)
{
    if (buf_append(&s->partial, SLICE("\n\n")) != WEIR_OK) {
        on_events_end(s);
        return;
    }
    struct slice tail = buf_slice(&s->partial);
    struct batch b = read_events(s, (char *)tail.ptr, tail.len, true);
    if (b.failed) {
        on_error_event(s);
        return;
    }
    bool is_whole = stream_reader_complete(&s->reader);
    send_events(s, slice_of(tail.ptr, b.passed), is_whole);
    on_events_end(s);
}

static void pass_events(struct stream *s, char *bytes, size_t len, bool is_end)
{
    bool joins = buf_len(&s->partial) > 0;
    if (joins) {
        keep_partial(s, slice_of(bytes, len));
        bytes = (char *)buf_slice(&s->partial).ptr;
        len = buf_len(&s->partial);
    }
    s->worker->turn_reads++;
    struct batch b = read_events(s, bytes, len, false);
    bool has_tail = b.taken < len;
    bool is_whole =
        (is_end && !has_tail && !b.failed && stream_reader_complete(&s->reader)) || b.told;
    if (!joins && has_tail && !b.failed) {
        keep_partial(s, slice_of(bytes + b.taken, len - b.taken));
    }
    send_events(s, slice_of(bytes, b.passed), is_whole);
    if (joins) {
        buf_consume(&s->partial, b.taken);
    }
    if (buf_len(&s->partial) == 0) {
        buf_free(&s->partial);
    }
    if (b.told) {
        end_told(s);
    } else if (b.failed) {
        on_error_event(s);
    } else if (buf_len(&s->partial) > s->worker->settings.event_bytes) {
        stop_reading_events(s, is_end);
    } else if (is_end && has_tail) {
        pass_tail(s);
    } else if (is_end) {
        on_events_end(s);
    }
}

/* ---- framing ---- */

static void pass(struct stream *s, char *body, size_t len, bool is_end)
{
    switch (s->mode) {
    case RELAY_HOLD:
        pass_hold(s, slice_of(body, len), is_end);
        break;
    case RELAY_SSE:
        pass_events(s, body, len, is_end);
        break;
    case RELAY_RAW:
        if (len || is_end) {
            pass_raw(s, slice_of(body, len), is_end);
        }
        break;
    }
}

/* What came before the mistake is whole, and goes out; then the mistake is told. */
static void on_bad_chunk(struct stream *s, char *bytes, size_t body_len)
{
    uint32_t tries = s->tries;
    pass(s, bytes, body_len, false);
    if (s->up && s->tries == tries) {
        fail_garbled(s, "malformed chunked framing");
    }
}

static void feed_body(struct stream *s, char *bytes, size_t len)
{
    size_t body_len = len, used = len;
    bool is_end = false;
    switch (s->framing) {
    case HTTP_BODY_NONE:
        body_len = used = 0;
        is_end = true;
        break;
    case HTTP_BODY_LENGTH:
        body_len = used = len < s->left ? len : (size_t)s->left;
        s->left -= body_len;
        is_end = s->left == 0;
        break;
    case HTTP_BODY_CHUNKED:
        if (http1_chunks_decode(&s->chunks, bytes, len, &body_len, &used) != WEIR_OK) {
            on_bad_chunk(s, bytes, body_len);
            return;
        }
        is_end = s->chunks.is_done;
        break;
    case HTTP_BODY_UNTIL_CLOSE:
        break;
    }
    s->had_extra = used < len;
    pass(s, bytes, body_len, is_end);
}

static bool has_type(const struct http_head *head, struct slice word)
{
    struct slice type = http_header_get(head, SLICE("content-type"));
    return type.len >= word.len && slice_eq_nocase(slice_of(type.ptr, word.len), word);
}

static bool is_compressed(const struct http_head *head)
{
    struct slice coding = http_header_get(head, SLICE("content-encoding"));
    return coding.len && !slice_eq_nocase(coding, SLICE("identity"));
}

static enum relay_mode choose_mode(const struct stream *s, const struct http_head *head)
{
    if (head->status != 200) {
        return RELAY_HOLD;
    }
    if (is_compressed(head)) {
        return RELAY_RAW;
    }
    return has_type(head, SLICE("text/event-stream")) && surface_info(s->surface)->generates
               ? RELAY_SSE
               : RELAY_HOLD;
}

static void on_head(struct stream *s, const struct http_head *head)
{
    s->has_head = true;
    s->status = head->status;
    s->framing = head->framing;
    s->length = s->left = head->content_length;
    s->up_keep_alive = head->keep_alive;
    s->mode = choose_mode(s, head);
    s->counts_events = s->mode == RELAY_SSE;
    s->is_json = has_type(head, SLICE("application/json"));
    if (s->framing == HTTP_BODY_CHUNKED) {
        http1_chunks_init(&s->chunks);
    }
    if (s->mode == RELAY_SSE) {
        stream_reader_init(&s->reader, surface_info(s->surface)->dialect);
    }
    s->out->answer_head = answer_head_from(s, head, s->mode == RELAY_SSE);
}

/* Length of the heads at the front of the bytes once the final one is there; else 0. */
static size_t read_heads(struct stream *s, struct slice bytes)
{
    struct http_head *head = &s->worker->server.head;
    size_t at = 0;
    for (;;) {
        size_t n = http1_head_length(slice_from(bytes, at), &s->head_scanned);
        if (n == 0) {
            return 0;
        }
        const char *why;
        if (http1_parse_response(slice_of(bytes.ptr + at, n), false, head, &why) != WEIR_OK) {
            fail_garbled(s, why);
            return 0;
        }
        at += n;
        if (head->status == 101) {
            fail_garbled(s, "it changes protocols");
            return 0;
        }
        if (head->status >= 200) {
            on_head(s, head);
            return at;
        }
    }
}

/* Bytes before the final head is whole. */
static void feed_head(struct stream *s, char *bytes, size_t len)
{
    bool joins = buf_len(&s->partial) > 0;
    struct slice all = slice_of(bytes, len);
    if (joins) {
        keep_partial(s, all);
        all = buf_slice(&s->partial);
    }
    uint32_t tries = s->tries;
    size_t head_len = read_heads(s, all);
    if (s->tries != tries || !s->up) {
        return; /* it was refused, and the stream has moved on */
    }
    if (head_len == 0) {
        /* An interim head that came whole stays in front; it is skipped again, which is rare. */
        s->head_scanned = 0;
        if (all.len > MAX_ANSWER_HEAD) {
            fail_garbled(s, "its head is too long");
        } else if (!joins) {
            keep_partial(s, all);
        }
        return;
    }
    if (joins) { /* what follows the head goes back to where reads go */
        bytes = relay_scratch(s->worker);
        len = all.len - head_len;
        memcpy(bytes, all.ptr + head_len, len);
        buf_free(&s->partial);
    } else {
        bytes += head_len;
        len -= head_len;
    }
    feed_body(s, bytes, len);
}

/* ---- reading ---- */

static void on_closed(struct stream *s, int errnum)
{
    if (!s->has_head) {
        attempt_broke_early(s, errnum);
    } else if (s->framing == HTTP_BODY_UNTIL_CLOSE && errnum == 0) {
        s->up_keep_alive = false;
        pass(s, NULL, 0, true);
    } else {
        fail_truncated(s, errnum);
    }
}

void relay_read(struct stream *s)
{
    struct worker *w = s->worker;
    for (int reads = 0; s->up && s->up->is_readable && !s->is_paused; reads++) {
        if (reads == READS_PER_TURN) {
            stream_go_on_later(s);
            return;
        }
        char *bytes = relay_scratch(w);
        ssize_t n = upstream_read(s->up, bytes, RELAY_READ_BYTES);
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n <= 0) {
            on_closed(s, n < 0 ? errno : 0);
            return;
        }
        s->heard_ns = loop_now_ns(w->loop);
        if (s->has_head) {
            feed_body(s, bytes, (size_t)n);
        } else {
            feed_head(s, bytes, (size_t)n);
        }
    }
}
