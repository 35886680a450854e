#include "dialects/body.h"

#include <stdio.h>

#include "base/json.h"
#include "base/json_scan.h"

struct inspection {
    const struct surface_info *surface;
    struct arena *arena;
    struct body_info *info;
    struct api_error *why;
    uint32_t seen; /* bit i: members[i] was there */
    bool has_session;
};

/* Takes one member that is not null. False: refused, and why it was. */
typedef bool (*take_fn)(struct inspection *in, const char *name, const struct json_member *member);

static bool refuse(struct inspection *in, const char *param, const char *problem)
{
    api_error_set(in->why, API_BAD_REQUEST, "\"%s\" %s", param, problem);
    snprintf(in->why->param, sizeof in->why->param, "%s", param);
    return false;
}

/* -- values -- */

static struct slice without_quotes(struct slice value)
{
    return slice_of(value.ptr + 1, value.len - 2);
}

static bool unescape(struct inspection *in, const char *name, struct slice raw, struct slice *out)
{
    *out = raw;
    if (raw.len == 0 || !memchr(raw.ptr, '\\', raw.len))
        return true;
    char *text = arena_alloc(in->arena, raw.len);
    if (!text)
        return refuse(in, name, "needs more memory than a request may take");
    *out = slice_of(text, json_unescape(raw, text));
    return true;
}

/* The scanner has checked the syntax; digits alone are the rule, "2.0" and "1e3" the exception. */
static double number_of(struct slice text)
{
    uint64_t digits;
    if (slice_to_u64(text, &digits))
        return (double)digits;
    struct json_doc *doc = json_parse(text);
    double value = json_number(json_root(doc), 0x1p62);
    json_doc_free(doc);
    return value;
}

/* -- members -- */

static bool take_model(struct inspection *in, const char *name, const struct json_member *m)
{
    if (m->kind != JSON_STRING)
        return refuse(in, name, "must be a string: the name of a model");
    struct slice raw = without_quotes(m->value);
    if (raw.len > BODY_MAX_NAME)
        return refuse(in, name, "is longer than any model's name; GET /v1/models lists them");
    in->info->model_span = m->value;
    return unescape(in, name, raw, &in->info->model);
}

static bool take_stream(struct inspection *in, const char *name, const struct json_member *m)
{
    if (m->kind != JSON_BOOL)
        return refuse(in, name, "must be true or false");
    in->info->stream = *m->value.ptr == 't';
    return true;
}

static enum weir_err take_option(void *ctx, const struct json_member *m)
{
    static const char name[] = "stream_options.include_usage";
    struct inspection *in = ctx;
    if (!json_spells(m->key, SLICE("include_usage")))
        return WEIR_OK;
    if (in->info->include_usage_span.len > 0) {
        refuse(in, name, "is there twice; send it once");
        return WEIR_EINVAL;
    }
    if (m->kind != JSON_BOOL && m->kind != JSON_NULL) {
        refuse(in, name, "must be true or false");
        return WEIR_EINVAL;
    }
    in->info->include_usage_span = m->value;
    in->info->wants_usage = *m->value.ptr == 't';
    return WEIR_OK;
}

static bool take_stream_options(struct inspection *in, const char *name,
                                const struct json_member *m)
{
    if (m->kind != JSON_OBJECT)
        return refuse(in, name, "must be an object, such as {\"include_usage\":true}");
    struct json_scan_result result;
    in->info->stream_options_is_object = true;
    if (json_scan(m->value, take_option, in, &result))
        return false;
    in->info->stream_options_is_empty = result.object_empty;
    return true;
}

/*
 * What is not a count that somebody could mean is left to the engine: -1 is "no limit" for
 * llama.cpp. Of several limits the largest counts, for engines differ in which one they obey.
 */
static bool take_max_tokens(struct inspection *in, const char *name, const struct json_member *m)
{
    if (m->kind != JSON_NUMBER)
        return refuse(in, name, "must be a whole number");
    double value = number_of(m->value);
    uint64_t tokens = value >= 0x1p62 ? (uint64_t)1 << 62 : value > 0 ? (uint64_t)value : 0;
    if (tokens > in->info->max_tokens)
        in->info->max_tokens = tokens;
    return true;
}

static bool take_n(struct inspection *in, const char *name, const struct json_member *m)
{
    double value = m->kind == JSON_NUMBER ? number_of(m->value) : 0;
    if (value < 1 || value > UINT32_MAX || (double)(uint32_t)value != value)
        return refuse(in, name, "must be a whole number of at least 1");
    in->info->n = (uint32_t)value;
    return true;
}

/* A user that is not a string is between the client and the engine; it gives no affinity. */
static bool take_user(struct inspection *in, const char *name, const struct json_member *m)
{
    if (m->kind != JSON_STRING || in->has_session)
        return true;
    struct slice raw = without_quotes(m->value);
    if (raw.len > BODY_MAX_NAME)
        raw.len = BODY_MAX_NAME;
    return unescape(in, name, raw, &in->info->user);
}

