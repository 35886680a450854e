/*
 * replica.h - one engine endpoint, and what weir knows about it from one moment to the next.
 *
 * A replica is on the heap and reference-counted: snapshots hold one reference each, and so does
 * every request on it, so it outlives the reload that removed it. Identity never changes after
 * birth. The live part is relaxed atomics; the comment beside each says who writes it. Readers
 * may see fields of different moments: every decision on them must tolerate that.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/endpoint.h"
#include "base/slice.h"

struct engine; /* engines/engine.h */

/* Whether traffic may be sent, as the active checks and the launcher see it. */
enum replica_state {
    REPLICA_UNKNOWN,  /* not asked yet; used only when nothing better exists */
    REPLICA_READY,    /* answers its health check */
    REPLICA_LOADING,  /* process is up, model is not */
    REPLICA_DRAINING, /* finishes what it has, takes nothing new */
    REPLICA_DOWN,     /* failed its checks */
    REPLICA_STATES
};

/*
 * Load that weir itself caused: taken when a request is sent, given back by the same request
 * through struct replica_claim, on every path. Never reset, never negative.
 */
struct replica_load {
    _Atomic int64_t requests;      /* in flight from this process; all workers */
    _Atomic int64_t prompt_tokens; /* of those without a first token yet (estimated) */
    _Atomic int64_t output_tokens; /* still expected of those in flight (estimated) */
};

/*
 * Passive health, see health/health.h; every worker writes, by compare-and-swap where it counts.
 * What a routing decision reads stands first, next to the load: one cache line.
 */
struct replica_health {
    _Atomic uint64_t ejected_until_ns; /* 0: not ejected */
    _Atomic uint64_t returned_ns;   /* when it last came back, ramp included; 0: never was away */
    _Atomic uint64_t busy_until_ns; /* the engine said 429/503: less attractive until then */
    _Atomic uint64_t trial_ns;  /* when the one trial request after an ejection began; 0: none */
    _Atomic uint32_t failures;  /* in a row */
    _Atomic uint32_t ejections; /* in a row; each doubles the time out */
};

/* What the engine says of itself; the control thread writes, at each scrape. */
struct replica_report {
    _Atomic uint64_t taken_ns;       /* when; 0: never. Age is confidence */
    _Atomic uint32_t running;        /* requests in the batch, all clients of the engine */
    _Atomic uint32_t waiting;        /* requests in its queue */
    _Atomic uint32_t kv_used_ppm;    /* KV cache in use, parts per million */
    _Atomic uint32_t slots;          /* most requests at once; 0: unknown */
    _Atomic uint64_t kv_tokens;      /* size of the KV cache in tokens; 0: unknown */
    _Atomic uint64_t prefix_queries; /* tokens looked up in the prefix cache, ever */
    _Atomic uint64_t prefix_hits;    /* tokens found there, ever */
    _Atomic uint64_t preemptions;    /* ever */
    _Atomic uint64_t refusals;       /* requests that the engine itself turned away, ever */
};

struct replica {
    /* What a routing decision reads, on two cache lines (the replica starts on one). */
    uint32_t id;                   /* unique in this process, never used again */
    _Atomic uint32_t state;        /* enum replica_state; control thread writes */
    _Atomic uint64_t speed_mtok_s; /* see replica_learn_speed(); 0: unknown; workers write */
    struct replica_load load;
    struct replica_health health;
    struct replica_report report;

    /* Identity: immutable, but for `engine`. Strings are owned by the replica. */
    uint64_t ring_hash;      /* of the name; the same in every process: where it stands on a ring */
    const char *name;        /* what people read: the URL, without credentials */
    const char *host;        /* for the Host header: "host:port", brackets kept */
    const char *path_prefix; /* what stands between the authority and "/v1/…"; often "" */
    const char *authorization; /* value of the header towards the engine, or NULL. Secret */
    size_t authorization_len;
    bool detect_engine; /* `engine` is a guess until the control thread has asked */
    _Atomic(const struct engine *) engine; /* never NULL; control thread writes, if detect_engine */
    void *block; /* the memory that this struct and its strings stand in */

    _Atomic uint32_t refs;
    _Atomic bool refuses;     /* its last check found nobody listening; control thread writes */
    _Atomic bool wants_drain; /* weir itself is taking it away: never READY again; control thread */
    _Atomic uint32_t max_context_tokens; /* 0: unknown; control thread writes */

    /*
     * Where to connect. The control thread replaces it when the name resolves anew; readers copy
     * under the sequence number (odd: being written). See replica_endpoint_get().
     */
    _Atomic uint32_t address_seq;
    _Atomic uint64_t address_words[17]; /* a struct endpoint, as words */
};

/* The identity strings are copied. Starts with one reference and state REPLICA_UNKNOWN. */
struct replica_identity {
    struct slice name, host, path_prefix;
    struct slice authorization;  /* empty: none */
    const struct engine *engine; /* not NULL; with `detect_engine` the one to assume meanwhile */
    bool detect_engine;
};
struct replica *replica_new(const struct replica_identity *identity);
struct replica *replica_hold(struct replica *r);
void replica_drop(struct replica *r);

/* Any thread may read; one thread writes. False while unresolved. */
bool replica_endpoint_get(const struct replica *r, struct endpoint *out);
void replica_endpoint_set(struct replica *r, const struct endpoint *endpoint);

const char *replica_state_name(enum replica_state state);

static inline enum replica_state replica_state(const struct replica *r)
{
    return (enum replica_state)atomic_load_explicit(&r->state, memory_order_relaxed);
}

/*
 * Output speed of one request as weir sees it, in milli-tokens per second: a moving average over
 * answers of all workers. Answers too short to measure and impossible figures teach nothing.
 * `duration_ns` is from the first content to the last.
 */
void replica_learn_speed(struct replica *r, uint32_t tokens_out, uint64_t duration_ns);

/* The learned speed in tokens per second, or a middling guess; never 0. */
static inline double replica_speed(const struct replica *r)
{
    uint64_t known = atomic_load_explicit(&r->speed_mtok_s, memory_order_relaxed);
    return known ? (double)known * 1e-3 : 50.0;
}

/* Passive health at this moment, as routing and health/ both read it. */
enum replica_ejection {
    REPLICA_IN,       /* not ejected */
    REPLICA_OUT,      /* ejected, and its time is not over, or its trial is running */
    REPLICA_TRIAL_DUE /* its time is over: one request may try it */
};
enum replica_ejection replica_ejection(const struct replica *r, uint64_t now_ns);

/* A trial that says nothing for so long (a long answer, perhaps) no longer keeps the next one away.
 */
#define REPLICA_TRIAL_NS 30000000000ull

/*
 * What one request has taken from a replica's load. replica_claim_take() adds, and every later
 * call only ever gives back what is still held, so a claim can be released twice and on any path.
 * A zeroed claim holds nothing. One thread owns a claim.
 */
struct replica_claim {
    struct replica *replica; /* a reference; NULL: nothing held */
    uint32_t prompt_tokens;
    uint32_t output_tokens;
};
/* Releases what `claim` held before, if anything. */
void replica_claim_take(struct replica_claim *claim, struct replica *r, uint32_t prompt_tokens,
                        uint32_t output_tokens);
void replica_claim_first_token(struct replica_claim *claim);               /* the prompt is done */
void replica_claim_progress(struct replica_claim *claim, uint32_t tokens); /* tokens came out */
void replica_claim_release(struct replica_claim *claim);

static inline int64_t replica_in_flight(const struct replica *r)
{
    return atomic_load_explicit(&r->load.requests, memory_order_relaxed);
}
