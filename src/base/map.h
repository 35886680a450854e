/*
 * map.h - bytes to pointer, open addressing, keys hashed with a per-process secret (XXH3), so
 * hostile keys cannot collide on purpose. One owner thread, or read-only after it was filled.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

struct map_entry {
    uint64_t hash;
    struct slice key; /* borrowed: the caller keeps the bytes alive while the entry exists */
    void *value;      /* NULL: free slot */
};

struct map {
    struct map_entry *entries;
    size_t count;
    size_t cap; /* 0 or a power of two */
};

/* A zeroed struct is an empty map. */
void map_free(struct map *m);

/* Sets or replaces; `value` must not be NULL. Returns the value that was there, or NULL. */
void *map_set(struct map *m, struct slice key, void *value);
void *map_get(const struct map *m, struct slice key);

/* Removes and returns the value, or NULL. */
void *map_remove(struct map *m, struct slice key);

/* Walk: start with *pos = 0; NULL at the end. Order is not defined. */
const struct map_entry *map_next(const struct map *m, size_t *pos);

/* The secret-seeded hash itself, for tables of other shapes. */
uint64_t map_hash(struct slice key);
