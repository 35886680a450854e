/*
 * json_scan.h - one strict pass over a request body that finds where things are, without a copy.
 *
 * weir edits bodies in place, so it needs byte positions, which parsers do not give. The scanner
 * checks the whole text against RFC 8259 (iteratively, with a depth cap), valid UTF-8, and
 * refuses lone surrogate escapes, which engines fail on later. It reports the members of
 * the top-level object; nested values are checked and skipped. Time is linear, memory constant.
 * Long strings are skipped 16 bytes at a time where SSE2 or NEON exists.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"

enum { JSON_SCAN_MAX_DEPTH = 128 };

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

/* A member of the scanned object. Slices point into the text. */
struct json_member {
    struct slice key;   /* between the quotes, still escaped */
    struct slice value; /* the whole value, quotes and brackets included */
    enum json_kind kind;
    bool key_escaped; /* the key contains a backslash */
};

/*
 * Called for each top-level member in order, before what follows it was checked: act on members
 * only after the scan came back with WEIR_OK. Duplicate keys are all reported. Anything but
 * WEIR_OK ends the scan and is returned.
 */
typedef enum weir_err (*json_member_fn)(void *ctx, const struct json_member *member);

struct json_scan_result {
    size_t error_offset;    /* where it went wrong, when it did; of the value, for a callback */
    const char *error_text; /* what, static; NULL when the callback ended the scan */
    size_t object_start;    /* offset of the top-level '{' */
    size_t object_end;      /* offset of its '}' */
    bool object_empty;
};

/*
 * WEIR_OK, WEIR_ESYNTAX (malformed, or not an object), WEIR_ELIMIT (too deep), or what the
 * callback returned. `result` is always filled.
 */
WEIR_MUST_USE enum weir_err json_scan(struct slice text, json_member_fn fn, void *ctx,
                                      struct json_scan_result *result);

/* Does the escaped key or string `raw` (between quotes) spell `plain` once unescaped? */
bool json_spells(struct slice raw, struct slice plain);

/*
 * Unescapes the text between quotes into `out` of at least raw.len bytes, which may be raw.ptr
 * itself; returns the length. `raw` should have passed json_scan: an escape that it would refuse
 * is copied as it is.
 */
size_t json_unescape(struct slice raw, char *out);
