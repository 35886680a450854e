/*
 * fuzz_http1.c - heads and chunked bodies: whatever the bytes and however they arrive, the result
 * is that of the bytes in one piece, and every slice of a head lies inside it.
 *
 * Input: one byte that says what is read (request, response, chunks), one that seeds the sizes of
 * the pieces, then the message.
 */
#include <stdint.h>

#include "base/error.h"
#include "base/heap.h"
#include "base/rng.h"
#include "http/http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { READ_REQUEST, READ_RESPONSE, READ_RESPONSE_TO_HEAD, READ_CHUNKS, READ_KINDS };

static size_t next_piece(struct rng *rng, size_t left)
{
    if (!rng) {
        return left;
    }
    return (size_t)rng_below(rng, left < 24 ? left : 24) + 1;
}

/* ---- heads ---- */

static void check_inside(struct slice outer, struct slice inner)
{
    if (inner.len && (inner.ptr < outer.ptr || inner.ptr + inner.len > outer.ptr + outer.len)) {
        WEIR_BUG("a slice lies outside of the head");
    }
}

/* What a head that was taken promises; see http1.h. */
static void check_head(struct slice bytes, const struct http_head *head, bool is_request)
{
    size_t hosts = 0, framings = 0;
    if (head->header_count > HTTP_MAX_HEADERS) {
        WEIR_BUG("%zu headers", head->header_count);
    }
    for (size_t i = 0; i < head->header_count; i++) {
        const struct http_header *h = &head->headers[i];
        check_inside(bytes, h->name);
        check_inside(bytes, h->value);
        if (h->name.len == 0 || slice_find(h->name, SLICE(" ")) ||
            slice_find(h->value, SLICE("\r")) || slice_find(h->value, SLICE("\n")) ||
            slice_find(h->value, slice_of("", 1))) {
            WEIR_BUG("a header that two readers read differently");
        }
        hosts += slice_eq_nocase(h->name, SLICE("host"));
        framings += slice_eq_nocase(h->name, SLICE("content-length"));
        framings += slice_eq_nocase(h->name, SLICE("transfer-encoding"));
    }
    if (framings > 1 || (is_request && (hosts > 1 || (head->is_http11 && hosts == 0)))) {
        WEIR_BUG("%zu framings and %zu hosts", framings, hosts);
    }
    if (is_request) {
        if (!slice_eq(head->target, SLICE("/"))) { /* which stands for the path of "http://host" */
            check_inside(bytes, head->target);
        }
        if (head->target.len == 0 || head->framing == HTTP_BODY_UNTIL_CLOSE) {
            WEIR_BUG("a request without a target or an end");
        }
    } else if (head->status < 100 || head->status > 599) {
        WEIR_BUG("status %d", head->status);
    }
}

static size_t find_head(struct slice text, struct rng *rng)
{
    size_t scanned = 0, arrived = 0;
    while (arrived < text.len) {
        arrived += next_piece(rng, text.len - arrived);
        size_t len = http1_head_length(slice_of(text.ptr, arrived), &scanned);
        if (len > arrived || (len == 0 && scanned != arrived && arrived >= 2)) {
            WEIR_BUG("head of %zu, scanned %zu, of %zu bytes", len, scanned, arrived);
        }
        if (len) {
            return len;
        }
    }
    return 0;
}

static void read_head(struct slice text, int kind, struct rng *rng)
{
    static struct http_head head;
    size_t len = find_head(text, NULL);
    if (len != find_head(text, rng)) {
        WEIR_BUG("the end of the head depends on how it arrives");
    }
    if (len == 0) {
        return;
    }
    char *copy = heap_alloc(len); /* exact, so that a sanitizer sees one byte too far */
    memcpy(copy, text.ptr, len);
    const char *why = NULL;
    bool is_request = kind == READ_REQUEST;
    enum weir_err err =
        is_request
            ? http1_parse_request(slice_of(copy, len), &head, &why)
            : http1_parse_response(slice_of(copy, len), kind == READ_RESPONSE_TO_HEAD, &head, &why);
    if (err == WEIR_OK) {
        check_head(slice_of(copy, len), &head, is_request);
    } else if (!why) {
        WEIR_BUG("refused without a word");
    }
    heap_free(copy);
}

/* ---- chunks ---- */

struct digest {
    enum weir_err err;
    bool is_done;
    size_t consumed, body_len;
    uint64_t hash; /* FNV-1a of the body */
};

static struct digest decode(struct slice text, struct rng *rng)
{
    struct http1_chunks chunks;
    struct digest d = {.hash = 0xcbf29ce484222325};
    http1_chunks_init(&chunks);
    for (size_t at = 0; at < text.len && d.err == WEIR_OK && !chunks.is_done;) {
        size_t len = next_piece(rng, text.len - at), body_len, consumed;
        char *bytes = heap_alloc(len);
        memcpy(bytes, text.ptr + at, len);
        d.err = http1_chunks_decode(&chunks, bytes, len, &body_len, &consumed);
        if (body_len > consumed || consumed > len ||
            (consumed < len && !chunks.is_done && d.err == WEIR_OK)) {
            WEIR_BUG("%zu of %zu bytes used, %zu of them body", consumed, len, body_len);
        }
        for (size_t i = 0; i < body_len; i++) {
            d.hash = (d.hash ^ (unsigned char)bytes[i]) * 0x100000001b3;
        }
        heap_free(bytes);
        d.body_len += body_len;
        d.consumed += consumed;
        at += len;
    }
    d.is_done = chunks.is_done;
    return d;
}

static void read_chunks(struct slice text, struct rng *rng)
{
    struct digest whole = decode(text, NULL), split = decode(text, rng);
    if (whole.err != split.err || whole.is_done != split.is_done ||
        whole.consumed != split.consumed || whole.body_len != split.body_len ||
        whole.hash != split.hash) {
        WEIR_BUG("the body depends on how it arrives");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    struct rng rng;
    rng_seed(&rng, data[1]);
    struct slice text = slice_of((const char *)data + 2, size - 2);
    int kind = data[0] % READ_KINDS;
    if (kind == READ_CHUNKS) {
        read_chunks(text, &rng);
    } else {
        read_head(text, kind, &rng);
    }
    return 0;
}
