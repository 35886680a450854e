#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <netinet/in.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/address.h"
#include "net/listener.h"
#include "turns.h"

static struct loop *loop;
static size_t accepted;
static struct endpoint last_peer;

static void on_accept(void *ctx, int descriptor, const struct endpoint *peer)
{
    accepted++;
    last_peer = *peer;
    close(descriptor);
}

static bool has_accepted(void *ctx)
{
    return accepted >= *(size_t *)ctx;
}

static int setup(void **state)
{
    struct error err;
    loop = loop_new(&err);
    assert_non_null(loop);
    turns_init(loop);
    accepted = 0;
    return 0;
}

static int teardown(void **state)
{
    loop_free(loop);
    return 0;
}

/* Port 0: the kernel chooses. */
static struct endpoint any_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct endpoint endpoint = {.length = sizeof address, .family = AF_INET};
    memcpy(endpoint.bytes, &address, sizeof address);
    return endpoint;
}

static int connect_to(const struct endpoint *endpoint)
{
    int fd = socket((int)endpoint->family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)endpoint->bytes, endpoint->length), 0);
    return fd;
}

static void test_all_sockets_of_an_address_share_its_port(void **state)
{
    enum { SOCKETS = 3 };
    int sockets[SOCKETS];
    struct endpoint wanted = any_port(), real[SOCKETS];
    struct error err;
    assert_int_equal(listener_open(&wanted, SOCKETS, sockets, &err), WEIR_OK);
    struct listener listeners[SOCKETS];
    for (int i = 0; i < SOCKETS; i++) {
        listener_address(sockets[i], &real[i]);
        assert_memory_equal(&real[i], &real[0], sizeof real[0]);
        assert_int_equal(listener_start(&listeners[i], loop, sockets[i], on_accept, NULL), WEIR_OK);
    }
    int clients[20];
    size_t count = sizeof clients / sizeof *clients;
    for (size_t i = 0; i < count; i++) {
        clients[i] = connect_to(&real[0]);
    }
    turns_until(has_accepted, &count);
    assert_int_equal(accepted, count);
    assert_int_equal(last_peer.family, AF_INET);
    for (size_t i = 0; i < count; i++) {
        close(clients[i]);
    }
    for (int i = 0; i < SOCKETS; i++) {
        listener_stop(&listeners[i]);
        listener_stop(&listeners[i]); /* harmless */
    }
}

static void test_port_in_use_is_busy_even_where_it_could_be_shared(void **state)
{
    int first, second;
    struct endpoint wanted = any_port(), real;
    struct error err;
    assert_int_equal(listener_open(&wanted, 1, &first, &err), WEIR_OK);
    listener_address(first, &real);
    assert_int_equal(listener_open(&real, 1, &second, &err), WEIR_EBUSY);
    char text[128];
    address_format(&real, text, sizeof text);
    assert_non_null(strstr(err.text, text));
    close(first);
    assert_int_equal(listener_open(&real, 1, &second, &err), WEIR_OK);
    close(second);
}

static void test_address_of_another_machine_is_refused_in_words(void **state)
{
    struct endpoint endpoint;
    struct error err;
    int fd;
    assert_int_equal(address_parse_listen(SLICE("203.0.113.1:8080"), &endpoint, &err), WEIR_OK);
    assert_int_equal(listener_open(&endpoint, 1, &fd, &err), WEIR_EIO);
    assert_non_null(strstr(err.text, "203.0.113.1:8080"));
}

static struct endpoint unix_address(char *path, size_t size)
{
    snprintf(path, size, "/tmp/weir-test-%ld.sock", (long)getpid());
    char text[128];
    snprintf(text, sizeof text, "unix:%s", path);
    struct endpoint endpoint;
    struct error err;
    assert_int_equal(address_parse_listen(slice_str(text), &endpoint, &err), WEIR_OK);
    return endpoint;
}

static void test_unix_socket_left_over_is_replaced_and_a_live_one_is_not(void **state)
{
    char path[64];
    struct endpoint endpoint = unix_address(path, sizeof path);
    struct error err;
    int first[2], second;
    unlink(path);
    assert_int_equal(listener_open(&endpoint, 2, first, &err), WEIR_OK);
    assert_int_equal(listener_open(&endpoint, 1, &second, &err), WEIR_EBUSY);
    close(first[0]);
    close(first[1]); /* as after a kill: the file stays */
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(listener_open(&endpoint, 1, &second, &err), WEIR_OK);
    close(second);
    unlink(path);
}

struct bell {
    struct timer timer; /* first */
    bool *has_rung;
};

static void on_bell(struct timer *timer)
{
    *((struct bell *)timer)->has_rung = true;
}

static bool is_true(void *ctx)
{
    return *(bool *)ctx;
}

/* The socket is shared with other workers, so closing our copy does not make the kernel forget it.
 */
static void test_stopped_listener_on_a_shared_unix_socket_is_silent(void **state)
{
    char path[64];
    struct endpoint endpoint = unix_address(path, sizeof path);
    struct error err;
    int sockets[2];
    unlink(path);
    assert_int_equal(listener_open(&endpoint, 2, sockets, &err), WEIR_OK);
    struct listener stopped;
    assert_int_equal(listener_start(&stopped, loop, sockets[0], on_accept, NULL), WEIR_OK);
    listener_stop(&stopped);
    int client = connect_to(&endpoint); /* waits for the other worker */
    /* A loop that is told of it again and again never sleeps until the timer fires. */
    bool has_rung = false;
    struct bell bell = {.timer = {.on_fire = on_bell}, .has_rung = &has_rung};
    uint64_t before = loop_turns(loop);
    timer_set(loop, &bell.timer, 20 * NS_PER_MS);
    turns_until(is_true, &has_rung);
    assert_true(loop_turns(loop) - before < 20);
    assert_int_equal(accepted, 0);
    close(client);
    close(sockets[1]);
    unlink(path);
}

/* Without descriptors the socket stays readable: the loop must not spin, and must try again. */
static void test_accepting_pauses_without_descriptors_and_goes_on(void **state)
{
    int socket_fd;
    struct endpoint wanted = any_port(), real;
    struct error err;
    struct listener listener;
    assert_int_equal(listener_open(&wanted, 1, &socket_fd, &err), WEIR_OK);
    listener_address(socket_fd, &real);
    assert_int_equal(listener_start(&listener, loop, socket_fd, on_accept, NULL), WEIR_OK);
    int client = connect_to(&real);
    struct rlimit limit, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    turns_run(3);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(accepted, 0);
    assert_true(timer_is_set(&listener.retry));
    size_t one = 1;
    turns_until(has_accepted, &one);
    close(client);
    listener_stop(&listener);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_all_sockets_of_an_address_share_its_port),
        CASE(test_port_in_use_is_busy_even_where_it_could_be_shared),
        CASE(test_address_of_another_machine_is_refused_in_words),
        CASE(test_unix_socket_left_over_is_replaced_and_a_live_one_is_not),
        CASE(test_stopped_listener_on_a_shared_unix_socket_is_silent),
        CASE(test_accepting_pauses_without_descriptors_and_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
