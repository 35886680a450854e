#include "config/value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "config/quantity.h"
#include "net/address.h"

enum {
    MAX_WORDS = 64,
    MAX_NUMBER = 40,
    MAX_LIST_ITEM = 255,
    MAX_ARGUMENT = 128 * 1024 - 1 /* MAX_ARG_STRLEN of Linux, with the zero */
};

static bool refuse(struct value_reader *r, struct slice found, const char *what)
{
    char word[SHOWN_MAX];
    return complain(&r->complaint, "`%s` is not %s", shown(found, word), what);
}

/* A bound or value of the option in its own unit. */
static const char *number_text(const struct option *option, double value, char out[MAX_NUMBER])
{
    struct buf b;
    buf_init(&b, MAX_NUMBER - 1);
    if (option_put_number(option, value, &b) != WEIR_OK)
        buf_clear(&b);
    snprintf(out, MAX_NUMBER, "%.*s", SLICE_ARG(buf_slice(&b)));
    buf_free(&b);
    return out;
}

static bool advise_range(struct value_reader *r, const struct option *option)
{
    char low[MAX_NUMBER], high[MAX_NUMBER];
    bool has_word = option->words && option->type != OPTION_CHOICE;
    return advise(&r->complaint, "write a value from %s to %s%s%s%s",
                  number_text(option, option->min, low), number_text(option, option->max, high),
                  has_word ? ", or `" : "", has_word ? option->words : "", has_word ? "`" : "");
}

static bool in_range(struct value_reader *r, const struct option *option, struct slice text,
                     double value)
{
    if (value >= option->min && value <= option->max)
        return true;
    char word[SHOWN_MAX];
    complain(&r->complaint, "`%s` is %s", shown(text, word),
             value < option->min ? "too little" : "too much");
    return advise_range(r, option);
}

static bool one_of(struct value_reader *r, struct slice text, const char *const *words,
                   size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++)
        if (slice_eq(text, slice_str(words[i])))
            return true;
    refuse(r, text, what);
    const char *near = nearest_word(text, words, count);
    if (near)
        return advise(&r->complaint, "did you mean `%s`?", near);
    char list[160] = "";
    for (size_t i = 0, len = 0; i < count && len < sizeof list; i++)
        len += (size_t)snprintf(list + len, sizeof list - len, "%s`%s`", i ? ", " : "", words[i]);
    return advise(&r->complaint, "write one of %s", list);
}

static bool read_choice(struct value_reader *r, const struct option *option, struct slice text,
                        uint64_t *value)
{
    char copies[8][24];
    const char *words[8];
    size_t count = 0;
    for (; count < 8 && words_at(option->words, count).len; count++) {
        snprintf(copies[count], sizeof copies[count], "%.*s",
                 SLICE_ARG(words_at(option->words, count)));
        words[count] = copies[count];
    }
    if (!one_of(r, text, words, count, "a word for this option"))
        return false;
    *value = (uint64_t)words_find(option->words, text);
    return true;
}

static bool read_bool(struct value_reader *r, struct slice text, uint64_t *value)
{
    static const char *const yes[] = {"true", "yes", "on"};
    static const char *const no[] = {"false", "no", "off"};
    for (size_t i = 0; i < 3; i++) {
        if (slice_eq_nocase(text, slice_str(yes[i])) || slice_eq_nocase(text, slice_str(no[i]))) {
            *value = slice_eq_nocase(text, slice_str(yes[i]));
            return true;
        }
    }
    refuse(r, text, "a truth value");
    return advise(&r->complaint, "write `true` or `false`");
}

static bool read_count(struct value_reader *r, const struct option *option, struct slice text,
                       uint64_t *value)
{
    if (slice_to_u64(text, value))
        return in_range(r, option, text, (double)*value);
    refuse(r, text, "a whole number");
    return advise_range(r, option);
}

static bool read_quantity(struct value_reader *r, const struct option *option, struct slice text,
                          uint64_t *value)
{
    char hint[QUANTITY_HINT];
    bool is_size = option->type == OPTION_SIZE;
    enum weir_err rc =
        is_size ? quantity_read_size(text, value, hint) : quantity_read_duration(text, value, hint);
    if (rc == WEIR_OK)
        return in_range(r, option, text, (double)*value);
    if (rc == WEIR_ELIMIT)
        return in_range(r, option, text, 1e300);
    refuse(r, text, is_size ? "a size" : "a duration");
    if (hint[0])
        return advise(&r->complaint, "did you mean `%s`?", hint);
    return advise(&r->complaint, is_size ? "write a number and a unit, B, KiB, MiB or GiB: `64KiB`"
                                         : "write a number and a unit, ms, s, m or h: `150ms`");
}

