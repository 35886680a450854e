#include "dialects/stream.h"

#include "base/heap.h"
#include "base/json.h"
#include "base/utf8.h"
#include "dialects/key_scan.h"
#include "http/sse.h"

void stream_reader_init(struct stream_reader *r, enum dialect dialect)
{
    *r = (struct stream_reader){.dialect = dialect};
}

bool stream_reader_complete(const struct stream_reader *r)
{
    return r->saw_finish && r->saw_done && !r->saw_error;
}

/* -- what an event can be -- */

static enum stream_event content(struct stream_reader *r)
{
    r->saw_content = true;
    r->content_events++;
    return STREAM_CONTENT;
}

/* An event of the answer that brings nothing yet. */
static enum stream_event quiet(const struct stream_reader *r)
{
    return r->saw_content ? STREAM_META : STREAM_PRELUDE;
}

static enum stream_event done(struct stream_reader *r)
{
    if (!r->saw_error)
        r->saw_done = true; /* vLLM sends [DONE] behind an error too */
    return STREAM_DONE;
}

/* Can the SDKs of the dialect read it? Chat wants an object with a message, the others a type. */
static bool is_native_error(enum dialect dialect, const struct json_value *root)
{
    const struct json_value *error = json_get(root, "error");
    switch (dialect) {
    case DIALECT_OPENAI_RESPONSES:
        return json_string(json_get(root, "type")).len > 0;
    case DIALECT_ANTHROPIC:
        return json_string(json_get(root, "type")).len > 0 &&
               json_string(json_get(error, "type")).len > 0;
    default:
        return json_string(json_get(error, "message")).len > 0;
    }
}

/* `error` is what the engine says about it, or NULL. The first one is the cause. */
static enum stream_event fail(struct stream_reader *r, const struct json_value *error)
{
    if (!r->saw_error)
        api_error_from_event(error, &r->error);
    r->saw_error = true;
    return STREAM_ERROR;
}

static bool is_filled(const struct json_value *v)
{
    return json_string(v).len > 0 || json_count(v) > 0;
}

/* The error inside a root, or the root itself where engines put the members there. */
static const struct json_value *error_in(const struct json_value *root)
{
    const struct json_value *error = json_get(root, "error");
    return is_filled(error) ? error : root;
}

/* -- chat and completions -- */

static bool delta_has_content(const struct json_value *delta)
{
    static const char *const names[] = {"content",      "reasoning_content", "reasoning",
                                        "tool_calls",   "refusal",           "audio",
                                        "function_call"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_filled(json_get(delta, names[i])))
            return true;
    return false;
}

/* What one chunk says, all its choices together. */
struct chunk {
    bool has_content;
    bool has_role;
    bool is_finished;
    struct slice failure; /* a finish reason that means that there will be no more, but should */
};

static void read_choice(const struct json_value *choice, struct chunk *chunk)
{
    const struct json_value *delta = json_get(choice, "delta");
    struct slice reason = json_string(json_get(choice, "finish_reason"));
    if (is_filled(json_get(choice, "text")) || delta_has_content(delta))
        chunk->has_content = true;
    if (is_filled(json_get(delta, "role")))
        chunk->has_role = true;
    if (reason.len > 0)
        chunk->is_finished = true;
    if (slice_eq(reason, SLICE("error")) || slice_eq(reason, SLICE("abort")))
        chunk->failure = reason;
}

static enum stream_event fail_by_reason(struct stream_reader *r, struct slice reason)
{
    if (!r->saw_error)
        api_error_set(&r->error, API_UPSTREAM_FAILED,
                      "the engine broke off the answer: finish_reason is \"%.*s\"",
                      SLICE_ARG(reason));
    r->saw_error = true;
    return STREAM_ERROR;
}

static enum stream_event read_chunk(struct stream_reader *r, const struct json_value *root)
{
    bool is_error = slice_eq(json_string(json_get(root, "object")), SLICE("error"));
    if (is_error || is_filled(json_get(root, "error")))
        return fail(r, error_in(root));
    usage_read_answer(root, &r->usage);
    bool has_usage = json_is_object(json_get(root, "usage"));

    const struct json_value *choices = json_get(root, "choices"), *choice;
    struct chunk chunk = {0};
    size_t pos = 0;
    if (json_count(choices) == 0)
        return has_usage ? STREAM_USAGE : STREAM_META;
    while (json_next_element(choices, &pos, &choice))
        read_choice(choice, &chunk);

    if (chunk.failure.len > 0)
        return fail_by_reason(r, chunk.failure);
    if (chunk.is_finished)
        r->saw_finish = true;
    if (chunk.has_content)
        return content(r);
    if (chunk.is_finished)
        return STREAM_FINISH;
    return has_usage && !chunk.has_role ? STREAM_USAGE : quiet(r); /* FR-7, the empty delta */
}

