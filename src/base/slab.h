/*
 * slab.h - many objects of one size, recycled. One owner thread; no locks.
 *
 * Freed objects are poisoned under AddressSanitizer and handed out again last-in first-out.
 * Memory goes back to the heap only at slab_free_all(). `live` counts what is out.
 */
#pragma once

#include <stddef.h>

struct slab_chunk;

struct slab {
    size_t object_size;
    size_t per_chunk;
    void *free_list;
    struct slab_chunk *chunks;
    size_t live;
};

void slab_init(struct slab *s, size_t object_size, size_t per_chunk);
void *slab_get(struct slab *s); /* zeroed */
void slab_put(struct slab *s, void *object);
void slab_free_all(struct slab *s);
