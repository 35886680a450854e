#include "base/json_scan.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "base/utf8.h"

typedef const unsigned char *cursor;

struct scanner {
    cursor start;
    cursor at;
    cursor end;
    const char *error_text;
    size_t depth;                                 /* containers that are open */
    uint64_t is_object[JSON_SCAN_MAX_DEPTH / 64]; /* bit d - 1: what was opened at depth d */
};

static bool fail(struct scanner *s, cursor where, const char *text)
{
    s->at = where;
    s->error_text = where == s->end ? "the text ends in the middle of the document" : text;
    return false;
}

/* -- strings -- */

/* Bytes that mean themselves: no quote, no backslash, no control code, not part of UTF-8. */
static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

/* Most of a chat body is plain text inside strings; everything else is rare next to it. */
static cursor skip_plain(cursor p, cursor end)
{
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"');
    const __m128i backslash = _mm_set1_epi8('\\');
    const __m128i space = _mm_set1_epi8(0x20);
    while (end - p >= 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)p);
        __m128i odd = _mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, backslash));
        odd = _mm_or_si128(odd, _mm_cmplt_epi8(v, space)); /* signed: also all above 0x7f */
        unsigned mask = (unsigned)_mm_movemask_epi8(odd);
        if (mask)
            return p + __builtin_ctz(mask);
        p += 16;
    }
#elif defined(__aarch64__)
    while (end - p >= 16) {
        uint8x16_t v = vld1q_u8(p);
        uint8x16_t odd = vorrq_u8(vceqq_u8(v, vdupq_n_u8('"')), vceqq_u8(v, vdupq_n_u8('\\')));
        odd = vorrq_u8(odd, vcltq_s8(vreinterpretq_s8_u8(v), vdupq_n_s8(0x20)));
        uint8x8_t nibbles = vshrn_n_u16(vreinterpretq_u16_u8(odd), 4); /* four bits per byte */
        uint64_t mask = vget_lane_u64(vreinterpret_u64_u8(nibbles), 0);
        if (mask)
            return p + __builtin_ctzll(mask) / 4;
        p += 16;
    }
#endif
    while (p < end && is_plain(*p))
        p++;
    return p;
}

