#include "base/heap.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static void *or_abort(void *ptr, size_t size)
{
    if (!ptr)
        WEIR_BUG("out of memory: the system refused %zu bytes", size);
    return ptr;
}

/* Asking for 0 bytes may return NULL without being out of memory, so 1 is asked for. */
static size_t at_least_one(size_t size)
{
    return size ? size : 1;
}

void *heap_alloc(size_t size)
{
    return or_abort(malloc(at_least_one(size)), size);
}

void *heap_zalloc(size_t size)
{
    return or_abort(calloc(1, at_least_one(size)), size);
}

void *heap_realloc(void *ptr, size_t size)
{
    return or_abort(realloc(ptr, at_least_one(size)), size);
}

char *heap_strdup(struct slice s)
{
    char *copy = heap_alloc(s.len + 1);
    if (s.len)
        memcpy(copy, s.ptr, s.len);
    copy[s.len] = '\0';
    return copy;
}

void heap_free(void *ptr)
{
    free(ptr);
}

void heap_free_secret(void *ptr, size_t size)
{
    if (!ptr)
        return;
    explicit_bzero(ptr, size);
    free(ptr);
}
