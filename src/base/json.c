#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <yyjson.h>

#include "base/utf8.h"

/* Twice the largest request body that weir takes; yyjson needs a small multiple of it. */
enum { JSON_MAX_BYTES = 64 << 20, JSON_MAX_DEPTH = 128 };

/*
 * yyjson reads any depth without recursion; those who walk the result may recurse. Values lie in
 * one array in document order, so this is a walk over it with the ends of the open containers.
 */
static bool is_shallow(yyjson_val *root)
{
    yyjson_val *ends[JSON_MAX_DEPTH];
    size_t depth = 0;
    yyjson_val *end = unsafe_yyjson_get_next(root);
    for (yyjson_val *v = root; v < end; v++) {
        while (depth > 0 && v >= ends[depth - 1])
            depth--;
        if (!yyjson_is_ctn(v))
            continue;
        if (depth == JSON_MAX_DEPTH)
            return false;
        ends[depth++] = unsafe_yyjson_get_next(v);
    }
    return true;
}

struct json_doc *json_parse(struct slice text)
{
    if (text.len == 0 || text.len > JSON_MAX_BYTES)
        return NULL;
    /*
     * Numbers beyond 64 bits stay text (see json_number): they are valid JSON, and one of them
     * must not make the rest of an answer unreadable. Without YYJSON_READ_INSITU the text is
     * only read; the parameter is not const for the other mode's sake.
     */
    yyjson_doc *doc =
        yyjson_read_opts((char *)text.ptr, text.len, YYJSON_READ_BIGNUM_AS_RAW, NULL, NULL);
    if (doc && !is_shallow(yyjson_doc_get_root(doc))) {
        yyjson_doc_free(doc);
        return NULL;
    }
    return (struct json_doc *)doc;
}

void json_doc_free(struct json_doc *doc)
{
    yyjson_doc_free((yyjson_doc *)doc);
}

static yyjson_val *raw(const struct json_value *v)
{
    return (yyjson_val *)v;
}

static const struct json_value *cooked(const yyjson_val *v)
{
    return (const struct json_value *)v;
}

const struct json_value *json_root(const struct json_doc *doc)
{
    return cooked(yyjson_doc_get_root((yyjson_doc *)doc));
}

const struct json_value *json_get(const struct json_value *object, const char *key)
{
    return cooked(yyjson_obj_get(raw(object), key));
}

const struct json_value *json_at(const struct json_value *array, size_t index)
{
    return cooked(yyjson_arr_get(raw(array), index));
}

size_t json_count(const struct json_value *array_or_object)
{
    return yyjson_is_ctn(raw(array_or_object)) ? unsafe_yyjson_get_len(raw(array_or_object)) : 0;
}

struct slice json_string(const struct json_value *v)
{
    if (!yyjson_is_str(raw(v)))
        return (struct slice){0};
    return slice_of(unsafe_yyjson_get_str(raw(v)), unsafe_yyjson_get_len(raw(v)));
}

int64_t json_int(const struct json_value *v, int64_t fallback)
{
    if (yyjson_is_sint(raw(v)))
        return unsafe_yyjson_get_sint(raw(v));
    if (yyjson_is_uint(raw(v))) {
        uint64_t value = unsafe_yyjson_get_uint(raw(v));
        return value <= INT64_MAX ? (int64_t)value : fallback;
    }
    if (yyjson_is_real(raw(v))) {
        double value = unsafe_yyjson_get_real(raw(v));
        if (value >= -0x1p63 && value < 0x1p63 && trunc(value) == value)
            return (int64_t)value;
    }
    return fallback;
}

double json_number(const struct json_value *v, double fallback)
{
    if (yyjson_is_num(raw(v)))
        return yyjson_get_num(raw(v));
    if (yyjson_is_raw(raw(v))) {
        double value = strtod(yyjson_get_raw(raw(v)), NULL);
        return isfinite(value) ? value : fallback;
    }
    return fallback;
}

bool json_bool(const struct json_value *v, bool fallback)
{
    return yyjson_is_bool(raw(v)) ? unsafe_yyjson_get_bool(raw(v)) : fallback;
}

bool json_is_null(const struct json_value *v)
{
    return yyjson_is_null(raw(v));
}

