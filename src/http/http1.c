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

/* ---- bytes ---- */

/* RFC 9110 §5.6.2: what names are made of. */
static bool is_token(unsigned char b)
{
    static const bool allowed[256] = {
        ['!'] = true,         ['#'] = true,         ['$'] = true, ['%'] = true,
        ['&'] = true,         ['\''] = true,        ['*'] = true, ['+'] = true,
        ['-'] = true,         ['.'] = true,         ['^'] = true, ['_'] = true,
        ['`'] = true,         ['|'] = true,         ['~'] = true, ['0' ... '9'] = true,
        ['A' ... 'Z'] = true, ['a' ... 'z'] = true,
    };
    return allowed[b];
}

/* What values are made of: no control character but the tab. */
static bool is_text(unsigned char b)
{
    return (b >= ' ' && b != 0x7f) || b == '\t';
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

static llhttp_settings_t head_settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init_once(void)
{
    llhttp_settings_init(&head_settings);
    head_settings.on_url = on_url;
    head_settings.on_header_field = on_header_field;
    head_settings.on_header_value = on_header_value;
    head_settings.on_headers_complete = on_headers_complete;
}

static enum weir_err refuse(const char **why, const char *text)
{
    *why = text;
    return WEIR_ESYNTAX;
}

static enum weir_err refuse_version(const char **why)
{
    *why = "only HTTP/1.0 and HTTP/1.1 are spoken here";
    return WEIR_EUNSUPPORTED;
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

/* A name with a space in it is one header here and perhaps another one behind us. */
static enum weir_err check_names(const struct http_head *head, const char **why)
{
    for (size_t i = 0; i < head->header_count; i++) {
        struct slice name = head->headers[i].name;
        if (name.len == 0) {
            return refuse(why, "a header has no name");
        }
        for (size_t j = 0; j < name.len; j++) {
            if (!is_token((unsigned char)name.ptr[j])) {
                return refuse(why, "a header's name has a character that names do not have");
            }
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
            return refuse_version(why);
        }
        const char *reason = llhttp_get_error_reason(&p->parser);
        return refuse(why, reason && *reason ? reason : "malformed head");
    }
    if (p->parser.http_major != 1 || p->parser.http_minor > 1) {
        return refuse_version(why);
    }
    if (check_names(out, why) != WEIR_OK) {
        return WEIR_ESYNTAX;
    }
    out->is_http11 = p->parser.http_minor == 1;
    out->keep_alive = out->is_http11 ? !connection_has(out, SLICE("close"))
                                     : connection_has(out, SLICE("keep-alive"));
    return read_framing(out, why);
}

/* llhttp reads RTSP and ICE too, whose versions look like ours, and blanks inside a target. */
static enum weir_err check_request_line(struct slice bytes, struct slice target, const char **why)
{
    for (size_t i = 0; i < target.len; i++) {
        if ((unsigned char)target.ptr[i] <= ' ' || target.ptr[i] == 0x7f) {
            return refuse(why, "the request's target has a blank or a control character");
        }
    }
    size_t before = (size_t)(target.ptr - bytes.ptr) + target.len;
    return slice_starts(slice_from(bytes, before), SLICE(" HTTP/")) ? WEIR_OK : refuse_version(why);
}

/* RFC 9112 §3.2: a request without one, or with two, is read differently by different servers. */
static enum weir_err check_host(const struct http_head *head, const char **why)
{
    size_t count = 0;
    for (size_t i = 0; i < head->header_count; i++) {
        count += slice_eq_nocase(head->headers[i].name, SLICE("host"));
    }
    if (count > 1) {
        return refuse(why, "more than one Host");
    }
    return count || !head->is_http11 ? WEIR_OK : refuse(why, "HTTP/1.1 needs a Host");
}

/* "http://host/path", as for a proxy, must be understood too (RFC 9112 section 3.2.2). */
static struct slice origin_form(struct slice target)
{
    struct slice scheme = SLICE("http://");
    if (target.len < scheme.len || !slice_eq_nocase(slice_of(target.ptr, scheme.len), scheme)) {
        return target;
    }
    struct slice rest = slice_from(target, scheme.len);
    while (rest.len && *rest.ptr != '/' && *rest.ptr != '?') {
        rest = slice_from(rest, 1);
    }
    return rest.len && *rest.ptr == '/' ? rest : SLICE("/");
}

enum weir_err http1_parse_request(struct slice head, struct http_head *out, const char **why)
{
    struct head_parse p;
    enum weir_err err = parse_head(head, HTTP_REQUEST, out, &p, why);
    if (err == WEIR_OK) {
        err = check_request_line(head, out->target, why);
    }
    if (err == WEIR_OK) {
        err = check_host(out, why);
    }
    if (err != WEIR_OK) {
        return err;
    }
    out->target = origin_form(out->target);
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

/*
 * Read here and not by llhttp: version 8.1, as Debian builds it, takes any byte for the LF behind a
 * chunk's size and any two for the CRLF behind its data, so that it and a stricter reader would see
 * different messages.
 */
enum chunk_state {
    CHUNK_SIZE_FIRST, /* the first digit, which there must be */
    CHUNK_SIZE,
    CHUNK_EXTENSION,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_TRAILER_FIRST, /* a trailer's name, or the empty line that ends the body */
    CHUNK_TRAILER_NAME,
    CHUNK_TRAILER_VALUE,
    CHUNK_TRAILER_LF,
    CHUNK_END_LF,
};

/* Of one size line, or of all trailers: more than any sender needs. */
enum { MAX_CHUNK_OVERHEAD = 16 * 1024 };

void http1_chunks_init(struct http1_chunks *c)
{
    *c = (struct http1_chunks){.state = CHUNK_SIZE_FIRST};
}

static int hex_digit(unsigned char b)
{
    return b >= '0' && b <= '9'   ? b - '0'
           : b >= 'a' && b <= 'f' ? b - 'a' + 10
           : b >= 'A' && b <= 'F' ? b - 'A' + 10
                                  : -1;
}

static bool add_digit(struct http1_chunks *c, unsigned char b)
{
    int digit = hex_digit(b);
    if (digit < 0 || c->left > UINT64_MAX >> 4) {
        return false;
    }
    c->left = c->left << 4 | (unsigned)digit;
    c->state = CHUNK_SIZE;
    return true;
}

static bool chunk_goes_to(struct http1_chunks *c, enum chunk_state state, bool is_allowed)
{
    c->state = state;
    return is_allowed;
}

/* One byte that is not data. False: it does not belong there. */
static bool take_chunk_byte(struct http1_chunks *c, unsigned char b)
{
    switch ((enum chunk_state)c->state) {
    case CHUNK_SIZE:
        if (b == ';') {
            return chunk_goes_to(c, CHUNK_EXTENSION, true);
        }
        if (b == '\r') {
            return chunk_goes_to(c, CHUNK_SIZE_LF, true);
        }
        return add_digit(c, b);
    case CHUNK_SIZE_FIRST:
        return add_digit(c, b);
    case CHUNK_EXTENSION:
        return b == '\r' ? chunk_goes_to(c, CHUNK_SIZE_LF, true) : is_text(b);
    case CHUNK_SIZE_LF:
        return chunk_goes_to(c, c->left ? CHUNK_DATA : CHUNK_TRAILER_FIRST, b == '\n');
    case CHUNK_DATA_CR:
        return chunk_goes_to(c, CHUNK_DATA_LF, b == '\r');
    case CHUNK_DATA_LF:
        c->overhead = 0;
        return chunk_goes_to(c, CHUNK_SIZE_FIRST, b == '\n');
    case CHUNK_TRAILER_FIRST:
        if (b == '\r') {
            return chunk_goes_to(c, CHUNK_END_LF, true);
        }
        return chunk_goes_to(c, CHUNK_TRAILER_NAME, is_token(b));
    case CHUNK_TRAILER_NAME:
        return b == ':' ? chunk_goes_to(c, CHUNK_TRAILER_VALUE, true) : is_token(b);
    case CHUNK_TRAILER_VALUE:
        return b == '\r' ? chunk_goes_to(c, CHUNK_TRAILER_LF, true) : is_text(b);
    case CHUNK_TRAILER_LF:
        return chunk_goes_to(c, CHUNK_TRAILER_FIRST, b == '\n');
    case CHUNK_END_LF:
        c->is_done = b == '\n';
        return c->is_done;
    case CHUNK_DATA:
        break;
    }
    return false;
}

/* Moves what is here of the chunk's data to `to`; returns how much that is. */
static size_t take_chunk_data(struct http1_chunks *c, char *to, const char *from, size_t len)
{
    size_t n = len < c->left ? len : (size_t)c->left;
    if (to != from) {
        memmove(to, from, n);
    }
    c->left -= n;
    if (c->left == 0) {
        c->state = CHUNK_DATA_CR;
    }
    return n;
}

enum weir_err http1_chunks_decode(struct http1_chunks *c, char *bytes, size_t len, size_t *body_len,
                                  size_t *consumed)
{
    size_t at = 0, body = 0;
    bool is_sound = true;
    while (at < len && !c->is_done && is_sound) {
        if (c->state == CHUNK_DATA) {
            size_t n = take_chunk_data(c, bytes + body, bytes + at, len - at);
            at += n;
            body += n;
        } else {
            is_sound = ++c->overhead <= MAX_CHUNK_OVERHEAD &&
                       take_chunk_byte(c, (unsigned char)bytes[at++]);
        }
    }
    *body_len = body;
    *consumed = at;
    return is_sound ? WEIR_OK : WEIR_ESYNTAX;
}
