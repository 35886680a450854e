#include "net/loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/heap.h"
#include "net/timer_wheel.h"

enum {
    EVENTS_PER_TURN = 256,
    MAX_END_HOOKS = 4,
};

#define MAX_TIMER_NS (7 * 86400 * NS_PER_S)
#define MAX_WAIT_NS  (1 * NS_PER_S)

struct message {
    struct message *next;
    void (*fn)(void *ctx);
    void *ctx;
};

struct end_hook {
    void (*fn)(void *ctx);
    void *ctx;
};

struct loop {
    int epoll_fd;
    struct loop_fd wakeup; /* an eventfd */
    bool is_stopped;
    uint64_t now_ns;
    uint64_t rest_ns;       /* before the next turn */
    _Atomic uint64_t turns; /* the loop writes; anybody reads */
    struct timer_wheel *timers;
    struct end_hook hooks[MAX_END_HOOKS];
    size_t hook_count;

    pthread_mutex_t mail_lock; /* guards the queue; any thread */
    struct message *mail_first;
    struct message **mail_last;
};

static struct message *mail_take(struct loop *loop)
{
    pthread_mutex_lock(&loop->mail_lock);
    struct message *first = loop->mail_first;
    loop->mail_first = NULL;
    loop->mail_last = &loop->mail_first;
    pthread_mutex_unlock(&loop->mail_lock);
    return first;
}

static void mail_run(struct loop *loop)
{
    struct message *message = mail_take(loop);
    while (message) {
        struct message *next = message->next;
        message->fn(message->ctx);
        heap_free(message);
        message = next;
    }
}

static struct loop *loop_of_wakeup(struct loop_fd *fd)
{
    return (struct loop *)((char *)fd - offsetof(struct loop, wakeup));
}

static void on_wakeup(struct loop_fd *fd, unsigned events)
{
    uint64_t count;
    ssize_t n = read(fd->fd, &count, sizeof count); /* empties it; the value means nothing */
    (void)n;
    mail_run(loop_of_wakeup(fd));
}

struct loop *loop_new(struct error *err)
{
    struct loop *loop = heap_zalloc(sizeof *loop);
    pthread_mutex_init(&loop->mail_lock, NULL);
    loop->mail_last = &loop->mail_first;
    loop->now_ns = clock_now_ns();
    loop->timers = timer_wheel_new(loop->now_ns);
    loop->wakeup.fd = -1;
    loop->wakeup.on_event = on_wakeup;
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->epoll_fd < 0 || event_fd < 0 ||
        loop_add_level(loop, &loop->wakeup, event_fd, LOOP_READ) != WEIR_OK) {
        error_set_errno(err, errno, "cannot make an event loop");
        if (event_fd >= 0) {
            close(event_fd);
        }
        loop->wakeup.fd = -1;
        loop_free(loop);
        return NULL;
    }
    return loop;
}

void loop_free(struct loop *loop)
{
    mail_run(loop);
    if (loop->wakeup.fd >= 0) {
        close(loop->wakeup.fd);
    }
    if (loop->epoll_fd >= 0) {
        close(loop->epoll_fd);
    }
    pthread_mutex_destroy(&loop->mail_lock);
    timer_wheel_free(loop->timers);
    heap_free(loop);
}

static unsigned events_from_epoll(uint32_t bits)
{
    unsigned events = 0;
    if (bits & EPOLLIN) {
        events |= LOOP_READ;
    }
    if (bits & EPOLLOUT) {
        events |= LOOP_WRITE;
    }
    if (bits & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
        events |= LOOP_HANGUP;
    }
    if (bits & (EPOLLHUP | EPOLLERR)) {
        events |= LOOP_ERROR;
    }
    return events;
}

static void run_turn(struct loop *loop)
{
    struct epoll_event ready[EVENTS_PER_TURN];
    uint64_t wait_ns = timer_wheel_wait(loop->timers, loop->now_ns, MAX_WAIT_NS);
    int wait_ms = (int)((wait_ns + NS_PER_MS - 1) / NS_PER_MS);
    int count = epoll_wait(loop->epoll_fd, ready, EVENTS_PER_TURN, wait_ms);
    loop->now_ns = clock_now_ns();
    atomic_store_explicit(&loop->turns, loop->turns + 1, memory_order_relaxed);
    for (int i = 0; i < count; i++) {
        struct loop_fd *fd = ready[i].data.ptr;
        if (fd->fd >= 0) { /* else removed earlier in this turn */
            fd->on_event(fd, events_from_epoll(ready[i].events));
        }
    }
    timer_wheel_advance(loop->timers, loop->now_ns);
    for (size_t i = 0; i < loop->hook_count; i++) {
        loop->hooks[i].fn(loop->hooks[i].ctx);
    }
    if (loop->rest_ns) {
        nanosleep(&(struct timespec){.tv_nsec = (long)loop->rest_ns}, NULL);
        loop->rest_ns = 0;
    }
}

