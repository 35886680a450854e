#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/heap.h"
#include "http/http1.h"

/* A literal with its length, so that it may hold NUL. */
#define BYTES(literal)                                                                             \
    {                                                                                              \
        (literal), sizeof(literal) - 1                                                             \
    }

static struct http_head head; /* large: not for the stack of each test */

/* An exact copy on the heap, so that a sanitizer sees one byte too far. */
static enum weir_err parse(struct slice text, bool is_response, bool to_head)
{
    static char *copy; /* the head points into it until the next call */
    copy = heap_realloc(copy, text.len ? text.len : 1);
    memcpy(copy, text.ptr, text.len);
    const char *why = NULL;
    enum weir_err err = is_response
                            ? http1_parse_response(slice_of(copy, text.len), to_head, &head, &why)
                            : http1_parse_request(slice_of(copy, text.len), &head, &why);
    if (err != WEIR_OK && (!why || !*why)) {
        fail_msg("refused without a word: %.*s", SLICE_ARG(text));
    }
    return err;
}

static enum weir_err parse_request(const char *text)
{
    return parse(slice_str(text), false, false);
}

static enum weir_err parse_response(const char *text)
{
    return parse(slice_str(text), true, false);
}

static void assert_slice(struct slice s, const char *text)
{
    if (!slice_eq(s, slice_str(text))) {
        fail_msg("\"%.*s\" is not \"%s\"", SLICE_ARG(s), text);
    }
}

/* ---- requests ---- */

static void test_request_is_taken_apart(void **state)
{
    assert_int_equal(parse_request("POST /v1/chat/completions?a=b HTTP/1.1\r\n"
                                   "Host: weir\r\n"
                                   "X-Empty:\r\n"
                                   "X-Spaces: \t a b \t \r\n"
                                   "x-high: \xe9\xff\r\n"
                                   "Content-Length: 0012\r\n"
                                   "\r\n"),
                     WEIR_OK);
    assert_slice(head.method, "POST");
    assert_slice(head.target, "/v1/chat/completions?a=b");
    assert_int_equal(head.header_count, 5);
    assert_slice(head.headers[1].name, "X-Empty");
    assert_slice(head.headers[1].value, "");
    assert_slice(http_header_get(&head, SLICE("x-spaces")), "a b");
    assert_slice(http_header_get(&head, SLICE("X-HIGH")), "\xe9\xff");
    assert_int_equal(head.framing, HTTP_BODY_LENGTH);
    assert_int_equal(head.content_length, 12);
    assert_true(head.is_http11);
    assert_true(head.keep_alive);
    assert_false(head.expects_continue);
}

static void test_target_in_absolute_form_is_its_path(void **state)
{
    static const struct {
        const char *target, *path;
    } cases[] = {
        {"http://weir:8080/v1/models?a=b", "/v1/models?a=b"},
        {"HTTP://weir/", "/"},
        {"http://weir", "/"},
        {"*", "*"},
        {"/http://weir/a", "/http://weir/a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        snprintf(text, sizeof text, "OPTIONS %s HTTP/1.1\r\nHost: x\r\n\r\n", cases[i].target);
        assert_int_equal(parse_request(text), WEIR_OK);
        assert_slice(head.target, cases[i].path);
    }
}

/* Everything here is read differently by somebody: one reading, a refusal. */
static void test_what_could_be_read_in_two_ways_is_refused(void **state)
{
    static const struct slice bad[] = {
        BYTES("POST / HTTP/1.1\nHost: x\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nA: b\n\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nA: b\nTransfer-Encoding: chunked\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nA: b\rTransfer-Encoding: chunked\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nA: b\r\r\n\r\n"),
        BYTES("POST /\r HTTP/1.1\r\nHost: x\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nA: b\r\n\tc\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\n Host: x\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nA\0: b\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nA: \x01\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nA: \x7f\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: "
              "chunked\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: "
              "3\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5,5\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 5\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x5\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5 5\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5.0\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551616\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 5\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nContent-Length\t: 5\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nContent Length: 5\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \"chunked\"\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked;q=1\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0b"
              "chunked\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
              "Transfer-Encoding: chunked\r\n\r\n"),
        BYTES("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\n: nameless\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nnocolon\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nA(b): c\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nA\xe9: c\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\n\r\n"),
        BYTES("POST / HTTP/1.1\r\nHost: x\r\nhost: y\r\n\r\n"),
        BYTES("POST / HTTP/1.0\r\nHost: x\r\nHost: x\r\n\r\n"),
        BYTES("POST /a b HTTP/1.1\r\nHost: x\r\n\r\n"),
        BYTES("POST /a\tb HTTP/1.1\r\nHost: x\r\n\r\n"),
        BYTES("POST /a\x0c"
              "b HTTP/1.1\r\nHost: x\r\n\r\n"),
        BYTES("POST /a\x01"
              "b HTTP/1.1\r\nHost: x\r\n\r\n"),
        BYTES("POST /a\x7f"
              "b HTTP/1.1\r\nHost: x\r\n\r\n"),
        BYTES("POST\t/\tHTTP/1.1\r\nHost: x\r\n\r\n"),
        BYTES("post / HTTP/1.1\r\nHost: x\r\n\r\n"),
        BYTES("PRI * HTTP/2.0\r\n\r\n"),
        BYTES("\x16\x03\x01\x02\r\n\r\n"),
        BYTES("HTTP/1.1 200 OK\r\n\r\n"),
        BYTES("\r\n\r\n"),
        BYTES("\n\n"),
        BYTES(""),
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        enum weir_err err = parse(bad[i], false, false);
        if (err != WEIR_ESYNTAX) {
            fail_msg("%s: %.*s", weir_err_name(err), SLICE_ARG(bad[i]));
        }
    }
}

static void test_other_protocols_and_versions_are_told_apart(void **state)
{
    static const char *const other[] = {
        "GET / HTTP/1.2\r\nHost: x\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: x\r\n\r\n",
        "GET / HTTP/0.9\r\n\r\n",
        "GET /\r\n\r\n",
        "GET / RTSP/1.0\r\n\r\n",
        "SOURCE / ICE/1.0\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        if (parse_request(other[i]) != WEIR_EUNSUPPORTED) {
            fail_msg("not a matter of the version: %s", other[i]);
        }
    }
}

