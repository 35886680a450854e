/*
 * fetch.h - GET requests of the control plane (health, scrapes, discovery), through libcurl, driven
 * by a loop: nothing blocks. The only file that includes curl. Never used on the request path.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"

struct loop;
struct fetcher;
struct fetch;

struct fetch_answer {
    int status;            /* 0: no HTTP answer came; `text` says why */
    struct slice body;     /* borrowed for the callback */
    struct slice server;   /* the Server header, or empty */
    const char *text;      /* curl's words when status is 0 */
};

typedef void (*fetch_fn)(void *ctx, const struct fetch_answer *answer);

struct fetcher *fetcher_new(struct loop *loop, struct error *err);
void fetcher_free(struct fetcher *f); /* running fetches end without a callback */

/*
 * `url` absolute, http only for now; `authorization` may be NULL. Bodies over max_body end as
 * status 0. The callback comes exactly once, from the loop, unless fetch_cancel() came first.
 */
struct fetch *fetch_get(struct fetcher *f, const char *url, const char *authorization,
                        uint64_t timeout_ns, size_t max_body, fetch_fn fn, void *ctx);
void fetch_cancel(struct fetch *fetch);
