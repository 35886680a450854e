/*
 * fuzz_stream.c - stream readers: any bytes are read, in every dialect, without harm; what they
 * say about the stream never contradicts itself, and an error of the engine's can be told.
 *
 * Input: the text of a stream; what follows the last whole event is its tail.
 */
#include <stdint.h>

#include "base/json.h"
#include "dialects/stream.h"
#include "http/sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct stream_reader *r, enum stream_event event)
{
    if ((event == STREAM_CONTENT && !r->saw_content) || (event == STREAM_ERROR && !r->saw_error) ||
        (event == STREAM_FINISH && !r->saw_finish) || (event == STREAM_PRELUDE && r->saw_content))
        WEIR_BUG("the reader says %d and does not remember it", (int)event);
    if (stream_reader_complete(r) && r->saw_error)
        WEIR_BUG("a stream with an error passes for a success");
    if (r->usage.cached_tokens > r->usage.prompt_tokens)
        WEIR_BUG("more tokens cached than there were");
}

static void check_error(const struct stream_reader *r)
{
    struct buf out;
    buf_init(&out, 1 << 16);
    if (api_error_write_event(&r->error, r->dialect, SLICE("id"), r->sequence, &out))
        WEIR_BUG("an error event of more than 64 KiB");
    struct sse_cursor cursor = {0};
    if (sse_event_length(&cursor, buf_slice(&out)) != buf_len(&out))
        WEIR_BUG("an error event that is not one event");
    buf_clear(&out);
    if (api_error_write_body(&r->error, r->dialect == DIALECT_ANTHROPIC, SLICE("id"), &out))
        WEIR_BUG("an error body of more than 64 KiB");
    struct json_doc *doc = json_parse(buf_slice(&out));
    if (!doc)
        WEIR_BUG("an error body that is no JSON");
    json_doc_free(doc);
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int d = DIALECT_OPENAI_CHAT; d <= DIALECT_ANTHROPIC; d++) {
        struct stream_reader r;
        struct slice rest = slice_of((const char *)data, size);
        stream_reader_init(&r, (enum dialect)d);
        for (;;) {
            struct sse_cursor cursor = {0};
            size_t len = sse_event_length(&cursor, rest);
            if (len == 0)
                break;
            check(&r, stream_reader_event(&r, slice_of(rest.ptr, len)));
            rest = slice_from(rest, len);
        }
        if (rest.len > 0)
            check(&r, stream_reader_tail(&r, rest));
        if (r.saw_error)
            check_error(&r);
    }
    struct api_error e;
    struct slice body = slice_of((const char *)data, size);
    for (int d = DIALECT_OPENAI_CHAT; d <= DIALECT_ANTHROPIC; d++)
        if (api_error_from_engine((enum dialect)d, size % 600, size & 1, body, &e)) {
            struct stream_reader r = {.dialect = (enum dialect)d, .error = e};
            check_error(&r);
        }
    return 0;
}
