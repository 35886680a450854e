/*
 * option.h - the option table: what options.def says, as data, and what can be done with a value
 * without knowing which option it is. Loading, showing, copying, comparing and the reference page
 * all walk this table, so a row in options.def is all that an option needs.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/slice.h"

/* Which struct holds the option. Each scope is a map in the file. */
enum option_scope {
    OPTION_CONFIG, /* struct config */
    OPTION_MODEL,  /* struct config_model */
    OPTION_POOL,   /* struct config_pool */
    OPTION_LAUNCH, /* struct config_launch */
    OPTION_SCOPE_COUNT
};

enum option_type {
    /* Stored as a number of the field's width. */
    OPTION_BOOL,
    OPTION_COUNT,
    OPTION_SIZE,
    OPTION_DURATION,
    OPTION_CHOICE, /* the position of the word */
    /* Stored as a double. */
    OPTION_NUMBER,
    /* Stored as a string; a list of them is an array that ends with NULL. */
    OPTION_NAME,
    OPTION_TEXT,
    OPTION_HEADER, /* lower case */
    OPTION_LISTEN,
    OPTION_URL,
    OPTION_URL_PATH,
    OPTION_ENV_NAME,
    OPTION_ENGINE,
    OPTION_POLICY,
    OPTION_ARGUMENT,    /* a list of them may also be written as one line */
    OPTION_ENVIRONMENT, /* a map in the file, "NAME=value" strings in memory */
    /* Stored as structs of another scope. */
    OPTION_MODELS,
    OPTION_POOLS,
    OPTION_LAUNCH_SECTION
};

enum option_storage { STORE_INTEGER, STORE_DOUBLE, STORE_STRING, STORE_STRINGS, STORE_STRUCTS };

enum { OPTION_NO_COUNT = -1 };

struct option {
    enum option_scope scope;
    enum option_type type;
    const char *path;
    size_t offset, size;    /* of the field in the scope's struct */
    ptrdiff_t count_offset; /* of the size_t beside a list; OPTION_NO_COUNT: none */
    bool is_list;
    const char *fallback; /* the default as written, or NULL */
    const char *example;  /* never NULL but for sections */
    double min, max;
    const char *words;
    bool is_required;
    bool needs_restart;
    const char *help;
};

/* The table in order; NULL behind its end. */
const struct option *option_at(size_t index);

/* The options of one scope in order: start with NULL; NULL behind the last. */
const struct option *option_next(enum option_scope scope, const struct option *after);

/* The part of the path behind its scope: "routing.policy" of models[].pools[].routing.policy. */
const char *option_key(const struct option *option);

/* The last word of the path: "policy". */
const char *option_name(const struct option *option);

/* By key; NULL when there is none. */
const struct option *option_find(enum option_scope scope, struct slice key);

/* Is `key` a section, that is, do keys of the scope begin with it and a point? */
bool option_is_section(enum option_scope scope, struct slice key);

enum option_storage option_storage(const struct option *option);

/* Position of `word` in "a|b|c", or -1; and the word at a position (empty behind the last). */
int words_find(const char *words, struct slice word);
struct slice words_at(const char *words, size_t index);

/*
 * The value in the struct at `base`. A number is 0 and a string NULL when it is not set; the
 * setters store what is already checked, and strings are kept.
 */
uint64_t option_integer(const struct option *option, const void *base);
double option_double(const struct option *option, const void *base);
const char *option_string(const struct option *option, const void *base);
const char *const *option_strings(const struct option *option, const void *base, size_t *count);
void option_set_integer(const struct option *option, void *base, uint64_t value);
void option_set_double(const struct option *option, void *base, double value);
void option_set_string(const struct option *option, void *base, const char *value);
void option_set_strings(const struct option *option, void *base, const char *const *list,
                        size_t count);

/* False when there is nothing to show: no string, no items, or 0 where no word stands for it. */
bool option_is_set(const struct option *option, const void *base);

/* One value as it is written in the file, unquoted. Not for lists and sections. */
WEIR_MUST_USE enum weir_err option_put(const struct option *option, const void *base,
                                       struct buf *out);
/* A number of that option's kind: a bound, or a value. */
WEIR_MUST_USE enum weir_err option_put_number(const struct option *option, double value,
                                              struct buf *out);

/* Not for sections. */
bool option_equal(const struct option *option, const void *a, const void *b);
void option_copy(const struct option *option, void *to, const void *from, struct arena *arena);
