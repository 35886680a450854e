/*
 * config.h - a configuration, checked and complete: what serve acts on.
 *
 * Built by config_load() from one YAML file, or by config_from_flags() from the command line; both
 * go through the same option table (options.def), so both have the same defaults and checks.
 * Immutable afterwards; everything lives in one arena. Optional strings are NULL when absent. Lists
 * end with a NULL that their count, where there is one, does not include.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/slice.h"

struct config_launch {
    const char *const *command; /* argv, NULL-terminated; {port} {model} {index} are filled in */
    size_t replicas;
    uint16_t first_port;    /* replica i listens on first_port + i; 0: free ports are chosen */
    const char *ready_path; /* NULL: the engine's health path */
    uint64_t ready_timeout_ns;
    uint64_t drain_timeout_ns;      /* between "no new requests" and SIGTERM */
    uint64_t stop_timeout_ns;       /* between SIGTERM and SIGKILL */
    const char *log_dir;            /* NULL: engine output goes to weir's stderr */
    const char *const *environment; /* NAME=value, NULL-terminated, added to weir's own */
};

struct config_pool {
    const char *name;
    const char *engine;          /* word of engines.def, or "auto": asked */
    const char *engine_model;    /* NULL: the model's own name */
    const char *policy;          /* word of policies.def; never NULL once loaded */
    const char *const *replicas; /* URLs, as written; checked */
    size_t replica_count;
    const char *api_key; /* towards the engine; secret, so never shown; cleared at the end */
    const char *api_key_file, *api_key_env; /* where api_key came from; at most one is not NULL */
    const struct config_launch *launch;     /* NULL: replicas are somebody else's */
};

struct config_model {
    const char *name;
    const char *const *aliases;
    size_t alias_count;
    uint64_t slo_ttft_ns, slo_tpot_ns; /* 0: none */
    const struct config_pool *pools;
    size_t pool_count;
};

struct config {
    struct arena arena;
    const char *file; /* NULL: from flags */

    const char *const *listen; /* "127.0.0.1:8080", "[::1]:8080", "unix:/path" */
    size_t listen_count;
    const char *admin_listen; /* NULL: none */
    uint32_t workers;         /* never 0 once loaded: "auto" is resolved */
    uint64_t drain_delay_ns;  /* after SIGTERM: not ready, but still serving */
    uint64_t drain_timeout_ns;
    bool tolerate_half_close;

    enum log_level log_level;
    bool log_json;
    const char *access_log; /* path, "-", or NULL: off */
    bool access_log_json;

    struct {
        size_t head_bytes;            /* request line and headers */
        size_t body_bytes;            /* one request body */
        size_t body_memory_bytes;     /* all request bodies in memory at once */
        size_t response_bytes;        /* a non-streamed answer is held whole up to this */
        size_t response_memory_bytes; /* all answers in memory at once: held, or unsent */
        size_t event_bytes;           /* longest SSE event that is still read */
        size_t client_buffer_bytes;   /* unsent bytes of one client before its engine is not read */
        uint32_t connections;         /* of clients, all workers */
        uint32_t upstream_idle;       /* kept-alive connections per replica and worker */
    } limits;

    struct {
        uint64_t client_head_ns;  /* whole head */
        uint64_t client_body_ns;  /* between two reads of a body */
        uint64_t client_idle_ns;  /* kept-alive, between requests */
        uint64_t client_write_ns; /* a client that takes no byte */
        uint64_t connect_ns;
        uint64_t first_byte_ns;     /* from sent request to first byte of an answer */
        uint64_t between_events_ns; /* silence inside an answer */
        uint64_t request_ns;        /* whole; 0: off */
    } timeouts;

    struct {
        uint64_t interval_ns; /* active checks and scrapes */
        uint64_t timeout_ns;
        uint32_t down_after, up_after;
        uint32_t eject_after;
        uint64_t eject_base_ns, eject_max_ns;
        double eject_max_share;
        uint64_t ramp_ns;
        uint64_t busy_ns;
    } health;

    struct {
        uint32_t attempts;       /* engines asked per request at most, the first included */
        double budget_ratio;     /* retries per request, on average */
        double budget_min_per_s; /* per model */
    } retry;

    const char *session_header; /* lower case; for session-affinity */
    const char *policy;         /* word of policies.def for pools that name none, and backends */

    /* URLs whose engine and models are found out by asking. Either these or models, never both. */
    const char *const *backends;
    size_t backend_count;

    const struct config_model *models;
    size_t model_count;
};

/*
 * The words that only the layers above know; each list ends with NULL, static lifetime. A config
 * keeps no pointer to it.
 */
struct config_words {
    const char *const *engines;  /* of engines.def; "auto" is understood without being listed */
    const char *const *policies; /* of policies.def */
};

struct config_mistake {
    uint32_t line, column; /* 1-based, in characters; 0: the file as a whole, or a flag */
    uint32_t width;        /* characters that are wrong, for the caret */
    const char *text;      /* what is wrong, with the word found */
    const char *help;      /* what to write instead; NULL: nothing to add */
};

/* Every mistake of a file, not just the first, in the order of its lines. */
enum { CONFIG_MAX_ERRORS = 64 };
struct config_errors {
    size_t count;      /* may exceed CONFIG_MAX_ERRORS: then only that many are kept */
    struct buf report; /* for people: file:line:column, the line, a caret, a remedy */
    struct config_mistake mistakes[CONFIG_MAX_ERRORS]; /* for machines */
    struct arena arena;                                /* their texts */
};
void config_errors_init(struct config_errors *errors);
void config_errors_free(struct config_errors *errors);

/* NULL when there is any mistake; `errors`, freshly initialised, then says all of them. */
struct config *config_load(const char *path, const struct config_words *words,
                           struct config_errors *errors);
struct config *config_parse(struct slice text, const char *name, const struct config_words *words,
                            struct config_errors *errors);

/* What `weir serve --listen A --backends URL,URL` means. NULL or 0: as the default says. */
struct config_flags {
    const char *listen, *admin_listen, *backends, *policy, *access_log; /* lists: with commas */
    uint32_t workers;
};
struct config *config_from_flags(const struct config_flags *flags, const struct config_words *words,
                                 struct config_errors *errors);

/*
 * A copy of `base` that serves these models in place of its models and backends: what discovery
 * makes of a config from flags. Everything is copied; the arguments are borrowed. Models, pools and
 * launch need not come from a config: only what stands in their structs counts.
 */
struct config *config_with_models(const struct config *base, const struct config_model *models,
                                  size_t count);

void config_free(struct config *config); /* NULL is allowed */

/*
 * YAML that loads to the same configuration; works on any struct config, however it was made.
 * Secrets are written as their source, never as value.
 */
WEIR_MUST_USE enum weir_err config_show(const struct config *config, struct buf *out);

/* Every option with its default, as a commented file; and the reference page in Markdown. */
WEIR_MUST_USE enum weir_err config_show_defaults(struct buf *out);
WEIR_MUST_USE enum weir_err config_write_reference(struct buf *out);

/* One option per line, "path  default  help", for `weir check --list options`. */
WEIR_MUST_USE enum weir_err config_list_options(struct buf *out);

/*
 * After a reload: how many options changed that take effect only at the next start, one line each
 * in `report` ("listen: 127.0.0.1:8080 -> 127.0.0.1:8081"). The lines that do not fit are left out.
 */
size_t config_restart_needed(const struct config *was, const struct config *is, struct buf *report);
