#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../net/turns.h"
#include "base/counter.h"
#include "http/upstream.h"

enum { HOST = 7, MAX_IDLE = 2 };

/* An engine: a socket that listens, in this very thread. */
struct engine {
    int listening;
    struct endpoint endpoint;
};

static struct {
    struct loop *loop;
    struct upstream_pool pool;
    struct upstream_counters counters;
    size_t connected, readable, writable, failed;
    int errnum;
    bool release_on_connect;
} f;

static void on_connected(struct upstream_conn *conn)
{
    assert_int_equal(conn->state, UPSTREAM_BUSY);
    f.connected++;
    if (f.release_on_connect) {
        upstream_release(conn, true);
    }
}

static void on_connect_failed(struct upstream_conn *conn, int errnum)
{
    assert_ptr_equal(conn->owner, &f);
    assert_int_equal(conn->state, UPSTREAM_DEAD);
    f.failed++;
    f.errnum = errnum;
}

static void on_readable(struct upstream_conn *conn)
{
    assert_true(conn->is_readable);
    f.readable++;
}

static void on_writable(struct upstream_conn *conn)
{
    f.writable++;
}

static const struct upstream_events events = {
    .on_connected = on_connected,
    .on_connect_failed = on_connect_failed,
    .on_readable = on_readable,
    .on_writable = on_writable,
};

static int setup(void **state)
{
    memset(&f, 0, sizeof f);
    struct error err;
    f.loop = loop_new(&err);
    assert_non_null(f.loop);
    upstream_pool_init(&f.pool, f.loop, MAX_IDLE, &f.counters);
    turns_init(f.loop);
    return 0;
}

static int teardown(void **state)
{
    turns_run(1);
    upstream_pool_close(&f.pool);
    loop_free(f.loop);
    return 0;
}

