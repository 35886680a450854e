/*
 * engine.h - what weir must know about one kind of inference server.
 *
 * An engine is a row in engines.def and a file engines/NAME.c with `const struct engine
 * engine_NAME`: which paths to ask, how to read the answers, and how it says no. Everything here is
 * pure: bytes in, facts out; the control thread does the asking (gateway/prober.c).
 * Metric names are accepted old and new, with and without "_total".
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "model/replica.h"

enum { ENGINE_MAX_MODELS = 64, ENGINE_NAME_MAX = 256 };

/* What one round of questions told. Zero means unknown; has_load says whether load is valid. */
struct engine_facts {
    bool has_load;
    uint32_t running, waiting;
    uint32_t kv_used_ppm;
    uint64_t kv_tokens;       /* blocks times block size, or the sum of the slots' contexts */
    uint32_t slots;
    uint64_t prefix_queries, prefix_hits; /* tokens, since the engine began */
    uint64_t preemptions, refusals;
    uint32_t max_context_tokens; /* per request */
    char version[64];
    char models[ENGINE_MAX_MODELS][ENGINE_NAME_MAX]; /* ids that it lists; terminated */
    size_t model_count;
};

/* One question. `read` gets a 200 answer's body; malformed bodies must leave `facts` as it was. */
struct engine_question {
    const char *path;
    void (*read)(struct slice body, struct engine_facts *facts);
};

enum { ENGINE_MAX_QUESTIONS = 4 };

/* How an answer that is not a success is to be understood. */
enum engine_verdict {
    ENGINE_OK,
    ENGINE_CLIENT_FAULT,     /* pass through, never retry, never count */
    ENGINE_CONTEXT_OVERFLOW, /* a client fault that becomes context_length_exceeded */
    ENGINE_BUSY,             /* back-pressure: another replica, not a fault */
    ENGINE_LOADING,          /* not ready: another replica, not a fault */
    ENGINE_DRAINING,         /* says 500, means it is leaving: another replica, not a fault */
    ENGINE_FAULT             /* another replica, counts */
};

struct engine {
    const char *name; /* word in the configuration */
    const char *help;
    const char *health_path;
    struct engine_question once[ENGINE_MAX_QUESTIONS];   /* at start and after a restart; path NULL ends */
    struct engine_question scrape[ENGINE_MAX_QUESTIONS]; /* at each scrape; path NULL ends */

    /* Health answer to state. NULL: 200 is READY, 503 LOADING, the rest DOWN. */
    enum replica_state (*read_health)(int status, struct slice body);

    /* NULL: the common rule of engine_classify_common(). */
    enum engine_verdict (*classify)(int status, struct slice body);

    bool accepts_any_model; /* answers to any name, so weir must refuse unknown ones (always does) */
    bool has_usage_option;  /* understands stream_options.include_usage */
};

const struct engine *engine_find(struct slice name);
bool engine_at(size_t index, const struct engine **engine); /* the table, in order */

enum engine_verdict engine_classify(const struct engine *e, int status, struct slice body);
enum engine_verdict engine_classify_common(int status, struct slice body);

/*
 * Telling engines apart: ask these paths in order, give each answer to engine_detect(); the first
 * non-NULL result is it. After the last one without a result it is the "openai" row.
 */
extern const char *const engine_detect_paths[]; /* NULL at the end */
const struct engine *engine_detect(const char *path, int status, struct slice server_header,
                                   struct slice body);
