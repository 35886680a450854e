/*
 * interview.h - asks one engine, one question at a time: what it is, how it is, what it says.
 *
 * The control thread's; embedded in its owner. One of the three calls may be running at a time;
 * `done` comes exactly once for each, from the loop, unless interview_stop() came first. In `done`
 * the next call may be made.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/endpoint.h"
#include "engines/engine.h"
#include "model/replica.h"
#include "net/fetch.h"

struct interview {
    /* Set by the owner before the first call; strings are kept until the last one is over. */
    struct fetcher *fetcher;
    const char *authority;     /* for the Host header */
    const char *path_prefix;   /* "" or "/prefix" */
    const char *authorization; /* or NULL */
    uint64_t timeout_ns;       /* of each question */
    struct endpoint endpoint;  /* may be changed between calls */
    void (*done)(struct interview *self);

    /* Results, valid in `done` and until the next call. */
    enum replica_state seen;     /* of detect and health: READY, LOADING, DRAINING or DOWN */
    bool refused;                /* of detect and health: DOWN, because nobody listens there */
    const struct engine *engine; /* of detect; NULL: it could not be told, see `seen` and `why` */
    size_t answered;             /* of ask: how many questions got a 200 */
    char why[160];               /* of detect and health: in words, also when all is well */

    /* Its own. */
    struct fetch *fetch; /* running, or NULL */
    size_t at;
    const struct engine_question *questions;
    struct engine_facts *facts;
    bool lists_models;
};

/* What engine is it? Fills seen, engine and why. */
void interview_detect(struct interview *iv);

/* Its health path, read as that engine means it. Fills seen and why. */
void interview_health(struct interview *iv, const struct engine *engine);

/*
 * Questions of an engine's row (once or scrape), in order; `facts` is kept until `done`. A question
 * that is not answered is left out. Fills answered.
 */
void interview_ask(struct interview *iv, const struct engine_question *questions,
                   struct engine_facts *facts);

/* No `done` will come. Allowed at any time. */
void interview_stop(struct interview *iv);