void loop_rest(struct loop *loop, uint64_t ns)
{
    loop->rest_ns = ns < NS_PER_MS ? ns : NS_PER_MS;
}

void loop_run(struct loop *loop)
{
    loop->is_stopped = false;
    prctl(PR_SET_TIMERSLACK, 1000); /* ns; or a rest of 50 us would last 100 */
    while (!loop->is_stopped) {
        run_turn(loop);
    }
}

void loop_stop(struct loop *loop)
{
    loop->is_stopped = true;
}

uint64_t loop_now_ns(const struct loop *loop)
{
    return loop->now_ns;
}

uint64_t loop_turns(const struct loop *loop)
{
    return atomic_load_explicit(&loop->turns, memory_order_relaxed);
}

static enum weir_err watch(struct loop *loop, int op, struct loop_fd *fd, int descriptor,
                           uint32_t bits)
{
    struct epoll_event event = {.events = bits, .data.ptr = fd};
    if (epoll_ctl(loop->epoll_fd, op, descriptor, &event) != 0) {
        return WEIR_EIO;
    }
    fd->fd = descriptor;
    return WEIR_OK;
}

enum weir_err loop_add(struct loop *loop, struct loop_fd *fd, int descriptor)
{
    return watch(loop, EPOLL_CTL_ADD, fd, descriptor, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
}

static uint32_t level_bits(unsigned events)
{
    return (events & LOOP_READ ? EPOLLIN : 0u) | (events & LOOP_WRITE ? EPOLLOUT : 0u);
}

enum weir_err loop_add_level(struct loop *loop, struct loop_fd *fd, int descriptor, unsigned events)
{
    return watch(loop, EPOLL_CTL_ADD, fd, descriptor, level_bits(events));
}

enum weir_err loop_change_level(struct loop *loop, struct loop_fd *fd, unsigned events)
{
    return watch(loop, EPOLL_CTL_MOD, fd, fd->fd, level_bits(events));
}

void loop_remove(struct loop *loop, struct loop_fd *fd)
{
    if (fd->fd >= 0) {
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, fd->fd, NULL);
        fd->fd = -1;
    }
}

void loop_close(struct loop_fd *fd)
{
    if (fd->fd >= 0) {
        close(fd->fd);
        fd->fd = -1;
    }
}

void timer_set(struct loop *loop, struct timer *timer, uint64_t delay_ns)
{
    timer_cancel(loop, timer);
    if (delay_ns > MAX_TIMER_NS) {
        delay_ns = MAX_TIMER_NS;
    }
    timer_wheel_add(loop->timers, timer, loop->now_ns + delay_ns);
}

void timer_cancel(struct loop *loop, struct timer *timer)
{
    if (timer_is_set(timer)) {
        timer_wheel_remove(loop->timers, timer);
    }
}

void loop_at_turn_end(struct loop *loop, void (*fn)(void *ctx), void *ctx)
{
    if (loop->hook_count == MAX_END_HOOKS) {
        WEIR_BUG("more than %d hooks at the end of a turn", MAX_END_HOOKS);
    }
    loop->hooks[loop->hook_count++] = (struct end_hook){fn, ctx};
}

void loop_post(struct loop *loop, void (*fn)(void *ctx), void *ctx)
{
    struct message *message = heap_alloc(sizeof *message);
    *message = (struct message){NULL, fn, ctx};
    pthread_mutex_lock(&loop->mail_lock);
    *loop->mail_last = message;
    loop->mail_last = &message->next;
    pthread_mutex_unlock(&loop->mail_lock);
    loop_wake(loop);
}

void loop_wake(struct loop *loop)
{
    uint64_t one = 1;
    ssize_t n = write(loop->wakeup.fd, &one, sizeof one); /* full means: awake anyway */
    (void)n;
}
