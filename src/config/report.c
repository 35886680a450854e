#include "config/report.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

enum {
    REPORT_MAX = 1024 * 1024, /* CONFIG_MAX_ERRORS entries of four short lines are far below it */
    LINE_SHOWN = 120,         /* characters of a source line */
    SHOWN_BYTES = 60
};

void config_errors_init(struct config_errors *errors)
{
    errors->count = 0;
    buf_init(&errors->report, REPORT_MAX);
    arena_init(&errors->arena, 4096, SIZE_MAX);
}

void config_errors_free(struct config_errors *errors)
{
    buf_free(&errors->report);
    arena_free(&errors->arena);
    errors->count = 0;
}

bool complain(struct complaint *complaint, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(complaint->text, sizeof complaint->text, fmt, args);
    va_end(args);
    complaint->help[0] = '\0';
    return false;
}

bool advise(struct complaint *complaint, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(complaint->help, sizeof complaint->help, fmt, args);
    va_end(args);
    return false;
}

static bool is_control(unsigned char c)
{
    return c < 0x20 || c == 0x7f;
}

const char *shown(struct slice word, char out[SHOWN_MAX])
{
    bool is_cut = word.len > SHOWN_BYTES;
    size_t len = is_cut ? SHOWN_BYTES : word.len;
    while (is_cut && len > 0 && utf8_is_tail((unsigned char)word.ptr[len]))
        len--;
    for (size_t i = 0; i < len; i++)
        out[i] = word.ptr[i] ? word.ptr[i] : '?';
    snprintf(out + len, SHOWN_MAX - len, "%s", is_cut ? "..." : "");
    return out;
}

static size_t kept(const struct config_errors *errors)
{
    return errors->count < CONFIG_MAX_ERRORS ? errors->count : CONFIG_MAX_ERRORS;
}

/* An alias makes one place count twice. */
static bool is_known(const struct config_errors *errors, struct place place, const char *text)
{
    for (size_t i = 0; i < kept(errors); i++) {
        const struct config_mistake *m = &errors->mistakes[i];
        if (m->line == place.line && m->column == place.column && strcmp(m->text, text) == 0)
            return true;
    }
    return false;
}

bool report_has(const struct report *report, struct place place)
{
    const struct config_errors *errors = report->errors;
    for (size_t i = 0; i < kept(errors); i++)
        if (errors->mistakes[i].line == place.line && errors->mistakes[i].column == place.column)
            return true;
    return false;
}

/* What was found in a file must not drive a terminal. */
static const char *keep(struct arena *arena, const char *text)
{
    if (!text[0])
        return NULL;
    char *copy = arena_strdup(arena, slice_str(text));
    for (char *c = copy; *c; c++)
        if (is_control((unsigned char)*c))
            *c = '?';
    return copy;
}

void report_mistake(struct report *report, struct place place, const struct complaint *complaint)
{
    struct config_errors *errors = report->errors;
    report->calls++;
    if (is_known(errors, place, complaint->text))
        return;
    if (errors->count < CONFIG_MAX_ERRORS) {
        errors->mistakes[errors->count] = (struct config_mistake){
            .line = place.line,
            .column = place.column,
            .width = place.width,
            .text = keep(&errors->arena, complaint->text),
            .help = keep(&errors->arena, complaint->help),
        };
    }
    errors->count++;
}

static bool is_before(const struct config_mistake *a, const struct config_mistake *b)
{
    return a->line != b->line ? a->line < b->line : a->column < b->column;
}

static void sort(struct config_mistake *mistakes, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct config_mistake moved = mistakes[i];
        size_t at = i;
        for (; at > 0 && is_before(&moved, &mistakes[at - 1]); at--)
            mistakes[at] = mistakes[at - 1];
        mistakes[at] = moved;
    }
}

static struct slice source_line(struct slice source, uint32_t line)
{
    for (; line > 1 && source.len; line--) {
        const char *end = memchr(source.ptr, '\n', source.len);
        source = end ? slice_from(source, (size_t)(end + 1 - source.ptr)) : (struct slice){0};
    }
    const char *end = source.len ? memchr(source.ptr, '\n', source.len) : NULL;
    return end ? slice_of(source.ptr, (size_t)(end - source.ptr)) : source;
}

/* Steps over one character of valid UTF-8, or one byte of anything else. */
static size_t character(struct slice s)
{
    size_t len = 0;
    if ((unsigned char)s.ptr[0] > 0x7f)
        len = utf8_sequence((const unsigned char *)s.ptr, s.len);
    return len ? len : 1;
}

/*
 * The report is a help, and bounded: what does not fit is left out, and the buffer is far larger
 * than 64 mistakes can fill.
 */
#define PUT(...)                                                                                   \
    do {                                                                                           \
        if (buf_printf(__VA_ARGS__) != WEIR_OK)                                                    \
            return;                                                                                \
    } while (0)

/* Control characters, tabs too, become one column each, so that the caret stands right. */
static void put_window(struct buf *out, struct slice line, uint32_t skip)
{
    for (uint32_t i = 0; line.len && i < skip + LINE_SHOWN; i++) {
        size_t len = character(line);
        unsigned char first = (unsigned char)line.ptr[0];
        bool is_odd = is_control(first) || (len == 1 && first > 0x7f);
        if (i >= skip && is_odd)
            PUT(out, "%c", first == '\t' || first == '\r' ? ' ' : '?');
        else if (i >= skip)
            PUT(out, "%.*s", (int)len, line.ptr);
        line = slice_from(line, len);
    }
    PUT(out, "\n");
}

static void put_caret(struct buf *out, uint32_t column, uint32_t width)
{
    PUT(out, "      | %*s^", (int)column - 1, "");
    for (uint32_t i = 1; i < width && column + i <= LINE_SHOWN; i++)
        PUT(out, "~");
    PUT(out, "\n");
}

static void put_mistake(struct report *report, const struct config_mistake *m)
{
    struct buf *out = &report->errors->report;
    if (m->line == 0) {
        PUT(out, "%s: error: %s\n", report->file, m->text);
    } else {
        uint32_t skip = m->column > LINE_SHOWN - 20 ? m->column - LINE_SHOWN / 2 : 0;
        PUT(out, "%s:%u:%u: error: %s\n%5u | ", report->file, m->line, m->column, m->text, m->line);
        put_window(out, source_line(report->source, m->line), skip);
        put_caret(out, m->column - skip, m->width);
    }
    if (m->help)
        PUT(out, "        help: %s\n", m->help);
}

void report_finish(struct report *report)
{
    struct config_errors *errors = report->errors;
    sort(errors->mistakes, kept(errors));
    for (size_t i = 0; i < kept(errors); i++)
        put_mistake(report, &errors->mistakes[i]);
    if (errors->count > CONFIG_MAX_ERRORS)
        PUT(&errors->report, "%s: %zu more mistakes are not shown\n", report->file,
            errors->count - CONFIG_MAX_ERRORS);
}
