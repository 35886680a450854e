#include "dialects/errors.h"

#include <stdio.h>

#include "base/json.h"
#include "base/utf8.h"

static const struct {
    const char *reason, *type, *code, *anthropic_type;
    uint16_t status, anthropic_status;
} kinds[API_ERROR_KINDS] = {
#define ROW(symbol, reason_, status_, type_, code_, anthropic_status_, anthropic_type_)            \
    [API_##symbol] = {.reason = reason_,                                                           \
                      .type = type_,                                                               \
                      .code = code_,                                                               \
                      .anthropic_type = anthropic_type_,                                           \
                      .status = status_,                                                           \
                      .anthropic_status = anthropic_status_},
#include "dialects/errors.def"
#undef ROW
};

/* -- making -- */

/* Without the beginning of a character whose end did not fit. */
static void cut_at_character(char *text, size_t len)
{
    size_t at = len;
    while (at > 0 && len - at < 3 && utf8_is_tail((unsigned char)text[at - 1]))
        at--;
    if (at > 0 && (unsigned char)text[at - 1] >= 0xc0 &&
        utf8_sequence((unsigned char *)text + at - 1, len - at + 1) == 0)
        text[at - 1] = '\0';
}

struct api_error *api_error_set(struct api_error *e, enum api_error_kind kind, const char *fmt, ...)
{
    *e = (struct api_error){.kind = kind};
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(e->text, sizeof e->text, fmt, args);
    va_end(args);
    if (len >= (int)sizeof e->text)
        cut_at_character(e->text, sizeof e->text - 1);
    return e;
}

const char *api_error_reason(enum api_error_kind kind)
{
    return kinds[kind].reason;
}

int api_error_status(const struct api_error *e, bool is_anthropic)
{
    if (e->status)
        return e->status;
    return is_anthropic ? kinds[e->kind].anthropic_status : kinds[e->kind].status;
}

/* -- writing -- */

/* `"name":"text"`, or null where `text` has no pointer. */
static enum weir_err put_member(struct buf *out, const char *name, struct slice text)
{
    enum weir_err rc = buf_printf(out, "\"%s\":", name);
    if (rc)
        return rc;
    return text.ptr ? json_put_string(out, text) : buf_append(out, SLICE("null"));
}

static enum weir_err put_members(struct buf *out, const char *const *names,
                                 const struct slice *texts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        enum weir_err rc = i ? buf_append(out, SLICE(",")) : WEIR_OK;
        if (!rc)
            rc = put_member(out, names[i], texts[i]);
        if (rc)
            return rc;
    }
    return WEIR_OK;
}

static struct slice param_of(const struct api_error *e)
{
    return e->param[0] ? slice_str(e->param) : (struct slice){0};
}

static enum weir_err put_openai(const struct api_error *e, struct buf *out)
{
    static const char *const names[] = {"message", "type", "param", "code"};
    const struct slice texts[] = {slice_str(e->text), slice_str(kinds[e->kind].type), param_of(e),
                                  slice_str(kinds[e->kind].code)};
    enum weir_err rc = buf_append(out, SLICE("{\"error\":{"));
    if (!rc)
        rc = put_members(out, names, texts, 4);
    return rc ? rc : buf_append(out, SLICE("}}"));
}

static enum weir_err put_anthropic(const struct api_error *e, struct slice request_id,
                                   struct buf *out)
{
    static const char *const names[] = {"type", "message"};
    const struct slice texts[] = {slice_str(kinds[e->kind].anthropic_type), slice_str(e->text)};
    enum weir_err rc = buf_append(out, SLICE("{\"type\":\"error\",\"error\":{"));
    if (!rc)
        rc = put_members(out, names, texts, 2);
    if (!rc)
        rc = buf_append(out, SLICE("},"));
    if (!rc)
        rc = put_member(out, "request_id", request_id);
    return rc ? rc : buf_append(out, SLICE("}"));
}

static enum weir_err put_responses(const struct api_error *e, uint64_t sequence, struct buf *out)
{
    static const char *const names[] = {"code", "message", "param"};
    const struct slice texts[] = {slice_str(kinds[e->kind].code), slice_str(e->text), param_of(e)};
    enum weir_err rc = buf_append(out, SLICE("{\"type\":\"error\","));
    if (!rc)
        rc = put_members(out, names, texts, 3);
    return rc ? rc : buf_printf(out, ",\"sequence_number\":%llu}", (unsigned long long)sequence);
}

/* All or nothing: an error event that is cut short would be worse than none. */
static enum weir_err finish(struct buf *out, size_t before, enum weir_err rc)
{
    if (rc)
        out->end = out->start + before;
    return rc;
}

enum weir_err api_error_write_body(const struct api_error *e, bool is_anthropic,
                                   struct slice request_id, struct buf *out)
{
    size_t before = buf_len(out);
    return finish(out, before,
                  is_anthropic ? put_anthropic(e, request_id, out) : put_openai(e, out));
}

static enum weir_err put_event(const struct api_error *e, enum dialect dialect,
                               struct slice request_id, uint64_t sequence, struct buf *out)
{
    bool is_named = dialect == DIALECT_ANTHROPIC || dialect == DIALECT_OPENAI_RESPONSES;
    enum weir_err rc = buf_append(out, is_named ? SLICE("event: error\ndata: ") : SLICE("data: "));
    if (rc)
        return rc;
    if (dialect == DIALECT_ANTHROPIC)
        rc = put_anthropic(e, request_id, out);
    else if (dialect == DIALECT_OPENAI_RESPONSES)
        rc = put_responses(e, sequence, out);
    else
        rc = put_openai(e, out);
    return rc ? rc : buf_append(out, SLICE("\n\n"));
}

