#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "http/sse.h"

enum { MAX_EVENTS = 600, MAX_TEXT = 1 << 16 };

/* What events a text holds when it arrives in pieces; events of line ends only are not listed. */
struct events {
    struct slice list[MAX_EVENTS]; /* without the line ends behind them */
    size_t count;
    size_t bytes; /* of all events, those of line ends included */
};

static struct slice without_line_ends(struct slice event)
{
    while (event.len > 0 && strchr("\r\n", event.ptr[event.len - 1]))
        event.len--;
    return event;
}

/* `next_piece` says how many more bytes arrive, when `left` are still to come. */
static void cut(struct slice text, size_t (*next_piece)(void *ctx, size_t left), void *ctx,
                struct events *out)
{
    struct sse_cursor cursor = {0};
    size_t taken = 0, arrived = 0;
    out->count = 0;
    while (arrived < text.len) {
        arrived += next_piece(ctx, text.len - arrived);
        size_t len;
        while ((len = sse_event_length(&cursor, slice_of(text.ptr + taken, arrived - taken)))) {
            struct slice event = slice_of(text.ptr + taken, len);
            taken += len;
            cursor = (struct sse_cursor){0};
            event = without_line_ends(event);
            if (event.len > 0) {
                assert_true(out->count < MAX_EVENTS);
                out->list[out->count++] = event;
            }
        }
    }
    out->bytes = taken;
}

static size_t all_at_once(void *ctx, size_t left)
{
    return left;
}

static size_t one_byte(void *ctx, size_t left)
{
    return 1;
}

static size_t random_piece(void *ctx, size_t left)
{
    uint64_t most = rng_below(ctx, 2) ? 3 : 40;
    size_t piece = (size_t)rng_below(ctx, most) + 1;
    return piece < left ? piece : left;
}

/* First up to `*ctx`, then the rest. */
static size_t at_split(void *ctx, size_t left)
{
    size_t *split = ctx;
    size_t piece = *split ? *split : left;
    *split = 0;
    return piece;
}

static void assert_same_events(const struct events *a, const struct events *b)
{
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++)
        assert_true(slice_eq(a->list[i], b->list[i]));
}

static size_t length_of(const char *text)
{
    struct sse_cursor cursor = {0};
    return sse_event_length(&cursor, slice_str(text));
}

static void test_an_event_ends_behind_its_blank_line_whatever_ends_lines(void **state)
{
    assert_int_equal(length_of("data: x\n\ndata: y\n\n"), 9);
    assert_int_equal(length_of("data: x\r\rdata: y\r\r"), 9);
    assert_int_equal(length_of("data: x\r\n\r\ndata: y"), 11);
    assert_int_equal(length_of("data: x\n\r\ndata: y"), 10);
    assert_int_equal(length_of("data: x\r\n\ndata: y"), 10);
    assert_int_equal(length_of("data: x\n\rdata: y"), 9);
    assert_int_equal(length_of("data: x\r\r\n\n"), 10);
}

