/*
 * launches.h - the engines that this weir runs itself: which there should be, on which port, and
 * what becomes of them when the configuration changes. Between config (what is wanted), launch/
 * (processes) and the fleet (replicas).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "config/config.h"
#include "launch/launch.h"
#include "model/fleet.h"

struct loop;
struct launches;

struct launches_hooks {
    /* A process came or went: its replica should be looked at soon. */
    void (*on_change)(void *ctx, const char *url, bool is_running);
    void *ctx;
};

/* Forks the guard: before threads and listeners. */
WEIR_MUST_USE enum weir_err launches_new(struct launches **out, struct error *err);

/* From then on the loop drives it. */
WEIR_MUST_USE enum weir_err launches_attach(struct launches *l, struct loop *loop,
                                            const struct launches_hooks *hooks, struct error *err);
void launches_free(struct launches *l); /* ends all engines and waits for them */

/* For fleet_build(): the URL of one launched engine, reserved at the first call. */
bool launches_url(void *launches, const struct config_model *model, const struct config_pool *pool,
                  size_t index, char *out, size_t size);

/*
 * Starts what `config` wants and does not run yet, and retires what it does not want any more: an
 * engine that is not wanted is stopped once it has no request left, or after its drain timeout.
 * `fleet` is the one that was built from `config`.
 */
void launches_apply(struct launches *l, const struct config *config, const struct fleet *fleet);

/* The prober saw `url` become ready. */
void launches_ready(struct launches *l, const char *url);

/* One row for people; false at the end. */
struct launch_row {
    const char *url, *model, *pool;
    enum launch_state state;
    int pid;
    uint32_t restarts;
};
bool launches_row(const struct launches *l, size_t index, struct launch_row *row);
