#include "response.h"

void response_begin(struct response *r)
{
    r->phase = RESPONSE_HEAD;
    r->framing = FRAMED_BY_CLOSE;
    r->status = 0;
    r->is_kept_alive = true;
    r->is_events = r->saw_done = r->saw_error = false;
    r->content_events = r->body_bytes = r->left = 0;
    r->line_len = 0;
}

/*
 * Takes one line off `bytes`, without its line break. False: its end has not arrived, and its
 * beginning is kept. The line lives until the next call.
 */
static bool take_line(struct response *r, struct slice *bytes, struct slice *line)
{
    const char *end = memchr(bytes->ptr, '\n', bytes->len);
    size_t len = end ? (size_t)(end - bytes->ptr) : bytes->len;
    *line = slice_of(bytes->ptr, len);
    *bytes = slice_from(*bytes, end ? len + 1 : len);
    if (r->line_len || !end) {
        if (r->line_len + len > sizeof(r->line)) {
            r->phase = RESPONSE_BAD;
            return false;
        }
        if (len)
            memcpy(r->line + r->line_len, line->ptr, len);
        *line = slice_of(r->line, r->line_len + len);
        r->line_len = end ? 0 : line->len;
    }
    if (end && line->len && line->ptr[line->len - 1] == '\r')
        line->len--;
    return end != NULL;
}

static void read_event_line(struct response *r, struct slice line)
{
    static const struct slice data = {"data: ", 6}, content = {"\"content\":\"", 11};
    if (!slice_starts(line, data))
        return;
    line = slice_from(line, data.len);
    const char *at = slice_find(line, content);
    const char *text = at ? at + content.len : NULL;
    if (text && text < line.ptr + line.len && *text != '"')
        r->content_events++;
    else if (slice_eq(line, SLICE("[DONE]")))
        r->saw_done = true;
    else if (slice_starts(line, SLICE("{\"error\"")))
        r->saw_error = true;
}

static void read_body(struct response *r, struct slice bytes)
{
    r->body_bytes += bytes.len;
    struct slice line;
    while (r->is_events && bytes.len && take_line(r, &bytes, &line))
        read_event_line(r, line);
}

static bool header_is(struct slice line, struct slice name, struct slice *value)
{
    if (line.len < name.len || !slice_eq_nocase(slice_of(line.ptr, name.len), name))
        return false;
    *value = slice_trim(slice_from(line, name.len));
    return true;
}

static void read_header(struct response *r, struct slice line)
{
    struct slice value;
    if (header_is(line, SLICE("content-length:"), &value)) {
        r->framing = FRAMED_BY_LENGTH;
        if (!slice_to_u64(value, &r->left))
            r->phase = RESPONSE_BAD;
    } else if (header_is(line, SLICE("transfer-encoding:"), &value)) {
        r->framing = FRAMED_BY_CHUNKS;
    } else if (header_is(line, SLICE("connection:"), &value)) {
        r->is_kept_alive = !slice_eq_nocase(value, SLICE("close"));
    } else if (header_is(line, SLICE("content-type:"), &value)) {
        r->is_events = slice_starts(value, SLICE("text/event-stream"));
    }
}

static void read_status(struct response *r, struct slice line)
{
    uint64_t status;
    if (!slice_starts(line, SLICE("HTTP/1.")) || line.len < 12 ||
        !slice_to_u64(slice_of(line.ptr + 9, 3), &status)) {
        r->phase = RESPONSE_BAD;
        return;
    }
    r->status = (int)status;
}

static void read_head_line(struct response *r, struct slice line)
{
    if (r->status == 0)
        read_status(r, line);
    else if (line.len)
        read_header(r, line);
    else if (r->status < 200)
        r->status = 0; /* 100 Continue; the response is still to come */
    else if (r->framing == FRAMED_BY_CHUNKS)
        r->phase = RESPONSE_CHUNK_SIZE;
    else if (r->framing == FRAMED_BY_CLOSE)
        r->phase = RESPONSE_UNTIL_CLOSE;
    else
        r->phase = r->left ? RESPONSE_LENGTH : RESPONSE_COMPLETE;
}

/* One byte of the line before a chunk: hexadecimal digits, extensions ignored. */
static void read_size_byte(struct response *r, char byte)
{
    static const char digits[] = "0123456789abcdef";
    if (byte == '\n') {
        r->phase = r->left ? RESPONSE_CHUNK : RESPONSE_TRAILER;
        return;
    }
    const char *digit = memchr(digits, byte | 0x20, 16);
    if (digit)
        r->left = r->left * 16 + (uint64_t)(digit - digits);
}

static void read_some(struct response *r, struct slice *bytes)
{
    size_t n = r->left < bytes->len ? (size_t)r->left : bytes->len;
    read_body(r, slice_of(bytes->ptr, n));
    r->left -= n;
    *bytes = slice_from(*bytes, n);
    if (r->left == 0 && r->phase != RESPONSE_BAD)
        r->phase = r->phase == RESPONSE_CHUNK ? RESPONSE_CHUNK_END : RESPONSE_COMPLETE;
}

void response_feed(struct response *r, struct slice bytes)
{
    struct slice line;
    while (bytes.len && r->phase < RESPONSE_COMPLETE) {
        switch (r->phase) {
        case RESPONSE_HEAD:
            if (take_line(r, &bytes, &line))
                read_head_line(r, line);
            break;
        case RESPONSE_UNTIL_CLOSE:
            read_body(r, bytes);
            bytes.len = 0;
            break;
        case RESPONSE_LENGTH:
        case RESPONSE_CHUNK:
            read_some(r, &bytes);
            break;
        case RESPONSE_CHUNK_SIZE:
            read_size_byte(r, bytes.ptr[0]);
            bytes = slice_from(bytes, 1);
            break;
        case RESPONSE_CHUNK_END:
            r->phase = bytes.ptr[0] == '\n' ? RESPONSE_CHUNK_SIZE : RESPONSE_CHUNK_END;
            bytes = slice_from(bytes, 1);
            break;
        case RESPONSE_TRAILER:
            if (take_line(r, &bytes, &line) && line.len == 0)
                r->phase = RESPONSE_COMPLETE;
            break;
        case RESPONSE_COMPLETE:
        case RESPONSE_BAD:
            break;
        }
    }
}

void response_end_of_stream(struct response *r)
{
    r->phase = r->phase == RESPONSE_UNTIL_CLOSE ? RESPONSE_COMPLETE : RESPONSE_BAD;
}