static void test_an_unfinished_event_has_no_length(void **state)
{
    const char *const texts[] = {"",          "d",        "data: x", "data: x\n", "data: x\r\n",
                                 "a\nb\nc\n", "data: x\r"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(length_of(texts[i]), 0);
}

static void test_fr2_a_comment_is_an_event(void **state)
{
    assert_int_equal(length_of(":\n\ndata: x\n\n"), 3);
    assert_int_equal(length_of(": keepalive\r\n\r\n"), 15);
    assert_int_equal(length_of("retry: 3000\n\n"), 13);
}

static void test_line_ends_before_an_event_come_alone_and_at_once(void **state)
{
    assert_int_equal(length_of("\n"), 1);
    assert_int_equal(length_of("\r"), 1);
    assert_int_equal(length_of("\n\r\n\n"), 4);
    assert_int_equal(length_of("\n\ndata: x\n\n"), 2);
}

static void test_a_pair_that_is_torn_apart_is_one_line_end(void **state)
{
    struct sse_cursor cursor = {0};
    const char *text = "data: x\r\ndata: y\r\n\r\n";
    for (size_t len = 1; len < 19; len++) /* also between CR and LF of the first line */
        assert_int_equal(sse_event_length(&cursor, slice_of(text, len)), 0);
    assert_int_equal(sse_event_length(&cursor, slice_of(text, 19)), 19); /* up to the last CR */
    cursor = (struct sse_cursor){0};
    assert_int_equal(sse_event_length(&cursor, slice_of(text + 19, 1)), 1);
}

static void test_fr3_an_event_without_end_is_looked_at_once(void **state)
{
    static char text[MAX_TEXT];
    memset(text, 'x', sizeof text);
    struct sse_cursor cursor = {0};
    for (size_t len = 1000; len <= sizeof text; len += 1000) {
        assert_int_equal(sse_event_length(&cursor, slice_of(text, len)), 0);
        assert_int_equal(cursor.scanned, len);
        memset(text, 'y', len); /* what was scanned no longer matters */
        text[len / 2] = text[len / 2 + 1] = '\n';
    }
}

static void test_random_framing_gives_the_same_events_at_any_split(void **state)
{
    static const char alphabet[] = "\n\n\n\r\r:d x";
    static struct events whole, pieces;
    uint64_t seed = 20261201;
    struct rng rng;
    rng_seed(&rng, seed);
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 2000; round++) {
        char text[120];
        size_t len = (size_t)rng_below(&rng, sizeof text) + 1;
        for (size_t i = 0; i < len; i++)
            text[i] = rng_below(&rng, 3) ? 'a' : alphabet[rng_below(&rng, sizeof alphabet - 1)];
        struct slice all = slice_of(text, len);
        cut(all, all_at_once, NULL, &whole);
        cut(all, one_byte, NULL, &pieces);
        assert_same_events(&whole, &pieces);
        cut(all, random_piece, &rng, &pieces);
        assert_same_events(&whole, &pieces);
        for (size_t at = 1; at < len; at++) {
            size_t split = at;
            cut(all, at_split, &split, &pieces);
            assert_same_events(&whole, &pieces);
        }
        /* What is left over is one unfinished event. */
        struct sse_cursor cursor = {0};
        assert_int_equal(sse_event_length(&cursor, slice_from(all, whole.bytes)), 0);
    }
}

static void assert_field(struct slice event, size_t *offset, const char *name, const char *value)
{
    struct slice n, v;
    assert_true(sse_next_field(event, offset, &n, &v));
    assert_true(slice_eq(n, slice_str(name)));
    assert_true(slice_eq(v, slice_str(value)));
}

static void test_fields_are_split_at_the_first_colon_without_one_space(void **state)
{
    struct slice event = SLICE("\r\nevent: a:b\rdata:  two\n: note\ndata\nid:5\r\n\r\n");
    size_t offset = 0;
    assert_field(event, &offset, "event", "a:b");
    assert_field(event, &offset, "data", " two");
    assert_field(event, &offset, "", "note");
    assert_field(event, &offset, "data", "");
    assert_field(event, &offset, "id", "5");
    struct slice n, v;
    assert_false(sse_next_field(event, &offset, &n, &v));
    assert_false(sse_next_field(event, &offset, &n, &v));
}

static void test_an_empty_event_has_no_field(void **state)
{
    struct slice n, v;
    size_t offset = 0;
    assert_false(sse_next_field((struct slice){0}, &offset, &n, &v));
    assert_false(sse_next_field(SLICE("\n\r\n"), &offset, &n, &v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_event_ends_behind_its_blank_line_whatever_ends_lines),
        cmocka_unit_test(test_an_unfinished_event_has_no_length),
        cmocka_unit_test(test_fr2_a_comment_is_an_event),
        cmocka_unit_test(test_line_ends_before_an_event_come_alone_and_at_once),
        cmocka_unit_test(test_a_pair_that_is_torn_apart_is_one_line_end),
        cmocka_unit_test(test_fr3_an_event_without_end_is_looked_at_once),
        cmocka_unit_test(test_random_framing_gives_the_same_events_at_any_split),
        cmocka_unit_test(test_fields_are_split_at_the_first_colon_without_one_space),
        cmocka_unit_test(test_an_empty_event_has_no_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
