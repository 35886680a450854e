/*
 * response.h - reads one HTTP/1.1 response, and the events in it, from bytes as they arrive.
 *
 * Bytes in, facts out; no sockets, no clock. A response may be split anywhere. An SSE event counts
 * as content when its delta holds text; what else there is (role, finish, usage) is skipped.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

enum { RESPONSE_LINE_MAX = 2048 };

enum response_phase {
    RESPONSE_HEAD,        /* status line and headers */
    RESPONSE_LENGTH,      /* body of `left` bytes */
    RESPONSE_UNTIL_CLOSE, /* body that ends with the connection */
    RESPONSE_CHUNK_SIZE,  /* the line before a chunk */
    RESPONSE_CHUNK,       /* `left` bytes of a chunk */
    RESPONSE_CHUNK_END,   /* the line break behind it */
    RESPONSE_TRAILER,
    RESPONSE_COMPLETE,
    RESPONSE_BAD, /* not HTTP, or a line that is too long */
};

enum response_framing { FRAMED_BY_CLOSE, FRAMED_BY_LENGTH, FRAMED_BY_CHUNKS };

struct response {
    enum response_phase phase;
    enum response_framing framing;
    int status; /* 0: not known yet */
    bool is_kept_alive;
    bool is_events; /* text/event-stream */
    bool saw_done;  /* data: [DONE] */
    bool saw_error; /* an in-band error event */
    uint64_t content_events, body_bytes;
    uint64_t left;
    size_t line_len;
    char line[RESPONSE_LINE_MAX]; /* the beginning of a line whose end has not arrived */
};

void response_begin(struct response *r);
void response_feed(struct response *r, struct slice bytes);

/* The connection ended; completes a response that is delimited that way, spoils any other. */
void response_end_of_stream(struct response *r);
