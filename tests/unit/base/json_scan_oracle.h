/*
 * json_scan_oracle.h - json_scan() against json_parse(), for the seeded test and the fuzz target.
 *
 * Both must accept the same objects (json_scan takes nothing but objects) and see the same
 * members in the same order: key, kind, and bytes that are the member's value.
 */
#pragma once

#include "base/heap.h"
#include "base/json.h"
#include "base/json_scan.h"

struct oracle_walk {
    struct slice text;
    const struct json_value *root; /* NULL: json_parse() refused the text */
    size_t pos;
    const char *difference;
};

static inline bool oracle_same_kind(const struct json_value *v, enum json_kind kind)
{
    switch (kind) {
    case JSON_NULL:
        return json_is_null(v);
    case JSON_BOOL:
        return json_bool(v, true) == json_bool(v, false);
    case JSON_NUMBER:
        return json_is_number(v);
    case JSON_STRING:
        return json_is_string(v);
    case JSON_ARRAY:
        return json_is_array(v);
    case JSON_OBJECT:
        return json_is_object(v);
    }
    return false;
}

/* `raw` is what stands between the quotes. */
static inline bool oracle_same_string(struct slice raw, struct slice plain)
{
    char *text = heap_alloc(raw.len);
    size_t len = json_unescape(raw, text);
    bool same = slice_eq(slice_of(text, len), plain) && json_spells(raw, plain);
    heap_free(text);
    return same;
}

/* The bytes of a value, parsed alone, are the value. */
static inline bool oracle_same_value(struct slice bytes, const struct json_value *v)
{
    struct json_doc *doc = json_parse(bytes);
    const struct json_value *alone = json_root(doc);
    bool same = doc && json_count(alone) == json_count(v) &&
                json_is_number(alone) == json_is_number(v) &&
                json_number(alone, 0) == json_number(v, 0) &&
                json_bool(alone, false) == json_bool(v, false) &&
                slice_eq(json_string(alone), json_string(v));
    json_doc_free(doc);
    return same;
}

static inline enum weir_err oracle_member(void *ctx, const struct json_member *member)
{
    struct oracle_walk *walk = ctx;
    const char *from = walk->text.ptr, *to = walk->text.ptr + walk->text.len;
    struct slice raw = member->key, bytes = member->value;
    if (raw.ptr <= from || raw.ptr[-1] != '"' || raw.ptr[raw.len] != '"' || bytes.ptr <= raw.ptr ||
        bytes.ptr + bytes.len > to)
        walk->difference = "a slice does not lie where it should";
    if (!walk->root || walk->difference)
        return WEIR_OK;

    struct slice key;
    const struct json_value *value;
    if (!json_next_member(walk->root, &walk->pos, &key, &value))
        walk->difference = "json_scan sees more members";
    else if (!oracle_same_string(raw, key))
        walk->difference = "the keys differ";
    else if (member->key_escaped != (memchr(raw.ptr, '\\', raw.len) != NULL))
        walk->difference = "key_escaped is wrong";
    else if (!oracle_same_kind(value, member->kind))
        walk->difference = "the kinds differ";
    else if (member->kind == JSON_STRING &&
             !oracle_same_string(slice_of(bytes.ptr + 1, bytes.len - 2), json_string(value)))
        walk->difference = "the strings differ";
    else if (!oracle_same_value(bytes, value))
        walk->difference = "the bytes are not the value";
    return WEIR_OK;
}

/* What the two disagree about, static; NULL when they agree. */
static inline const char *json_scan_disagreement(struct slice text)
{
    struct json_doc *doc = json_parse(text);
    struct oracle_walk walk = {.text = text, .root = json_root(doc)};
    bool wanted = json_is_object(walk.root);

    struct json_scan_result result;
    enum weir_err rc = json_scan(text, oracle_member, &walk, &result);

    struct slice key;
    const struct json_value *value;
    if (walk.difference)
        ;
    else if ((rc == WEIR_OK) != wanted)
        walk.difference = wanted ? "json_scan refuses what json_parse accepts"
                                 : "json_scan accepts what json_parse refuses";
    else if (rc != WEIR_OK && (!result.error_text || result.error_offset > text.len))
        walk.difference = "an error without text or outside the document";
    else if (rc == WEIR_OK && json_next_member(walk.root, &walk.pos, &key, &value))
        walk.difference = "json_scan sees fewer members";
    else if (rc == WEIR_OK && result.object_empty != (json_count(walk.root) == 0))
        walk.difference = "object_empty is wrong";
    else if (rc == WEIR_OK &&
             (text.ptr[result.object_start] != '{' || text.ptr[result.object_end] != '}'))
        walk.difference = "the object's ends are wrong";
    json_doc_free(doc);
    return walk.difference;
}
