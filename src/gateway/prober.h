/*
 * prober.h - keeps the live part of each replica true: is it there, what does it say of itself,
 * where does its name point to.
 *
 * The control thread's. For every replica of the current fleet, once per interval: resolve its name
 * if its time is over, ask its health path, and when it is ready its scrape paths; at the first
 * READY and after a restart also version, models and limits. Rounds are spread over the interval
 * with jitter, and at most 64 run at once, half of them at replicas that are known not to be ready:
 * however many hosts have fallen silent, the others are still looked at.
 *
 * Nothing here is shared with workers but the atomics inside struct replica.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/endpoint.h"
#include "health/health.h"
#include "model/replica.h"

struct fetcher;
struct fleet;
struct loop;
struct prober;
struct resolver;

struct prober_rules {
    uint64_t interval_ns; /* between two rounds of one replica */
    uint64_t timeout_ns;  /* of each question */
    struct health_rules health;
};

/* All optional; called from the loop. They must not call the prober, but snapshots. */
struct prober_hooks {
    /* The state has changed, and was logged. `why` is borrowed for the call. */
    void (*on_state)(void *ctx, struct replica *r, enum replica_state from, enum replica_state to,
                     const char *why);
    /* The name no longer points to `was`; the replica's endpoint is the new one already. */
    void (*on_address)(void *ctx, struct replica *r, const struct endpoint *was);
    void *ctx;
};

/* Loop, fetcher and resolver are kept until prober_free(). */
struct prober *prober_new(struct loop *loop, struct fetcher *fetcher, struct resolver *resolver,
                          const struct prober_rules *rules, const struct prober_hooks *hooks);
void prober_free(struct prober *p);

/* Counts from each replica's next round on. */
void prober_set_rules(struct prober *p, const struct prober_rules *rules);

/*
 * The replicas to look after from now on: those of `fleet`, which is borrowed for the call. What is
 * known of replicas that stay (the same struct) stays; new ones are asked at once.
 */
void prober_set_fleet(struct prober *p, const struct fleet *fleet);

/* Asks now, and often for a while: an engine process was started, or an operator wants to know. */
void prober_check_soon(struct prober *p, const struct replica *r);

/* What is known of one replica, for people. Strings are borrowed until the loop turns. */
struct prober_row {
    const struct replica *replica;
    enum replica_state state;
    const char *why;                /* the last health answer in words */
    const char *version;            /* "": unknown */
    const char *models;             /* ids it lists, with ", " between; "": unknown */
    char address[128];              /* "": unresolved */
    uint64_t checked_ns;            /* end of the last health check; 0: never */
    uint64_t took_ns;               /* that check's time */
    uint64_t changed_ns;            /* last change of state; 0: never */
    uint64_t checks, failed_checks; /* ever */
};

size_t prober_count(const struct prober *p);
bool prober_snapshot(const struct prober *p, size_t index, struct prober_row *row);
bool prober_find(const struct prober *p, const struct replica *r, struct prober_row *row);
