/*
 * arena.h - memory that lives and dies with one thing: a request, a configuration.
 *
 * Pieces are never freed alone; arena_reset() frees all of them and runs the cleanups, last
 * registered first. Everything is aligned to 16 bytes. Running out of memory aborts; running
 * over the maximum given at init is NULL for the caller to refuse the request. Under
 * AddressSanitizer the bytes behind each piece, and all of them after a reset, are poisoned.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"

struct arena_block;
struct arena_cleanup;

struct arena {
    struct arena_block *blocks;     /* newest first, but for blocks of one large piece */
    struct arena_cleanup *cleanups; /* newest first; live in the arena itself */
    size_t block_size;
    size_t used; /* bytes handed out, rounded up to the alignment, all blocks */
    size_t max;
};

/* `block_size` is what is asked from the heap at a time; larger pieces get a block of their own. */
void arena_init(struct arena *a, size_t block_size, size_t max);

/* Runs cleanups, gives all memory back but one block. */
void arena_reset(struct arena *a);

/* As reset, and that block too; the arena stays usable. */
void arena_free(struct arena *a);

/* Uninitialised / zeroed bytes, or NULL at the maximum. An empty piece has an address too. */
void *arena_alloc(struct arena *a, size_t size);
void *arena_zalloc(struct arena *a, size_t size);

/* A copy; NULL (a NULL `ptr`) at the maximum. arena_strdup() appends a zero. */
struct slice arena_dup(struct arena *a, struct slice s);
char *arena_strdup(struct arena *a, struct slice s);
char *arena_printf(struct arena *a, const char *fmt, ...) WEIR_PRINTF(2, 3);

/* `fn(ptr)` when the arena is reset or freed: for what is not memory. Not bound by the maximum. */
void arena_on_reset(struct arena *a, void (*fn)(void *), void *ptr);
