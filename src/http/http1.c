#include "http/http1.h"

#include <llhttp/llhttp.h>
#include <pthread.h>

/* ---- the end of a head ---- */

size_t http1_head_length(struct slice bytes, size_t *scanned)
{
    size_t lead = slice_starts(bytes, SLICE("\r\n")) ? 2 : 0;
    size_t from = *scanned > lead ? *scanned : lead;
    while (from < bytes.len) {
        const char *lf = memchr(bytes.ptr + from, '\n', bytes.len - from);
        if (!lf) {
            break;
        }
        size_t at = (size_t)(lf - bytes.ptr);
        /* An empty line ends the head; with a bare LF too, so that the parser can refuse it. */
        if (at >= lead + 1 &&
            (bytes.ptr[at - 1] == '\n' ||
             (at >= lead + 2 && bytes.ptr[at - 1] == '\r' && bytes.ptr[at - 2] == '\n'))) {
            *scanned = 0;
            return at + 1;
        }
        from = at + 1;
    }
    *scanned = from < bytes.len ? bytes.len : from;
    return 0;
}

/* ---- heads ---- */

struct head_parse {
    llhttp_t parser; /* first: callbacks get a pointer to it */
    struct http_head *head;
    bool has_too_many;
};

static int on_url(llhttp_t *parser, const char *at, size_t len)
{
    ((struct head_parse *)parser)->head->target = slice_of(at, len);
    return 0;
}

static int on_header_field(llhttp_t *parser, const char *at, size_t len)
{
    struct head_parse *p = (struct head_parse *)parser;
    if (p->head->header_count == HTTP_MAX_HEADERS) {
        p->has_too_many = true;
        return -1;
    }
    p->head->headers[p->head->header_count++] = (struct http_header){.name = slice_of(at, len)};
    return 0;
}

static int on_header_value(llhttp_t *parser, const char *at, size_t len)
{
    struct http_head *head = ((struct head_parse *)parser)->head;
    head->headers[head->header_count - 1].value = slice_trim(slice_of(at, len));
    return 0;
}

static int on_headers_complete(llhttp_t *parser)
{
    return HPE_PAUSED; /* bodies are not read here */
}

static llhttp_settings_t head_settings, chunk_settings;
static llhttp_t chunk_template; /* a parser that stands at the first chunk of a response */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int on_message_complete(llhttp_t *parser)
{
    return HPE_PAUSED;
}

struct chunk_parse {
    llhttp_t parser; /* first */
    char *out;
};

static int on_body(llhttp_t *parser, const char *at, size_t len)
{
    struct chunk_parse *p = (struct chunk_parse *)parser;
    if (p->out != at) {
        memmove(p->out, at, len);
    }
    p->out += len;
    return 0;
}

static void init_once(void)
{
    llhttp_settings_init(&head_settings);
    head_settings.on_url = on_url;
    head_settings.on_header_field = on_header_field;
    head_settings.on_header_value = on_header_value;
    head_settings.on_headers_complete = on_headers_complete;

    llhttp_settings_init(&chunk_settings);
    chunk_settings.on_body = on_body;
    chunk_settings.on_message_complete = on_message_complete;

    static const char head[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    llhttp_init(&chunk_template, HTTP_RESPONSE, &chunk_settings);
    if (llhttp_execute(&chunk_template, head, sizeof head - 1) != HPE_OK) {
        WEIR_BUG("llhttp refuses its own response head");
    }
}

static enum weir_err refuse(const char **why, const char *text)
{
    *why = text;
    return WEIR_ESYNTAX;
}

/* What llhttp lets pass, or passes in some versions only. */
static enum weir_err check_bytes(struct slice head, const char **why)
{
    const char *end = head.ptr + head.len;
    for (const char *p = head.ptr; p < end;) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        if (!lf) {
            return refuse(why, "a header line does not end");
        }
        if (lf == p || lf[-1] != '\r') {
            return refuse(why, "a line ends in LF without CR");
        }
        size_t text_len = (size_t)(lf - 1 - p);
        if (memchr(p, '\r', text_len) || memchr(p, '\0', text_len)) {
            return refuse(why, "a header line contains CR or NUL");
        }
        p = lf + 1;
        if (p < end && (*p == ' ' || *p == '\t')) {
            return refuse(why, "a header line is folded");
        }
    }
    return WEIR_OK;
}

static enum weir_err read_framing(struct http_head *head, const char **why)
{
    size_t lengths = 0, codings = 0;
    for (size_t i = 0; i < head->header_count; i++) {
        const struct http_header *h = &head->headers[i];
        if (slice_eq_nocase(h->name, SLICE("content-length"))) {
            lengths++;
            if (!slice_to_u64(h->value, &head->content_length)) {
                return refuse(why, "Content-Length is not a number");
            }
        } else if (slice_eq_nocase(h->name, SLICE("transfer-encoding"))) {
            codings++;
            if (!slice_eq_nocase(h->value, SLICE("chunked"))) {
                return refuse(why, "Transfer-Encoding must be exactly \"chunked\"");
            }
        }
    }
    if (lengths + codings > 1) {
        return refuse(why, "more than one of Content-Length and Transfer-Encoding");
    }
    if (codings && !head->is_http11) {
        return refuse(why, "Transfer-Encoding in HTTP/1.0");
    }
    head->framing = codings ? HTTP_BODY_CHUNKED : lengths ? HTTP_BODY_LENGTH : HTTP_BODY_NONE;
    if (lengths && head->content_length == 0) {
        head->framing = HTTP_BODY_NONE;
    }
    return WEIR_OK;
}