static bool take_session(struct inspection *in, const char *name, const struct json_member *m)
{
    in->has_session = false; /* above "user", whichever came first */
    bool taken = take_user(in, name, m);
    in->has_session = m->kind == JSON_STRING;
    return taken;
}

static bool take_prompt(struct inspection *in, const char *name, const struct json_member *m)
{
    size_t bytes = in->info->prompt_bytes + m->value.len;
    in->info->prompt_bytes = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
    return true;
}

static bool take_tools(struct inspection *in, const char *name, const struct json_member *m)
{
    in->info->has_tools = m->kind == JSON_ARRAY && m->value.len > 2;
    return take_prompt(in, name, m);
}

static bool refuse_steering(struct inspection *in, const char *name, const struct json_member *m)
{
    return refuse(in, name,
                  "tells engines where to send data or which part of them answers; "
                  "weir decides that. Leave it out");
}

enum scope {
    ALWAYS,
    GENERATING,   /* where the answer has tokens, and may stream */
    STREAM_OPTION /* chat and completions: elsewhere the member means something else */
};

static const struct {
    struct slice name;
    take_fn take;
    enum scope scope;
} members[] = {
#define MEMBER(name, take, scope)                                                                  \
    {                                                                                              \
        {name, sizeof name - 1}, take, scope                                                       \
    }
    MEMBER("model", take_model, ALWAYS),
    MEMBER("messages", take_prompt, ALWAYS),
    MEMBER("prompt", take_prompt, ALWAYS),
    MEMBER("input", take_prompt, ALWAYS),
    MEMBER("system", take_prompt, ALWAYS),
    MEMBER("instructions", take_prompt, ALWAYS),
    MEMBER("tools", take_tools, ALWAYS),
    MEMBER("stream", take_stream, GENERATING),
    MEMBER("stream_options", take_stream_options, STREAM_OPTION),
    MEMBER("max_tokens", take_max_tokens, GENERATING),
    MEMBER("max_completion_tokens", take_max_tokens, GENERATING),
    MEMBER("max_output_tokens", take_max_tokens, GENERATING),
    MEMBER("n", take_n, GENERATING),
    MEMBER("user", take_user, ALWAYS),
    MEMBER("session_id", take_session, ALWAYS),
    MEMBER("kv_transfer_params", refuse_steering, ALWAYS),     /* vLLM */
    MEMBER("ec_transfer_params", refuse_steering, ALWAYS),     /* vLLM, encoder cache */
    MEMBER("bootstrap_host", refuse_steering, ALWAYS),         /* SGLang */
    MEMBER("bootstrap_port", refuse_steering, ALWAYS),         /* SGLang */
    MEMBER("bootstrap_room", refuse_steering, ALWAYS),         /* SGLang */
    MEMBER("disagg_prefill_dp_rank", refuse_steering, ALWAYS), /* SGLang */
    MEMBER("routed_dp_rank", refuse_steering, ALWAYS),         /* SGLang */
    MEMBER("data_parallel_rank", refuse_steering, ALWAYS),     /* SGLang, its older name */
#undef MEMBER
};

enum { MEMBERS = sizeof members / sizeof *members };
_Static_assert(MEMBERS <= 32, "one bit each in inspection.seen");

static bool has_stream_options(const struct surface_info *surface)
{
    return surface->dialect == DIALECT_OPENAI_CHAT ||
           surface->dialect == DIALECT_OPENAI_COMPLETIONS;
}

static bool is_in_scope(const struct surface_info *surface, enum scope scope)
{
    if (scope == GENERATING)
        return surface->generates;
    return scope == ALWAYS || has_stream_options(surface);
}

/* The position in `members`, or MEMBERS. */
static size_t find_member(const struct json_member *m)
{
    for (size_t i = 0; i < MEMBERS; i++) {
        bool is_it = m->key_escaped ? json_spells(m->key, members[i].name)
                                    : slice_eq(m->key, members[i].name);
        if (is_it)
            return i;
    }
    return MEMBERS;
}

static enum weir_err take_member(void *ctx, const struct json_member *m)
{
    struct inspection *in = ctx;
    size_t i = find_member(m);
    if (i == MEMBERS || !is_in_scope(in->surface, members[i].scope))
        return WEIR_OK;
    const char *name = members[i].name.ptr;
    if (in->seen & 1u << i) {
        refuse(in, name, "is there twice; send it once");
        return WEIR_EINVAL;
    }
    in->seen |= 1u << i;
    if (members[i].scope == STREAM_OPTION)
        in->info->stream_options_span = m->value; /* a null is replaced, not joined */
    if (m->kind == JSON_NULL)
        return WEIR_OK;
    return members[i].take(in, name, m) ? WEIR_OK : WEIR_EINVAL;
}

