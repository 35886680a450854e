/*
 * edited_body.h - is an edited body the original with exactly those members changed that weir
 * changes? For the seeded test and the fuzz target; compares what json_parse() reads.
 */
#pragma once

#include "base/heap.h"
#include "base/json.h"
#include "dialects/body.h"

/* The edited body in one piece; the caller frees `ptr` with heap_free(). */
static inline struct slice edited_join(struct slice body, const struct body_plan *plan)
{
    struct iovec pieces[BODY_MAX_PIECES];
    size_t count = body_pieces(body, plan, pieces), len = 0;
    char *text = heap_alloc(plan->length + 1);
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].iov_len == 0 || len + pieces[i].iov_len > plan->length)
            WEIR_BUG("pieces are empty or longer than the plan says");
        memcpy(text + len, pieces[i].iov_base, pieces[i].iov_len);
        len += pieces[i].iov_len;
    }
    if (len != plan->length)
        WEIR_BUG("pieces have %zu bytes, the plan says %zu", len, plan->length);
    return slice_of(text, len);
}

static inline bool edited_same(const struct json_value *a, const struct json_value *b);

static inline bool edited_same_items(const struct json_value *a, const struct json_value *b)
{
    const struct json_value *x, *y;
    size_t i = 0, j = 0;
    while (json_next_element(a, &i, &x))
        if (!json_next_element(b, &j, &y) || !edited_same(x, y))
            return false;
    return !json_next_element(b, &j, &y);
}

static inline bool edited_same_members(const struct json_value *a, const struct json_value *b)
{
    const struct json_value *x, *y;
    struct slice k, l;
    size_t i = 0, j = 0;
    while (json_next_member(a, &i, &k, &x))
        if (!json_next_member(b, &j, &l, &y) || !slice_eq(k, l) || !edited_same(x, y))
            return false;
    return !json_next_member(b, &j, &l, &y);
}

static inline bool edited_same(const struct json_value *a, const struct json_value *b)
{
    if (json_is_object(a))
        return json_is_object(b) && edited_same_members(a, b);
    if (json_is_array(a))
        return json_is_array(b) && edited_same_items(a, b);
    return json_is_null(a) == json_is_null(b) && json_is_string(a) == json_is_string(b) &&
           json_is_number(a) == json_is_number(b) && json_number(a, 0) == json_number(b, 0) &&
           json_int(a, 0) == json_int(b, 0) && json_bool(a, false) == json_bool(b, false) &&
           slice_eq(json_string(a), json_string(b));
}

/* Is `b` the object `a` (or an empty one for null or nothing) with `"include_usage": true`? */
static inline bool edited_asks_usage(const struct json_value *a, const struct json_value *b)
{
    const struct json_value *x, *y;
    struct slice k, l;
    size_t i = 0, j = 0;
    bool had = json_get(a, "include_usage") != NULL;
    if (!had && (!json_next_member(b, &j, &l, &y) || !slice_eq(l, SLICE("include_usage")) ||
                 !json_bool(y, false)))
        return false;
    while (json_next_member(a, &i, &k, &x)) {
        if (!json_next_member(b, &j, &l, &y) || !slice_eq(k, l))
            return false;
        if (slice_eq(k, SLICE("include_usage")) ? !json_bool(y, false) : !edited_same(x, y))
            return false;
    }
    return !json_next_member(b, &j, &l, &y);
}

/* `model`: what a string "model" should have become; empty: as it was. */
static inline bool edited_as_told(const struct json_value *a, const struct json_value *b,
                                  struct slice model, bool asks_usage)
{
    const struct json_value *x, *y;
    struct slice k, l;
    size_t i = 0, j = 0;
    if (asks_usage && !json_get(a, "stream_options") &&
        (!json_next_member(b, &j, &l, &y) || !slice_eq(l, SLICE("stream_options")) ||
         !edited_asks_usage(NULL, y)))
        return false;
    while (json_next_member(a, &i, &k, &x)) {
        if (!json_next_member(b, &j, &l, &y) || !slice_eq(k, l))
            return false;
        bool same;
        if (slice_eq(k, SLICE("model")) && json_is_string(x) && model.len > 0)
            same = slice_eq(json_string(y), model);
        else if (slice_eq(k, SLICE("stream_options")) && asks_usage)
            same = edited_asks_usage(x, y);
        else
            same = edited_same(x, y);
        if (!same)
            return false;
    }
    return !json_next_member(b, &j, &l, &y);
}

/* Plans, edits and compares; false when the edited body says anything else than it should. */
static inline bool edited_body_holds(enum surface surface, struct slice body,
                                     const struct body_info *info, struct slice model,
                                     bool add_usage, struct arena *arena)
{
    struct body_plan plan;
    if (body_plan_edits(surface, body, info, model, add_usage, arena, &plan))
        return false;
    struct slice edited = edited_join(body, &plan);
    bool asks_usage =
        add_usage && info->stream && (surface == SURFACE_CHAT || surface == SURFACE_COMPLETIONS);
    struct json_doc *a = json_parse(body), *b = json_parse(edited);
    bool holds = a && b && edited_as_told(json_root(a), json_root(b), model, asks_usage);
    json_doc_free(a);
    json_doc_free(b);

    /* What was edited is read as what was meant, and needs no further edit. */
    struct body_info again;
    struct api_error why;
    if (body_inspect(surface, edited, arena, &again, &why) ||
        body_plan_edits(surface, edited, &again, model, add_usage, arena, &plan))
        holds = false;
    holds = holds && plan.count == 0 && again.stream == info->stream && again.n == info->n &&
            again.max_tokens == info->max_tokens && slice_eq(again.user, info->user);
    heap_free((char *)edited.ptr);
    return holds;
}