static bool connection_has(const struct http_head *head, struct slice token)
{
    for (size_t i = 0; i < head->header_count; i++) {
        if (slice_eq_nocase(head->headers[i].name, SLICE("connection")) &&
            http_list_has(head->headers[i].value, token)) {
            return true;
        }
    }
    return false;
}

static enum weir_err parse_head(struct slice bytes, llhttp_type_t type, struct http_head *out,
                                struct head_parse *p, const char **why)
{
    pthread_once(&once, init_once);
    *why = NULL;
    enum weir_err err = check_bytes(bytes, why);
    if (err != WEIR_OK) {
        return err;
    }
    out->method = out->target = (struct slice){0};
    out->status = 0;
    out->header_count = 0;
    out->content_length = 0;
    out->expects_continue = out->upgrades = false;
    p->head = out;
    p->has_too_many = false;
    llhttp_init(&p->parser, type, &head_settings);
    llhttp_errno_t result = llhttp_execute(&p->parser, bytes.ptr, bytes.len);
    if (p->has_too_many) {
        *why = "too many headers";
        return WEIR_ELIMIT;
    }
    if (result != HPE_PAUSED && result != HPE_PAUSED_UPGRADE) {
        if (result == HPE_INVALID_VERSION) {
            *why = "only HTTP/1.0 and HTTP/1.1 are spoken here";
            return WEIR_EUNSUPPORTED;
        }
        const char *reason = llhttp_get_error_reason(&p->parser);
        return refuse(why, reason && *reason ? reason : "malformed head");
    }
    if (p->parser.http_major != 1 || p->parser.http_minor > 1) {
        *why = "only HTTP/1.0 and HTTP/1.1 are spoken here";
        return WEIR_EUNSUPPORTED;
    }
    out->is_http11 = p->parser.http_minor == 1;
    out->keep_alive = out->is_http11 ? !connection_has(out, SLICE("close"))
                                     : connection_has(out, SLICE("keep-alive"));
    return read_framing(out, why);
}

enum weir_err http1_parse_request(struct slice head, struct http_head *out, const char **why)
{
    struct head_parse p;
    enum weir_err err = parse_head(head, HTTP_REQUEST, out, &p, why);
    if (err != WEIR_OK) {
        return err;
    }
    out->method = slice_str(llhttp_method_name((llhttp_method_t)p.parser.method));
    out->expects_continue = out->is_http11 && slice_eq_nocase(http_header_get(out, SLICE("expect")),
                                                              SLICE("100-continue"));
    out->upgrades = p.parser.upgrade;
    return WEIR_OK;
}

enum weir_err http1_parse_response(struct slice head, bool to_head, struct http_head *out,
                                   const char **why)
{
    struct head_parse p;
    enum weir_err err = parse_head(head, HTTP_RESPONSE, out, &p, why);
    if (err != WEIR_OK) {
        return err;
    }
    out->status = p.parser.status_code;
    if (out->status < 100 || out->status > 599) {
        return refuse(why, "the status is not between 100 and 599");
    }
    if (to_head || out->status < 200 || out->status == 204 || out->status == 304) {
        out->framing = HTTP_BODY_NONE;
    } else if (out->framing == HTTP_BODY_NONE && !http_header_has(out, SLICE("content-length"))) {
        out->framing = HTTP_BODY_UNTIL_CLOSE;
        out->keep_alive = false;
    }
    return WEIR_OK;
}

/* ---- chunked bodies ---- */

_Static_assert(sizeof(llhttp_t) <= sizeof((struct http1_chunks *)0)->state,
               "llhttp's state has grown");

void http1_chunks_init(struct http1_chunks *c)
{
    pthread_once(&once, init_once);
    memcpy(c->state, &chunk_template, sizeof chunk_template);
    c->is_done = false;
}

enum weir_err http1_chunks_decode(struct http1_chunks *c, char *bytes, size_t len, size_t *body_len,
                                  size_t *consumed)
{
    struct chunk_parse p = {.out = bytes};
    memcpy(&p.parser, c->state, sizeof p.parser);
    llhttp_errno_t result = llhttp_execute(&p.parser, bytes, len);
    *body_len = (size_t)(p.out - bytes);
    *consumed = len;
    if (result == HPE_PAUSED) {
        c->is_done = true;
        *consumed = (size_t)(llhttp_get_error_pos(&p.parser) - bytes);
        return WEIR_OK;
    }
    memcpy(c->state, &p.parser, sizeof p.parser);
    return result == HPE_OK ? WEIR_OK : WEIR_ESYNTAX;
}
