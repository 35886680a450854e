#include "config/option.h"

#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "config/config.h"
#include "config/quantity.h"

#define KIB    1024.0
#define MIB    (1024.0 * KIB)
#define GIB    (1024.0 * MIB)
#define US     1e3
#define MS     1e6
#define MINUTE 60e9
#define HOUR   3600e9

enum { RESTART = 1, REQUIRED = 2 };

#define PLACE(type, field)                                                                         \
    .offset = offsetof(struct type, field), .size = sizeof(((struct type *)0)->field)
#define FIELD(type, field) PLACE(type, field), .count_offset = OPTION_NO_COUNT
#define COUNTED(type, list, count)                                                                 \
    PLACE(type, list), .is_list = true, .count_offset = offsetof(struct type, count)
#define TERMINATED(type, list) PLACE(type, list), .is_list = true, .count_offset = OPTION_NO_COUNT

static const struct option options[] = {
#define ROW(scope_, path_, type_, place, default_, example_, min_, max_, words_, flags, help_)     \
    {                                                                                              \
        .scope = OPTION_##scope_,                                                                  \
        .type = OPTION_##type_,                                                                    \
        .path = path_,                                                                             \
        place,                                                                                     \
        .fallback = default_,                                                                      \
        .example = example_,                                                                       \
        .min = min_,                                                                               \
        .max = max_,                                                                               \
        .words = words_,                                                                           \
        .is_required = (flags)&REQUIRED,                                                           \
        .needs_restart = (flags)&RESTART,                                                          \
        .help = help_,                                                                             \
    },
#include "config/options.def"
#undef ROW
};

enum { OPTION_TOTAL = sizeof options / sizeof options[0] };

static const char *const scope_prefix[OPTION_SCOPE_COUNT] = {
    [OPTION_CONFIG] = "",
    [OPTION_MODEL] = "models[].",
    [OPTION_POOL] = "models[].pools[].",
    [OPTION_LAUNCH] = "models[].pools[].launch.",
};

const struct option *option_at(size_t index)
{
    return index < OPTION_TOTAL ? &options[index] : NULL;
}

const struct option *option_next(enum option_scope scope, const struct option *after)
{
    const struct option *option = after ? after + 1 : options;
    while (option < options + OPTION_TOTAL && option->scope != scope)
        option++;
    return option < options + OPTION_TOTAL ? option : NULL;
}

const char *option_key(const struct option *option)
{
    return option->path + strlen(scope_prefix[option->scope]);
}

const char *option_name(const struct option *option)
{
    const char *dot = strrchr(option->path, '.');
    return dot ? dot + 1 : option->path;
}

const struct option *option_find(enum option_scope scope, struct slice key)
{
    const struct option *option = NULL;
    while ((option = option_next(scope, option)))
        if (slice_eq(slice_str(option_key(option)), key))
            return option;
    return NULL;
}

bool option_is_section(enum option_scope scope, struct slice key)
{
    const struct option *option = NULL;
    while ((option = option_next(scope, option))) {
        struct slice own = slice_str(option_key(option));
        if (own.len > key.len && own.ptr[key.len] == '.' && slice_starts(own, key))
            return true;
    }
    return false;
}

enum option_storage option_storage(const struct option *option)
{
    if (option->type >= OPTION_MODELS)
        return STORE_STRUCTS;
    if (option->is_list)
        return STORE_STRINGS;
    if (option->type == OPTION_NUMBER)
        return STORE_DOUBLE;
    return option->type < OPTION_NUMBER ? STORE_INTEGER : STORE_STRING;
}

struct slice words_at(const char *words, size_t index)
{
    while (index > 0 && words) {
        words = strchr(words, '|');
        words = words ? words + 1 : NULL;
        index--;
    }
    return words ? slice_of(words, strcspn(words, "|")) : (struct slice){0};
}

int words_find(const char *words, struct slice word)
{
    for (int i = 0; words_at(words, (size_t)i).len; i++)
        if (slice_eq(words_at(words, (size_t)i), word))
            return i;
    return -1;
}

/* The width is the field's own; memcpy, because the table knows no types. */
uint64_t option_integer(const struct option *option, const void *base)
{
    const char *field = (const char *)base + option->offset;
    uint8_t narrow;
    uint16_t medium;
    uint32_t wide;
    uint64_t widest;
    switch (option->size) {
    case sizeof narrow:
        memcpy(&narrow, field, sizeof narrow);
        return narrow;
    case sizeof medium:
        memcpy(&medium, field, sizeof medium);
        return medium;
    case sizeof wide:
        memcpy(&wide, field, sizeof wide);
        return wide;
    default:
        memcpy(&widest, field, sizeof widest);
        return widest;
    }
}

void option_set_integer(const struct option *option, void *base, uint64_t value)
{
    char *field = (char *)base + option->offset;
    uint8_t narrow = (uint8_t)value;
    uint16_t medium = (uint16_t)value;
    uint32_t wide = (uint32_t)value;
    switch (option->size) {
    case sizeof narrow:
        memcpy(field, &narrow, sizeof narrow);
        return;
    case sizeof medium:
        memcpy(field, &medium, sizeof medium);
        return;
    case sizeof wide:
        memcpy(field, &wide, sizeof wide);
        return;
    default:
        memcpy(field, &value, sizeof value);
    }
}

