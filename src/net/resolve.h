/*
 * resolve.h - names to addresses through c-ares, driven by a loop: nothing blocks. The only file
 * that includes c-ares. Numeric hosts and Unix paths never get here: see address_from_host().
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/endpoint.h"
#include "base/error.h"
#include "base/slice.h"

struct loop;
struct resolver;
struct resolve;

enum { RESOLVE_MAX_ENDPOINTS = 32 }; /* more addresses of one name are left out */

struct resolve_answer {
    const struct endpoint *endpoints; /* borrowed for the callback; best first */
    size_t count;                     /* 0: it failed, and `text` says why */
    uint64_t ttl_ns; /* how long to believe it: the smallest TTL, within 1 s and 5 min */
    const char *text;
};

typedef void (*resolve_fn)(void *ctx, const struct resolve_answer *answer);

/* Reads resolv.conf and the hosts file of the system, once. */
struct resolver *resolver_new(struct loop *loop, struct error *err);
void resolver_free(
    struct resolver *r); /* running questions end without a callback; loop not running */

/* The callback comes exactly once, from the loop, unless resolve_cancel() came first. */
struct resolve *resolve_start(struct resolver *r, struct slice host, uint16_t port, resolve_fn fn,
                              void *ctx);

/* No callback will come. In the question's own callback this does nothing: it is over. */
void resolve_cancel(struct resolve *resolve);
