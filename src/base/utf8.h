/* utf8.h - validity only (Unicode 15, table 3-7): no overlong forms, no surrogates. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/slice.h"

/* Offset of the first byte that is not part of a valid sequence, or s.len when all are. */
size_t utf8_first_invalid(struct slice s);

static inline bool utf8_is_tail(unsigned char c)
{
    return (c & 0xc0) == 0x80;
}

/* Length of the sequence at `p`, whose first of `left` bytes is above 0x7f; 0 when invalid. */
static inline size_t utf8_sequence(const unsigned char *p, size_t left)
{
    unsigned char lead = p[0];
    if (lead < 0xc2 || lead > 0xf4 || left < 2)
        return 0;
    if (lead < 0xe0)
        return utf8_is_tail(p[1]) ? 2 : 0;

    /* Table 3-7: the second byte shuts out overlong forms, surrogates and > U+10FFFF. */
    unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < low || p[1] > high || left < 3 || !utf8_is_tail(p[2]))
        return 0;
    if (lead < 0xf0)
        return 3;
    return left >= 4 && utf8_is_tail(p[3]) ? 4 : 0;
}
