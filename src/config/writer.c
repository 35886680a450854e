#include "config/writer.h"

#include <stdarg.h>
#include <string.h>

#include "base/utf8.h"

void writer_put(struct writer *w, const char *fmt, ...)
{
    va_list args;
    if (w->rc)
        return;
    va_start(args, fmt);
    w->rc = buf_vprintf(w->out, fmt, args);
    va_end(args);
}

static int depth_of(const char *key)
{
    int depth = 0;
    for (; *key; key++)
        depth += *key == '.';
    return depth;
}

/* `depth` sections deep inside the map. */
static void begin_line(struct writer_map *map, int depth)
{
    int indent = map->indent + 2 * depth;
    if (map->is_item) {
        writer_put(map->writer, "%*s- ", map->indent - 2, "");
        map->is_item = false;
    } else if (map->is_commented) {
        int sign = map->indent - 2 * map->outdent;
        writer_put(map->writer, "%*s# %*s", sign, "", indent - sign, "");
    } else {
        writer_put(map->writer, "%*s", indent, "");
    }
}

void writer_sections(struct writer_map *map, const char *key)
{
    const char *last = map->last ? map->last : "";
    bool is_same = true;
    int depth = 0;
    for (const char *dot; (dot = strchr(key, '.')); key = dot + 1, depth++) {
        size_t len = (size_t)(dot - key) + 1;
        is_same = is_same && strncmp(last, key, len) == 0;
        if (is_same) {
            last += len;
            continue;
        }
        begin_line(map, depth);
        writer_put(map->writer, "%.*s:\n", (int)len - 1, key);
    }
}

void writer_key(struct writer_map *map, const char *key)
{
    const char *dot = strrchr(key, '.');
    writer_sections(map, key);
    begin_line(map, depth_of(key));
    writer_put(map->writer, "%s:", dot ? dot + 1 : key);
    map->last = key;
}

void writer_comment(struct writer_map *map, const char *key, const char *text)
{
    int indent = map->is_item ? map->indent - 2 : map->indent + 2 * depth_of(key);
    int sign = map->is_commented ? map->indent - 2 * map->outdent : indent;
    writer_put(map->writer, "%*s# %*s%s\n", sign, "", indent - sign, "", text);
}

int writer_below(const struct writer_map *map, const char *key)
{
    return map->indent + 2 * depth_of(key) + 2;
}

void writer_item(struct writer_map *map, const char *key, struct slice name)
{
    writer_put(map->writer, "%*s", writer_below(map, key), "");
    if (!name.ptr) {
        writer_put(map->writer, "- ");
        return;
    }
    writer_scalar(map->writer, name);
    writer_put(map->writer, ": ");
}

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Fewer than YAML allows, and so without a doubt. */
static bool is_plain(struct slice text)
{
    static const char *const words[] = {"null", "Null", "NULL", "true", "false", "yes", "no"};
    if (text.len == 0 || !(is_alnum(text.ptr[0]) || text.ptr[0] == '/' || text.ptr[0] == '_'))
        return false;
    for (size_t i = 0; i < text.len; i++)
        if (!is_alnum(text.ptr[i]) && (!text.ptr[i] || !strchr("/_.:@+-", text.ptr[i])))
            return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (slice_eq(text, slice_str(words[i])))
            return false;
    return text.ptr[text.len - 1] != ':';
}

static uint32_t code_point(const unsigned char *p, size_t len)
{
    static const uint32_t lead_mask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = p[0] & lead_mask[len];
    for (size_t i = 1; i < len; i++)
        code = code << 6 | (p[i] & 0x3fu);
    return code;
}

/* Control characters, what YAML takes for a line break, and what it does not allow. */
static bool must_escape(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code <= 0xa0) || code == 0x2028 || code == 0x2029 ||
           code == 0xfeff || code == 0xfffe || code == 0xffff;
}

/* Writes one character and returns its length in bytes. */
static size_t put_character(struct writer *w, struct slice text)
{
    const unsigned char *p = (const unsigned char *)text.ptr;
    size_t len = p[0] < 0x80 ? 1 : utf8_sequence(p, text.len);
    uint32_t code = len ? code_point(p, len) : 0xfffd; /* YAML cannot hold a stray byte */
    if (code == '"' || code == '\\')
        writer_put(w, "\\%c", (char)code);
    else if (code == '\n')
        writer_put(w, "\\n");
    else if (must_escape(code))
        writer_put(w, code < 0x100 ? "\\x%02x" : "\\u%04x", code);
    else if (len)
        writer_put(w, "%.*s", (int)len, text.ptr);
    else
        writer_put(w, "\xef\xbf\xbd");
    return len ? len : 1;
}

void writer_scalar(struct writer *w, struct slice text)
{
    if (is_plain(text)) {
        writer_put(w, "%.*s", SLICE_ARG(text));
        return;
    }
    writer_put(w, "\"");
    while (text.len && !w->rc)
        text = slice_from(text, put_character(w, text));
    writer_put(w, "\"");
}
