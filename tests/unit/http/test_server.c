#include "server_fixture.h"

#include <netinet/in.h>

/* A client over TCP: Unix sockets know no RST. */
static int connect_over_tcp(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listening, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(listening, 1), 0);
    assert_int_equal(getsockname(listening, (struct sockaddr *)&address, &len), 0);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(client, (struct sockaddr *)&address, len), 0);
    assert_int_equal(fcntl(client, F_SETFL, O_NONBLOCK), 0);
    adopt(accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
    close(listening);
    return client;
}

static bool has_request(void *ctx)
{
    return f.held != NULL;
}

static bool has_gone(void *ctx)
{
    return f.gone > 0;
}

static bool is_empty(void *ctx)
{
    return f.server.open == 0;
}

static void make_small(int fd, int option)
{
    int size = 4096;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, option, &size, sizeof size), 0);
}

static void send_text(struct http_conn *conn, const char *text)
{
    struct iovec piece = {(void *)text, strlen(text)};
    http_conn_send(conn, &piece, 1);
}

/* Produces until it is told to wait. */
static void send_until_full(struct http_conn *conn)
{
    static const char block[4096];
    struct iovec piece = {(void *)block, sizeof block};
    for (int i = 0; http_conn_send(conn, &piece, 1); i++) {
        assert_true(i < 16 * 1024);
    }
}

static size_t drain_client(int client)
{
    static char bytes[64 * 1024];
    size_t total = 0, len;
    bool is_over;
    while ((len = hear_bytes(client, bytes, sizeof bytes, &is_over))) {
        total += len;
    }
    return total;
}

/* ---- how an exchange ends ---- */

