#include "dialects/key_scan.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static struct slice skip_space(struct slice s)
{
    while (s.len > 0 && is_space(*s.ptr))
        s = slice_from(s, 1);
    return s;
}

/* `text` starts behind a word's closing quote: what is the word? `key` where a value follows. */
static unsigned judge(struct slice text, unsigned key)
{
    text = skip_space(text);
    if (text.len == 0 || *text.ptr != ':')
        return key == KEY_ERROR && text.len > 0 ? VALUE_IS_ERROR : 0;
    text = skip_space(slice_from(text, 1));
    return text.len > 0 && !slice_starts(text, SLICE("null")) ? key : 0;
}

/* `text` starts at a quote. Inside a string a word's quotes would be escaped, so none matches. */
static unsigned word_at(struct slice text)
{
    static const struct {
        struct slice quoted;
        unsigned key;
    } words[] = {
        {{"\"finish_reason\"", 15}, KEY_FINISH},
        {{"\"usage\"", 7}, KEY_USAGE},
        {{"\"error\"", 7}, KEY_ERROR},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (slice_starts(text, words[i].quoted))
            return judge(slice_from(text, words[i].quoted.len), words[i].key);
    return 0;
}

static bool may_be_word(const char *p)
{
    return p[0] == '"' && (p[1] == 'e' || p[1] == 'f' || p[1] == 'u');
}

unsigned key_scan(struct slice text)
{
    unsigned found = 0;
    size_t at = 0;
    /*
     * Every fourth byte of an event is a quote, few of them have one of three letters behind them:
     * sixteen positions at a time are asked for both at once.
     */
#if defined(__SSE2__)
    for (; text.len - at >= 17; at += 16) {
        __m128i here = _mm_loadu_si128((const __m128i *)(text.ptr + at));
        __m128i next = _mm_loadu_si128((const __m128i *)(text.ptr + at + 1));
        __m128i letter = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(next, _mm_set1_epi8('e')),
                                                   _mm_cmpeq_epi8(next, _mm_set1_epi8('f'))),
                                      _mm_cmpeq_epi8(next, _mm_set1_epi8('u')));
        __m128i hit = _mm_and_si128(_mm_cmpeq_epi8(here, _mm_set1_epi8('"')), letter);
        for (unsigned mask = (unsigned)_mm_movemask_epi8(hit); mask; mask &= mask - 1)
            found |= word_at(slice_from(text, at + (size_t)__builtin_ctz(mask)));
    }
#elif defined(__aarch64__)
    for (; text.len - at >= 17; at += 16) {
        uint8x16_t here = vld1q_u8((const uint8_t *)text.ptr + at);
        uint8x16_t next = vld1q_u8((const uint8_t *)text.ptr + at + 1);
        uint8x16_t letter =
            vorrq_u8(vorrq_u8(vceqq_u8(next, vdupq_n_u8('e')), vceqq_u8(next, vdupq_n_u8('f'))),
                     vceqq_u8(next, vdupq_n_u8('u')));
        uint8x16_t hit = vandq_u8(vceqq_u8(here, vdupq_n_u8('"')), letter);
        uint8x8_t nibbles = vshrn_n_u16(vreinterpretq_u16_u8(hit), 4); /* four bits per byte */
        uint64_t mask = vget_lane_u64(vreinterpret_u64_u8(nibbles), 0) & 0x8888888888888888u;
        for (; mask; mask &= mask - 1)
            found |= word_at(slice_from(text, at + (size_t)__builtin_ctzll(mask) / 4));
    }
#endif
    for (; at + 1 < text.len; at++)
        if (may_be_word(text.ptr + at))
            found |= word_at(slice_from(text, at));
    return found;
}