bool json_is_string(const struct json_value *v)
{
    return yyjson_is_str(raw(v));
}

bool json_is_object(const struct json_value *v)
{
    return yyjson_is_obj(raw(v));
}

bool json_is_array(const struct json_value *v)
{
    return yyjson_is_arr(raw(v));
}

bool json_is_number(const struct json_value *v)
{
    return yyjson_is_num(raw(v)) || yyjson_is_raw(raw(v));
}

/*
 * Walking: values lie one behind the other, and a container knows where it ends. `*pos` counts
 * values from the container, so each step is O(1), whatever is nested inside.
 */
static yyjson_val *step(yyjson_val *container, size_t *pos, size_t values)
{
    yyjson_val *at = container + (*pos ? *pos : 1);
    if (unsafe_yyjson_get_len(container) == 0 || at >= unsafe_yyjson_get_next(container))
        return NULL;
    *pos = (size_t)(unsafe_yyjson_get_next(at + values - 1) - container);
    return at;
}

bool json_next_member(const struct json_value *object, size_t *pos, struct slice *key,
                      const struct json_value **value)
{
    yyjson_val *at = json_is_object(object) ? step(raw(object), pos, 2) : NULL;
    if (!at)
        return false;
    *key = json_string(cooked(at));
    *value = cooked(at + 1);
    return true;
}

bool json_next_element(const struct json_value *array, size_t *pos, const struct json_value **value)
{
    yyjson_val *at = json_is_array(array) ? step(raw(array), pos, 1) : NULL;
    if (!at)
        return false;
    *value = cooked(at);
    return true;
}

/* How the bytes at `p` are written when not as they are; `*len` of them are replaced. */
static const char *escape(const unsigned char *p, size_t left, size_t *len, char text[8])
{
    static const char short_form[0x20] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    *len = 1;
    if (*p == '"')
        return "\\\"";
    if (*p == '\\')
        return "\\\\";
    if (*p < 0x20) {
        if (short_form[*p])
            snprintf(text, 8, "\\%c", short_form[*p]);
        else
            snprintf(text, 8, "\\u%04x", *p);
        return text;
    }
    if (*p == '<' && left > 1 && p[1] == '/') {
        *len = 2;
        return "<\\/";
    }
    if (*p < 0x80)
        return NULL;
    size_t sequence = utf8_sequence(p, left);
    if (sequence == 0)
        return "\xef\xbf\xbd";
    *len = sequence;
    if (sequence == 3 && p[0] == 0xe2 && p[1] == 0x80 && (p[2] == 0xa8 || p[2] == 0xa9))
        return p[2] == 0xa8 ? "\\u2028" : "\\u2029";
    return NULL;
}

static enum weir_err put_escaped(struct buf *out, struct slice text)
{
    const unsigned char *p = (const unsigned char *)text.ptr;
    size_t run = 0; /* start of the bytes that go out as they are */
    size_t at = 0;
    while (at < text.len) {
        size_t len;
        char made[8];
        const char *replacement = escape(p + at, text.len - at, &len, made);
        if (replacement) {
            enum weir_err rc = buf_append(out, slice_from(slice_of(text.ptr, at), run));
            if (!rc)
                rc = buf_append(out, slice_str(replacement));
            if (rc)
                return rc;
            run = at + len;
        }
        at += len;
    }
    return buf_append(out, slice_from(slice_of(text.ptr, at), run));
}

enum weir_err json_put_string(struct buf *out, struct slice text)
{
    size_t before = buf_len(out);
    enum weir_err rc = buf_append(out, SLICE("\""));
    if (!rc)
        rc = put_escaped(out, text);
    if (!rc)
        rc = buf_append(out, SLICE("\""));
    if (rc)
        out->end = out->start + before; /* all or nothing, as buf_append */
    return rc;
}

enum weir_err json_put_number(struct buf *out, double value)
{
    if (!isfinite(value))
        return buf_append(out, SLICE("null"));
    char text[32];
    int len = 0;
    for (int digits = 15; digits <= 17; digits++) { /* 17 always read back as the same double */
        len = snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return buf_append(out, slice_of(text, (size_t)len));
}
