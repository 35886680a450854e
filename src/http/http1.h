/*
 * http1.h - HTTP/1 bytes to heads and bodies. The only file that includes llhttp. No I/O.
 *
 * Heads are parsed whole: the caller gathers bytes until http1_head_length() finds the end.
 * Stricter than llhttp alone, against request smuggling (FR-15): a bare LF or CR, a folded header,
 * NUL, a name that is no token, both Content-Length and Transfer-Encoding, more than one of either,
 * any transfer coding but "chunked", a length that is not all digits, and an HTTP/1.1 request
 * without exactly one Host are refused.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"
#include "http/message.h"

/*
 * Length of the head at the front of `bytes`, its empty line included, or 0 while it is incomplete.
 * `*scanned` is where to go on; 0 at the start of a message. One empty line before a request line
 * is part of the head, as RFC 9112 §2.2 asks.
 */
size_t http1_head_length(struct slice bytes, size_t *scanned);

/*
 * WEIR_OK; WEIR_ESYNTAX with a static sentence in *why; WEIR_ELIMIT for too many headers;
 * WEIR_EUNSUPPORTED for a version that is not 1.0 or 1.1.
 */
WEIR_MUST_USE enum weir_err http1_parse_request(struct slice head, struct http_head *out,
                                                const char **why);

/* `to_head`: the request was a HEAD, so no body follows. */
WEIR_MUST_USE enum weir_err http1_parse_response(struct slice head, bool to_head,
                                                 struct http_head *out, const char **why);

/* A chunked body in progress. */
struct http1_chunks {
    uint64_t left; /* data bytes still to come of this chunk; while its size is read, the size */
    uint32_t overhead; /* framing bytes since the last data */
    uint8_t state;
    bool is_done;
};

void http1_chunks_init(struct http1_chunks *c);

/*
 * Decodes in place: body bytes are moved down to the front of `bytes`, *body_len of them.
 * *consumed tells how much of the input was used; less than `len` only when the body has ended
 * (is_done) and another message follows. Extensions and trailers are read and dropped.
 * WEIR_ESYNTAX: bad framing, a bare LF among it; the body cannot be read any further, but what came
 * before is decoded.
 */
WEIR_MUST_USE enum weir_err http1_chunks_decode(struct http1_chunks *c, char *bytes, size_t len,
                                                size_t *body_len, size_t *consumed);
