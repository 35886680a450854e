/*
 * message.h - the head of an HTTP/1 message, taken apart.
 *
 * Slices point into the bytes that were parsed and live as long as those. Names compare without
 * regard to case. A head is plain data: it is filled by http1.c and read by everybody.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

enum { HTTP_MAX_HEADERS = 96 };

struct http_header {
    struct slice name;
    struct slice value; /* without white space around it */
};

/* How the body's end is known (RFC 9112 §6.3). */
enum http_framing {
    HTTP_BODY_NONE,
    HTTP_BODY_LENGTH, /* content_length bytes */
    HTTP_BODY_CHUNKED,
    HTTP_BODY_UNTIL_CLOSE /* responses only; a cut cannot be told from an end */
};

struct http_head {
    struct slice method, target; /* requests */
    int status;                  /* responses */
    bool is_http11;
    bool keep_alive; /* the connection may carry another message afterwards */
    bool expects_continue;
    bool upgrades; /* asks for another protocol */
    enum http_framing framing;
    uint64_t content_length;
    size_t header_count;
    struct http_header headers[HTTP_MAX_HEADERS];
};

/* The first header of that name; an empty slice when there is none. */
struct slice http_header_get(const struct http_head *head, struct slice name);
bool http_header_has(const struct http_head *head, struct slice name);

/* Does a comma-separated list, as in Connection, hold the token? */
bool http_list_has(struct slice list, struct slice token);

/*
 * Belongs to one connection only and is never relayed (RFC 9110 §7.6.1), or is named in one of the
 * head's Connection headers.
 */
bool http_header_is_hop_by_hop(const struct http_head *head, struct slice name);

/* "OK" for 200; "Unknown" for what has no name. */
const char *http_status_text(int status);
