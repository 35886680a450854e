#include "base/nearest.h"

#include <stdint.h>

enum { WORD_MAX = 63 };

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned m = a < b ? a : b;
    return m < c ? m : c;
}

/* Optimal string alignment, in three rows. Both words have at most WORD_MAX bytes. */
static unsigned edits(struct slice a, struct slice b)
{
    uint8_t rows[3][WORD_MAX + 1] = {0};
    uint8_t *before = rows[0], *above = rows[1], *row = rows[2];

    for (size_t j = 0; j <= b.len; j++)
        above[j] = (uint8_t)j;
    for (size_t i = 1; i <= a.len; i++) {
        row[0] = (uint8_t)i;
        for (size_t j = 1; j <= b.len; j++) {
            bool same = lower(a.ptr[i - 1]) == lower(b.ptr[j - 1]);
            unsigned cost = min3(above[j] + 1u, row[j - 1] + 1u, above[j - 1] + (same ? 0u : 1u));
            bool swapped = i > 1 && j > 1 && lower(a.ptr[i - 1]) == lower(b.ptr[j - 2]) &&
                           lower(a.ptr[i - 2]) == lower(b.ptr[j - 1]);
            if (swapped && before[j - 2] + 1u < cost)
                cost = before[j - 2] + 1u;
            row[j] = (uint8_t)cost;
        }
        uint8_t *recycled = before;
        before = above;
        above = row;
        row = recycled;
    }
    return above[b.len];
}

const char *nearest_word(struct slice word, const char *const *candidates, size_t count)
{
    const char *best = NULL;
    /* Up to a third of the word may be wrong, but two slips in a short word are still likely. */
    unsigned limit = word.len <= 2 ? 1 : word.len <= 6 ? 2 : (unsigned)word.len / 3;

    if (word.len == 0 || word.len > WORD_MAX)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        struct slice candidate = slice_str(candidates[i]);
        if (candidate.len > WORD_MAX)
            continue;
        unsigned distance = edits(word, candidate);
        if (distance <= limit && distance < candidate.len) {
            best = candidates[i];
            limit = distance - 1; /* the next one must be nearer */
            if (distance == 0)
                break;
        }
    }
    return best;
}