/* strtod() would take "inf", "0x1p3" and leading spaces too. */
static bool read_number(struct value_reader *r, const struct option *option, struct slice text,
                        double *value)
{
    char copy[MAX_NUMBER];
    bool is_plain =
        text.len > 0 && text.len < sizeof copy && text.ptr[0] >= '0' && text.ptr[0] <= '9';
    for (size_t i = 0; i < text.len && is_plain; i++)
        is_plain = text.ptr[i] && strchr("0123456789.eE+-", text.ptr[i]);
    if (is_plain) {
        snprintf(copy, sizeof copy, "%.*s", SLICE_ARG(text));
        char *end;
        *value = strtod(copy, &end);
        if (*end == '\0')
            return in_range(r, option, text, *value);
    }
    refuse(r, text, "a number");
    return advise_range(r, option);
}

/* Tools of YAML 1.1 read `off` and write `false`. */
static bool is_none(const struct option *option, struct slice text)
{
    if (!option->words || option->type == OPTION_CHOICE)
        return false;
    if (slice_eq(text, slice_str(option->words)))
        return true;
    return strcmp(option->words, "off") == 0 &&
           (slice_eq(text, SLICE("false")) || slice_eq(text, SLICE("no")));
}

static bool read_integer(struct value_reader *r, const struct option *option, struct slice text,
                         uint64_t *value)
{
    *value = 0;
    if (is_none(option, text))
        return true;
    switch (option->type) {
    case OPTION_BOOL:
        return read_bool(r, text, value);
    case OPTION_CHOICE:
        return read_choice(r, option, text, value);
    case OPTION_COUNT:
        return read_count(r, option, text, value);
    default:
        return read_quantity(r, option, text, value);
    }
}

static bool has_control(struct slice text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] < 0x20 || text.ptr[i] == 0x7f)
            return true;
    return false;
}

static bool check_length(struct value_reader *r, const struct option *option, struct slice text)
{
    size_t longest = option->is_list ? MAX_LIST_ITEM : (size_t)option->max;
    if (text.len > 0 && text.len <= longest)
        return true;
    char word[SHOWN_MAX];
    if (text.len == 0)
        complain(&r->complaint, "this is empty");
    else
        complain(&r->complaint, "`%s` is too long", shown(text, word));
    return advise(&r->complaint, "write 1 to %zu bytes", longest);
}

static bool check_text(struct value_reader *r, const struct option *option, struct slice text)
{
    if (!check_length(r, option, text))
        return false;
    if (has_control(text)) {
        refuse(r, text, "usable: it has control characters");
        return advise(&r->complaint, "write it on one line, without tabs");
    }
    return true;
}

static bool check_name(struct value_reader *r, const struct option *option, struct slice text)
{
    if (!check_text(r, option, text))
        return false;
    if (text.ptr[0] == ' ' || text.ptr[text.len - 1] == ' ') {
        refuse(r, text, "a name: it begins or ends with a space");
        return advise(&r->complaint, "take the space away");
    }
    return true;
}

/* RFC 9110 token. */
static bool check_header(struct value_reader *r, const struct option *option, struct slice text)
{
    if (!check_length(r, option, text))
        return false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        bool is_alnum = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_alnum && (!c || !strchr("!#$%&'*+-.^_`|~", c))) {
            refuse(r, text, "the name of a header");
            return advise(&r->complaint, "write letters, digits and `-`, as in `%s`",
                          option->fallback);
        }
    }
    return true;
}

static bool check_env_name(struct value_reader *r, struct slice text)
{
    bool is_name = text.len > 0 && text.len < 256 && !(text.ptr[0] >= '0' && text.ptr[0] <= '9');
    for (size_t i = 0; i < text.len && is_name; i++) {
        char c = text.ptr[i];
        is_name =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    }
    if (is_name)
        return true;
    refuse(r, text, "the name of an environment variable");
    return advise(&r->complaint, "write letters, digits and `_`, without `$`: `ENGINE_API_KEY`");
}

static bool check_url_path(struct value_reader *r, const struct option *option, struct slice text)
{
    bool is_path = text.len > 0 && text.len <= option->max && text.ptr[0] == '/';
    for (size_t i = 0; i < text.len && is_path; i++)
        is_path = text.ptr[i] > ' ' && text.ptr[i] < 0x7f;
    if (is_path)
        return true;
    refuse(r, text, "the path of a URL");
    return advise(&r->complaint, "begin with `/`, without host and spaces: `%s`", option->example);
}

static bool check_listen(struct value_reader *r, struct slice text)
{
    struct endpoint ignored;
    struct error err = {0};
    if (!has_control(text) && address_parse_listen(text, &ignored, &err) == WEIR_OK)
        return true;
    refuse(r, text, "an address to listen on");
    return advise(&r->complaint, "%s", err.text);
}

static bool check_url(struct value_reader *r, struct slice text)
{
    struct base_url ignored;
    struct error err = {0};
    if (!has_control(text) && base_url_parse(text, &ignored, &err) == WEIR_OK)
        return true;
    refuse(r, text, "the URL of an engine");
    if (text.len && text.len < 200 && !slice_find(text, SLICE("://")) &&
        slice_find(text, SLICE(":")) && !slice_starts(text, SLICE("unix:")))
        return advise(&r->complaint, "did you mean `http://%.*s`?", SLICE_ARG(text));
    return advise(&r->complaint, "%s", err.text);
}

