#include "base/slab.h"

#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "base/heap.h"
#include "base/poison.h"

enum { SLAB_ALIGN = 16 };

struct slab_chunk {
    struct slab_chunk *next;
    _Alignas(SLAB_ALIGN) char bytes[];
};

/* A free object's first bytes. */
struct slab_free {
    struct slab_free *next;
};

void slab_init(struct slab *s, size_t object_size, size_t per_chunk)
{
    size_t size = object_size < sizeof(struct slab_free) ? sizeof(struct slab_free) : object_size;
    size = (size + SLAB_ALIGN - 1) & ~(size_t)(SLAB_ALIGN - 1);
    *s = (struct slab){.object_size = size, .per_chunk = per_chunk ? per_chunk : 1};
}

static void push(struct slab *s, void *object)
{
    struct slab_free *freed = object;
    freed->next = s->free_list;
    s->free_list = freed;
    poison(object, s->object_size);
}

static void add_chunk(struct slab *s)
{
    size_t bytes;
    if (__builtin_mul_overflow(s->object_size, s->per_chunk, &bytes))
        WEIR_BUG("slab of %zu objects of %zu bytes", s->per_chunk, s->object_size);
    struct slab_chunk *chunk = heap_alloc(sizeof *chunk + bytes);
    chunk->next = s->chunks;
    s->chunks = chunk;
    for (size_t i = s->per_chunk; i-- > 0;) /* so that they go out in order of address */
        push(s, chunk->bytes + i * s->object_size);
}

void *slab_get(struct slab *s)
{
    if (!s->free_list)
        add_chunk(s);
    struct slab_free *object = s->free_list;
    unpoison(object, s->object_size);
    s->free_list = object->next;
    s->live++;
    return memset(object, 0, s->object_size);
}

void slab_put(struct slab *s, void *object)
{
    if (s->live == 0)
        WEIR_BUG("slab_put of an object that is not out");
    s->live--;
    push(s, object);
}

void slab_free_all(struct slab *s)
{
    while (s->chunks) {
        struct slab_chunk *chunk = s->chunks;
        s->chunks = chunk->next;
        heap_free(chunk);
    }
    s->free_list = NULL;
    s->live = 0;
}
