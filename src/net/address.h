/*
 * address.h - the addresses and URLs that people write, and socket addresses.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/endpoint.h"
#include "base/error.h"
#include "base/slice.h"

/* An engine's base URL, taken apart. Slices point into the text. */
struct base_url {
    struct slice host;      /* without brackets */
    struct slice authority; /* "host:port" as written, brackets kept: the Host header */
    struct slice path; /* "" or "/prefix", without trailing slash and without a trailing "/v1" */
    uint16_t port;
    bool is_unix; /* unix:/path/to.sock: host is the path */
};

/* http://host[:port][/prefix][/v1][/]; user info, queries, fragments and https are refused in
 * words. */
WEIR_MUST_USE enum weir_err base_url_parse(struct slice text, struct base_url *out,
                                           struct error *err);

/* "127.0.0.1:8080", "[::1]:8080", "*:8080", ":8080", "8080", "unix:/path". Numeric hosts only. */
WEIR_MUST_USE enum weir_err address_parse_listen(struct slice text, struct endpoint *out,
                                                 struct error *err);

/* A numeric host, or a Unix path; WEIR_ENOTFOUND when it is a name that must be resolved. */
WEIR_MUST_USE enum weir_err address_from_host(struct slice host, uint16_t port, bool is_unix,
                                              struct endpoint *out);

/* "1.2.3.4:80" for logs, into at least 128 bytes. */
void address_format(const struct endpoint *address, char *out, size_t size);
