/*
 * errors.h - every error that a client sees is made here, in the client's own dialect.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/slice.h"
#include "dialects/surface.h"

struct json_value;

/* Why weir itself says no, or how a relay failed; the rows have status, type and code of each. */
enum api_error_kind {
#define ROW(symbol, reason, status, type, code, anthropic_status, anthropic_type) API_##symbol,
#include "dialects/errors.def"
#undef ROW
    API_ERROR_KINDS
};

struct api_error {
    enum api_error_kind kind;
    uint16_t status;         /* an engine's own, where that is kept; 0: the kind's */
    char text[400];          /* what is wrong and what to do about it; cut at a character */
    char param[64];          /* the member at fault, or "" */
    uint32_t retry_after_ms; /* 0: no Retry-After */
    bool no_retry;           /* x-should-retry: false */
    const char *allow;       /* WRONG_METHOD: the value of the Allow header; static */
};

/* Fills and returns `e`; all but kind and text is cleared. */
struct api_error *api_error_set(struct api_error *e, enum api_error_kind kind, const char *fmt, ...)
    WEIR_PRINTF(3, 4);

/* "unknown_model": short stable word for logs and metric labels. */
const char *api_error_reason(enum api_error_kind kind);

int api_error_status(const struct api_error *e, bool is_anthropic);

/* The JSON body. On WEIR_ELIMIT nothing was added; text, param and id may hold any bytes. */
WEIR_MUST_USE enum weir_err api_error_write_body(const struct api_error *e, bool is_anthropic,
                                                 struct slice request_id, struct buf *out);

/*
 * One whole in-band SSE event, blank line included, in the dialect's own form:
 * chat and completions `data: {"error":{…}}`, messages `event: error`, responses `event: error`
 * with `sequence` as its sequence_number. On WEIR_ELIMIT nothing was added.
 */
WEIR_MUST_USE enum weir_err api_error_write_event(const struct api_error *e, enum dialect dialect,
                                                  struct slice request_id, uint64_t sequence,
                                                  struct buf *out);

/*
 * An engine's error answer: must weir replace it? If so `out` holds the engine's words and status
 * (503 and 529 are each the other's counterpart). Context overflow becomes context_length_exceeded
 * in every dialect. A body in the dialect's own shape passes unchanged: false. Any other (vLLM's
 * class names on the Anthropic surface, `"error":"Unauthorized"`, `{"detail":…}`, plain text,
 * nothing) is replaced, so that SDKs find the message where they look for it.
 */
WEIR_MUST_USE bool api_error_from_engine(enum dialect dialect, int status, bool context_overflow,
                                         struct slice body, struct api_error *out);

/*
 * From the `error` of an in-band event (an object or a string; any value is allowed): kind by its
 * type or numeric code, and the engine's words.
 */
void api_error_from_event(const struct json_value *error, struct api_error *out);
