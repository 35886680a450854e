#include "observe/access_line.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "base/slice.h"
#include "base/utf8.h"
#include "observe/record.h"

/* By hand and not by printf: a small request may cost little more than its line otherwise. */

enum { STRING_MAX = 256, ESCAPE_MAX = 6 };

struct line {
    char *at;
    char *end;
    bool json;
    bool is_full;
};

static void put(struct line *l, const char *bytes, size_t len)
{
    if (len > (size_t)(l->end - l->at)) {
        l->is_full = true;
        l->end = l->at; /* nothing shorter may follow */
        return;
    }
    memcpy(l->at, bytes, len);
    l->at += len;
}

static void put_key(struct line *l, struct slice key, bool is_first)
{
    if (l->json) {
        put(l, is_first ? "{\"" : ",\"", 2);
        put(l, key.ptr, key.len);
        put(l, "\":", 2);
    } else {
        if (!is_first)
            put(l, " ", 1);
        put(l, key.ptr, key.len);
        put(l, "=", 1);
    }
}

static void put_nothing(struct line *l)
{
    if (l->json)
        put(l, "null", 4);
    else
        put(l, "-", 1);
}

static void put_digits(struct line *l, uint64_t value)
{
    char digits[20];
    char *p = digits + sizeof digits;
    do
        *--p = (char)('0' + value % 10);
    while (value /= 10);
    put(l, p, (size_t)(digits + sizeof digits - p));
}

static void put_uint(struct line *l, struct slice key, uint64_t value)
{
    put_key(l, key, false);
    put_digits(l, value);
}

static void put_ms(struct line *l, struct slice key, uint64_t ns)
{
    put_key(l, key, false);
    uint64_t us = ns / NS_PER_US;
    uint64_t rest = us % 1000;
    put_digits(l, us / 1000);
    char decimals[4] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10),
                        (char)('0' + rest % 10)};
    put(l, decimals, sizeof decimals);
}

static void put_ms_if(struct line *l, struct slice key, uint64_t ns, bool applies)
{
    if (applies) {
        put_ms(l, key, ns);
    } else {
        put_key(l, key, false);
        put_nothing(l);
    }
}

static void put_bool(struct line *l, struct slice key, bool value)
{
    put_key(l, key, false);
    if (value)
        put(l, "true", 4);
    else
        put(l, "false", 5);
}

static void put_bool_if(struct line *l, struct slice key, bool value, bool applies)
{
    if (applies) {
        put_bool(l, key, value);
    } else {
        put_key(l, key, false);
        put_nothing(l);
    }
}

/* Bytes from `p` on that may stand as they are. */
static size_t plain_run(const unsigned char *p, size_t left)
{
    size_t n = 0;
    while (n < left && p[n] >= 0x20 && p[n] < 0x7f && p[n] != '"' && p[n] != '\\')
        n++;
    return n;
}

/* What is written for the byte or sequence at `p`; `*used` bytes of it are consumed. */
static size_t escape(const unsigned char *p, size_t left, size_t *used, char out[ESCAPE_MAX])
{
    static const char hex[] = "0123456789abcdef";
    *used = 1;
    if (*p == '"' || *p == '\\') {
        out[0] = '\\';
        out[1] = (char)*p;
        return 2;
    }
    size_t sequence = *p < 0x80 ? 0 : utf8_sequence(p, left);
    bool is_c1 = sequence == 2 && p[0] == 0xc2 && p[1] < 0xa0; /* drives terminals, as C0 does */
    if (sequence && !is_c1) {
        *used = sequence;
        memcpy(out, p, sequence);
        return sequence;
    }
    if (*p >= 0x80 && !is_c1) {
        memcpy(out, "\xef\xbf\xbd", 3);
        return 3;
    }
    unsigned char code = is_c1 ? p[1] : *p;
    *used = is_c1 ? 2 : 1;
    memcpy(out, "\\u00", 4);
    out[4] = hex[code >> 4];
    out[5] = hex[code & 15];
    return ESCAPE_MAX;
}