/* JSON that weir cannot read and the client perhaps can (FR-40): the keys must tell. */
static enum stream_event guess_chunk(struct stream_reader *r, struct slice text)
{
    unsigned keys = key_scan(text);
    if (keys & KEY_ERROR)
        return fail(r, NULL);
    if (keys & KEY_FINISH)
        r->saw_finish = true;
    return content(r);
}

/* -- dialects whose events have names; `root` is NULL where the data could not be read -- */

static bool block_delta_has_content(const struct json_value *delta)
{
    const struct json_value *value;
    struct slice key;
    size_t pos = 0;
    while (json_next_member(delta, &pos, &key, &value))
        if (!slice_eq(key, SLICE("type")) && is_filled(value))
            return true;
    return false;
}

static enum stream_event read_message_delta(struct stream_reader *r, const struct json_value *root)
{
    usage_read_answer(root, &r->usage);
    if (root && !is_filled(json_get(json_get(root, "delta"), "stop_reason")))
        return quiet(r);
    r->saw_finish = true;
    return STREAM_FINISH;
}

static enum stream_event read_anthropic(struct stream_reader *r, struct slice type,
                                        const struct json_value *root)
{
    if (slice_eq(type, SLICE("error")) || is_filled(json_get(root, "error")))
        return fail(r, error_in(root));
    if (slice_eq(type, SLICE("content_block_delta")))
        return !root || block_delta_has_content(json_get(root, "delta")) ? content(r) : quiet(r);
    if (slice_eq(type, SLICE("message_delta")))
        return read_message_delta(r, root);
    if (slice_eq(type, SLICE("message_stop")))
        return done(r);
    if (slice_eq(type, SLICE("message_start")))
        usage_read_answer(json_get(root, "message"), &r->usage);
    return quiet(r);
}

static bool ends_with(struct slice s, struct slice tail)
{
    return s.len >= tail.len && slice_eq(slice_from(s, s.len - tail.len), tail);
}

static bool is_response_end(struct slice type)
{
    return slice_eq(type, SLICE("response.completed")) ||
           slice_eq(type, SLICE("response.incomplete")) || slice_eq(type, SLICE("response.failed"));
}

static enum stream_event read_response_end(struct stream_reader *r, struct slice type,
                                           const struct json_value *response)
{
    struct slice status = json_string(json_get(response, "status"));
    usage_read_answer(response, &r->usage);
    if (slice_eq(type, SLICE("response.failed")) || slice_eq(status, SLICE("failed")))
        return fail(r, json_get(response, "error"));
    r->saw_finish = true;
    return done(r);
}

static enum stream_event read_responses(struct stream_reader *r, struct slice type,
                                        const struct json_value *root)
{
    int64_t number = json_int(json_get(root, "sequence_number"), -1);
    if (number >= 0)
        r->sequence = (uint64_t)number + 1;
    if (slice_eq(type, SLICE("error")))
        return fail(r, error_in(root));
    if (is_response_end(type))
        return read_response_end(r, type, json_get(root, "response"));
    if (ends_with(type, SLICE(".delta")))
        return !root || is_filled(json_get(root, "delta")) ? content(r) : quiet(r);
    return quiet(r);
}

/* -- from bytes to meaning -- */

/* The fields of an event that weir looks at. */
struct fields {
    struct slice name; /* "event" */
    struct slice data; /* all its lines, joined by LF */
    bool has_data;
    bool is_error;     /* llama.cpp once wrote `error: {…}` instead of data */
    struct buf joined; /* holds `data` when there was more than one line of it */
};

static void add_data(struct fields *f, struct slice line, size_t event_len)
{
    if (!f->has_data) {
        f->has_data = true;
        f->data = line;
        return;
    }
    if (!f->joined.max) {
        buf_init(&f->joined, event_len); /* "data:" of each line is longer than the LF for it */
        if (buf_append(&f->joined, f->data))
            WEIR_BUG("an event's data is longer than the event");
    }
    if (buf_append(&f->joined, SLICE("\n")) || buf_append(&f->joined, line))
        WEIR_BUG("an event's data is longer than the event");
    f->data = buf_slice(&f->joined);
}

static void read_fields(struct slice event, struct fields *f)
{
    struct slice name, value;
    size_t offset = 0;
    while (sse_next_field(event, &offset, &name, &value)) {
        if (slice_eq(name, SLICE("event")))
            f->name = value;
        if (slice_eq(name, SLICE("error")))
            f->is_error = true;
        if (slice_eq(name, SLICE("data")) || slice_eq(name, SLICE("error")))
            add_data(f, value, event.len);
    }
}

