/*
 * buf.h - a growing run of bytes with a maximum.
 *
 * Invariants: 0 <= start <= end <= cap <= max. Bytes [start, end) are the content. The maximum
 * is given once, at init; reaching it is WEIR_ELIMIT and changes nothing. A zeroed struct with a
 * maximum set is a valid empty buffer that holds no memory. Running out of memory aborts.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>

#include "base/error.h"
#include "base/slice.h"

struct buf {
    char *ptr;
    size_t start;
    size_t end;
    size_t cap;
    size_t max;
};

void buf_init(struct buf *b, size_t max);

/* Gives the memory back; the buffer stays usable, with the same maximum. */
void buf_free(struct buf *b);

static inline size_t buf_len(const struct buf *b)
{
    return b->end - b->start;
}

/* The content. Valid until the next call that changes the buffer. */
static inline struct slice buf_slice(const struct buf *b)
{
    return (struct slice){b->ptr ? b->ptr + b->start : NULL, b->end - b->start};
}

/* Room for `len` more bytes behind the content; `*room` points there. Commit what was written. */
WEIR_MUST_USE enum weir_err buf_reserve(struct buf *b, size_t len, char **room);
void buf_commit(struct buf *b, size_t len);

WEIR_MUST_USE enum weir_err buf_append(struct buf *b, struct slice bytes);

/* As snprintf; the terminating zero is not content. */
WEIR_MUST_USE enum weir_err buf_printf(struct buf *b, const char *fmt, ...) WEIR_PRINTF(2, 3);
WEIR_MUST_USE enum weir_err buf_vprintf(struct buf *b, const char *fmt, va_list args);

/* Drops `len` bytes at the front. An emptied buffer goes back to its start and keeps its memory. */
void buf_consume(struct buf *b, size_t len);
void buf_clear(struct buf *b);
