#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "turns.h"

static struct loop *loop;

struct watch {
    struct loop_fd io; /* first */
    size_t calls;
    unsigned events;                /* of the last call */
    struct watch *removes, *closes; /* in its callback */
};

static void on_event(struct loop_fd *io, unsigned events)
{
    struct watch *w = (struct watch *)io;
    w->calls++;
    w->events = events;
    if (w->removes) {
        loop_remove(loop, &w->removes->io);
    }
    if (w->closes) {
        loop_close(&w->closes->io);
    }
}

static int setup(void **state)
{
    struct error err;
    loop = loop_new(&err);
    assert_non_null(loop);
    turns_init(loop);
    return 0;
}

static int teardown(void **state)
{
    loop_free(loop);
    return 0;
}

/* Watches one end of a pair and returns the other. */
static int watch_pair(struct watch *w)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    *w = (struct watch){.io = {.fd = -1, .on_event = on_event}};
    assert_int_equal(loop_add(loop, &w->io, ends[0]), WEIR_OK);
    turns_run(1); /* the first edge: there is room to write */
    assert_int_equal(w->calls, 1);
    assert_int_equal(w->events, LOOP_WRITE);
    w->calls = 0;
    return ends[1];
}

static void put_byte(int fd)
{
    assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), 1);
}

/* ---- descriptors ---- */

static void test_each_arrival_is_told_once_whether_it_is_read_or_not(void **state)
{
    struct watch w;
    int peer = watch_pair(&w);
    put_byte(peer);
    turns_run(5);
    assert_int_equal(w.calls, 1);
    assert_true(w.events & LOOP_READ);
    assert_false(w.events & (LOOP_HANGUP | LOOP_ERROR));
    put_byte(peer);
    turns_run(5);
    assert_int_equal(w.calls, 2);
    loop_close(&w.io);
    close(peer);
}

static void test_room_is_told_when_there_is_some_again(void **state)
{
    struct watch w;
    int peer = watch_pair(&w);
    char block[4096] = {0};
    while (send(w.io.fd, block, sizeof block, MSG_NOSIGNAL) > 0) {
    }
    assert_int_equal(errno, EAGAIN);
    turns_run(3);
    assert_int_equal(w.calls, 0);
    while (recv(peer, block, sizeof block, 0) > 0) {
    }
    turns_run(3);
    assert_true(w.calls > 0);
    assert_int_equal(w.events, LOOP_WRITE);
    loop_close(&w.io);
    close(peer);
}

static void test_half_close_is_a_hangup_and_a_close_is_also_an_error(void **state)
{
    struct watch w;
    int peer = watch_pair(&w);
    put_byte(peer);
    assert_int_equal(shutdown(peer, SHUT_WR), 0);
    turns_run(2);
    assert_int_equal(w.calls, 1); /* the byte and the end in one */
    assert_int_equal(w.events & ~(unsigned)LOOP_WRITE, LOOP_READ | LOOP_HANGUP);
    close(peer);
    turns_run(2);
    assert_int_equal(w.calls, 2);
    assert_true(w.events & LOOP_ERROR);
    loop_close(&w.io);
}

static void test_removed_descriptor_is_silent_in_the_same_turn_already(void **state)
{
    struct watch a, b;
    int peer_a = watch_pair(&a), peer_b = watch_pair(&b);
    for (int closes = 0; closes < 2; closes++) { /* whichever is called first silences the other */
        a.calls = b.calls = 0;
        a.removes = closes ? NULL : &b;
        b.removes = closes ? NULL : &a;
        a.closes = closes ? &b : NULL;
        b.closes = closes ? &a : NULL;
        int fds[2] = {a.io.fd, b.io.fd};
        put_byte(peer_a);
        put_byte(peer_b);
        turns_run(4);
        assert_int_equal(a.calls + b.calls, 1);
        struct watch *silent = a.calls ? &b : &a;
        assert_int_equal(silent->io.fd, -1);
        if (!closes) {
            assert_int_equal(loop_add(loop, &silent->io, a.calls ? fds[1] : fds[0]), WEIR_OK);
            a.removes = b.removes = NULL;
            turns_run(2);
            assert_int_equal(silent->calls, 1); /* what it had not read is still there */
        }
    }
    loop_close(&a.io);
    loop_close(&b.io);
    close(peer_a);
    close(peer_b);
}

