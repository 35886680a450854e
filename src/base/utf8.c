#include "base/utf8.h"

#include <stdbool.h>
#include <stdint.h>

static bool is_tail(unsigned char c)
{
    return (c & 0xc0) == 0x80;
}

/* Length of the valid sequence at `p`, which starts with a byte above 0x7f; 0 when invalid. */
size_t utf8_sequence(const unsigned char *p, size_t left)
{
    unsigned char lead = p[0];
    if (lead < 0xc2 || lead > 0xf4 || left < 2)
        return 0;
    if (lead < 0xe0)
        return is_tail(p[1]) ? 2 : 0;

    /* Table 3-7: the second byte shuts out overlong forms, surrogates and > U+10FFFF. */
    unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < low || p[1] > high || left < 3 || !is_tail(p[2]))
        return 0;
    if (lead < 0xf0)
        return 3;
    return left >= 4 && is_tail(p[3]) ? 4 : 0;
}

static bool is_ascii8(const unsigned char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return (word & 0x8080808080808080) == 0;
}

size_t utf8_first_invalid(struct slice s)
{
    const unsigned char *p = (const unsigned char *)s.ptr;
    size_t at = 0;
    while (at < s.len) {
        if (s.len - at >= 8 && is_ascii8(p + at)) {
            at += 8;
        } else if (p[at] < 0x80) {
            at++;
        } else {
            size_t len = utf8_sequence(p + at, s.len - at);
            if (len == 0)
                return at;
            at += len;
        }
    }
    return s.len;
}