static struct engine engine_open(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    struct engine e = {.listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_int_equal(bind(e.listening, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(e.listening, 512), 0);
    assert_int_equal(getsockname(e.listening, (struct sockaddr *)&address, &len), 0);
    e.endpoint = (struct endpoint){.length = len, .family = AF_INET};
    memcpy(e.endpoint.bytes, &address, len);
    return e;
}

static int engine_accept(const struct engine *e)
{
    int fd = accept4(e->listening, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static struct upstream_conn *take(const struct engine *e, bool allow_reuse)
{
    struct upstream_conn *conn = NULL;
    int errnum = 0;
    assert_int_equal(
        upstream_take(&f.pool, HOST, &e->endpoint, allow_reuse, &events, &f, &conn, &errnum),
        WEIR_OK);
    return conn;
}

static bool is_busy(void *conn)
{
    return ((struct upstream_conn *)conn)->state == UPSTREAM_BUSY;
}

static bool is_readable(void *conn)
{
    return ((struct upstream_conn *)conn)->is_readable;
}

static bool is_dead(void *conn)
{
    return f.pool.conns.live == 0;
}

static bool has_failed(void *conn)
{
    return f.failed > 0;
}

static struct upstream_conn *take_connected(const struct engine *e, bool allow_reuse)
{
    struct upstream_conn *conn = take(e, allow_reuse);
    turns_until(is_busy, conn);
    return conn;
}

/* ---- reuse ---- */

static void test_released_connection_is_handed_out_again_last_one_first(void **state)
{
    struct engine e = engine_open();
    struct upstream_conn *a = take_connected(&e, true), *b = take_connected(&e, true);
    assert_ptr_not_equal(a, b);
    assert_false(a->was_reused);
    upstream_release(a, true);
    upstream_release(b, true);
    assert_ptr_equal(take(&e, true), b);
    assert_int_equal(b->state, UPSTREAM_BUSY);
    assert_true(b->was_reused);
    assert_ptr_equal(take(&e, true), a);
    assert_int_equal(counter_get(&f.counters.connects), 2);
    assert_int_equal(counter_get(&f.counters.reuses), 2);
    assert_int_equal(f.connected, 2);
    upstream_release(a, false);
    upstream_release(b, false);
    close(e.listening);
}

static void test_only_a_connection_read_to_the_end_is_kept(void **state)
{
    struct engine e = engine_open();
    struct upstream_conn *conn = take_connected(&e, true);
    int engine = engine_accept(&e);
    assert_int_equal(send(engine, "left over", 9, 0), 9);
    turns_until(is_readable, conn);
    upstream_release(conn, true);
    assert_int_equal(conn->state, UPSTREAM_DEAD);
    close(engine);

    conn = take_connected(&e, true);
    engine = engine_accept(&e);
    assert_int_equal(send(engine, "all", 3, 0), 3);
    turns_until(is_readable, conn);
    char bytes[16];
    assert_int_equal(upstream_read(conn, bytes, sizeof bytes), 3);
    upstream_release(conn, true);
    assert_int_equal(conn->state, UPSTREAM_IDLE);
    assert_ptr_not_equal(take(&e, false), conn); /* a fresh one was asked for */
    close(engine);
    close(e.listening);
    upstream_forget_host(&f.pool, HOST);
}

static void test_idle_connections_of_a_host_are_bounded(void **state)
{
    struct engine e = engine_open();
    struct upstream_conn *conns[MAX_IDLE + 1];
    for (int i = 0; i <= MAX_IDLE; i++) {
        conns[i] = take_connected(&e, true);
    }
    for (int i = 0; i <= MAX_IDLE; i++) {
        upstream_release(conns[i], true);
    }
    assert_int_equal(conns[MAX_IDLE]->state, UPSTREAM_DEAD);
    turns_run(1);
    assert_int_equal(f.pool.conns.live, MAX_IDLE);
    close(e.listening);
}

static void test_idle_connection_that_the_engine_ends_or_speaks_on_is_closed(void **state)
{
    for (int says = 0; says < 2; says++) {
        struct engine e = engine_open();
        struct upstream_conn *conn = take_connected(&e, true);
        int engine = engine_accept(&e);
        upstream_release(conn, true);
        assert_int_equal(conn->state, UPSTREAM_IDLE);
        if (says) {
            assert_int_equal(send(engine, "HTTP/1.1 408", 12, 0), 12);
        } else {
            close(engine);
        }
        turns_until(is_dead, NULL);
        assert_int_equal(f.readable, 0); /* nobody owns it */
        conn = take_connected(&e, true);
        assert_false(conn->was_reused);
        upstream_release(conn, false);
        if (says) {
            close(engine);
        }
        close(e.listening);
    }
}

static void test_idle_connections_are_closed_when_the_host_moves(void **state)
{
    struct engine old = engine_open(), new = engine_open();
    struct upstream_conn *idle = take_connected(&old, true);
    struct upstream_conn *busy = take_connected(&old, true);
    upstream_release(idle, true);
    struct upstream_conn *moved = take_connected(&new, true);
    assert_int_equal(f.pool.conns.live, 2); /* the idle one is gone */
    assert_false(moved->was_reused);
    upstream_release(busy, true); /* it leads to where the host was */
    assert_int_equal(busy->state, UPSTREAM_DEAD);
    upstream_release(moved, true);
    assert_ptr_equal(take(&new, true), moved);
    upstream_release(moved, false);
    close(old.listening);
    close(new.listening);
}

/* Also when the first one who learns of the move wants a fresh connection. */
static void test_fresh_connection_to_a_new_address_does_not_mix_with_the_old_ones(void **state)
{
    struct engine old = engine_open(), new = engine_open();
    upstream_release(take_connected(&old, true), true);
    struct upstream_conn *moved = take_connected(&new, false);
    upstream_release(moved, true);
    assert_ptr_equal(take(&new, true), moved);
    upstream_release(moved, true);
    struct upstream_conn *back = take_connected(&old, true);
    assert_false(back->was_reused);
    upstream_release(back, false);
    close(old.listening);
    close(new.listening);
}

static void test_forgotten_hosts_connections_do_not_outlive_their_use(void **state)
{
    struct engine e = engine_open();
    struct upstream_conn *idle = take_connected(&e, true), *busy = take_connected(&e, true);
    upstream_release(idle, true);
    upstream_forget_host(&f.pool, HOST);
    assert_int_equal(idle->state, UPSTREAM_DEAD);
    upstream_release(busy, true);
    assert_int_equal(busy->state, UPSTREAM_DEAD);
    upstream_forget_host(&f.pool, HOST + 1); /* never heard of */
    close(e.listening);
}

static void test_sweep_closes_what_idled_long_and_forgets_unused_hosts(void **state)
{
    struct engine e = engine_open();
    for (uint32_t host = 100; host < 300; host++) { /* the table grows; no chain loses any */
        struct upstream_conn *conn = NULL;
        int errnum;
        assert_int_equal(
            upstream_take(&f.pool, host, &e.endpoint, true, &events, &f, &conn, &errnum), WEIR_OK);
        upstream_release(conn, false);
    }
    struct upstream_conn *young = take_connected(&e, true), *old = take_connected(&e, true);
    upstream_release(old, true);
    upstream_release(young, true);
    assert_int_equal(f.pool.host_count, 201);
    old->idle_since_ns =
        0; /* as if since the machine started: monotonic time is larger than 60 s */
    if (loop_now_ns(f.loop) > 61 * NS_PER_S) {
        f.pool.sweep.on_fire(&f.pool.sweep);
        assert_int_equal(old->state, UPSTREAM_DEAD);
        assert_int_equal(young->state, UPSTREAM_IDLE);
        assert_int_equal(f.pool.host_count, 1);
        assert_true(timer_is_set(&f.pool.sweep));
    }
    close(e.listening);
}

/* ---- connecting ---- */

static void test_refused_connect_is_reported_once_and_later(void **state)
{
    struct engine e = engine_open();
    close(e.listening);
    struct upstream_conn *conn = take(&e, true);
    assert_int_equal(conn->state, UPSTREAM_CONNECTING);
    assert_int_equal(f.failed, 0);
    turns_until(has_failed, NULL);
    turns_run(3);
    assert_int_equal(f.failed, 1);
    assert_int_equal(f.errnum, ECONNREFUSED);
    assert_int_equal(counter_get(&f.counters.connect_errors), 1);
    assert_int_equal(f.pool.conns.live, 0);
}

static void test_connect_that_cannot_start_says_why(void **state)
{
    struct sockaddr_un nowhere = {.sun_family = AF_UNIX, .sun_path = "/nonexistent/weir.sock"};
    struct endpoint endpoint = {.length = sizeof nowhere, .family = AF_UNIX};
    memcpy(endpoint.bytes, &nowhere, sizeof nowhere);
    struct upstream_conn *conn = NULL;
    int errnum = 0;
    assert_int_equal(upstream_take(&f.pool, HOST, &endpoint, true, &events, &f, &conn, &errnum),
                     WEIR_EIO);
    assert_int_equal(errnum, ENOENT);
    assert_int_equal(f.pool.conns.live, 0);
    assert_int_equal(counter_get(&f.counters.connect_errors), 1);
}

static void test_release_while_connecting_closes_without_a_callback(void **state)
{
    struct engine e = engine_open();
    struct upstream_conn *conn = take(&e, true);
    upstream_release(conn, true);
    assert_int_equal(conn->state, UPSTREAM_DEAD);
    turns_run(3);
    assert_int_equal(f.connected + f.failed + f.readable, 0);
    close(e.listening);
}

/*
 * The kernel tells of the connect, of bytes and of the FIN in one event, which does not come again:
 * nothing of it may be lost.
 */
static void test_engine_that_speaks_and_closes_at_once_is_heard(void **state)
{
    struct engine e = engine_open();
    struct upstream_conn *conn = take(&e, true);
    int engine = engine_accept(&e);
    assert_int_equal(send(engine, "HTTP/1.1 503 Busy\r\n\r\n", 21, 0), 21);
    assert_int_equal(shutdown(engine, SHUT_WR), 0);
    turns_until(is_busy, conn);
    turns_run(5);
    assert_int_equal(f.connected, 1);
    assert_true(f.readable > 0);
    assert_true(conn->peer_closed);
    char bytes[64];
    assert_int_equal(upstream_read(conn, bytes, sizeof bytes), 21);
    assert_true(conn->is_readable); /* the end is still to be read */
    assert_int_equal(upstream_read(conn, bytes, sizeof bytes), 0);
    upstream_release(conn, true);
    assert_int_equal(conn->state, UPSTREAM_DEAD);
    close(engine);
    close(e.listening);
}

static void test_owner_may_let_go_in_the_callback_that_tells_of_the_connect(void **state)
{
    struct engine e = engine_open();
    f.release_on_connect = true;
    take(&e, true);
    int engine = engine_accept(&e);
    assert_int_equal(send(engine, "unasked", 7, 0), 7);
    turns_until(is_dead, NULL);
    assert_int_equal(f.connected, 1);
    assert_int_equal(f.readable, 0);
    close(engine);
    close(e.listening);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_released_connection_is_handed_out_again_last_one_first),
        CASE(test_only_a_connection_read_to_the_end_is_kept),
        CASE(test_idle_connections_of_a_host_are_bounded),
        CASE(test_idle_connection_that_the_engine_ends_or_speaks_on_is_closed),
        CASE(test_idle_connections_are_closed_when_the_host_moves),
        CASE(test_fresh_connection_to_a_new_address_does_not_mix_with_the_old_ones),
        CASE(test_forgotten_hosts_connections_do_not_outlive_their_use),
        CASE(test_sweep_closes_what_idled_long_and_forgets_unused_hosts),
        CASE(test_refused_connect_is_reported_once_and_later),
        CASE(test_connect_that_cannot_start_says_why),
        CASE(test_release_while_connecting_closes_without_a_callback),
        CASE(test_engine_that_speaks_and_closes_at_once_is_heard),
        CASE(test_owner_may_let_go_in_the_callback_that_tells_of_the_connect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
