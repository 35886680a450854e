#include "base/utf8.h"

#include <stdint.h>

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