/* Invalid UTF-8 inside an answer is the client's to bear (FR-1); weir reads around it. */
static struct json_doc *parse_data(struct slice data)
{
    struct json_doc *doc = json_parse(data);
    size_t at = doc ? data.len : utf8_first_invalid(data);
    if (at == data.len)
        return doc;
    char *copy = heap_alloc(data.len);
    memcpy(copy, data.ptr, data.len);
    for (; at < data.len; at += 1 + utf8_first_invalid(slice_of(copy + at + 1, data.len - at - 1)))
        copy[at] = '?';
    doc = json_parse(slice_of(copy, data.len));
    heap_free(copy);
    return doc;
}

static bool has_named_events(enum dialect dialect)
{
    return dialect == DIALECT_ANTHROPIC || dialect == DIALECT_OPENAI_RESPONSES;
}

static enum stream_event read_named(struct stream_reader *r, struct slice name,
                                    const struct json_value *root)
{
    struct slice type = json_string(json_get(root, "type"));
    if (type.len == 0)
        type = name;
    return r->dialect == DIALECT_ANTHROPIC ? read_anthropic(r, type, root)
                                           : read_responses(r, type, root);
}

static enum stream_event read_unreadable(struct stream_reader *r, struct slice name,
                                         struct slice data)
{
    r->usage_unknown = true;
    if (has_named_events(r->dialect))
        return read_named(r, name, NULL);
    return slice_starts(slice_trim(data), SLICE("{")) ? guess_chunk(r, data) : STREAM_META;
}

static enum stream_event read_data(struct stream_reader *r, const struct fields *f)
{
    if (slice_eq(slice_trim(f->data), SLICE("[DONE]")))
        return has_named_events(r->dialect) ? STREAM_META : done(r);
    struct json_doc *doc = parse_data(f->data);
    const struct json_value *root = json_root(doc);
    enum stream_event event;
    if (f->is_error || slice_eq(f->name, SLICE("error")))
        event = fail(r, error_in(root));
    else if (!json_is_object(root))
        event = read_unreadable(r, f->name, f->data);
    else if (has_named_events(r->dialect))
        event = read_named(r, f->name, root);
    else
        event = read_chunk(r, root);
    if (event == STREAM_ERROR)
        r->error_is_native = !f->is_error && is_native_error(r->dialect, root);
    json_doc_free(doc);
    return event;
}

static enum stream_event read_event(struct stream_reader *r, struct slice event)
{
    struct fields f = {0};
    enum stream_event result = STREAM_META;
    read_fields(event, &f);
    if (f.has_data)
        result = read_data(r, &f);
    else if (slice_eq(f.name, SLICE("error")))
        result = fail(r, NULL); /* Dynamo says why in a comment only */
    buf_free(&f.joined);
    return result;
}

/* Is the data something that a client could read, too? */
static bool is_readable(struct slice data)
{
    struct json_doc *doc = parse_data(data);
    bool readable = doc || slice_eq(slice_trim(data), SLICE("[DONE]"));
    json_doc_free(doc);
    return readable;
}

enum stream_event stream_reader_tail(struct stream_reader *r, struct slice event)
{
    struct fields f = {0};
    read_fields(event, &f);
    bool is_whole = f.has_data && is_readable(f.data);
    buf_free(&f.joined);
    return is_whole ? read_event(r, event) : STREAM_META;
}

/* -- the short way, once content has come -- */

static void find_sequence(struct stream_reader *r, struct slice event)
{
    static const char key[] = "\"sequence_number\":";
    const char *p = slice_find(event, SLICE(key));
    if (!p)
        return;
    const char *end = event.ptr + event.len;
    uint64_t number = 0;
    for (p += sizeof key - 1; p < end && *p == ' '; p++) {
    }
    for (; p < end && *p >= '0' && *p <= '9' && number < UINT32_MAX; p++)
        number = number * 10 + (uint64_t)(*p - '0');
    r->sequence = number + 1;
}

static bool is_plain_delta(struct stream_reader *r, struct slice event)
{
    struct slice name, value;
    size_t offset = 0;
    if (!sse_next_field(event, &offset, &name, &value) || !slice_eq(name, SLICE("event")))
        return false;
    if (r->dialect == DIALECT_ANTHROPIC)
        return slice_eq(value, SLICE("content_block_delta"));
    if (!slice_starts(value, SLICE("response.")) || !ends_with(value, SLICE(".delta")))
        return false;
    find_sequence(r, event);
    return true;
}

static bool is_plain_chunk(struct slice event)
{
    return (slice_starts(event, SLICE("data: {")) || slice_starts(event, SLICE("data:{"))) &&
           key_scan(event) == 0;
}

enum stream_event stream_reader_event(struct stream_reader *r, struct slice event)
{
    if (r->saw_content) {
        bool is_plain =
            has_named_events(r->dialect) ? is_plain_delta(r, event) : is_plain_chunk(event);
        if (is_plain)
            return content(r);
    }
    return read_event(r, event);
}
