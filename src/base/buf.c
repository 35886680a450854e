#include "base/buf.h"

#include <stdio.h>

#include "base/heap.h"

enum { BUF_MIN_CAP = 256 }; /* smaller first blocks only cause a second growth */

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){.max = max};
}

void buf_free(struct buf *b)
{
    heap_free(b->ptr);
    buf_init(b, b->max);
}

/* Doubling keeps appending linear; the maximum caps the last step. */
static size_t grown_cap(const struct buf *b, size_t need)
{
    size_t cap = b->cap > b->max / 2 ? b->max : b->cap * 2;
    if (cap < BUF_MIN_CAP)
        cap = BUF_MIN_CAP < b->max ? BUF_MIN_CAP : b->max;
    return cap > need ? cap : need;
}

static void make_room(struct buf *b, size_t need)
{
    size_t used = buf_len(b);
    /*
     * Reclaiming the consumed front alone is right only when it frees at least as much as it
     * moves: a reader that consumes byte by byte would otherwise pay for the whole content each
     * time. At the maximum there is no other way.
     */
    bool reclaim = need <= b->cap && (b->start >= used || b->cap == b->max);
    if (b->start > 0 && used > 0)
        memmove(b->ptr, b->ptr + b->start, used);
    b->start = 0;
    b->end = used;
    if (b->ptr && reclaim)
        return;
    b->cap = grown_cap(b, need);
    b->ptr = heap_realloc(b->ptr, b->cap + 1); /* one more for the terminator of buf_printf */
}

enum weir_err buf_reserve(struct buf *b, size_t len, char **room)
{
    size_t used = buf_len(b);
    if (len > b->max || used > b->max - len)
        return WEIR_ELIMIT;
    if (!b->ptr || b->cap - b->end < len)
        make_room(b, used + len);
    *room = b->ptr + b->end;
    return WEIR_OK;
}

void buf_commit(struct buf *b, size_t len)
{
    if (len > b->cap - b->end)
        WEIR_BUG("buf_commit of %zu bytes where %zu were reserved", len, b->cap - b->end);
    b->end += len;
}

enum weir_err buf_append(struct buf *b, struct slice bytes)
{
    if (bytes.len == 0)
        return WEIR_OK;
    char *room;
    enum weir_err rc = buf_reserve(b, bytes.len, &room);
    if (rc)
        return rc;
    memcpy(room, bytes.ptr, bytes.len);
    b->end += bytes.len;
    return WEIR_OK;
}

enum weir_err buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    enum weir_err rc = buf_vprintf(b, fmt, args);
    va_end(args);
    return rc;
}

enum weir_err buf_vprintf(struct buf *b, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    char *room = b->ptr ? b->ptr + b->end : NULL;
    size_t space = b->ptr ? b->cap - b->end + 1 : 0;
    int len = vsnprintf(room, space, fmt, args);
    enum weir_err rc = len < 0 ? WEIR_EINVAL : WEIR_OK;
    if (!rc && (size_t)len >= space) { /* it did not fit: now the length is known */
        rc = buf_reserve(b, (size_t)len, &room);
        if (!rc)
            vsnprintf(room, (size_t)len + 1, fmt, again);
    }
    va_end(again);
    if (!rc)
        b->end += (size_t)len;
    return rc;
}

void buf_consume(struct buf *b, size_t len)
{
    if (len > buf_len(b))
        WEIR_BUG("buf_consume of %zu bytes where %zu are held", len, buf_len(b));
    b->start += len;
    if (b->start == b->end)
        buf_clear(b);
}

void buf_clear(struct buf *b)
{
    b->start = 0;
    b->end = 0;
}