static void test_only_chunked_frames_without_a_length(void **state)
{
    static const struct {
        const char *headers;
        enum http_framing framing;
        uint64_t length;
    } cases[] = {
        {"", HTTP_BODY_NONE, 0},
        {"Content-Length: 0\r\n", HTTP_BODY_NONE, 0},
        {"content-length:  \t7 \r\n", HTTP_BODY_LENGTH, 7},
        {"Content-Length: 18446744073709551615\r\n", HTTP_BODY_LENGTH, UINT64_MAX},
        {"Transfer-Encoding: chunked\r\n", HTTP_BODY_CHUNKED, 0},
        {"TRANSFER-ENCODING:  ChunkED \r\n", HTTP_BODY_CHUNKED, 0},
        {"Transfer-Encodings: gzip\r\n", HTTP_BODY_NONE, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        snprintf(text, sizeof text, "POST / HTTP/1.1\r\nHost: x\r\n%s\r\n", cases[i].headers);
        assert_int_equal(parse_request(text), WEIR_OK);
        assert_int_equal(head.framing, cases[i].framing);
        assert_true(head.content_length == cases[i].length);
    }
}

static void test_keep_alive_follows_version_and_connection_header(void **state)
{
    static const struct {
        const char *text;
        bool keep_alive;
    } cases[] = {
        {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", true},
        {"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost: x\r\nConnection: a\r\nConnection: b , CLOSE\r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost: x\r\nConnection: closed\r\n\r\n", true},
        {"GET / HTTP/1.0\r\n\r\n", false},
        {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(parse_request(cases[i].text), WEIR_OK);
        assert_int_equal(head.keep_alive, cases[i].keep_alive);
    }
}

static void test_expectation_counts_in_1_1_only(void **state)
{
    assert_int_equal(parse_request("PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\n\r\n"), 0);
    assert_true(head.expects_continue);
    assert_int_equal(parse_request("PUT / HTTP/1.1\r\nHost: x\r\nExpect: 200-ok\r\n\r\n"), 0);
    assert_false(head.expects_continue);
    assert_int_equal(parse_request("PUT / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n"), 0);
    assert_false(head.expects_continue);
}

static size_t put_headers(char *out, size_t room, size_t count)
{
    size_t len = (size_t)snprintf(out, room, "GET / HTTP/1.1\r\nHost: x\r\n");
    for (size_t i = 1; i < count; i++) {
        len += (size_t)snprintf(out + len, room - len, "a%zu: b\r\n", i);
    }
    return len + (size_t)snprintf(out + len, room - len, "\r\n");
}

static void test_headers_are_counted(void **state)
{
    static char text[16384];
    size_t len = put_headers(text, sizeof text, HTTP_MAX_HEADERS);
    assert_int_equal(parse(slice_of(text, len), false, false), WEIR_OK);
    assert_int_equal(head.header_count, HTTP_MAX_HEADERS);
    assert_slice(head.headers[HTTP_MAX_HEADERS - 1].name, "a95");
    len = put_headers(text, sizeof text, HTTP_MAX_HEADERS + 1);
    assert_int_equal(parse(slice_of(text, len), false, false), WEIR_ELIMIT);
}

static void test_hop_by_hop_headers_are_known_and_named(void **state)
{
    assert_int_equal(
        parse_request("GET / HTTP/1.1\r\nHost: x\r\nConnection: X-Mine, close\r\n\r\n"), 0);
    static const char *const hop[] = {"CONNECTION",     "Keep-Alive",     "te",
                                      "Upgrade",        "x-mine",         "transfer-encoding",
                                      "Content-Length", "HTTP2-Settings", "Proxy-Authorization"};
    for (size_t i = 0; i < sizeof hop / sizeof *hop; i++) {
        assert_true(http_header_is_hop_by_hop(&head, slice_str(hop[i])));
    }
    assert_false(http_header_is_hop_by_hop(&head, SLICE("x-min")));
    assert_false(http_header_is_hop_by_hop(&head, SLICE("content-type")));
}

/* ---- responses ---- */

static void test_response_framing(void **state)
{
    static const struct {
        const char *text;
        bool to_head;
        enum http_framing framing;
        bool keep_alive;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false, HTTP_BODY_LENGTH, true},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true, HTTP_BODY_NONE, true},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false, HTTP_BODY_CHUNKED, true},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", true, HTTP_BODY_NONE, true},
        {"HTTP/1.1 200 OK\r\n\r\n", false, HTTP_BODY_UNTIL_CLOSE, false},
        {"HTTP/1.1 200\r\n\r\n", false, HTTP_BODY_UNTIL_CLOSE, false},
        {"HTTP/1.0 200 OK\r\n\r\n", false, HTTP_BODY_UNTIL_CLOSE, false},
        {"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", false, HTTP_BODY_LENGTH, false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, HTTP_BODY_NONE, true},
        {"HTTP/1.1 204 No Content\r\n\r\n", false, HTTP_BODY_NONE, true},
        {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", false, HTTP_BODY_NONE, true},
        {"HTTP/1.1 100 Continue\r\n\r\n", false, HTTP_BODY_NONE, true},
        {"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n", false, HTTP_BODY_NONE, true},
        {"HTTP/1.1 500 \r\nConnection: close\r\nContent-Length: 1\r\n\r\n", false, HTTP_BODY_LENGTH,
         false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (parse(slice_str(cases[i].text), true, cases[i].to_head) != WEIR_OK ||
            head.framing != cases[i].framing || head.keep_alive != cases[i].keep_alive) {
            fail_msg("framing %d: %s", head.framing, cases[i].text);
        }
    }
}

static void test_responses_are_held_to_the_same_rules(void **state)
{
    static const char *const bad[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 5\n\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA B: c\r\n\r\n",
        "HTTP/1.1 99 Low\r\n\r\n",
        "HTTP/1.1 600 High\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 abc\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "{\"not\": \"http\"}\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (parse_response(bad[i]) != WEIR_ESYNTAX) {
            fail_msg("taken: %s", bad[i]);
        }
    }
    assert_int_equal(parse_response("HTTP/2.0 200 OK\r\n\r\n"), WEIR_EUNSUPPORTED);
    assert_int_equal(parse_response("HTTP/1.1\r\n\r\n"), WEIR_EUNSUPPORTED);
}

/* ---- the end of a head ---- */

static void test_head_is_found_wherever_the_bytes_are_cut(void **state)
{
    static const struct {
        const char *text;
        size_t head_len; /* 0: never ends */
    } cases[] = {
        {"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /", 27},
        {"\r\nGET / HTTP/1.1\r\n\r\n", 20},
        {"\r\n\r\nGET / HTTP/1.1\r\n\r\n", 22},
        {"GET / HTTP/1.1\nHost: x\n\nrest", 24},
        {"GET / HTTP/1.1\r\nHost: x\n\r\nrest", 26},
        {"GET / HTTP/1.1\r\nHost: x\r\n\nrest", 26},
        {"GET / HTTP/1.1\r\nHost: x\r\n\r", 0},
        {"GET / HTTP/1.1\r\n\rHost: x\r\r\r\n", 0},
        {"\n\n", 2},
        {"\r\n", 0},
        {"", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct slice text = slice_str(cases[i].text);
        for (size_t split = 0; split <= text.len; split++) {
            size_t scanned = 0;
            size_t found = http1_head_length(slice_of(text.ptr, split), &scanned);
            found = found ? found : http1_head_length(text, &scanned);
            if (found != cases[i].head_len) {
                fail_msg("%zu of %zu with a cut at %zu: %s", found, cases[i].head_len, split,
                         text.ptr);
            }
        }
        size_t scanned = 0, found = 0;
        for (size_t len = 0; len <= text.len && !found; len++) {
            found = http1_head_length(slice_of(text.ptr, len), &scanned);
            assert_true(found == 0 || found == len);
        }
        assert_int_equal(found, cases[i].head_len);
    }
}

/* ---- chunked bodies ---- */

struct decoded {
    enum weir_err err;
    bool is_done;
    size_t consumed;
    size_t body_len;
    char body[512];
};

/* Feeds pieces [0, first), [first, second), [second, end), each in memory of its own. */
static struct decoded decode(struct slice text, size_t first, size_t second)
{
    const size_t ends[] = {first, second, text.len};
    struct http1_chunks chunks;
    struct decoded d = {0};
    http1_chunks_init(&chunks);
    size_t from = 0;
    for (size_t i = 0; i < 3 && d.err == WEIR_OK && !chunks.is_done; from = ends[i++]) {
        size_t len = ends[i] - from, body_len, consumed;
        char *bytes = heap_alloc(len ? len : 1);
        memcpy(bytes, text.ptr + from, len);
        d.err = http1_chunks_decode(&chunks, bytes, len, &body_len, &consumed);
        assert_true(body_len <= consumed && consumed <= len);
        assert_true(consumed == len || chunks.is_done || d.err != WEIR_OK);
        assert_true(d.body_len + body_len <= sizeof d.body);
        memcpy(d.body + d.body_len, bytes, body_len);
        d.body_len += body_len;
        d.consumed += consumed;
        heap_free(bytes);
    }
    d.is_done = chunks.is_done;
    return d;
}

/* `rest`: what follows the body, or NULL when the body does not end. */
static void assert_decodes(struct slice text, enum weir_err err, const char *body, const char *rest)
{
    for (size_t first = 0; first <= text.len; first++) {
        for (size_t second = first; second <= text.len; second++) {
            struct decoded d = decode(text, first, second);
            struct slice left = slice_from(text, d.consumed);
            if (d.err != err || !slice_eq(slice_of(d.body, d.body_len), slice_str(body)) ||
                (err == WEIR_OK && d.is_done != (rest != NULL)) ||
                (err == WEIR_OK && rest && !slice_eq(left, slice_str(rest)))) {
                fail_msg("%s, \"%.*s\", %zu used, cuts at %zu and %zu: %.*s", weir_err_name(d.err),
                         (int)d.body_len, d.body, d.consumed, first, second, SLICE_ARG(text));
            }
        }
    }
}

static void test_chunks_decode_wherever_they_are_cut(void **state)
{
    static const struct {
        const char *text, *body, *rest;
    } cases[] = {
        {"0\r\n\r\n", "", ""},
        {"3\r\nabc\r\n0\r\n\r\n", "abc", ""},
        {"3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\n", "abc", "GET / HTTP/1.1\r\n"},
        {"1\r\na\r\n1\r\nb\r\n000\r\n\r\n", "ab", ""},
        {"00a\r\n0123456789\r\nA\r\nabcdefghij\r\n0\r\n\r\n", "0123456789abcdefghij", ""},
        {"3;name=value;q=\"x;y\"\r\n\r\n\n\r\n0;last\r\n\r\n", "\r\n\n", ""},
        {"2\r\nab\r\n0\r\nX-T: 1\r\nContent-Length: 9\r\nE:\r\n\r\nrest", "ab", "rest"},
        {"5\r\n0\r\n\r\n\r\n0\r\n\r\n", "0\r\n\r\n", ""},
        {"2\r\nab\r\n0\r\n\r", "ab", NULL},
        {"ffffffffffffffff\r\nab", "ab", NULL},
        {"", "", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_decodes(slice_str(cases[i].text), WEIR_OK, cases[i].body, cases[i].rest);
    }
}

static void test_bad_chunk_framing_is_refused_wherever_it_is_cut(void **state)
{
    static const struct {
        struct slice text;
        const char *body; /* what was good before it */
    } cases[] = {
        {BYTES("3\nabc\r\n0\r\n\r\n"), ""},
        {BYTES("3\r\nabc\n0\r\n\r\n"), "abc"},
        {BYTES("3\r\nabc\r\n0\n\r\n"), "abc"},
        {BYTES("3\r\nabc\r\n0\r\n\n"), "abc"},
        {BYTES("3\r\nabc\r\n0\r\n\rX"), "abc"},
        {BYTES("3\r\nabc\r\n0\r\nX: y\n\r\n"), "abc"},
        {BYTES("3\r\nabc\r\n0\r\nX: y\r\n\n"), "abc"},
        {BYTES("3\r\nabcXY0\r\n\r\n"), "abc"},
        {BYTES("3\r\nabc\r\r\n0\r\n\r\n"), "abc"},
        {BYTES("3\rXabc\r\n0\r\n\r\n"), ""},
        {BYTES("3;a\nabc\r\n0\r\n\r\n"), ""},
        {BYTES("3;a\rb\r\nabc\r\n0\r\n\r\n"), ""},
        {BYTES("3;a\0b\r\nabc\r\n0\r\n\r\n"), ""},
        {BYTES("3 \r\nabc\r\n0\r\n\r\n"), ""},
        {BYTES("3 zz\r\nabc\r\n0\r\n\r\n"), ""},
        {BYTES(" 3\r\nabc\r\n0\r\n\r\n"), ""},
        {BYTES("+3\r\nabc\r\n0\r\n\r\n"), ""},
        {BYTES("-3\r\nabc\r\n0\r\n\r\n"), ""},
        {BYTES("0x3\r\nabc\r\n0\r\n\r\n"), ""},
        {BYTES("\r\nabc\r\n0\r\n\r\n"), ""},
        {BYTES(";a\r\nabc\r\n0\r\n\r\n"), ""},
        {BYTES("g\r\n"), ""},
        {BYTES("10000000000000000\r\nabc"), ""},
        {BYTES("fffffffffffffffff\r\nabc"), ""},
        {BYTES("3\r\nabc\r\n0\r\nno colon\r\n\r\n"), "abc"},
        {BYTES("3\r\nabc\r\n0\r\n: nameless\r\n\r\n"), "abc"},
        {BYTES("3\r\nabc\r\n0\r\nX: y\r\n folded\r\n\r\n"), "abc"},
        {BYTES("3\r\nabc\r\n0\r\nX: \x01\r\n\r\n"), "abc"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_decodes(cases[i].text, WEIR_ESYNTAX, cases[i].body, NULL);
    }
}

/* One byte of body for ever more bytes of framing. */
static void test_framing_without_end_is_refused(void **state)
{
    static const struct {
        const char *start, *again;
    } cases[] = {
        {"1;", "a"},
        {"", "0"},
        {"0\r\n", "A: b\r\n"},
        {"0\r\nA", "a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct http1_chunks chunks;
        http1_chunks_init(&chunks);
        size_t fed = 0, body_len, consumed;
        const char *piece = cases[i].start;
        enum weir_err err = WEIR_OK;
        while (err == WEIR_OK && fed < (1 << 20)) {
            char bytes[16];
            size_t len = strlen(piece);
            memcpy(bytes, piece, len);
            err = http1_chunks_decode(&chunks, bytes, len, &body_len, &consumed);
            fed += len;
            piece = cases[i].again;
        }
        assert_int_equal(err, WEIR_ESYNTAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request_is_taken_apart),
        cmocka_unit_test(test_target_in_absolute_form_is_its_path),
        cmocka_unit_test(test_what_could_be_read_in_two_ways_is_refused),
        cmocka_unit_test(test_other_protocols_and_versions_are_told_apart),
        cmocka_unit_test(test_only_chunked_frames_without_a_length),
        cmocka_unit_test(test_keep_alive_follows_version_and_connection_header),
        cmocka_unit_test(test_expectation_counts_in_1_1_only),
        cmocka_unit_test(test_headers_are_counted),
        cmocka_unit_test(test_hop_by_hop_headers_are_known_and_named),
        cmocka_unit_test(test_response_framing),
        cmocka_unit_test(test_responses_are_held_to_the_same_rules),
        cmocka_unit_test(test_head_is_found_wherever_the_bytes_are_cut),
        cmocka_unit_test(test_chunks_decode_wherever_they_are_cut),
        cmocka_unit_test(test_bad_chunk_framing_is_refused_wherever_it_is_cut),
        cmocka_unit_test(test_framing_without_end_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