static void test_level_triggered_descriptor_is_told_of_until_it_is_changed(void **state)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct watch w = {.io = {.fd = -1, .on_event = on_event}};
    assert_int_equal(loop_add_level(loop, &w.io, ends[0], LOOP_READ), WEIR_OK);
    turns_run(2);
    assert_int_equal(w.calls, 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    turns_run(3);
    assert_int_equal(w.calls, 3);
    assert_int_equal(loop_change_level(loop, &w.io, 0), WEIR_OK);
    turns_run(3);
    assert_int_equal(w.calls, 3);
    assert_int_equal(loop_change_level(loop, &w.io, LOOP_READ), WEIR_OK);
    turns_run(1);
    assert_int_equal(w.calls, 4);
    loop_close(&w.io);
    close(ends[1]);
}

static void test_adding_what_cannot_be_watched_fails(void **state)
{
    struct watch w = {.io = {.fd = -1, .on_event = on_event}};
    assert_int_equal(loop_add(loop, &w.io, -1), WEIR_EIO);
    assert_int_equal(w.io.fd, -1);
    loop_remove(loop, &w.io); /* harmless */
    loop_close(&w.io);
}

/* ---- turns ---- */

static char order[8];
static size_t order_len;

static void note(char what)
{
    assert_true(order_len < sizeof order - 1);
    order[order_len++] = what;
    order[order_len] = '\0';
}

static void note_hook(void *ctx)
{
    note(*(const char *)ctx);
}

static void note_event(struct loop_fd *io, unsigned events)
{
    order_len = 0; /* only the last turn is looked at */
    note('e');
}

static void note_timer(struct timer *timer)
{
    note('t');
}

static bool has_timer_noted(void *ctx)
{
    return strchr(order, 't') != NULL;
}

static void test_turn_is_events_then_timers_then_hooks_in_their_order(void **state)
{
    loop_at_turn_end(loop, note_hook, "1");
    loop_at_turn_end(loop, note_hook, "2");
    struct watch w = {.io = {.fd = -1, .on_event = note_event}};
    struct timer timer = {.on_fire = note_timer};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(loop_add_level(loop, &w.io, ends[0], LOOP_READ), WEIR_OK);
    timer_set(loop, &timer, 0);
    turns_until(has_timer_noted, NULL);
    assert_string_equal(order, "et12");
    uint64_t before = loop_turns(loop);
    turns_run(3);
    assert_int_equal(loop_turns(loop), before + 3);
    loop_close(&w.io);
    close(ends[1]);
}

/* ---- timers ---- */

struct alarm {
    struct timer timer; /* first */
    uint64_t earliest_ns;
    size_t fired;
    uint64_t again_ns;
};

static void on_alarm(struct timer *timer)
{
    struct alarm *a = (struct alarm *)timer;
    assert_true(loop_now_ns(loop) >= a->earliest_ns);
    assert_false(timer_is_set(timer));
    if (++a->fired < 3 && a->again_ns) {
        a->earliest_ns = loop_now_ns(loop) + a->again_ns;
        timer_set(loop, timer, a->again_ns);
    }
}

static void set_alarm(struct alarm *a, uint64_t delay_ns)
{
    a->timer.on_fire = on_alarm;
    a->earliest_ns = loop_now_ns(loop) + delay_ns;
    timer_set(loop, &a->timer, delay_ns);
}

static bool has_fired_thrice(void *ctx)
{
    return ((struct alarm *)ctx)->fired == 3;
}

