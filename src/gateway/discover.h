/*
 * discover.h - what `weir serve --backends URL,URL` stands on: asks each URL what engine it is,
 * which models it has and how long their context is.
 *
 * The control thread's. An engine that is still starting is asked again until the time is over;
 * then the callback comes, with what is known and a reason for each URL that stayed silent. At most
 * 64 are asked at once.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "engines/engine.h"

struct discovery;
struct fetcher;
struct loop;
struct resolver;

struct discovered {
    const char *url;             /* as given */
    const struct engine *engine; /* NULL: not found out */
    struct engine_facts facts;   /* version, models (at least one), context; when engine is set */
    char why[240];               /* when it is not: in words, with what to do */
};

typedef void (*discover_fn)(void *ctx, const struct discovered *results, size_t count);

/*
 * `urls` are kept until the end. Results come in the same order, once, from the loop, at the latest
 * after `wait_ns` plus some `timeout_ns` (one per question, and per 64 URLs that are silent); they
 * are borrowed for the callback, which ends the discovery. `wait_ns` 0: everybody is asked once.
 */
struct discovery *discover_start(struct loop *loop, struct fetcher *fetcher,
                                 struct resolver *resolver, const char *const *urls, size_t count,
                                 uint64_t timeout_ns, uint64_t wait_ns, discover_fn fn, void *ctx);

/* No callback will come. Not to be called in the callback. */
void discover_cancel(struct discovery *d);
