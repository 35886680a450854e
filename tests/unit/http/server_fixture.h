/*
 * server_fixture.h - a server with clients at the other end of socket pairs, in one thread, and a
 * handler that writes down what it is told and answers by the request's path:
 *
 *   /hold        nothing; the test answers
 *   /forget      the same, and the request's memory is given back
 *   /limit-N     as any other, but takes a body of N bytes at most
 *   other        "METHOD TARGET BODY" as the body of a 200, at once
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../net/turns.h"
#include "base/counter.h"
#include "base/heap.h"
#include "http/server.h"

enum { DEFAULT_MAX_BODY = 64 * 1024 };

static struct fixture {
    struct loop *loop;
    struct http_server server;
    struct http_server_counters counters;

    size_t requests;
    size_t depth, deepest;  /* of handler calls within one another */
    struct http_conn *held; /* the last one that was not answered */
    size_t refusals;
    enum http_refusal refusal; /* the last one */
    size_t gone;
    size_t writable;
} f;

static void answer(struct http_conn *conn, int status, const char *body, bool keep_alive)
{
    char head[128];
    snprintf(head, sizeof head, "HTTP/1.1 %d X\r\ncontent-length: %zu\r\n\r\n", status,
             strlen(body));
    struct iovec pieces[] = {{head, strlen(head)}, {(void *)body, strlen(body)}};
    http_conn_send(conn, pieces, 2);
    http_conn_finish(conn, keep_alive);
}

static size_t on_head(struct http_conn *conn, const struct http_head *head)
{
    static const struct slice prefix = {"/limit-", 7};
    uint64_t limit = DEFAULT_MAX_BODY;
    if (slice_starts(head->target, prefix)) {
        assert_true(slice_to_u64(slice_from(head->target, prefix.len), &limit));
    }
    return (size_t)limit;
}

static void on_request(struct http_conn *conn, const struct http_head *head, struct slice body)
{
    assert_int_equal(conn->state, HTTP_CONN_HANDLE);
    f.requests++;
    f.deepest = ++f.depth > f.deepest ? f.depth : f.deepest;
    conn->user = &f;
    if (slice_eq(head->target, SLICE("/hold"))) {
        f.held = conn;
    } else if (slice_eq(head->target, SLICE("/forget"))) {
        f.held = conn;
        http_conn_forget_request(conn);
    } else {
        char *text = heap_alloc(head->target.len + body.len + 64);
        snprintf(text, head->target.len + body.len + 64, "%.*s %.*s %.*s", SLICE_ARG(head->method),
                 SLICE_ARG(head->target), SLICE_ARG(body));
        answer(conn, 200, text, true);
        heap_free(text);
    }
    f.depth--;
}

static void on_refuse(struct http_conn *conn, enum http_refusal why, const char *text)
{
    f.refusals++;
    f.refusal = why;
    answer(conn, 400, "refused", false);
}

static void on_client_gone(struct http_conn *conn)
{
    assert_ptr_equal(conn->user, &f);
    f.gone++;
    f.held = NULL;
    http_conn_finish(conn, false);
}

static void on_writable(struct http_conn *conn)
{
    f.writable++;
}

static const struct http_handler handler = {
    .on_head = on_head,
    .on_request = on_request,
    .on_refuse = on_refuse,
    .on_client_gone = on_client_gone,
    .on_writable = on_writable,
};

static const struct http_server_limits default_limits = {
    .head_bytes = 4096,
    .body_memory_bytes = 1 << 20,
    .out_mark_bytes = 32 * 1024,
    .out_memory_bytes = 64 << 20,
    .out_max_bytes = 8 << 20,
    .connections = 1000,
    .head_timeout_ns = 60 * NS_PER_S,
    .body_timeout_ns = 60 * NS_PER_S,
    .idle_timeout_ns = 60 * NS_PER_S,
    .write_timeout_ns = 60 * NS_PER_S,
};

static int setup(void **state)
{
    memset(&f, 0, sizeof f);
    struct error err;
    f.loop = loop_new(&err);
    assert_non_null(f.loop);
    http_server_init(&f.server, f.loop, &handler, &f, &default_limits, &f.counters);
    turns_init(f.loop);
    return 0;
}

/* Whatever a test did: nothing is left, and no gauge has drifted. */
static int teardown(void **state)
{
    http_server_close(&f.server);
    loop_free(f.loop);
    assert_int_equal(gauge_get(&f.counters.open), 0);
    assert_int_equal(gauge_get(&f.counters.body_bytes), 0);
    return 0;
}

static void adopt(int fd)
{
    struct endpoint peer = {.length = 2, .family = AF_UNIX};
    http_server_adopt(&f.server, fd, &peer);
}

/* The client's end, which does not block. */
static int connect_client(void)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    adopt(ends[0]);
    return ends[1];
}

/* Sends all, running the loop while the server's side is full. */
static void say_bytes(int client, const char *bytes, size_t len)
{
    while (len) {
        ssize_t n = send(client, bytes, len, MSG_NOSIGNAL);
        if (n < 0) {
            assert_int_equal(errno, EAGAIN);
            n = 0;
        }
        bytes += n;
        len -= (size_t)n;
        turns_run(2);
    }
}

static void say(int client, const char *text)
{
    say_bytes(client, text, strlen(text));
}

/* What the client has been sent so far, up to `room`; runs the loop while more comes. */
static size_t hear_bytes(int client, char *into, size_t room, bool *is_closed)
{
    size_t len = 0;
    *is_closed = false;
    for (int silent = 0; silent < 4 && len < room;) {
        ssize_t n = recv(client, into + len, room - len, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN)) {
            *is_closed = true;
            return len;
        }
        silent = n > 0 ? 0 : silent + 1;
        len += n > 0 ? (size_t)n : 0;
        turns_run(2);
    }
    return len;
}

static const char *hear(int client)
{
    static char text[256 * 1024];
    bool is_closed;
    size_t len = hear_bytes(client, text, sizeof text - 1, &is_closed);
    text[len] = '\0';
    return text;
}

static bool is_closed(int client)
{
    char byte;
    turns_run(2);
    ssize_t n = recv(client, &byte, 1, 0);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

#define GET(target)          "GET " target " HTTP/1.1\r\nHost: x\r\n\r\n"
#define ANSWER(length, body) "HTTP/1.1 200 X\r\ncontent-length: " #length "\r\n\r\n" body
#define REFUSED              "HTTP/1.1 400 X\r\ncontent-length: 7\r\n\r\nrefused"
