/*
 * request.h - what decisions may know about a request.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct request_view {
    uint64_t id_hash;       /* of the request id, for traces that must be stable */
    uint64_t session_hash;  /* of the session header or of the configured field; 0: none */
    uint32_t prompt_tokens; /* estimated from bytes until an engine says better */
    uint32_t
        output_tokens; /* expected: what this model's answers were lately, capped by max_tokens */
    bool stream;
};