static void put_escaped(struct line *l, struct slice s)
{
    const unsigned char *p = (const unsigned char *)s.ptr;
    size_t room = STRING_MAX;
    size_t i = 0;
    while (i < s.len) {
        size_t run = plain_run(p + i, s.len - i);
        run = run < room ? run : room;
        put(l, s.ptr + i, run);
        i += run;
        room -= run;
        if (i == s.len || room < ESCAPE_MAX)
            return;
        size_t used;
        char escaped[ESCAPE_MAX];
        size_t len = escape(p + i, s.len - i, &used, escaped);
        put(l, escaped, len);
        i += used;
        room -= len;
    }
}

/* Whether a text line needs quotes around it: else a value could look like another field. */
static bool needs_quotes(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c <= ' ' || c == '"' || c == '\\' || c == '=' || c >= 0x7f)
            return true;
    }
    return s.len == 1 && s.ptr[0] == '-';
}

static void put_text_value(struct line *l, struct slice s)
{
    if (s.len == 0) {
        put_nothing(l);
        return;
    }
    bool quotes = l->json || needs_quotes(s);
    if (quotes)
        put(l, "\"", 1);
    put_escaped(l, s);
    if (quotes)
        put(l, "\"", 1);
}

static void put_text(struct line *l, struct slice key, struct slice s)
{
    put_key(l, key, false);
    put_text_value(l, s);
}

static void put_time(struct line *l, uint64_t wall_ns)
{
    char text[32];
    clock_format_wall(wall_ns, text, sizeof text);
    put_key(l, SLICE("time"), true);
    put_text_value(l, slice_str(text));
}

static struct slice late_word(const struct request_record *r)
{
    if (r->late_ttft)
        return r->late_tpot ? SLICE("ttft+tpot") : SLICE("ttft");
    return r->late_tpot ? SLICE("tpot") : (struct slice){0};
}

static void put_who(struct line *l, const struct request_record *r)
{
    put_text(l, SLICE("id"), r->request_id);
    put_text(l, SLICE("client"), r->client);
    put_text(l, SLICE("surface"), slice_str(r->surface));
    put_text(l, SLICE("model"), r->model);
    put_text(l, SLICE("pool"), slice_str(r->pool));
    put_text(l, SLICE("replica"), slice_str(r->replica));
    put_uint(l, SLICE("tries"), r->tries);
}

static void put_end(struct line *l, const struct request_record *r)
{
    put_uint(l, SLICE("status"), r->status > 0 ? (uint64_t)r->status : 0);
    put_text(l, SLICE("outcome"), slice_str(outcome_name(r->outcome)));
    put_text(l, SLICE("reason"), slice_str(r->reason));
    put_bool(l, SLICE("stream"), r->stream);
    put_bool_if(l, SLICE("good"), r->good, record_is_offered(r));
    put_text(l, SLICE("late"), late_word(r));
}

static void put_volume(struct line *l, const struct request_record *r)
{
    put_uint(l, SLICE("bytes_in"), r->bytes_in);
    put_uint(l, SLICE("bytes_out"), r->bytes_out);
    put_uint(l, SLICE("tokens_in"), r->tokens_in);
    put_uint(l, SLICE("tokens_out"), r->tokens_out);
    put_uint(l, SLICE("tokens_cached"), r->tokens_cached);
    put_bool(l, SLICE("usage_known"), r->usage_known);
}

static void put_times(struct line *l, const struct request_record *r)
{
    put_ms(l, SLICE("duration_ms"), r->duration_ns);
    put_ms_if(l, SLICE("ttft_ms"), r->ttft_ns, r->ttft_ns > 0);
    put_ms_if(l, SLICE("tpot_ms"), r->tpot_ns, r->ttft_ns > 0 && r->tokens_out > 1);
    put_ms_if(l, SLICE("longest_gap_ms"), r->longest_gap_ns, r->longest_gap_ns > 0);
    put_ms(l, SLICE("queue_ms"), r->queue_ns);
}

size_t access_log_format_line(const struct request_record *record, enum access_log_format format,
                              char *out, size_t size)
{
    struct line l = {.at = out, .end = out + size, .json = format == ACCESS_LOG_JSON};
    put_time(&l, record->start_wall_ns);
    put_who(&l, record);
    put_end(&l, record);
    put_volume(&l, record);
    put_times(&l, record);
    if (l.json)
        put(&l, "}", 1);
    put(&l, "\n", 1);
    return l.is_full ? 0 : (size_t)(l.at - out);
}
