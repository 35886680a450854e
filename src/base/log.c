#include "base/log.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/utf8.h"

/* PIPE_BUF is 4096 on Linux: a write() of less is never torn, whatever stderr is. */
enum { LOG_MAX_LINE = 2048, LOG_MAX_SENTENCE = 1600 };

static const char *const level_names[] = {
    [LOG_ERROR] = "error", [LOG_WARN] = "warn", [LOG_INFO] = "info", [LOG_DEBUG] = "debug"};

/* Written by log_setup(), read by all threads. */
static _Atomic int max_level = LOG_INFO;
static _Atomic bool as_json;

/* Added to by all threads. */
static _Atomic uint64_t lost;

void log_setup(enum log_level level, bool json)
{
    atomic_store_explicit(&max_level, (int)level, memory_order_relaxed);
    atomic_store_explicit(&as_json, json, memory_order_relaxed);
}

bool log_enabled(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&max_level, memory_order_relaxed);
}

uint64_t log_lost(void)
{
    return atomic_load_explicit(&lost, memory_order_relaxed);
}

/*
 * A full disk, a reader that is slow or gone: none of it may stop or end the process, and there
 * is nowhere to report it but a counter.
 */
static void emit(struct slice line)
{
    ssize_t wrote;
    do
        wrote = write(STDERR_FILENO, line.ptr, line.len);
    while (wrote < 0 && errno == EINTR);
    if (wrote != (ssize_t)line.len)
        atomic_fetch_add_explicit(&lost, 1, memory_order_relaxed);
}

/*
 * Arguments may be a client's bytes: without this one could forge a line or drive a terminal
 * (C0 and, in UTF-8, C1 control codes).
 */
static void make_printable(char *text, size_t len)
{
    unsigned char *p = (unsigned char *)text;
    size_t at = 0;
    while (at < len) {
        size_t step = p[at] < 0x80 ? 1 : utf8_sequence(p + at, len - at);
        if (step == 0) {
            p[at] = '?';
            step = 1;
        } else if (p[at] < 0x20 || p[at] == 0x7f) {
            p[at] = ' ';
        } else if (step == 2 && p[at] == 0xc2 && p[at + 1] < 0xa0) {
            p[at] = p[at + 1] = ' ';
        }
        at += step;
    }
}

static enum weir_err put_text(struct buf *out, const char *time, const char *level,
                              const char *what, struct slice sentence)
{
    enum weir_err rc = buf_printf(out, "%s %s %s: %.*s", time, level, what, SLICE_ARG(sentence));
    if (rc)
        return rc;
    make_printable(out->ptr + out->start, buf_len(out));
    return buf_append(out, SLICE("\n"));
}

static enum weir_err put_json(struct buf *out, const char *time, const char *level,
                              const char *what, struct slice sentence)
{
    enum weir_err rc = buf_printf(out, "{\"time\":\"%s\",\"level\":\"%s\",\"what\":", time, level);
    if (!rc)
        rc = json_put_string(out, slice_str(what));
    if (!rc)
        rc = buf_append(out, SLICE(",\"msg\":"));
    if (!rc)
        rc = json_put_string(out, sentence);
    if (!rc)
        rc = buf_append(out, SLICE("}\n"));
    return rc;
}

static void log_sentence(enum log_level level, const char *what, struct slice sentence)
{
    char time[32];
    clock_format_wall(clock_wall_ns(), time, sizeof time);
    bool json = atomic_load_explicit(&as_json, memory_order_relaxed);

    struct buf line;
    buf_init(&line, LOG_MAX_LINE);
    enum weir_err rc;
    do { /* escapes may take six bytes for one: shorten the sentence until the line fits */
        buf_clear(&line);
        rc = json ? put_json(&line, time, level_names[level], what, sentence)
                  : put_text(&line, time, level_names[level], what, sentence);
        sentence.len -= (sentence.len + 3) / 4;
    } while (rc && sentence.len > 0);
    if (rc)
        atomic_fetch_add_explicit(&lost, 1, memory_order_relaxed);
    else
        emit(buf_slice(&line));
    buf_free(&line);
}

static void log_args(enum log_level level, const char *what, uint64_t left_out, const char *fmt,
                     va_list args)
{
    char sentence[LOG_MAX_SENTENCE];
    int len = vsnprintf(sentence, sizeof sentence, fmt, args);
    size_t used = len < 0 ? 0 : (size_t)len < sizeof sentence ? (size_t)len : sizeof sentence - 1;
    if (left_out > 0) {
        char note[64];
        len = snprintf(note, sizeof note, " (%llu more left out before)",
                       (unsigned long long)left_out);
        if (used + (size_t)len > sizeof sentence)
            used = sizeof sentence - (size_t)len;
        memcpy(sentence + used, note, (size_t)len);
        used += (size_t)len;
    }
    log_sentence(level, what, slice_of(sentence, used));
}

void log_line(enum log_level level, const char *what, const char *fmt, ...)
{
    if (!log_enabled(level))
        return;
    va_list args;
    va_start(args, fmt);
    log_args(level, what, 0, fmt, args);
    va_end(args);
}

void log_limited(struct log_limit *limit, uint64_t now_ns, enum log_level level, const char *what,
                 const char *fmt, ...)
{
    if (!log_enabled(level))
        return;
    /* The thread that moves the time on writes the line; those that come too late count up. */
    uint64_t next = atomic_load_explicit(&limit->next_ns, memory_order_relaxed);
    if (now_ns < next ||
        !atomic_compare_exchange_strong_explicit(&limit->next_ns, &next, now_ns + NS_PER_S,
                                                 memory_order_relaxed, memory_order_relaxed)) {
        atomic_fetch_add_explicit(&limit->suppressed, 1, memory_order_relaxed);
        return;
    }
    uint64_t left_out = atomic_exchange_explicit(&limit->suppressed, 0, memory_order_relaxed);
    va_list args;
    va_start(args, fmt);
    log_args(level, what, left_out, fmt, args);
    va_end(args);
}