enum weir_err api_error_write_event(const struct api_error *e, enum dialect dialect,
                                    struct slice request_id, uint64_t sequence, struct buf *out)
{
    size_t before = buf_len(out);
    return finish(out, before, put_event(e, dialect, request_id, sequence, out));
}

/* -- understanding engines -- */

static enum api_error_kind kind_of_status(int status)
{
    switch (status) {
    case 401:
        return API_UNAUTHORIZED;
    case 403:
        return API_FORBIDDEN;
    case 404:
        return API_UNKNOWN_PATH;
    case 413:
        return API_TOO_LARGE;
    case 429:
        return API_RATE_LIMITED;
    case 503:
    case 529:
        return API_OVERLOADED;
    case 504:
        return API_UPSTREAM_TIMEOUT;
    default:
        return status >= 400 && status < 500 ? API_BAD_REQUEST : API_UPSTREAM_FAILED;
    }
}

/* The text that a person should read in `v`, an error or a whole answer; empty if there is none. */
static struct slice find_words(const struct json_value *v)
{
    static const char *const names[] = {"message", "detail"};
    if (json_is_string(v))
        return json_string(v);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_is_string(json_get(v, names[i])))
            return json_string(json_get(v, names[i]));
    return (struct slice){0};
}

static struct slice trim(struct slice s)
{
    while (s.len > 0 && (unsigned char)s.ptr[0] <= ' ')
        s = slice_from(s, 1);
    while (s.len > 0 && (unsigned char)s.ptr[s.len - 1] <= ' ')
        s.len--;
    return s;
}

/* The words of an answer; where they stand at no known place, the answer as it is. */
static struct slice words_of_answer(const struct json_value *root, struct slice body)
{
    struct slice words = find_words(json_get(root, "error"));
    if (words.len == 0)
        words = find_words(root);
    return words.len ? words : trim(body);
}

static void copy_param(const struct json_value *error, struct api_error *out)
{
    struct slice param = json_string(json_get(error, "param"));
    if (param.len < sizeof out->param)
        snprintf(out->param, sizeof out->param, "%.*s", SLICE_ARG(param));
}

static bool is_anthropic_type(struct slice type)
{
    for (size_t i = 0; i < API_ERROR_KINDS; i++)
        if (slice_eq(type, slice_str(kinds[i].anthropic_type)))
            return true;
    return slice_eq(type, SLICE("billing_error"));
}

/* Is the answer as the dialect's SDK expects it, so that it can pass as it is? */
static bool is_own_shape(enum dialect dialect, int status, const struct json_value *root)
{
    const struct json_value *error = json_get(root, "error");
    if (!json_is_object(error) || !json_is_string(json_get(error, "message")))
        return false;
    if (dialect != DIALECT_ANTHROPIC)
        return true;
    struct slice type = json_string(json_get(error, "type"));
    return slice_eq(json_string(json_get(root, "type")), SLICE("error")) &&
           is_anthropic_type(type) &&
           slice_eq(type, SLICE("overloaded_error")) == (status == 529); /* FR-6 */
}

static void set_from_answer(int status, bool context_overflow, const struct json_value *root,
                            struct slice body, struct api_error *out)
{
    const struct json_value *error = json_get(root, "error");
    enum api_error_kind kind = context_overflow ? API_CONTEXT_LENGTH : kind_of_status(status);
    if (slice_eq(json_string(json_get(error, "type")), SLICE("overloaded_error")))
        kind = API_OVERLOADED;
    struct slice words = words_of_answer(root, body);
    if (words.len > 0)
        api_error_set(out, kind, "%.*s", SLICE_ARG(words));
    else
        api_error_set(out, kind, "the engine answered %d and said nothing more", status);
    copy_param(error, out);
    if (kind != API_CONTEXT_LENGTH && kind != API_OVERLOADED && status >= 400 && status < 600)
        out->status = (uint16_t)status;
}

bool api_error_from_engine(enum dialect dialect, int status, bool context_overflow,
                           struct slice body, struct api_error *out)
{
    struct json_doc *doc = json_parse(body);
    const struct json_value *root = json_root(doc);
    bool replace = context_overflow || !is_own_shape(dialect, status, root);
    if (replace)
        set_from_answer(status, context_overflow, root, body, out);
    json_doc_free(doc);
    return replace;
}

void api_error_from_event(const struct json_value *error, struct api_error *out)
{
    enum api_error_kind kind = API_UPSTREAM_FAILED;
    int64_t code = json_int(json_get(error, "code"), 0);
    if (code >= 400 && code < 600)
        kind = kind_of_status((int)code);
    if (slice_eq(json_string(json_get(error, "type")), SLICE("overloaded_error")))
        kind = API_OVERLOADED;
    struct slice words = find_words(error);
    if (words.len > 0)
        api_error_set(out, kind, "the engine failed while answering: %.*s", SLICE_ARG(words));
    else
        api_error_set(out, kind, "the engine failed while answering and did not say why");
    copy_param(error, out);
}
