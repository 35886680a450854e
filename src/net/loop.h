/*
 * loop.h - an event loop of one thread: descriptors, timers, and a hook at the end of each turn.
 *
 * Descriptors are registered once, edge-triggered, for reading, writing and the peer's FIN; nobody
 * re-arms them, so an idle request costs no epoll_ctl. Whoever reads or writes short of what was
 * asked may wait for the next edge. Completion-like callers can be moved to io_uring later.
 *
 * Lifetime: a `struct loop_fd` or `struct timer` is embedded in its owner. After loop_remove() no
 * callback comes any more, not even for an event already taken from the kernel in this turn, but
 * the memory must stay until the turn ends: put the owner on a dead list and free it in the end
 * hook.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct loop;

enum {
    LOOP_READ = 1,   /* bytes, or the end of them, can be read */
    LOOP_WRITE = 2,  /* there is room again */
    LOOP_HANGUP = 4, /* the peer sent FIN or RST, or the socket failed; may come with LOOP_READ */
    LOOP_ERROR = 8   /* RST or a socket error: nothing can be sent any more */
};

struct loop_fd {
    int fd; /* -1: not registered */
    void (*on_event)(struct loop_fd *self, unsigned events);
};

struct timer {
    struct timer *next, *prev; /* NULL: not armed */
    uint64_t deadline_ns;
    void (*on_fire)(struct timer *self);
};

struct loop *loop_new(struct error *err);
void loop_free(struct loop *loop);

/* Runs until loop_stop(), which any callback of the loop's own thread may call. */
void loop_run(struct loop *loop);
void loop_stop(struct loop *loop);

/*
 * At the end of this turn the loop sleeps for so long before it looks at its descriptors again:
 * what arrives meanwhile is found together. At most 1 ms; once.
 */
void loop_rest(struct loop *loop, uint64_t ns);

/* The time at the start of this turn; the only clock a callback needs. */
uint64_t loop_now_ns(const struct loop *loop);

WEIR_MUST_USE enum weir_err loop_add(struct loop *loop, struct loop_fd *fd, int descriptor);
void loop_remove(struct loop *loop, struct loop_fd *fd); /* does not close the descriptor */
void loop_close(struct loop_fd *fd);                     /* closes it: the kernel forgets it too */

/* For descriptors that a library watches level-triggered; `events` of LOOP_READ | LOOP_WRITE. */
WEIR_MUST_USE enum weir_err loop_add_level(struct loop *loop, struct loop_fd *fd, int descriptor,
                                           unsigned events);
WEIR_MUST_USE enum weir_err loop_change_level(struct loop *loop, struct loop_fd *fd,
                                              unsigned events);

/* Arms or re-arms. Fires once, never early, at most 4 ms + one turn late. Delay is capped at 7
 * days. */
void timer_set(struct loop *loop, struct timer *timer, uint64_t delay_ns);
void timer_cancel(struct loop *loop, struct timer *timer);
static inline bool timer_is_set(const struct timer *timer)
{
    return timer->next != NULL;
}

/* Called at the end of each turn, in order of registration: flush, then free the dead. At most 4.
 */
void loop_at_turn_end(struct loop *loop, void (*fn)(void *ctx), void *ctx);

/*
 * From any thread: runs fn(ctx) on the loop's thread, in order. This is the mailbox; a message sent
 * to a loop that has stopped is run by loop_free().
 */
void loop_post(struct loop *loop, void (*fn)(void *ctx), void *ctx);

/* Async-signal-safe wake-up, for signal handlers that have set a flag. */
void loop_wake(struct loop *loop);
uint64_t loop_turns(const struct loop *loop);
