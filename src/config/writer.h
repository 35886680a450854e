/*
 * writer.h - YAML out, line by line: indentation, sections, dashes, quotes, comments.
 *
 * Keys are given with their sections, "health.eject.max"; the writer opens the sections that the
 * key before did not have. Each map of a list gets a writer_map of its own.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/slice.h"

struct writer {
    struct buf *out;
    enum weir_err rc; /* the first failure; nothing is written after it */
};

/* One map that is being written. */
struct writer_map {
    struct writer *writer;
    int indent;        /* of its keys */
    int outdent;       /* levels that a comment sign stands further left */
    bool is_item;      /* the first key gets a dash */
    bool is_commented; /* lines become comments */
    const char *last;  /* the key before; NULL: none yet */
};

void writer_put(struct writer *w, const char *fmt, ...) WEIR_PRINTF(2, 3);

/* Sections as needed and "key:", without a newline. */
void writer_key(struct writer_map *map, const char *key);

/* The sections of `key` alone: what is said before its line belongs inside them. */
void writer_sections(struct writer_map *map, const char *key);

/* A line of its own in front of the next key. */
void writer_comment(struct writer_map *map, const char *key, const char *text);

/* "  - " or "  NAME: " below the key just written; the value and the newline are the caller's. */
void writer_item(struct writer_map *map, const char *key, struct slice name);

/* Indentation of what hangs below the key just written. */
int writer_below(const struct writer_map *map, const char *key);

/* In double quotes where YAML, or a reader, could take it for something else. */
void writer_scalar(struct writer *w, struct slice text);
