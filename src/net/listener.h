/*
 * listener.h - listening sockets. Each worker has one of its own per address (SO_REUSEPORT), so the
 * kernel spreads connections and nobody contends for an accept queue; a Unix socket is shared.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/endpoint.h"
#include "base/error.h"
#include "net/loop.h"

/*
 * Opens `count` sockets for one address into `out`. A port that another process uses is WEIR_EBUSY,
 * although SO_REUSEPORT would let us share it silently. `err` names the address and the remedy.
 */
WEIR_MUST_USE enum weir_err listener_open(const struct endpoint *address, size_t count, int *out,
                                          struct error *err);

/* The address that a socket really has, after "port 0". */
void listener_address(int socket, struct endpoint *out);

struct listener {
    struct loop_fd io;  /* first */
    struct timer retry; /* no descriptors: try again in a while */
    struct loop *loop;
    void (*on_accept)(void *ctx, int descriptor, const struct endpoint *peer); /* takes it */
    void *ctx;
};

/* Starts accepting; takes the socket. */
WEIR_MUST_USE enum weir_err listener_start(struct listener *l, struct loop *loop, int socket,
                                           void (*on_accept)(void *, int, const struct endpoint *),
                                           void *ctx);
void listener_stop(struct listener *l);

/* Removes the file of a Unix socket that listener_open() made; other addresses leave nothing. */
void listener_cleanup(const struct endpoint *address);
