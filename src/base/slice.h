/*
 * slice.h - a borrowed run of bytes.
 *
 * Invariants: `ptr` may be NULL only when `len` is 0; the bytes are not terminated and may hold
 * any value. A slice owns nothing: the header of whatever returns one says how long it lives.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct slice {
    const char *ptr;
    size_t len;
};

/* A slice of a string literal, and the two arguments of "%.*s". */
#define SLICE(literal) ((struct slice){(literal), sizeof(literal) - 1})
#define SLICE_ARG(s)   (int)(s).len, (s).ptr ? (s).ptr : ""

static inline struct slice slice_of(const char *ptr, size_t len)
{
    return (struct slice){ptr, len};
}

static inline struct slice slice_str(const char *text)
{
    return (struct slice){text, text ? strlen(text) : 0};
}

static inline bool slice_eq(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static inline bool slice_starts(struct slice s, struct slice prefix)
{
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.ptr, prefix.ptr, prefix.len) == 0);
}

static inline struct slice slice_from(struct slice s, size_t offset)
{
    return offset >= s.len ? (struct slice){0} : (struct slice){s.ptr + offset, s.len - offset};
}

/* Copies the bytes to `at`, where the caller has made room, and returns the end of them. */
static inline char *slice_put(char *at, struct slice s)
{
    if (s.len) {
        memcpy(at, s.ptr, s.len);
    }
    return at + s.len;
}

/* ASCII case is ignored; other bytes must be equal. */
bool slice_eq_nocase(struct slice a, struct slice b);

/* Without leading and trailing spaces and tabs. */
struct slice slice_trim(struct slice s);

/* The first `needle` in `s`, or NULL. */
const char *slice_find(struct slice s, struct slice needle);

/*
 * A decimal number that fills the whole slice: digits only, no sign, no space. False when it is
 * anything else or does not fit; `*value` is then untouched.
 */
bool slice_to_u64(struct slice s, uint64_t *value);
