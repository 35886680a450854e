/*
 * upstream.c - an inference engine that infers nothing: the fastest answer a proxy can be given.
 *
 *     upstream PORTS      listens on that many free ports of 127.0.0.1 and prints them on one line
 *
 * One thread, epoll, HTTP/1.1 keep-alive. It has no settings; a POST's body says what it wants:
 *
 *     "stream": true                     SSE, one HTTP chunk per event; else one JSON answer
 *     "max_tokens": N                    content events of the stream (default 16)
 *     "bench_pace_us": N                 time between two events; absent: as fast as it goes
 *     "stream_options": {"include_usage": true}    a usage chunk before [DONE]
 *
 * Spaces around the colon are optional. Paced events leave on a grid of TICK_NS, as an engine's
 * step answers all its streams at once. GET answers what an OpenAI-compatible engine is asked.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/heap.h"
#include "base/slice.h"

#define TICK_NS (250 * NS_PER_US)
#define MODEL   "bench"
#define CHUNK_HEAD                                                                                 \
    "data: {\"id\":\"chatcmpl-6f1d2c3b4a59687788990011\",\"object\":\"chat.completion.chunk\","    \
    "\"created\":1764550000,\"model\":\"" MODEL "\",\"choices\":["

enum { MAX_PORTS = 16, MAX_REQUEST = 16 << 20, TAIL_MAX = 1024, DEFAULT_TOKENS = 16 };

/* Whatever epoll watches begins with this. */
struct source {
    int fd;
    void (*on_event)(struct source *self, uint32_t events);
};

struct conn {
    struct source source; /* first member */
    bool is_streaming;
    bool waits_for_room; /* EPOLLOUT is armed; not on the schedule */
    bool wants_usage;
    struct buf in;         /* of a request that has not arrived whole */
    struct slice out;      /* what is still to be sent of the piece under way */
    uint64_t tokens, sent; /* content events of this stream, and how many of them are out */
    uint64_t pace_ns, due_ns;
    struct conn *next, *prev; /* schedule, in order of due_ns */
    char tail[TAIL_MAX];      /* finish, usage, [DONE] of this stream */
};

struct request {
    bool is_post;
    struct slice path, body;
    size_t length; /* head and body */
};

static int epoll_fd;
static char scratch[1 << 18];
static struct conn schedule = {.next = &schedule, .prev = &schedule};

/* Made once: the non-streamed answer, the first piece of a stream, a content event. */
static char answer_bytes[1024], first_bytes[2048], event_bytes[512];
static struct slice answer, first, event;

static const struct {
    const char *path, *body;
} gets[] = {
    {"/health", "{\"status\":\"ok\"}"},
    {"/v1/models", "{\"object\":\"list\",\"data\":[{\"id\":\"" MODEL "\",\"object\":\"model\","
                   "\"created\":1764550000,\"owned_by\":\"bench\"}]}"},
    {"/metrics", "# TYPE bench_up gauge\nbench_up 1\n"},
};

