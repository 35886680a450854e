/*
 * captured.h - for tests: what engines really sent, from tests/fixtures/streams. The folder is
 * found through WEIR_FIXTURES, else from the top of the tree.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"

enum { CAPTURED_MAX_BYTES = 1 << 20 };

static inline void captured_append(struct buf *out, struct slice bytes)
{
    if (buf_append(out, bytes))
        WEIR_BUG("a captured file is larger than %d bytes", CAPTURED_MAX_BYTES);
}

static inline void captured_read_file(const char *name, struct buf *out)
{
    const char *folder = getenv("WEIR_FIXTURES");
    char path[1000], chunk[4096];
    snprintf(path, sizeof path, "%s/streams/%s", folder ? folder : "tests/fixtures", name);
    FILE *file = fopen(path, "rb");
    if (!file)
        WEIR_BUG("cannot open %s; run from the top of the tree or set WEIR_FIXTURES", path);
    for (size_t len; (len = fread(chunk, 1, sizeof chunk, file)) > 0;)
        captured_append(out, slice_of(chunk, len));
    fclose(file);
}

/* Removes chunk framing; what a capture breaks off in the middle of is kept as far as it goes. */
static inline void captured_dechunk(struct slice framed, struct buf *out)
{
    for (;;) {
        size_t size = strtoul(framed.ptr, NULL, 16);
        const char *line = slice_find(framed, SLICE("\r\n"));
        if (size == 0 || !line)
            return;
        framed = slice_from(framed, (size_t)(line - framed.ptr) + 2);
        size_t len = size < framed.len ? size : framed.len;
        captured_append(out, slice_of(framed.ptr, len));
        framed = slice_from(framed, len + 2);
        if (framed.len == 0)
            return;
    }
}

/* The body of `name`, a *.http or *.sse file, appended to `out`, which is initialised here. */
static inline void captured_body(const char *name, struct buf *out)
{
    buf_init(out, CAPTURED_MAX_BYTES);
    if (!strstr(name, ".http")) {
        captured_read_file(name, out);
        return;
    }
    struct buf whole;
    buf_init(&whole, CAPTURED_MAX_BYTES);
    captured_read_file(name, &whole);
    captured_append(&whole, slice_of("", 1)); /* for strtoul */
    struct slice bytes = buf_slice(&whole);
    bytes.len--;
    const char *end = slice_find(bytes, SLICE("\r\n\r\n"));
    if (!end)
        WEIR_BUG("%s has no end of the head", name);
    struct slice head = slice_of(bytes.ptr, (size_t)(end - bytes.ptr));
    struct slice body = slice_from(bytes, head.len + 4);
    if (slice_find(head, SLICE("ransfer-")) && slice_find(head, SLICE("chunked")))
        captured_dechunk(body, out);
    else
        captured_append(out, body);
    buf_free(&whole);
}
