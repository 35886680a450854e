/*
 * fetch.h - GET requests of the control plane (health, scrapes, discovery), through libcurl, driven
 * by a loop: nothing blocks. The only file that includes curl. Never used on the request path.
 *
 * Each fetch opens a connection of its own: a health check has to try the listener too, and ten
 * thousand replicas must not hold a kept-alive connection each. Redirects are not followed, and
 * proxies named in the environment are not used.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"

struct endpoint; /* base/endpoint.h */
struct loop;
struct fetcher;
struct fetch;

struct fetch_answer {
    int status;          /* 0: no HTTP answer came; `text` says why */
    struct slice body;   /* borrowed for the callback */
    struct slice server; /* the Server header, or empty; borrowed for the callback */
    const char *text;    /* why, when status is 0; borrowed for the callback */
    bool refused;        /* nobody listens there: the connection was refused */
};

typedef void (*fetch_fn)(void *ctx, const struct fetch_answer *answer);

/* All is copied. */
struct fetch_request {
    const char *url;                 /* absolute, http only */
    const struct endpoint *endpoint; /* connect there (TCP or Unix), whatever host the URL names;
                                        NULL: to the URL's host, which should be numeric */
    const char *authorization;       /* value of the header, or NULL */
    uint64_t timeout_ns;             /* from the start to the last byte */
    size_t max_body;                 /* a longer body ends as status 0 */
};

struct fetcher *fetcher_new(struct loop *loop, struct error *err);
void fetcher_free(struct fetcher *f); /* running fetches end without a callback; loop not running */

/* The callback comes exactly once, from the loop, unless fetch_cancel() came first. */
struct fetch *fetch_start(struct fetcher *f, const struct fetch_request *request, fetch_fn fn,
                          void *ctx);

/* The same for those who have a URL with a numeric host. */
struct fetch *fetch_get(struct fetcher *f, const char *url, const char *authorization,
                        uint64_t timeout_ns, size_t max_body, fetch_fn fn, void *ctx);

/* No callback will come. In the fetch's own callback this does nothing: it is over. */
void fetch_cancel(struct fetch *fetch);
