#include "base/map.h"

#include <pthread.h>
#include <stdbool.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/error.h"
#include "base/heap.h"
#include "base/rng.h"

enum { MAP_MIN_CAP = 16 };

/*
 * A whole random secret, not only a seed: with a public secret XXH3 has inputs that collide
 * under every seed.
 */
static unsigned char secret[XXH3_SECRET_DEFAULT_SIZE];
static pthread_once_t secret_once = PTHREAD_ONCE_INIT;

static void make_secret(void)
{
    rng_secret(secret, sizeof secret);
}

uint64_t map_hash(struct slice key)
{
    pthread_once(&secret_once, make_secret);
    return XXH3_64bits_withSecret(key.ptr, key.len, secret, sizeof secret);
}

/* The slot that holds `key`, or the free one where it belongs. The table is never full. */
static size_t find_slot(const struct map *m, struct slice key, uint64_t hash)
{
    size_t mask = m->cap - 1;
    size_t i = hash & mask;
    while (m->entries[i].value && (m->entries[i].hash != hash || !slice_eq(m->entries[i].key, key)))
        i = (i + 1) & mask;
    return i;
}

static void grow(struct map *m)
{
    struct map bigger = {.count = m->count, .cap = m->cap ? m->cap * 2 : MAP_MIN_CAP};
    bigger.entries = heap_zalloc(bigger.cap * sizeof *bigger.entries);
    for (size_t i = 0; i < m->cap; i++) {
        const struct map_entry *entry = &m->entries[i];
        if (entry->value)
            bigger.entries[find_slot(&bigger, entry->key, entry->hash)] = *entry;
    }
    heap_free(m->entries);
    *m = bigger;
}

void map_free(struct map *m)
{
    heap_free(m->entries);
    *m = (struct map){0};
}

void *map_set(struct map *m, struct slice key, void *value)
{
    if (!value)
        WEIR_BUG("map_set of NULL; remove the key instead");
    if (m->count >= m->cap - m->cap / 4) /* at most three quarters full: short probes */
        grow(m);

    uint64_t hash = map_hash(key);
    struct map_entry *entry = &m->entries[find_slot(m, key, hash)];
    void *old = entry->value;
    /* The new key's bytes also on replacement: the old ones may go with the old value. */
    *entry = (struct map_entry){.hash = hash, .key = key, .value = value};
    if (!old)
        m->count++;
    return old;
}

void *map_get(const struct map *m, struct slice key)
{
    if (m->count == 0)
        return NULL;
    return m->entries[find_slot(m, key, map_hash(key))].value;
}

void *map_remove(struct map *m, struct slice key)
{
    if (m->count == 0)
        return NULL;
    size_t mask = m->cap - 1;
    size_t hole = find_slot(m, key, map_hash(key));
    void *old = m->entries[hole].value;
    if (!old)
        return NULL;

    /*
     * No tombstones: entries behind the hole move up when the hole lies between their own home
     * and their place, so lookups stay short however often keys come and go.
     */
    for (size_t i = (hole + 1) & mask; m->entries[i].value; i = (i + 1) & mask) {
        size_t home = m->entries[i].hash & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            m->entries[hole] = m->entries[i];
            hole = i;
        }
    }
    m->entries[hole] = (struct map_entry){0};
    m->count--;
    return old;
}

const struct map_entry *map_next(const struct map *m, size_t *pos)
{
    while (*pos < m->cap) {
        const struct map_entry *entry = &m->entries[(*pos)++];
        if (entry->value)
            return entry;
    }
    return NULL;
}
