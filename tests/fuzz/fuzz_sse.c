/*
 * fuzz_sse.c - framing: the events of a text and what is left over are the text, however it
 * arrives, and the fields of an event lie inside it, in order.
 *
 * Input: one byte that seeds the sizes of the pieces, then the text.
 */
#include <stdint.h>

#include "base/error.h"
#include "base/rng.h"
#include "http/sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_fields(struct slice event)
{
    struct slice name, value;
    const char *end = event.ptr;
    for (size_t offset = 0; sse_next_field(event, &offset, &name, &value);) {
        if (name.ptr < end || (value.len > 0 && value.ptr <= name.ptr + name.len - 1) ||
            offset > event.len)
            WEIR_BUG("a field lies outside of its event or before the last one");
        end = name.ptr + name.len;
    }
}

/* Sum of a mix of the events' bytes without the line ends behind them; equal at every framing. */
static uint64_t digest(struct slice text, struct rng *rng)
{
    struct sse_cursor cursor = {0};
    size_t taken = 0;
    uint64_t hash = 0;
    for (size_t arrived = 0; arrived < text.len;) {
        size_t left = text.len - arrived;
        size_t piece = rng ? (size_t)rng_below(rng, left < 20 ? left : 20) + 1 : left;
        arrived += piece;
        for (;;) {
            struct slice pending = slice_of(text.ptr + taken, arrived - taken);
            size_t len = sse_event_length(&cursor, pending);
            if (len > pending.len || (len == 0 && cursor.scanned != pending.len))
                WEIR_BUG("%zu of %zu bytes, %zu scanned", len, pending.len, cursor.scanned);
            if (len == 0)
                break;
            cursor = (struct sse_cursor){0};
            struct slice event = slice_of(pending.ptr, len);
            check_fields(event);
            taken += len;
            while (event.len > 0 && strchr("\r\n", event.ptr[event.len - 1]) &&
                   event.ptr[event.len - 1])
                event.len--;
            for (size_t i = 0; i < event.len; i++)
                hash = (hash ^ (unsigned char)event.ptr[i]) * 0x100000001b3u;
            hash = event.len ? hash * 31 + event.len : hash;
        }
    }
    return hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct rng rng;
    rng_seed(&rng, data[0]);
    struct slice text = slice_of((const char *)data + 1, size - 1);
    if (digest(text, NULL) != digest(text, &rng))
        WEIR_BUG("the events depend on how the text arrives");
    return 0;
}
