/*
 * body.h - what a request body says, and the edits that weir makes to it in place.
 *
 * The body is scanned once (base/json_scan.h). weir acts on the few top-level members below and
 * refuses duplicates of those (compared unescaped: FR-19); everything else reaches the engine byte
 * for byte (FR-21). null counts as absent. Edits are spans: the body itself is neither copied nor
 * re-serialised.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/slice.h"
#include "dialects/errors.h"
#include "dialects/surface.h"

/* Bytes of a model name or user as they stand in the body; a longer user is cut. */
enum { BODY_MAX_NAME = 1024 };

/* Slices point into the body, or into the arena where something had to be unescaped. */
struct body_info {
    struct slice model;  /* unescaped; empty: none, which only tokenize and detokenize allow */
    bool stream;         /* false where the surface does not stream, whatever the body says */
    bool wants_usage;    /* stream_options.include_usage: true was asked for */
    uint64_t max_tokens; /* the largest of max_[completion_|output_]tokens; 0: none */
    uint32_t n;          /* answers asked for; 1 by default */
    bool has_tools;
    struct slice user;     /* "session_id", else "user", if a string, unescaped; for affinity */
    uint32_t prompt_bytes; /* of messages, prompt, input, system, instructions, tools together */

    /* Where body_plan_edits() edits. */
    size_t object_start;              /* offset of the body's '{' */
    struct slice model_span;          /* the JSON string with its quotes */
    struct slice stream_options_span; /* the value, also a null; empty: absent */
    bool stream_options_is_object;
    bool stream_options_is_empty;
    struct slice include_usage_span; /* the value inside it; empty: absent */
};

/*
 * Reads the body of a relayed surface. On failure `why` holds a 400 in words that name the member
 * or the offset; members that would steer the engine past weir (kv_transfer_params, bootstrap_*, …)
 * are one reason. `info` is always filled, as far as the body was read.
 */
WEIR_MUST_USE enum weir_err body_inspect(enum surface surface, struct slice body,
                                         struct arena *arena, struct body_info *info,
                                         struct api_error *why);

enum { BODY_MAX_EDITS = 2 };

struct body_edit {
    size_t offset;       /* in the original body */
    size_t removed;      /* bytes of the original that go */
    struct slice insert; /* bytes that come instead; static or in the arena */
};

struct body_plan {
    struct body_edit edits[BODY_MAX_EDITS]; /* ascending, not overlapping */
    size_t count;
    size_t length; /* of the edited body */
};

/*
 * The edits for one engine: the model's engine-side name (empty: leave it), and, when `add_usage`
 * says that the engine understands it, stream_options.include_usage where the dialect has it and
 * the request streams (FR-7). `info` must come from this very `body`. WEIR_ELIMIT: the arena is
 * full.
 */
WEIR_MUST_USE enum weir_err body_plan_edits(enum surface surface, struct slice body,
                                            const struct body_info *info, struct slice engine_model,
                                            bool add_usage, struct arena *arena,
                                            struct body_plan *plan);

enum { BODY_MAX_PIECES = 2 * BODY_MAX_EDITS + 1 };

/* The edited body as pieces to write, none of them empty. Returns how many: at most
 * BODY_MAX_PIECES. */
size_t body_pieces(struct slice body, const struct body_plan *plan,
                   struct iovec out[BODY_MAX_PIECES]);