static bool check_word(struct value_reader *r, const struct option *option, struct slice text)
{
    bool is_engine = option->type == OPTION_ENGINE;
    const char *const *known = is_engine ? r->words->engines : r->words->policies;
    const char *words[MAX_WORDS];
    size_t count = 0;
    if (is_engine)
        words[count++] = "auto";
    while (*known && count < MAX_WORDS)
        words[count++] = *known++;
    return one_of(r, text, words, count, is_engine ? "an engine" : "a routing policy");
}

static bool check_argument(struct value_reader *r, struct slice text)
{
    if (text.len > 0 && memchr(text.ptr, 0, text.len))
        return refuse(r, text, "possible here: it has a zero byte");
    if (text.len > MAX_ARGUMENT)
        return refuse(r, text, "possible here: Linux passes at most 128 KiB to a program");
    return true;
}

static bool check_string(struct value_reader *r, const struct option *option, struct slice text)
{
    switch (option->type) {
    case OPTION_NAME:
        return check_name(r, option, text);
    case OPTION_HEADER:
        return check_header(r, option, text);
    case OPTION_LISTEN:
        return check_listen(r, text);
    case OPTION_URL:
        return check_url(r, text);
    case OPTION_URL_PATH:
        return check_url_path(r, option, text);
    case OPTION_ENV_NAME:
        return check_env_name(r, text);
    case OPTION_ENGINE:
    case OPTION_POLICY:
        return check_word(r, option, text);
    case OPTION_ARGUMENT:
        return check_argument(r, text);
    default:
        return check_text(r, option, text);
    }
}

static const char *copy_string(const struct option *option, struct slice text, struct arena *arena)
{
    char *copy = arena_strdup(arena, text);
    if (option->type == OPTION_HEADER)
        for (char *c = copy; *c; c++)
            *c = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
    return copy;
}

bool value_read(struct value_reader *r, const struct option *option, struct slice text, void *base)
{
    uint64_t integer = 0;
    double number = 0;
    switch (option_storage(option)) {
    case STORE_INTEGER:
        if (!read_integer(r, option, text, &integer))
            return false;
        option_set_integer(option, base, integer);
        return true;
    case STORE_DOUBLE:
        if (!read_number(r, option, text, &number))
            return false;
        option_set_double(option, base, number);
        return true;
    case STORE_STRING:
        if (!is_none(option, text) && !check_string(r, option, text))
            return false;
        option_set_string(option, base,
                          is_none(option, text) ? NULL : copy_string(option, text, r->arena));
        return true;
    default:
        WEIR_BUG("%s is not one value", option->path);
    }
}

const char *value_read_item(struct value_reader *r, const struct option *option, struct slice text)
{
    return check_string(r, option, text) ? copy_string(option, text, r->arena) : NULL;
}

const char *value_read_variable(struct value_reader *r, struct slice name, struct slice value)
{
    if (!check_env_name(r, name) || !check_argument(r, value))
        return NULL;
    return arena_printf(r->arena, "%.*s=%.*s", SLICE_ARG(name), SLICE_ARG(value));
}

struct slice value_identity(const struct option *option, const char *item, struct arena *arena)
{
    struct base_url url;
    struct endpoint address;
    struct slice text = slice_str(item);
    if (option->type == OPTION_URL && base_url_parse(text, &url, NULL) == WEIR_OK) {
        char *key =
            arena_printf(arena, "%.*s|%u|%.*s", SLICE_ARG(url.host), url.port, SLICE_ARG(url.path));
        for (size_t i = 0; i < url.host.len && !url.is_unix; i++)
            key[i] = (char)(key[i] >= 'A' && key[i] <= 'Z' ? key[i] - 'A' + 'a' : key[i]);
        return slice_str(key);
    }
    if (option->type == OPTION_LISTEN && address_parse_listen(text, &address, NULL) == WEIR_OK)
        return arena_dup(arena, slice_of((const char *)address.bytes, address.length));
    return text;
}

void value_set_default(const struct option *option, void *base, struct arena *arena)
{
    static const char *const no_words[] = {NULL};
    const struct config_words none = {no_words, no_words};
    struct value_reader reader = {.words = &none, .arena = arena};
    if (!option->fallback)
        return;
    struct slice text = slice_str(option->fallback);
    if (option->is_list) {
        const char **list = arena_zalloc(arena, 2 * sizeof *list);
        list[0] = copy_string(option, text, arena);
        option_set_strings(option, base, list, 1);
    } else if (option_storage(option) == STORE_STRING) { /* words are the caller's to know */
        bool none_meant = is_none(option, text);
        option_set_string(option, base, none_meant ? NULL : copy_string(option, text, arena));
    } else if (!value_read(&reader, option, text, base)) {
        WEIR_BUG("the default of %s: %s", option->path, reader.complaint.text);
    }
}
