#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/heap.h"
#include "base/utf8.h"

static void test_table_of_sequences(void **state)
{
    static const struct {
        struct slice text;
        size_t invalid_at;
    } rows[] = {
        {SLICE(""), 0},
        {SLICE("plain"), 5},
        {SLICE("\x7f"), 1},
        {SLICE("\xc2\x80"), 2},         /* U+0080, the first of two bytes */
        {SLICE("\xdf\xbf"), 2},         /* U+07FF */
        {SLICE("\xe0\xa0\x80"), 3},     /* U+0800 */
        {SLICE("\xed\x9f\xbf"), 3},     /* U+D7FF */
        {SLICE("\xee\x80\x80"), 3},     /* U+E000 */
        {SLICE("\xef\xbf\xbf"), 3},     /* U+FFFF */
        {SLICE("\xf0\x90\x80\x80"), 4}, /* U+10000 */
        {SLICE("\xf4\x8f\xbf\xbf"), 4}, /* U+10FFFF */
        {SLICE("a\xff"), 1},
        {SLICE("a\x80"), 1},
        {SLICE("\xc0\x80"), 0},         /* overlong zero */
        {SLICE("\xc1\xbf"), 0},         /* overlong U+007F */
        {SLICE("\xe0\x9f\xbf"), 0},     /* overlong U+07FF */
        {SLICE("\xf0\x8f\xbf\xbf"), 0}, /* overlong U+FFFF */
        {SLICE("\xed\xa0\x80"), 0},     /* surrogate U+D800 */
        {SLICE("\xed\xbf\xbf"), 0},     /* surrogate U+DFFF */
        {SLICE("\xf4\x90\x80\x80"), 0}, /* U+110000 */
        {SLICE("\xf5\x80\x80\x80"), 0},
        {SLICE("x\xe4\xbd"), 1}, /* cut */
        {SLICE("x\xf0\x9f\x98"), 1},
        {SLICE("x\xc3"), 1},
        {SLICE("\xc3\x28"), 0},
        {SLICE("\xe4\x28\xa0"), 0},
        {SLICE("\xe4\xbd\x28"), 0},
        {SLICE("\xf0\x9f\x98\x28"), 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(utf8_first_invalid(rows[i].text), rows[i].invalid_at);
}

/* Whole words are skipped at a time; no offset of a bad byte may get lost in one. */
static void test_bad_byte_is_found_at_every_offset(void **state)
{
    for (size_t len = 1; len < 40; len++) {
        char *text = heap_alloc(len); /* exact, so that AddressSanitizer sees a read too far */
        for (size_t bad = 0; bad < len; bad++) {
            memset(text, 'a', len);
            text[bad] = (char)0xff;
            assert_int_equal(utf8_first_invalid(slice_of(text, len)), bad);
            text[bad] = (char)0xe4; /* needs two more that are not there */
            assert_int_equal(utf8_first_invalid(slice_of(text, len)), bad);
        }
        heap_free(text);
    }
}

/* Every lead and second byte, against the definition by code point. */
static void test_two_first_bytes_decide_as_the_code_point_does(void **state)
{
    for (unsigned lead = 0x80; lead < 0x100; lead++) {
        for (unsigned second = 0; second < 0x100; second++) {
            unsigned char p[4] = {(unsigned char)lead, (unsigned char)second, 0x80, 0x80};
            size_t want = 0;
            if ((second & 0xc0) == 0x80) {
                unsigned low6 = second & 0x3f;
                unsigned code2 = (lead & 0x1f) << 6 | low6;
                unsigned code3 = (lead & 0x0f) << 12 | low6 << 6;
                unsigned code4 = (lead & 0x07) << 18 | low6 << 12;
                if ((lead & 0xe0) == 0xc0 && code2 >= 0x80)
                    want = 2;
                else if ((lead & 0xf0) == 0xe0 && code3 >= 0x800 &&
                         (code3 < 0xd800 || code3 > 0xdfff))
                    want = 3;
                else if ((lead & 0xf8) == 0xf0 && code4 >= 0x10000 && code4 <= 0x10ffff)
                    want = 4;
            }
            assert_int_equal(utf8_sequence(p, 4), want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_of_sequences),
        cmocka_unit_test(test_bad_byte_is_found_at_every_offset),
        cmocka_unit_test(test_two_first_bytes_decide_as_the_code_point_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
