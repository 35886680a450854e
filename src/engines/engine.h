/*
 * engine.h - what weir must know about one kind of inference server.
 *
 * An engine is a row in engines.def and a file engines/NAME.c with `const struct engine
 * engine_NAME`: which paths to ask, how to read the answers, and how it says no. Everything here is
 * pure: bytes in, facts out; the control thread does the asking (gateway/interview.c).
 * Metric names are accepted old and new, with and without "_total".
 *
 * To add one, write the file and the row; detection and classification read the tables here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "model/replica.h"

enum { ENGINE_MAX_MODELS = 64, ENGINE_NAME_MAX = 256, ENGINE_VERSION_MAX = 64 };

/* What one round of questions told. Zero means unknown; has_load says whether load is valid. */
struct engine_facts {
    bool has_load;
    uint32_t running, waiting;
    uint32_t kv_used_ppm;
    uint64_t kv_tokens; /* blocks times block size, or the sum of the slots' contexts */
    uint32_t slots;
    uint64_t prefix_queries, prefix_hits; /* tokens, since the engine began */
    uint64_t preemptions, refusals;
    uint32_t max_context_tokens; /* per request; of several models the smallest */
    char version[ENGINE_VERSION_MAX];
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
    struct engine_question
        once[ENGINE_MAX_QUESTIONS]; /* at start and after a restart; path NULL ends */
    struct engine_question scrape[ENGINE_MAX_QUESTIONS]; /* at each scrape; path NULL ends */

    /* Health answer to state. NULL: 200 is READY, 503 LOADING, the rest DOWN. */
    enum replica_state (*read_health)(int status, struct slice body);

    /*
     * How its error messages say what their status does not: lists of texts that occur in the
     * message, the type or the code of the error, NULL at the end. A NULL list is empty.
     */
    const char *const *says_overflow; /* the prompt does not fit, whatever the status */
    const char *const *says_loading;  /* a 503 that means that the model is not there yet */
    const char *const *says_draining; /* a 5xx that means that it is shutting down */
    bool speaks_for_others;           /* any engine may stand behind it: all their texts count */

    /* How it is told apart. NULL: not by this. */
    const char *owned_by;      /* of the models that it lists */
    const char *metric_prefix; /* of its own metrics */
    const char *server;        /* value of the Server header */

    bool
        accepts_any_model; /* answers to any name, so weir must refuse unknown ones (always does) */
    bool has_usage_option; /* understands stream_options.include_usage */
};

const struct engine *engine_find(struct slice name);
bool engine_at(size_t index, const struct engine **engine); /* the table, in order */

/* `status` 0: no answer came. */
enum replica_state engine_read_health(const struct engine *e, int status, struct slice body);

/* Of a whole answer before its first byte went on. `body` may be cut; it is only looked at on
 * errors. */
enum engine_verdict engine_classify(const struct engine *e, int status, struct slice body);

/*
 * Telling engines apart: ask these paths in order, give each answer to engine_detect(); the first
 * non-NULL result is it. After the last one without a result it is the "openai" row.
 */
extern const char *const engine_detect_paths[]; /* NULL at the end */
const struct engine *engine_detect(const char *path, int status, struct slice server_header,
                                   struct slice body);
