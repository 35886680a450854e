/*
 * heap.h - the C heap, for what outlives a request. Running out of memory aborts: admission and
 * bounded buffers keep memory finite first.
 */
#pragma once

#include <stddef.h>

#include "base/slice.h"

void *heap_alloc(size_t size);
void *heap_zalloc(size_t size);
void *heap_realloc(void *ptr, size_t size);
char *heap_strdup(struct slice s); /* terminated copy */
void heap_free(void *ptr);         /* NULL is allowed */

/* Overwrites, then frees: for secrets. */
void heap_free_secret(void *ptr, size_t size);
