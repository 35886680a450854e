#include "config/command_line.h"

#include <string.h>

struct splitter {
    struct slice rest;
    char *out; /* where the next byte of the argument goes; the whole output fits the input */
    struct complaint *why;
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static char peek(const struct splitter *s)
{
    return s->rest.len ? s->rest.ptr[0] : '\0';
}

static char take(struct splitter *s)
{
    char c = s->rest.ptr[0];
    s->rest = slice_from(s->rest, 1);
    return c;
}

static bool refuse_special(struct splitter *s, char c)
{
    complain(s->why, "no shell runs this command, so `%c` would have no effect", c);
    return advise(s->why, "put it in single quotes, or write the command as a list");
}

static bool refuse_open_quote(struct splitter *s, char quote)
{
    complain(s->why, "a %s quote is not closed", quote == '"' ? "double" : "single");
    return advise(s->why, "close it, or write the command as a list");
}

static bool take_single_quoted(struct splitter *s)
{
    while (s->rest.len && peek(s) != '\'')
        *s->out++ = take(s);
    if (!s->rest.len)
        return refuse_open_quote(s, '\'');
    take(s);
    return true;
}

static bool take_double_quoted(struct splitter *s)
{
    while (s->rest.len && peek(s) != '"') {
        char c = take(s);
        if (c == '$' || c == '`')
            return refuse_special(s, c);
        if (c == '\\' && s->rest.len && strchr("\"\\$`", peek(s)))
            c = take(s);
        *s->out++ = c;
    }
    if (!s->rest.len)
        return refuse_open_quote(s, '"');
    take(s);
    return true;
}

static bool take_bare(struct splitter *s, bool is_first)
{
    char c = take(s);
    if (strchr("|;&<>()$`", c) || (is_first && c == '~'))
        return refuse_special(s, c);
    if (c == '\\' && s->rest.len)
        c = take(s);
    *s->out++ = c;
    return true;
}

static bool take_argument(struct splitter *s)
{
    for (bool is_first = true; s->rest.len && !is_space(peek(s)); is_first = false) {
        bool ok;
        if (peek(s) == '\'' || peek(s) == '"')
            ok = take(s) == '"' ? take_double_quoted(s) : take_single_quoted(s);
        else
            ok = take_bare(s, is_first);
        if (!ok)
            return false;
    }
    *s->out++ = '\0';
    return true;
}

static void skip_spaces(struct splitter *s)
{
    while (s->rest.len && is_space(peek(s)))
        take(s);
}

const char *const *command_line_split(struct slice text, struct arena *arena, size_t *count,
                                      struct complaint *why)
{
    const char *arguments[COMMAND_MAX_ARGUMENTS];
    struct splitter s = {.rest = text, .out = arena_alloc(arena, text.len + 1), .why = why};
    *count = 0;
    if (text.len && memchr(text.ptr, 0, text.len)) {
        complain(why, "a command cannot have a zero byte");
        return NULL;
    }
    for (skip_spaces(&s); s.rest.len; skip_spaces(&s)) {
        if (*count == COMMAND_MAX_ARGUMENTS) {
            complain(why, "more than %d arguments", COMMAND_MAX_ARGUMENTS);
            return NULL;
        }
        arguments[(*count)++] = s.out;
        if (!take_argument(&s))
            return NULL;
    }
    const char **list = arena_zalloc(arena, (*count + 1) * sizeof *list);
    memcpy(list, arguments, *count * sizeof *list);
    return list;
}
