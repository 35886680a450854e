/*
 * body.h - what a request body says, and the edits that weir makes to it in place.
 *
 * The body is scanned once (base/json_scan.h). weir acts on the few top-level members below and
 * refuses duplicates of those (compared unescaped: FR-19); everything else reaches the engine byte
 * for byte (FR-21). Edits are spans: the body itself is neither copied nor re-serialised.
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

struct body_info {
    struct slice model;        /* unescaped; empty: the body has none (an error where required) */
    struct slice model_span;   /* the JSON string with its quotes, in the body */
    bool stream;
    bool wants_usage;          /* stream_options.include_usage: true was asked for */
    uint64_t max_tokens;       /* max_tokens, max_completion_tokens or max_output_tokens; 0: none */
    uint32_t n;                /* answers asked for; 1 by default */
    bool has_tools;
    struct slice user;         /* "user" or "session_id" if a string, unescaped; for affinity */
    uint32_t prompt_bytes;     /* bytes of messages, prompt, input, system and tools together */

    /* Where to edit; offsets into the body, used by body_plan_edits(). */
    struct slice stream_options_span; /* value; empty: absent */
    bool stream_options_is_object;
    size_t object_end;         /* offset of the closing brace of the body */
    bool object_empty;
};

/*
 * Reads the body of a relayed surface. On failure `why` holds a 400 in words that name the member
 * or the offset. Unescaped strings live in `arena`.
 */
WEIR_MUST_USE enum weir_err body_inspect(enum surface surface, struct slice body,
                                         struct arena *arena, struct body_info *info,
                                         struct api_error *why);

enum { BODY_MAX_EDITS = 6 };

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
 * The edits for one engine: the model's engine-side name, and stream_options.include_usage where
 * the dialect has it and the request streams (FR-7). Members that would steer the engine past weir
 * (contracts: kv_transfer_params, bootstrap_*, disagg_prefill_dp_rank, routed_dp_rank) make
 * body_inspect refuse, so no edit removes anything here.
 */
void body_plan_edits(enum surface surface, struct slice body, const struct body_info *info,
                     struct slice engine_model, bool add_usage, struct arena *arena,
                     struct body_plan *plan);

enum { BODY_MAX_PIECES = 2 * BODY_MAX_EDITS + 1 };

/* The edited body as pieces to write; at most BODY_MAX_PIECES. Returns how many. */
size_t body_pieces(struct slice body, const struct body_plan *plan, struct iovec *out);