static void die(const char *what)
{
    fprintf(stderr, "upstream: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- the bytes it answers with ---- */

static struct slice printed(char *bytes, size_t size, int length)
{
    if (length < 0 || (size_t)length >= size)
        WEIR_BUG("an answer of %d bytes does not fit in %zu", length, size);
    return slice_of(bytes, (size_t)length);
}

static void make_answers(void)
{
    static const char json[] =
        "{\"id\":\"chatcmpl-6f1d2c3b4a59687788990011\",\"object\":\"chat.completion\","
        "\"created\":1764550000,\"model\":\"" MODEL "\",\"choices\":[{\"index\":0,\"message\":{"
        "\"role\":\"assistant\",\"content\":\"The quick brown fox jumps over the lazy dog.\","
        "\"tool_calls\":null},\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{"
        "\"prompt_tokens\":42,\"total_tokens\":58,\"completion_tokens\":16},"
        "\"system_fingerprint\":null,\"kv_transfer_params\":null}";
    static const char content[] =
        CHUNK_HEAD "{\"index\":0,\"delta\":{\"content\":\" tokens\"},\"logprobs\":null,"
                   "\"finish_reason\":null}]}\n\n";
    static const char role[] =
        CHUNK_HEAD "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                   "\"finish_reason\":null}]}\n\n";

    answer = printed(answer_bytes, sizeof(answer_bytes),
                     snprintf(answer_bytes, sizeof(answer_bytes),
                              "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                              "Content-Length: %zu\r\n\r\n%s",
                              sizeof(json) - 1, json));
    event = printed(
        event_bytes, sizeof(event_bytes),
        snprintf(event_bytes, sizeof(event_bytes), "%zx\r\n%s\r\n", sizeof(content) - 1, content));
    first = printed(first_bytes, sizeof(first_bytes),
                    snprintf(first_bytes, sizeof(first_bytes),
                             "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                             "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
                             "%zx\r\n%s\r\n%s",
                             sizeof(role) - 1, role, event_bytes));
}

static struct slice make_tail(struct conn *conn)
{
    static const char finish[] =
        CHUNK_HEAD "{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    char usage[512] = "";
    int usage_len = 0;
    if (conn->wants_usage)
        usage_len = snprintf(usage, sizeof(usage),
                             CHUNK_HEAD "],\"usage\":{\"prompt_tokens\":42,\"total_tokens\":%llu,"
                                        "\"completion_tokens\":%llu}}\n\n",
                             42ull + conn->tokens, (unsigned long long)conn->tokens);
    char usage_chunk[640] = "";
    if (usage_len)
        snprintf(usage_chunk, sizeof(usage_chunk), "%x\r\n%s\r\n", usage_len, usage);
    return printed(conn->tail, sizeof(conn->tail),
                   snprintf(conn->tail, sizeof(conn->tail),
                            "%zx\r\n%s\r\n%se\r\ndata: [DONE]\n\n\r\n0\r\n\r\n", sizeof(finish) - 1,
                            finish, usage_chunk));
}

/* ---- connections and the schedule ---- */

static void unschedule(struct conn *conn)
{
    if (!conn->next)
        return;
    conn->prev->next = conn->next;
    conn->next->prev = conn->prev;
    conn->next = conn->prev = NULL;
}

/* Inserted from the end: with one pace for all, which is how it is used, that is the place. */
static void schedule_at(struct conn *conn, uint64_t due_ns)
{
    conn->due_ns = due_ns;
    struct conn *before = schedule.prev;
    while (before != &schedule && before->due_ns > due_ns)
        before = before->prev;
    conn->prev = before;
    conn->next = before->next;
    before->next->prev = conn;
    before->next = conn;
}

static void conn_free(struct conn *conn)
{
    unschedule(conn);
    close(conn->source.fd);
    buf_free(&conn->in);
    heap_free(conn);
}

static bool watch(int op, struct source *source, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = source};
    return epoll_ctl(epoll_fd, op, source->fd, &ev) == 0;
}

/* Sends what it can of conn->out. False: the connection is gone. */
static bool flush(struct conn *conn)
{
    while (conn->out.len) {
        ssize_t n = send(conn->source.fd, conn->out.ptr, conn->out.len, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            if (!conn->waits_for_room)
                watch(EPOLL_CTL_MOD, &conn->source, EPOLLIN | EPOLLOUT);
            conn->waits_for_room = true;
            return true;
        }
        if (n < 0) {
            conn_free(conn);
            return false;
        }
        conn->out = slice_from(conn->out, (size_t)n);
    }
    if (conn->waits_for_room)
        watch(EPOLL_CTL_MOD, &conn->source, EPOLLIN);
    conn->waits_for_room = false;
    return true;
}

static uint64_t next_due_ns(const struct conn *conn, uint64_t now_ns)
{
    if (!conn->pace_ns)
        return now_ns + 1; /* in the next turn, behind all the others */
    uint64_t due_ns = conn->due_ns + conn->pace_ns;
    return (due_ns + TICK_NS - 1) / TICK_NS * TICK_NS;
}

/* The piece under way is out: the next one is planned, or the stream is over. */
static void plan(struct conn *conn, uint64_t now_ns)
{
    if (conn->waits_for_room || !conn->is_streaming)
        return;
    if (conn->sent > conn->tokens)
        conn->is_streaming = false;
    else
        schedule_at(conn, next_due_ns(conn, now_ns));
}

/* Sends the content event that is due, or the tail after the last one. False: it is gone. */
static bool stream_step(struct conn *conn, uint64_t now_ns)
{
    conn->out = conn->sent < conn->tokens ? event : make_tail(conn);
    conn->sent++;
    if (!flush(conn))
        return false;
    plan(conn, now_ns);
    return true;
}

/* ---- requests ---- */

static struct slice header(struct slice head, struct slice name)
{
    while (head.len) {
        const char *end = memchr(head.ptr, '\n', head.len);
        size_t line_len = end ? (size_t)(end - head.ptr) : head.len;
        if (line_len > name.len && slice_eq_nocase(slice_of(head.ptr, name.len), name)) {
            struct slice value = slice_of(head.ptr + name.len, line_len - name.len);
            if (value.len && value.ptr[value.len - 1] == '\r')
                value.len--;
            return slice_trim(value);
        }
        head = slice_from(head, line_len + 1);
    }
    return (struct slice){0};
}

/* WEIR_EAGAIN: not whole yet. */
static enum weir_err request_read(struct slice in, struct request *req)
{
    const char *end = slice_find(in, SLICE("\r\n\r\n"));
    if (!end)
        return WEIR_EAGAIN;
    struct slice head = slice_of(in.ptr, (size_t)(end - in.ptr));
    const char *space = memchr(head.ptr, ' ', head.len);
    if (!space)
        return WEIR_ESYNTAX;
    struct slice rest = slice_from(head, (size_t)(space + 1 - head.ptr));
    const char *path_end = memchr(rest.ptr, ' ', rest.len);
    if (!path_end)
        return WEIR_ESYNTAX;

    uint64_t body_len = 0;
    struct slice length = header(head, SLICE("content-length:"));
    if (length.len && !slice_to_u64(length, &body_len))
        return WEIR_ESYNTAX;
    if (header(head, SLICE("transfer-encoding:")).len || body_len > MAX_REQUEST)
        return WEIR_EUNSUPPORTED;

    size_t head_len = head.len + 4;
    if (in.len - head_len < body_len)
        return WEIR_EAGAIN;
    *req = (struct request){
        .is_post = slice_starts(head, SLICE("POST ")),
        .path = slice_of(rest.ptr, (size_t)(path_end - rest.ptr)),
        .body = slice_of(in.ptr + head_len, body_len),
        .length = head_len + body_len,
    };
    return WEIR_OK;
}

/* What follows `"key":` in the body; empty when it is not there. */
static struct slice json_after(struct slice body, struct slice key)
{
    const char *at = slice_find(body, key);
    if (!at)
        return (struct slice){0};
    struct slice rest = slice_from(body, (size_t)(at - body.ptr) + key.len);
    while (rest.len && (rest.ptr[0] == ' ' || rest.ptr[0] == ':'))
        rest = slice_from(rest, 1);
    return rest;
}

static uint64_t json_number(struct slice body, struct slice key, uint64_t otherwise)
{
    struct slice rest = json_after(body, key);
    size_t digits = 0;
    while (digits < rest.len && rest.ptr[digits] >= '0' && rest.ptr[digits] <= '9')
        digits++;
    uint64_t value;
    return slice_to_u64(slice_of(rest.ptr, digits), &value) ? value : otherwise;
}

static bool json_true(struct slice body, struct slice key)
{
    return slice_starts(json_after(body, key), SLICE("true"));
}

static void begin_stream(struct conn *conn, struct slice body)
{
    conn->is_streaming = true;
    conn->wants_usage = json_true(body, SLICE("\"include_usage\""));
    conn->tokens = json_number(body, SLICE("\"max_tokens\""), DEFAULT_TOKENS);
    conn->pace_ns = json_number(body, SLICE("\"bench_pace_us\""), 0) * NS_PER_US;
    conn->due_ns = clock_now_ns();
    conn->sent = 1; /* `first` holds the first content event */
    conn->out = first;
}

static void answer_get(struct conn *conn, struct slice path)
{
    const char *body = NULL;
    for (size_t i = 0; i < sizeof(gets) / sizeof(gets[0]); i++)
        if (slice_eq(path, slice_str(gets[i].path)))
            body = gets[i].body;
    int n =
        snprintf(conn->tail, sizeof(conn->tail),
                 "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                 body ? "200 OK" : "404 Not Found", body ? strlen(body) : 0, body ? body : "");
    conn->out = printed(conn->tail, sizeof(conn->tail), n);
}

/* Answers the requests that are whole in `in`. Returns the bytes used; WEIR_ECLOSED: it is gone. */
static enum weir_err serve(struct conn *conn, struct slice in, size_t *used)
{
    *used = 0;
    while (in.len > *used && !conn->is_streaming && !conn->waits_for_room) {
        struct request req;
        enum weir_err e = request_read(slice_from(in, *used), &req);
        if (e == WEIR_EAGAIN)
            return WEIR_OK;
        if (e != WEIR_OK) {
            conn_free(conn);
            return WEIR_ECLOSED;
        }
        if (!req.is_post)
            answer_get(conn, req.path);
        else if (json_true(req.body, SLICE("\"stream\"")))
            begin_stream(conn, req.body);
        else
            conn->out = answer;
        *used += req.length;
        if (!flush(conn))
            return WEIR_ECLOSED;
        plan(conn, conn->due_ns);
    }
    return WEIR_OK;
}

static bool keep(struct conn *conn, struct slice rest)
{
    if (buf_append(&conn->in, rest) == WEIR_OK)
        return true;
    conn_free(conn);
    return false;
}

static void on_readable(struct conn *conn)
{
    ssize_t n = recv(conn->source.fd, scratch, sizeof(scratch), 0);
    if (n <= 0) {
        if (n == 0 || errno != EAGAIN)
            conn_free(conn);
        return;
    }
    struct slice got = slice_of(scratch, (size_t)n);
    size_t used;
    if (buf_len(&conn->in) == 0) { /* the usual case: a whole request, answered without a copy */
        if (serve(conn, got, &used) == WEIR_OK && used < got.len)
            keep(conn, slice_from(got, used));
        return;
    }
    if (keep(conn, got) && serve(conn, buf_slice(&conn->in), &used) == WEIR_OK)
        buf_consume(&conn->in, used);
}

static void on_conn(struct source *self, uint32_t events)
{
    struct conn *conn = (struct conn *)self;
    if (events & EPOLLOUT) {
        if (!flush(conn))
            return;
        plan(conn, conn->due_ns);
    }
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        on_readable(conn);
}

static void on_listener(struct source *self, uint32_t events)
{
    int fd;
    while ((fd = accept4(self->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        struct conn *conn = heap_zalloc(sizeof(*conn));
        conn->source = (struct source){.fd = fd, .on_event = on_conn};
        buf_init(&conn->in, MAX_REQUEST);
        if (!watch(EPOLL_CTL_ADD, &conn->source, EPOLLIN))
            conn_free(conn);
    }
}

/* ---- the loop ---- */

static int listen_on_free_port(struct source *listener)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(sa);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, len) || listen(fd, 4096) ||
        getsockname(fd, (struct sockaddr *)&sa, &len))
        die("cannot listen on 127.0.0.1");
    *listener = (struct source){.fd = fd, .on_event = on_listener};
    if (!watch(EPOLL_CTL_ADD, listener, EPOLLIN))
        die("epoll_ctl");
    return ntohs(sa.sin_port);
}

static int wait_for_events(struct epoll_event *events, int max)
{
    if (schedule.next == &schedule)
        return epoll_wait(epoll_fd, events, max, -1);
    uint64_t now = clock_now_ns(), due = schedule.next->due_ns, ns = due > now ? due - now : 0;
    struct timespec ts = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
    return epoll_pwait2(epoll_fd, events, max, &ts, NULL);
}

int main(int argc, char **argv)
{
    uint64_t ports = 0;
    if (argc != 2 || !slice_to_u64(slice_str(argv[1]), &ports) || ports < 1 || ports > MAX_PORTS) {
        fprintf(stderr, "usage: upstream PORTS    (1 to %d)\n", MAX_PORTS);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0)
        die("epoll_create1");
    make_answers();
    static struct source listeners[MAX_PORTS];
    for (uint64_t i = 0; i < ports; i++)
        printf(i + 1 < ports ? "%d " : "%d\n", listen_on_free_port(&listeners[i]));
    fflush(stdout);

    for (;;) {
        struct epoll_event events[512];
        int n = wait_for_events(events, 512);
        for (int i = 0; i < n; i++) {
            struct source *source = events[i].data.ptr;
            source->on_event(source, events[i].events);
        }
        uint64_t now = clock_now_ns();
        while (schedule.next != &schedule && schedule.next->due_ns <= now) {
            struct conn *conn = schedule.next;
            unschedule(conn);
            stream_step(conn, now);
        }
    }
}
