#include "base/arena.h"

#include <stdio.h>

#include "base/heap.h"
#include "base/poison.h"

enum { ARENA_ALIGN = 16 };

struct arena_block {
    struct arena_block *older;
    size_t size; /* of `bytes` */
    size_t used;
    _Alignas(ARENA_ALIGN) char bytes[];
};

struct arena_cleanup {
    struct arena_cleanup *older;
    void (*fn)(void *);
    void *ptr;
};

void arena_init(struct arena *a, size_t block_size, size_t max)
{
    size_t sane = SIZE_MAX / 2; /* so that no sum of sizes below overflows */
    *a = (struct arena){.block_size = block_size, .max = max < sane ? max : sane};
}

/* A cleanup may register another one (it runs next), so the list is popped, not walked. */
static void run_cleanups(struct arena *a)
{
    while (a->cleanups) {
        struct arena_cleanup *cleanup = a->cleanups;
        a->cleanups = cleanup->older;
        cleanup->fn(cleanup->ptr);
    }
}

void arena_reset(struct arena *a)
{
    run_cleanups(a);
    struct arena_block *kept = NULL;
    for (struct arena_block *block = a->blocks, *older; block; block = older) {
        older = block->older;
        if (!kept && block->size == a->block_size)
            kept = block;
        else
            heap_free(block);
    }
    if (kept) {
        kept->older = NULL;
        kept->used = 0;
        poison(kept->bytes, kept->size);
    }
    a->blocks = kept;
    a->used = 0;
}

void arena_free(struct arena *a)
{
    arena_reset(a);
    heap_free(a->blocks);
    a->blocks = NULL;
}

static struct arena_block *add_block(struct arena *a, size_t size)
{
    struct arena_block *block = heap_alloc(sizeof *block + size);
    *block = (struct arena_block){.size = size};
    poison(block->bytes, size);
    /* A block for one large piece goes behind the newest, whose rest is still of use. */
    if (a->blocks && size > a->block_size) {
        block->older = a->blocks->older;
        a->blocks->older = block;
    } else {
        block->older = a->blocks;
        a->blocks = block;
    }
    return block;
}

/* Distinct pieces have distinct addresses, also empty ones. */
static size_t rounded(size_t size)
{
    return size ? (size + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1) : ARENA_ALIGN;
}

static void *take(struct arena *a, size_t size)
{
    size_t room = rounded(size);
    struct arena_block *block = a->blocks;
    if (!block || block->size - block->used < room)
        block = add_block(a, room > a->block_size ? room : a->block_size);
    void *ptr = block->bytes + block->used;
    block->used += room;
    unpoison(ptr, size);
    return ptr;
}

void *arena_alloc(struct arena *a, size_t size)
{
    if (size > a->max || rounded(size) > a->max - a->used)
        return NULL;
    a->used += rounded(size);
    return take(a, size);
}

void *arena_zalloc(struct arena *a, size_t size)
{
    void *ptr = arena_alloc(a, size);
    return ptr ? memset(ptr, 0, size) : NULL;
}

struct slice arena_dup(struct arena *a, struct slice s)
{
    char *copy = arena_alloc(a, s.len);
    if (!copy)
        return (struct slice){0};
    if (s.len)
        memcpy(copy, s.ptr, s.len);
    return slice_of(copy, s.len);
}

char *arena_strdup(struct arena *a, struct slice s)
{
    char *copy = s.len < SIZE_MAX ? arena_alloc(a, s.len + 1) : NULL;
    if (!copy)
        return NULL;
    if (s.len)
        memcpy(copy, s.ptr, s.len);
    copy[s.len] = '\0';
    return copy;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, fmt, args);
    char *text = len < 0 ? NULL : arena_alloc(a, (size_t)len + 1);
    if (text)
        vsnprintf(text, (size_t)len + 1, fmt, again);
    va_end(again);
    va_end(args);
    return text;
}

/* Past the maximum too: what is not registered would leak, and there are few of these. */
void arena_on_reset(struct arena *a, void (*fn)(void *), void *ptr)
{
    struct arena_cleanup *cleanup = take(a, sizeof *cleanup);
    *cleanup = (struct arena_cleanup){.older = a->cleanups, .fn = fn, .ptr = ptr};
    a->cleanups = cleanup;
}