static void test_timers_fire_once_never_early_and_not_when_cancelled(void **state)
{
    struct alarm thrice = {.again_ns = 3 * NS_PER_MS}, once = {0}, cancelled = {0}, moved = {0},
                 far = {0};
    set_alarm(&once, 0);
    set_alarm(&cancelled, NS_PER_MS);
    set_alarm(&moved, NS_PER_MS);
    set_alarm(&moved, 3600 * NS_PER_S); /* arming again replaces */
    set_alarm(&far, UINT64_MAX);        /* capped, no overflow into the past */
    set_alarm(&thrice, 5 * NS_PER_MS);
    timer_cancel(loop, &cancelled.timer);
    timer_cancel(loop, &cancelled.timer);
    turns_until(has_fired_thrice, &thrice);
    assert_int_equal(once.fired, 1);
    assert_int_equal(cancelled.fired + moved.fired + far.fired, 0);
    assert_true(timer_is_set(&moved.timer));
    assert_true(timer_is_set(&far.timer));
    timer_cancel(loop, &moved.timer);
    timer_cancel(loop, &far.timer);
}

/* ---- the mailbox ---- */

enum { LETTERS = 5000 };

struct letters {
    pthread_t reader; /* the loop's thread */
    size_t read;
    struct letter {
        struct letters *all;
        size_t number;
    } each[LETTERS];
};

static void read_letter(void *ctx)
{
    struct letter *letter = ctx;
    assert_true(pthread_equal(pthread_self(), letter->all->reader));
    assert_int_equal(letter->number, letter->all->read);
    letter->all->read++;
}

static void *post_letters(void *ctx)
{
    struct letters *all = ctx;
    for (size_t i = 0; i < LETTERS; i++) {
        all->each[i] = (struct letter){all, i};
        loop_post(loop, read_letter, &all->each[i]);
    }
    return NULL;
}

static bool are_all_read(void *ctx)
{
    return ((struct letters *)ctx)->read == LETTERS;
}

static void test_messages_of_another_thread_run_here_in_order(void **state)
{
    static struct letters letters;
    letters = (struct letters){.reader = pthread_self()};
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, post_letters, &letters), 0);
    turns_until(are_all_read, &letters);
    pthread_join(writer, NULL);
}

static void post_again(void *ctx)
{
    size_t *left = ctx;
    if (--*left) {
        loop_post(loop, post_again, ctx);
    }
}

static void test_message_that_posts_itself_does_not_hold_the_turn(void **state)
{
    size_t left = 10;
    loop_post(loop, post_again, &left);
    turns_run(4);
    assert_int_equal(left, 6); /* one a turn */
    turns_run(6);
    assert_int_equal(left, 0);
}

static void count_message(void *ctx)
{
    ++*(size_t *)ctx;
}

static void test_message_to_a_stopped_loop_is_run_when_it_is_freed(void **state)
{
    struct error err;
    struct loop *stopped = loop_new(&err);
    size_t count = 0;
    loop_post(stopped, count_message, &count);
    loop_post(stopped, count_message, &count);
    assert_int_equal(count, 0);
    loop_free(stopped);
    assert_int_equal(count, 2);
}

static void test_rest_comes_between_this_turn_and_the_next(void **state)
{
    turns_run(1);
    uint64_t before_ns = loop_now_ns(loop);
    loop_rest(loop, NS_PER_MS);
    turns_run(2); /* the rest is at the end of the first of them */
    assert_true(loop_now_ns(loop) - before_ns >= NS_PER_MS);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_each_arrival_is_told_once_whether_it_is_read_or_not),
        CASE(test_room_is_told_when_there_is_some_again),
        CASE(test_half_close_is_a_hangup_and_a_close_is_also_an_error),
        CASE(test_removed_descriptor_is_silent_in_the_same_turn_already),
        CASE(test_level_triggered_descriptor_is_told_of_until_it_is_changed),
        CASE(test_adding_what_cannot_be_watched_fails),
        CASE(test_turn_is_events_then_timers_then_hooks_in_their_order),
        CASE(test_timers_fire_once_never_early_and_not_when_cancelled),
        CASE(test_messages_of_another_thread_run_here_in_order),
        CASE(test_message_that_posts_itself_does_not_hold_the_turn),
        CASE(test_message_to_a_stopped_loop_is_run_when_it_is_freed),
        CASE(test_rest_comes_between_this_turn_and_the_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