static void test_connection_is_kept_when_both_sides_want_it(void **state)
{
    int client = connect_client();
    for (int i = 0; i < 3; i++) {
        say(client, GET("/a"));
        assert_string_equal(hear(client), ANSWER(7, "GET /a "));
    }
    assert_false(is_closed(client));
    say(client, "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_string_equal(hear(client), ANSWER(7, "GET /a "));
    assert_true(is_closed(client));
    close(client);
    client = connect_client();
    say(client, "GET /a HTTP/1.0\r\n\r\n");
    assert_string_equal(hear(client), ANSWER(7, "GET /a "));
    assert_true(is_closed(client));
    close(client);
    client = connect_client();
    say(client, "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_string_equal(hear(client), ANSWER(7, "GET /a "));
    assert_false(is_closed(client));
    say(client, GET("/hold"));
    answer(f.held, 200, "", false);
    assert_string_equal(hear(client), ANSWER(0, ""));
    assert_true(is_closed(client));
    close(client);
}

static void test_answer_larger_than_the_socket_is_flushed_and_the_connection_kept(void **state)
{
    enum { SIZE = 3 << 20 };
    char *body = heap_zalloc(SIZE + 1);
    memset(body, 'b', SIZE);
    int client = connect_client();
    say(client, GET("/hold") GET("/next"));
    answer(f.held, 200, body, true);
    assert_int_equal(f.held->state, HTTP_CONN_FLUSH);
    turns_run(3);
    assert_int_equal(f.requests, 1); /* not before all of it is sent */
    size_t expected = strlen("HTTP/1.1 200 X\r\ncontent-length: 3145728\r\n\r\n") + SIZE +
                      strlen(ANSWER(10, "GET /next "));
    assert_int_equal(drain_client(client), expected);
    assert_int_equal(f.requests, 2);
    close(client);
    heap_free(body);
}

/* A close while bytes of ours arrive would be an RST, which can destroy the refusal on its way. */
static void test_client_that_still_sends_its_body_reads_the_refusal(void **state)
{
    static char part[64 * 1024];
    int client = connect_over_tcp();
    say(client, "POST /limit-5 HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n");
    turns_run(10);
    for (int i = 0; i < 40; i++) {
        say_bytes(client, part, sizeof part);
    }
    assert_string_equal(hear(client), REFUSED);
    assert_int_equal(f.server.open, 1);
    assert_int_equal(shutdown(client, SHUT_WR), 0);
    turns_until(is_empty, NULL);
    close(client);
}

static void test_client_that_closed_its_side_behind_a_large_body_reads_the_refusal(void **state)
{
    static char body[100 * 1024];
    int client = connect_over_tcp();
    static const char head[] =
        "POST /limit-5 HTTP/1.1\r\nHost: x\r\nContent-Length: 102400\r\n\r\n";
    assert_int_equal(send(client, head, sizeof head - 1, MSG_NOSIGNAL), sizeof head - 1);
    assert_true(send(client, body, sizeof body, MSG_NOSIGNAL) > 0);
    assert_int_equal(shutdown(client, SHUT_WR), 0);
    turns_until(is_empty, NULL);
    char heard[200];
    ssize_t n = recv(client, heard, sizeof heard, 0);
    assert_int_equal(n, strlen(REFUSED));
    assert_memory_equal(heard, REFUSED, n);
    assert_int_equal(recv(client, heard, sizeof heard, 0), 0); /* an end, not a reset */
    close(client);
}

static void test_lingering_is_bounded_in_time(void **state)
{
    int client = connect_client();
    say(client, "nonsense\r\n\r\n");
    assert_string_equal(hear(client), REFUSED);
    assert_int_equal(f.server.all.next->state, HTTP_CONN_LINGER);
    assert_true(timer_is_set(&f.server.all.next->timer));
    close(client);
}

static void test_abort_is_a_reset_not_an_end(void **state)
{
    int client = connect_over_tcp();
    say(client, GET("/hold"));
    turns_until(has_request, NULL);
    send_text(f.held, "HTTP/1.1 200 X\r\n\r\nhalf an answ");
    http_conn_abort(f.held);
    turns_run(5);
    char bytes[200];
    ssize_t n;
    do {
        n = recv(client, bytes, sizeof bytes, 0);
    } while (n > 0);
    assert_int_equal(n, -1);
    assert_int_equal(errno, ECONNRESET);
    assert_int_equal(f.gone, 0);
    close(client);
}

/* ---- clients that leave ---- */

static void test_client_that_leaves_is_noticed_while_it_is_served(void **state)
{
    int client = connect_client();
    say(client, GET("/hold") GET("/next")); /* unread bytes must not hide it */
    close(client);
    turns_run(3);
    assert_int_equal(f.gone, 1);
    assert_int_equal(f.server.open, 0);
    client = connect_over_tcp();
    say(client, GET("/hold"));
    turns_until(has_request, NULL);
    close(client);
    f.gone = 0;
    turns_until(has_gone, NULL);
    assert_int_equal(f.server.open, 0);
}

static void test_client_that_leaves_in_the_middle_of_a_request_costs_nothing(void **state)
{
    static const char *const parts[] = {
        "", "GET", "GET / HTTP/1.1\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        int client = connect_client();
        say(client, parts[i]);
        close(client);
        turns_run(3);
        assert_int_equal(f.server.open, 0);
    }
    assert_int_equal(f.requests + f.refusals + f.gone, 0);
}

static void test_request_and_its_clients_end_in_one_event(void **state)
{
    int client = connect_client();
    static const char text[] = GET("/hold");
    assert_int_equal(send(client, text, sizeof text - 1, 0), sizeof text - 1);
    close(client);
    turns_run(3);
    assert_int_equal(f.requests, 1);
    assert_int_equal(f.gone, 1);
    assert_int_equal(f.server.open, 0);
}

static void test_half_closed_client_is_answered_where_that_is_tolerated(void **state)
{
    f.server.limits.tolerate_half_close = true;
    int client = connect_client();
    static const char text[] = GET("/hold") GET("/next");
    assert_int_equal(send(client, text, sizeof text - 1, 0), sizeof text - 1);
    assert_int_equal(shutdown(client, SHUT_WR), 0);
    turns_run(3);
    assert_int_equal(f.gone, 0);
    answer(f.held, 200, "late", true);
    assert_string_equal(hear(client), ANSWER(4, "late") ANSWER(10, "GET /next "));
    turns_run(3);
    assert_int_equal(f.server.open, 0);
    close(client);
}

static void test_half_closed_client_has_left_where_it_is_not(void **state)
{
    int client = connect_client();
    say(client, GET("/hold"));
    assert_int_equal(shutdown(client, SHUT_WR), 0);
    turns_run(3);
    assert_int_equal(f.gone, 1);
    close(client);
}

static void test_client_that_resets_while_a_response_is_flushed_is_let_go(void **state)
{
    int client = connect_over_tcp();
    make_small(client, SO_RCVBUF);
    say(client, GET("/hold"));
    turns_until(has_request, NULL);
    send_until_full(f.held);
    http_conn_finish(f.held, true);
    assert_int_equal(f.server.open, 1);
    struct linger now = {.l_onoff = 1};
    setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(client);
    turns_until(is_empty, NULL);
    assert_int_equal(f.gone, 0); /* the exchange was over */
}

/* ---- back-pressure ---- */

static void test_producer_is_told_to_wait_and_when_to_go_on(void **state)
{
    int client = connect_client();
    say(client, GET("/hold"));
    send_text(f.held, "HTTP/1.1 200 X\r\n\r\n");
    send_until_full(f.held);
    assert_true(http_conn_is_full(f.held));
    assert_true(buf_len(&f.held->out) <= default_limits.out_mark_bytes + 4096);
    turns_run(5);
    assert_int_equal(f.writable, 0);
    drain_client(client);
    assert_int_equal(f.writable, 1); /* once, though it was emptied in many steps */
    assert_int_equal(buf_len(&f.held->out), 0);
    assert_null(f.held->out.ptr); /* no buffer while nothing waits */
    send_until_full(f.held);
    http_conn_finish(f.held, false);
    drain_client(client);
    assert_int_equal(f.writable, 1);
    assert_true(is_closed(client));
    close(client);
}

static void test_all_unsent_bytes_together_have_a_bound(void **state)
{
    f.server.limits.out_mark_bytes = 1 << 20;
    f.server.limits.out_memory_bytes = 32 * 1024;
    int client = connect_client();
    say(client, GET("/hold"));
    send_text(f.held, "HTTP/1.1 200 X\r\n\r\n");
    send_until_full(f.held); /* by the total, long before the mark */
    assert_in_range(buf_len(&f.held->out), 1, 32 * 1024 + 4096);
    assert_int_equal(gauge_get(&f.counters.out_bytes), buf_len(&f.held->out));
    drain_client(client);
    assert_int_equal(f.writable, 1);
    assert_int_equal(gauge_get(&f.counters.out_bytes), 0);
    send_until_full(f.held);
    close(client);
    turns_until(is_empty, NULL);
    assert_int_equal(gauge_get(&f.counters.out_bytes),
                     0); /* given back by a client that left, too */
}

static void test_client_that_takes_nothing_is_given_up(void **state)
{
    f.server.limits.write_timeout_ns = NS_PER_MS;
    int client = connect_client();
    say(client, GET("/hold"));
    send_until_full(f.held);
    turns_until(has_gone, NULL);
    assert_int_equal(f.server.open, 0);
    close(client);
    client = connect_client(); /* also when the response is complete */
    say(client, GET("/hold"));
    send_until_full(f.held);
    http_conn_finish(f.held, true);
    turns_until(is_empty, NULL);
    assert_int_equal(f.gone, 1);
    close(client);
}

/* Reading is no duty of a client that only listens to a silent engine. */
static void test_silent_exchange_has_no_timer(void **state)
{
    int client = connect_client();
    say(client, GET("/hold"));
    assert_false(timer_is_set(&f.held->timer));
    send_text(f.held, "a");
    assert_false(timer_is_set(&f.held->timer));
    send_until_full(f.held);
    assert_true(timer_is_set(&f.held->timer));
    drain_client(client);
    assert_false(timer_is_set(&f.held->timer));
    close(client);
}

/*
 * A 100 Continue that the client's full socket does not take: the body's time limit stays in force,
 * and afterwards that of writing.
 */
static void test_unsent_continue_does_not_stop_the_clocks(void **state)
{
    static char part[32 * 1024];
    int client = connect_client();
    say(client, GET("/hold"));
    send_until_full(f.held);
    while (buf_len(&f.held->out)) { /* the socket stays full, our buffer does not */
        assert_true(recv(client, part, 4096, 0) > 0);
        turns_run(2);
    }
    send_until_full(f.held);
    http_conn_finish(f.held, true);
    struct http_conn *conn = f.held;
    while (conn->state != HTTP_CONN_HEAD) {
        assert_true(recv(client, part, 1024, 0) > 0);
        turns_run(2);
    }
    static const char *const fill = "x"; /* so that nothing of the 25 bytes goes out */
    while (send(conn->io.fd, fill, 1, MSG_NOSIGNAL) == 1) {
    }
    say(client,
        "PUT /hold HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    turns_run(2);
    assert_int_equal(conn->state, HTTP_CONN_BODY);
    assert_int_equal(buf_len(&conn->out), 25);
    assert_true(timer_is_set(&conn->timer));
    drain_client(client);
    assert_int_equal(buf_len(&conn->out), 0);
    assert_true(timer_is_set(&conn->timer)); /* the body's */
    say(client, "ab");
    assert_int_equal(conn->state, HTTP_CONN_HANDLE);
    assert_false(timer_is_set(&conn->timer));
    close(client);
}

static void test_limits_raised_during_a_response_hold_for_it(void **state)
{
    f.server.limits.out_max_bytes = 128 * 1024;
    int client = connect_client();
    say(client, GET("/hold"));
    f.server.limits.out_mark_bytes = 1 << 20;
    f.server.limits.out_max_bytes = 2 << 20;
    send_until_full(f.held); /* an overflow would be a bug, and abort */
    assert_true(buf_len(&f.held->out) > 1 << 20);
    close(client);
}

/* ---- the server as a whole ---- */

static void test_connections_over_the_limit_are_closed_and_counted(void **state)
{
    f.server.limits.connections = 2;
    int clients[3];
    for (int i = 0; i < 3; i++) {
        clients[i] = connect_client();
    }
    assert_true(is_closed(clients[2]));
    assert_false(is_closed(clients[1]));
    assert_int_equal(counter_get(&f.counters.refused), 1);
    assert_int_equal(counter_get(&f.counters.accepted), 3);
    assert_int_equal(gauge_get(&f.counters.open), 2);
    close(clients[0]);
    turns_run(3);
    close(clients[2]);
    clients[2] = connect_client(); /* there is room again */
    say(clients[2], GET("/a"));
    assert_string_equal(hear(clients[2]), ANSWER(7, "GET /a "));
    close(clients[1]);
    close(clients[2]);
}

static void test_drain_closes_idle_connections_now_and_busy_ones_after_their_exchange(void **state)
{
    int idle = connect_client(), busy = connect_client(), half = connect_client();
    say(idle, GET("/a"));
    hear(idle);
    say(half, "GET /half HTTP/1.1\r\n");
    say(busy, GET("/hold") GET("/never"));
    http_server_drain(&f.server);
    assert_true(is_closed(idle));
    assert_int_equal(f.server.open, 2);
    answer(f.held, 200, "", true);
    assert_string_equal(hear(busy), ANSWER(0, ""));
    assert_true(is_closed(busy));
    say(half, "Host: x\r\n\r\n");
    assert_string_equal(hear(half), ANSWER(10, "GET /half "));
    assert_true(is_closed(half));
    close(idle);
    close(busy);
    close(half);
    turns_run(4);
    assert_int_equal(f.server.open, 0);
    assert_int_equal(f.requests, 3);
}

/* A client that never stops pipelining must not keep the memory of all others that come and go. */
static void test_closed_connections_are_freed_while_another_one_is_never_done(void **state)
{
    static char many[64 * 1024];
    size_t len = 0;
    while (len + sizeof GET("/a") < sizeof many) {
        len += (size_t)snprintf(many + len, sizeof many - len, "%s", GET("/a"));
    }
    int greedy = connect_client();
    assert_true(send(greedy, many, len, 0) > 0);
    turns_run(2);
    for (int i = 0; i < 200; i++) {
        int client = connect_client();
        close(client);
        turns_run(1);
        assert_non_null(f.server.again); /* it still has requests */
        assert_true(f.server.conns.live <= 4);
    }
    close(greedy);
}

static void test_closing_the_server_tells_the_handler_of_each_running_exchange(void **state)
{
    int clients[3];
    for (int i = 0; i < 3; i++) {
        clients[i] = connect_client();
        say(clients[i], i ? GET("/hold") : GET("/a"));
    }
    http_server_close(&f.server);
    assert_int_equal(f.gone, 2);
    http_server_init(&f.server, f.loop, &handler, &f, &default_limits, &f.counters);
    for (int i = 0; i < 3; i++) {
        close(clients[i]);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_connection_is_kept_when_both_sides_want_it),
        CASE(test_answer_larger_than_the_socket_is_flushed_and_the_connection_kept),
        CASE(test_client_that_still_sends_its_body_reads_the_refusal),
        CASE(test_client_that_closed_its_side_behind_a_large_body_reads_the_refusal),
        CASE(test_lingering_is_bounded_in_time),
        CASE(test_abort_is_a_reset_not_an_end),
        CASE(test_client_that_leaves_is_noticed_while_it_is_served),
        CASE(test_client_that_leaves_in_the_middle_of_a_request_costs_nothing),
        CASE(test_request_and_its_clients_end_in_one_event),
        CASE(test_half_closed_client_is_answered_where_that_is_tolerated),
        CASE(test_half_closed_client_has_left_where_it_is_not),
        CASE(test_client_that_resets_while_a_response_is_flushed_is_let_go),
        CASE(test_producer_is_told_to_wait_and_when_to_go_on),
        CASE(test_all_unsent_bytes_together_have_a_bound),
        CASE(test_client_that_takes_nothing_is_given_up),
        CASE(test_silent_exchange_has_no_timer),
        CASE(test_unsent_continue_does_not_stop_the_clocks),
        CASE(test_limits_raised_during_a_response_hold_for_it),
        CASE(test_connections_over_the_limit_are_closed_and_counted),
        CASE(test_drain_closes_idle_connections_now_and_busy_ones_after_their_exchange),
        CASE(test_closed_connections_are_freed_while_another_one_is_never_done),
        CASE(test_closing_the_server_tells_the_handler_of_each_running_exchange),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