double option_double(const struct option *option, const void *base)
{
    double value;
    memcpy(&value, (const char *)base + option->offset, sizeof value);
    return value;
}

void option_set_double(const struct option *option, void *base, double value)
{
    memcpy((char *)base + option->offset, &value, sizeof value);
}

const char *option_string(const struct option *option, const void *base)
{
    const char *value;
    memcpy(&value, (const char *)base + option->offset, sizeof value);
    return value;
}

void option_set_string(const struct option *option, void *base, const char *value)
{
    memcpy((char *)base + option->offset, &value, sizeof value);
}

const char *const *option_strings(const struct option *option, const void *base, size_t *count)
{
    const char *const *list;
    memcpy(&list, (const char *)base + option->offset, sizeof list);
    *count = 0;
    if (option->count_offset != OPTION_NO_COUNT)
        memcpy(count, (const char *)base + option->count_offset, sizeof *count);
    else
        while (list && list[*count])
            ++*count;
    return list;
}

void option_set_strings(const struct option *option, void *base, const char *const *list,
                        size_t count)
{
    memcpy((char *)base + option->offset, &list, sizeof list);
    if (option->count_offset != OPTION_NO_COUNT)
        memcpy((char *)base + option->count_offset, &count, sizeof count);
}

bool option_is_set(const struct option *option, const void *base)
{
    size_t count;
    switch (option_storage(option)) {
    case STORE_INTEGER: /* without a default, 0 is how a struct says "none" */
        return option->fallback || option_integer(option, base) != 0;
    case STORE_STRING:
        return option->words || option_string(option, base);
    case STORE_STRINGS:
        option_strings(option, base, &count);
        return count > 0;
    default:
        return true;
    }
}

enum weir_err option_put_number(const struct option *option, double value, struct buf *out)
{
    switch (option->type) {
    case OPTION_SIZE:
        return quantity_put_size(out, (uint64_t)value);
    case OPTION_DURATION:
        return quantity_put_duration(out, (uint64_t)value);
    default:
        return json_put_number(out, value);
    }
}

static enum weir_err put_integer(const struct option *option, uint64_t value, struct buf *out)
{
    if (value == 0 && option->words && option->type != OPTION_CHOICE)
        return buf_append(out, slice_str(option->words));
    switch (option->type) {
    case OPTION_BOOL:
        return buf_append(out, value ? SLICE("true") : SLICE("false"));
    case OPTION_CHOICE:
        return buf_append(out, words_at(option->words, value));
    case OPTION_SIZE:
        return quantity_put_size(out, value);
    case OPTION_DURATION:
        return quantity_put_duration(out, value);
    default:
        return buf_printf(out, "%" PRIu64, value);
    }
}

enum weir_err option_put(const struct option *option, const void *base, struct buf *out)
{
    switch (option_storage(option)) {
    case STORE_INTEGER:
        return put_integer(option, option_integer(option, base), out);
    case STORE_DOUBLE:
        return json_put_number(out, option_double(option, base));
    case STORE_STRING: {
        const char *value = option_string(option, base);
        return buf_append(out, slice_str(value ? value : option->words));
    }
    default:
        WEIR_BUG("%s has no single value", option->path);
    }
}

static bool same_string(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_strings(const struct option *option, const void *a, const void *b)
{
    size_t a_count, b_count;
    const char *const *a_list = option_strings(option, a, &a_count);
    const char *const *b_list = option_strings(option, b, &b_count);
    if (a_count != b_count)
        return false;
    for (size_t i = 0; i < a_count; i++)
        if (!same_string(a_list[i], b_list[i]))
            return false;
    return true;
}

bool option_equal(const struct option *option, const void *a, const void *b)
{
    switch (option_storage(option)) {
    case STORE_INTEGER:
        return option_integer(option, a) == option_integer(option, b);
    case STORE_DOUBLE:
        return option_double(option, a) == option_double(option, b);
    case STORE_STRING:
        return same_string(option_string(option, a), option_string(option, b));
    case STORE_STRINGS:
        return same_strings(option, a, b);
    default:
        WEIR_BUG("%s cannot be compared", option->path);
    }
}

static void copy_strings(const struct option *option, void *to, const void *from,
                         struct arena *arena)
{
    size_t count;
    const char *const *list = option_strings(option, from, &count);
    const char **copy = arena_zalloc(arena, (count + 1) * sizeof *copy);
    for (size_t i = 0; i < count; i++)
        copy[i] = arena_strdup(arena, slice_str(list[i]));
    option_set_strings(option, to, copy, count);
}

void option_copy(const struct option *option, void *to, const void *from, struct arena *arena)
{
    const char *string;
    switch (option_storage(option)) {
    case STORE_INTEGER:
        option_set_integer(option, to, option_integer(option, from));
        return;
    case STORE_DOUBLE:
        option_set_double(option, to, option_double(option, from));
        return;
    case STORE_STRING:
        string = option_string(option, from);
        option_set_string(option, to, string ? arena_strdup(arena, slice_str(string)) : NULL);
        return;
    case STORE_STRINGS:
        copy_strings(option, to, from, arena);
        return;
    default:
        WEIR_BUG("%s cannot be copied", option->path);
    }
}
