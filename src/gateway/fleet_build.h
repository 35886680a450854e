/*
 * fleet_build.h - from a configuration to a fleet. Replicas that were there before (same model,
 * pool and URL) are the same structs in the new fleet, with their load, health and history.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "config/config.h"
#include "model/fleet.h"

struct traffic_registry; /* observe/traffic.h */

/* Numbers per model name that no reload may lose: the usual length of its answers. */
struct answer_book;
struct answer_book *answer_book_new(void);
void answer_book_free(struct answer_book *book); /* after the last fleet is dropped */

struct fleet_sources {
    const struct config *config;  /* borrowed for the call, as all here */
    const struct fleet *previous; /* NULL: none */
    struct traffic_registry *traffic;
    struct answer_book *answers;
    uint64_t generation;
    uint64_t wall_s;
    /* URL of a launched engine: http://127.0.0.1:PORT into `out`. False: none can be had. */
    bool (*launched_url)(void *ctx, const struct config_model *model,
                         const struct config_pool *pool, size_t index, char *out, size_t size);
    void *ctx;
};

/* One reference, or NULL with `err`. */
struct fleet *fleet_build(const struct fleet_sources *sources, struct error *err);