/* -- the whole -- */

static bool check_whole(struct inspection *in, enum surface surface)
{
    const struct body_info *info = in->info;
    bool may_lack_model = surface == SURFACE_TOKENIZE || surface == SURFACE_DETOKENIZE;
    if (info->model.len == 0 && !(may_lack_model && info->model_span.len == 0))
        return refuse(in, "model", "is missing or empty; GET /v1/models lists what there is");
    if (info->stream_options_is_object && !info->stream)
        return refuse(in, "stream_options", "is only allowed together with \"stream\": true");
    return true;
}

enum weir_err body_inspect(enum surface surface, struct slice body, struct arena *arena,
                           struct body_info *info, struct api_error *why)
{
    *info = (struct body_info){.n = 1};
    struct inspection in = {
        .surface = surface_info(surface), .arena = arena, .info = info, .why = why};
    struct json_scan_result result;
    enum weir_err rc = json_scan(body, take_member, &in, &result);
    info->object_start = result.object_start;
    if (rc && result.error_text)
        api_error_set(why, API_BAD_JSON, "the body is not JSON as weir takes it: %s (at byte %zu)",
                      result.error_text, result.error_offset);
    if (rc)
        return rc;
    return check_whole(&in, surface) ? WEIR_OK : WEIR_EINVAL;
}

/* -- edits -- */

static struct body_edit replace_span(struct slice body, struct slice span, struct slice insert)
{
    return (struct body_edit){(size_t)(span.ptr - body.ptr), span.len, insert};
}

/* Asks for usage with as few bytes as the body allows. */
static struct body_edit edit_usage(struct slice body, const struct body_info *info)
{
    if (info->include_usage_span.len > 0)
        return replace_span(body, info->include_usage_span, SLICE("true"));
    if (info->stream_options_is_object) {
        size_t inside = (size_t)(info->stream_options_span.ptr - body.ptr) + 1;
        return (struct body_edit){inside, 0,
                                  info->stream_options_is_empty ? SLICE("\"include_usage\":true")
                                                                : SLICE("\"include_usage\":true,")};
    }
    if (info->stream_options_span.len > 0)
        return replace_span(body, info->stream_options_span, SLICE("{\"include_usage\":true}"));
    /* There is at least "stream" behind it. */
    return (struct body_edit){info->object_start + 1, 0,
                              SLICE("\"stream_options\":{\"include_usage\":true},")};
}

static struct slice quote(struct slice text, struct arena *arena)
{
    struct buf out;
    buf_init(&out, 6 * text.len + 2); /* "\u001f" is the longest that a byte becomes */
    struct slice quoted = {0};
    if (json_put_string(&out, text) == WEIR_OK)
        quoted = arena_dup(arena, buf_slice(&out));
    buf_free(&out);
    return quoted;
}

static void add_edit(struct body_plan *plan, struct body_edit edit)
{
    if (plan->count == BODY_MAX_EDITS)
        WEIR_BUG("more than %d edits to one body", BODY_MAX_EDITS);
    size_t i = plan->count++;
    for (; i > 0 && plan->edits[i - 1].offset > edit.offset; i--)
        plan->edits[i] = plan->edits[i - 1];
    plan->edits[i] = edit;
    plan->length = plan->length + edit.insert.len - edit.removed;
}

enum weir_err body_plan_edits(enum surface surface, struct slice body, const struct body_info *info,
                              struct slice engine_model, bool add_usage, struct arena *arena,
                              struct body_plan *plan)
{
    *plan = (struct body_plan){.length = body.len};
    bool rename = info->model_span.len > 0 && engine_model.len > 0;
    if (rename && !slice_eq(info->model, engine_model)) {
        struct slice name = quote(engine_model, arena);
        if (!name.ptr)
            return WEIR_ELIMIT;
        add_edit(plan, replace_span(body, info->model_span, name));
    }
    bool can_ask = info->stream && has_stream_options(surface_info(surface));
    if (add_usage && can_ask && !info->wants_usage)
        add_edit(plan, edit_usage(body, info));
    return WEIR_OK;
}

static size_t add_piece(struct iovec *out, size_t count, struct slice bytes)
{
    if (bytes.len == 0)
        return count;
    out[count] = (struct iovec){(void *)bytes.ptr, bytes.len};
    return count + 1;
}

size_t body_pieces(struct slice body, const struct body_plan *plan,
                   struct iovec out[BODY_MAX_PIECES])
{
    size_t count = 0;
    size_t at = 0;
    for (size_t i = 0; i < plan->count; i++) {
        const struct body_edit *edit = &plan->edits[i];
        count = add_piece(out, count, slice_of(body.ptr + at, edit->offset - at));
        count = add_piece(out, count, edit->insert);
        at = edit->offset + edit->removed;
    }
    return add_piece(out, count, slice_from(body, at));
}