static int hex_digit(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The code unit of "\uXXXX" at `p`, or -1 when that is not what stands there. */
static int32_t unicode_escape(cursor p, cursor end)
{
    if (end - p < 6 || p[0] != '\\' || p[1] != 'u')
        return -1;
    int32_t unit = 0;
    for (int i = 2; i < 6; i++) {
        int digit = hex_digit(p[i]);
        if (digit < 0)
            return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

static bool is_high_surrogate(int32_t unit)
{
    return unit >= 0xd800 && unit <= 0xdbff;
}

static bool is_low_surrogate(int32_t unit)
{
    return unit >= 0xdc00 && unit <= 0xdfff;
}

static bool scan_escape(struct scanner *s)
{
    cursor p = s->at;
    if (s->end - p < 2)
        return fail(s, s->end, NULL);
    switch (p[1]) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        s->at += 2;
        return true;
    case 'u':
        break;
    default:
        return fail(s, p, "no such escape; a backslash itself is written \\\\");
    }

    int32_t unit = unicode_escape(p, s->end);
    if (unit < 0)
        return fail(s, p, "\\u needs four hexadecimal digits");
    if (is_high_surrogate(unit)) {
        if (!is_low_surrogate(unicode_escape(p + 6, s->end)))
            return fail(s, p, "half of a surrogate pair; write both halves or the character");
        s->at += 12;
        return true;
    }
    if (is_low_surrogate(unit))
        return fail(s, p, "half of a surrogate pair; write both halves or the character");
    s->at += 6;
    return true;
}

/* Three bytes at `p`, of four readable ones, whose lead allows any second byte (not E0, not ED). */
static bool is_common_triple(cursor p)
{
    uint32_t word = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    return (word & 0xc0c0f0) == 0x8080e0 && p[0] != 0xe0 && p[0] != 0xed;
}

/* A run of non-ASCII characters; in Chinese, Japanese and Korean nearly all are triples. */
static bool scan_utf8(struct scanner *s)
{
    cursor p = s->at;
    while (p < s->end && *p >= 0x80) {
        if (s->end - p >= 4 && is_common_triple(p)) {
            p += 3;
            continue;
        }
        size_t len = utf8_sequence(p, (size_t)(s->end - p));
        if (len == 0)
            return fail(s, p, "the text is not valid UTF-8");
        p += len;
    }
    s->at = p;
    return true;
}

/* From the opening quote to behind the closing one. */
static bool scan_string(struct scanner *s, bool *escaped)
{
    *escaped = false;
    s->at++;
    for (;;) {
        s->at = skip_plain(s->at, s->end);
        if (s->at == s->end)
            return fail(s, s->end, NULL);
        unsigned char c = *s->at;
        if (c == '"') {
            s->at++;
            return true;
        }
        if (c == '\\') {
            *escaped = true;
            if (!scan_escape(s))
                return false;
        } else if (c < 0x20) {
            return fail(s, s->at, "a control character inside a string must be escaped");
        } else {
            if (!scan_utf8(s))
                return false;
        }
    }
}

/* -- other values -- */

static bool skip_digits(struct scanner *s)
{
    cursor from = s->at;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9')
        s->at++;
    return s->at > from;
}

static bool scan_number(struct scanner *s)
{
    if (*s->at == '-')
        s->at++;
    if (s->at < s->end && *s->at == '0')
        s->at++; /* a digit behind it then fails as "expected a comma" */
    else if (!skip_digits(s))
        return fail(s, s->at, "a minus sign needs digits behind it");
    if (s->at < s->end && *s->at == '.') {
        s->at++;
        if (!skip_digits(s))
            return fail(s, s->at, "a decimal point needs digits behind it");
    }
    if (s->at < s->end && (*s->at | 0x20) == 'e') {
        s->at++;
        if (s->at < s->end && (*s->at == '+' || *s->at == '-'))
            s->at++;
        if (!skip_digits(s))
            return fail(s, s->at, "an exponent needs digits");
    }
    return true;
}

static bool scan_word(struct scanner *s, const char *word, size_t len)
{
    if ((size_t)(s->end - s->at) < len || memcmp(s->at, word, len) != 0)
        return fail(s, s->at, "no such word in JSON; only true, false and null");
    s->at += len;
    return true;
}

/* A value that is no container and starts with `c`. */
static bool scan_scalar(struct scanner *s, unsigned char c)
{
    bool escaped;
    switch (c) {
    case '"':
        return scan_string(s, &escaped);
    case 't':
        return scan_word(s, "true", 4);
    case 'f':
        return scan_word(s, "false", 5);
    case 'n':
        return scan_word(s, "null", 4);
    case '-':
    case '0' ... '9':
        return scan_number(s);
    default:
        return fail(s, s->at, "expected a value");
    }
}

static enum json_kind kind_of(unsigned char first)
{
    switch (first) {
    case '{':
        return JSON_OBJECT;
    case '[':
        return JSON_ARRAY;
    case '"':
        return JSON_STRING;
    case 't':
    case 'f':
        return JSON_BOOL;
    case 'n':
        return JSON_NULL;
    default:
        return JSON_NUMBER;
    }
}

/* -- structure -- */

/* The next byte that is no white space, or 0 at the end: no byte of JSON's own is 0. */
static unsigned char next_byte(struct scanner *s)
{
    while (s->at < s->end) {
        unsigned char c = *s->at;
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t')
            return c;
        s->at++;
    }
    return 0;
}

static bool in_object(const struct scanner *s)
{
    size_t i = s->depth - 1;
    return s->is_object[i / 64] >> (i % 64) & 1;
}

/* Over the bracket at s->at. */
static enum weir_err open_container(struct scanner *s)
{
    if (s->depth == JSON_SCAN_MAX_DEPTH) {
        fail(s, s->at, "nested too deeply; 128 levels are allowed");
        return WEIR_ELIMIT;
    }
    uint64_t bit = (uint64_t)1 << (s->depth % 64);
    uint64_t *word = &s->is_object[s->depth / 64];
    *word = *s->at == '{' ? *word | bit : *word & ~bit;
    s->depth++;
    s->at++;
    return WEIR_OK;
}

/* From a key to its value. */
static bool scan_key(struct scanner *s, struct json_member *member)
{
    if (next_byte(s) != '"')
        return fail(s, s->at, "expected a key in double quotes");
    cursor from = s->at + 1;
    if (!scan_string(s, &member->key_escaped))
        return false;
    member->key = slice_of((const char *)from, (size_t)(s->at - 1 - from));
    if (next_byte(s) != ':')
        return fail(s, s->at, "expected a colon behind the key");
    s->at++;
    return true;
}

/* The comma between two items, unless this is the first one. */
static bool scan_separator(struct scanner *s, bool first)
{
    if (first)
        return true;
    if (next_byte(s) != ',')
        return fail(s, s->at, "expected a comma or the closing bracket");
    s->at++;
    return true;
}

/* From a separator to the end of a scalar, or over the opening bracket of a container. */
static enum weir_err scan_item(struct scanner *s, bool first, struct json_member *member,
                               cursor *value)
{
    if (!scan_separator(s, first) || (in_object(s) && !scan_key(s, member)))
        return WEIR_ESYNTAX;
    unsigned char c = next_byte(s);
    *value = s->at;
    if (c == '{' || c == '[')
        return open_container(s);
    return scan_scalar(s, c) ? WEIR_OK : WEIR_ESYNTAX;
}

/* From behind the top-level '{' to behind its '}'. */
static enum weir_err scan_object(struct scanner *s, json_member_fn fn, void *ctx)
{
    struct json_member top = {0}, nested;
    cursor top_value = NULL, nested_value;
    bool first = true;
    while (s->depth > 0) {
        size_t depth = s->depth;
        if (next_byte(s) == (in_object(s) ? '}' : ']')) {
            s->at++;
            s->depth--;
        } else {
            bool is_top = depth == 1;
            enum weir_err rc =
                scan_item(s, first, is_top ? &top : &nested, is_top ? &top_value : &nested_value);
            if (rc)
                return rc;
        }
        first = s->depth > depth;
        if (s->depth != 1 || first)
            continue;
        top.value = slice_of((const char *)top_value, (size_t)(s->at - top_value));
        top.kind = kind_of(*top_value);
        enum weir_err rc = fn(ctx, &top);
        if (rc) {
            s->at = (cursor)top.value.ptr; /* what the callback refused */
            return rc;
        }
    }
    return WEIR_OK;
}

static enum weir_err scan_document(struct scanner *s, json_member_fn fn, void *ctx,
                                   struct json_scan_result *result)
{
    if (next_byte(s) != '{') {
        fail(s, s->at, "expected an object, which starts with {");
        return WEIR_ESYNTAX;
    }
    result->object_start = (size_t)(s->at - s->start);
    enum weir_err rc = open_container(s);
    if (rc)
        return rc;
    result->object_empty = next_byte(s) == '}';
    rc = scan_object(s, fn, ctx);
    if (rc)
        return rc;
    result->object_end = (size_t)(s->at - 1 - s->start);
    next_byte(s);
    if (s->at < s->end) {
        fail(s, s->at, "there is more text behind the object");
        return WEIR_ESYNTAX;
    }
    return WEIR_OK;
}

enum weir_err json_scan(struct slice text, json_member_fn fn, void *ctx,
                        struct json_scan_result *result)
{
    cursor start = (cursor)(text.ptr ? text.ptr : "");
    struct scanner s = {.start = start, .at = start, .end = start + text.len};
    *result = (struct json_scan_result){0};
    enum weir_err rc = scan_document(&s, fn, ctx, result);
    if (rc) {
        result->error_offset = (size_t)(s.at - s.start);
        result->error_text = s.error_text;
    }
    return rc;
}

/* -- unescaping -- */

static size_t put_utf8(uint32_t code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/*
 * Takes one escape off the front of `raw` and writes what it means; returns how many bytes that
 * is, at most 4 and never more than were taken. What json_scan would refuse means itself.
 */
static size_t take_escape(struct slice *raw, char *out)
{
    static const char meaning[128] = {
        ['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
        ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t',
    };
    cursor p = (cursor)raw->ptr;
    cursor end = p + raw->len;
    if (raw->len >= 2 && p[1] < sizeof meaning && meaning[p[1]]) {
        *raw = slice_from(*raw, 2);
        *out = meaning[p[1]];
        return 1;
    }
    int32_t unit = unicode_escape(p, end);
    if (unit < 0 || is_low_surrogate(unit)) {
        *raw = slice_from(*raw, 1);
        *out = '\\';
        return 1;
    }
    if (!is_high_surrogate(unit)) {
        *raw = slice_from(*raw, 6);
        return put_utf8((uint32_t)unit, out);
    }
    int32_t low = unicode_escape(p + 6, end);
    if (!is_low_surrogate(low)) {
        *raw = slice_from(*raw, 1);
        *out = '\\';
        return 1;
    }
    *raw = slice_from(*raw, 12);
    return put_utf8(0x10000 + ((uint32_t)(unit - 0xd800) << 10) + (uint32_t)(low - 0xdc00), out);
}

/* Takes the bytes up to the next backslash off the front of `raw`. */
static struct slice take_run(struct slice *raw)
{
    const char *backslash = raw->len ? memchr(raw->ptr, '\\', raw->len) : NULL;
    struct slice run = slice_of(raw->ptr, backslash ? (size_t)(backslash - raw->ptr) : raw->len);
    *raw = slice_from(*raw, run.len);
    return run;
}

bool json_spells(struct slice raw, struct slice plain)
{
    while (raw.len > 0) {
        struct slice piece = take_run(&raw);
        char meaning[4];
        if (piece.len == 0)
            piece = slice_of(meaning, take_escape(&raw, meaning));
        if (!slice_starts(plain, piece))
            return false;
        plain = slice_from(plain, piece.len);
    }
    return plain.len == 0;
}

size_t json_unescape(struct slice raw, char *out)
{
    size_t len = 0;
    while (raw.len > 0) {
        struct slice run = take_run(&raw);
        if (run.len > 0)
            memmove(out + len, run.ptr, run.len); /* `out` may be `raw` itself */
        len += run.len;
        if (raw.len > 0)
            len += take_escape(&raw, out + len);
    }
    return len;
}
