#include "http/sse.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

static bool is_line_end(char c)
{
    return c == '\n' || c == '\r';
}

/*
 * The first LF or CR, or `end`. Both at once, for two memchr() would look beyond the first of them
 * again and again where an engine uses only one kind.
 */
static const char *find_line_end(const char *p, const char *end)
{
#if defined(__SSE2__)
    const __m128i lf = _mm_set1_epi8('\n');
    const __m128i cr = _mm_set1_epi8('\r');
    for (; end - p >= 16; p += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)p);
        __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(v, lf), _mm_cmpeq_epi8(v, cr));
        unsigned mask = (unsigned)_mm_movemask_epi8(hit);
        if (mask)
            return p + __builtin_ctz(mask);
    }
#elif defined(__aarch64__)
    for (; end - p >= 16; p += 16) {
        uint8x16_t v = vld1q_u8((const uint8_t *)p);
        uint8x16_t hit = vorrq_u8(vceqq_u8(v, vdupq_n_u8('\n')), vceqq_u8(v, vdupq_n_u8('\r')));
        uint8x8_t nibbles = vshrn_n_u16(vreinterpretq_u16_u8(hit), 4); /* four bits per byte */
        uint64_t mask = vget_lane_u64(vreinterpret_u64_u8(nibbles), 0);
        if (mask)
            return p + __builtin_ctzll(mask) / 4;
    }
#endif
    while (p < end && !is_line_end(*p))
        p++;
    return p;
}

/* Behind the line end at `p`, which is there. */
static const char *skip_line_end(const char *p, const char *end)
{
    bool is_pair = *p == '\r' && end - p >= 2 && p[1] == '\n';
    return p + (is_pair ? 2 : 1);
}

size_t sse_event_length(struct sse_cursor *cursor, struct slice pending)
{
    if (cursor->scanned >= pending.len)
        return 0;
    const char *start = pending.ptr;
    const char *end = start + pending.len;
    const char *p = start + cursor->scanned;
    if (p == start && is_line_end(*p)) {
        while (p < end && is_line_end(*p))
            p++;
        return (size_t)(p - start);
    }
    if (p > start && p[-1] == '\r' && *p == '\n')
        p++; /* the other half of a line end that the last call saw the first half of */
    while (p < end) {
        if (is_line_end(*p)) {
            p = skip_line_end(p, end);
            if (cursor->line_empty)
                return (size_t)(p - start);
            cursor->line_empty = true;
        } else {
            cursor->line_empty = false;
            p = find_line_end(p, end);
        }
    }
    cursor->scanned = pending.len;
    return 0;
}

static struct slice field_value(struct slice line, size_t colon)
{
    struct slice value = slice_from(line, colon + 1);
    return slice_starts(value, SLICE(" ")) ? slice_from(value, 1) : value;
}

bool sse_next_field(struct slice event, size_t *offset, struct slice *name, struct slice *value)
{
    while (*offset < event.len && is_line_end(event.ptr[*offset]))
        (*offset)++;
    if (*offset >= event.len)
        return false;
    const char *from = event.ptr + *offset;
    const char *to = find_line_end(from, event.ptr + event.len);
    struct slice line = slice_of(from, (size_t)(to - from));
    *offset += line.len;

    const char *mark = memchr(line.ptr, ':', line.len);
    size_t colon = mark ? (size_t)(mark - line.ptr) : line.len;
    *name = slice_of(line.ptr, colon);
    *value = field_value(line, colon);
    return true;
}
