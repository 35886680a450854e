/*
 * value.h - one value of the file: text in, checked value in its struct out.
 */
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/slice.h"
#include "config/config.h"
#include "config/option.h"
#include "config/report.h"

struct value_reader {
    const struct config_words *words;
    struct arena *arena;        /* strings are copied there; its maximum must be out of reach */
    struct complaint complaint; /* why the last value was refused */
};

/* One value of an option that is no list and no section. False: refused, the struct is as it was.
 */
bool value_read(struct value_reader *reader, const struct option *option, struct slice text,
                void *base);

/* One item of a list, checked and copied; NULL: refused. Not for ENVIRONMENT. */
const char *value_read_item(struct value_reader *reader, const struct option *option,
                            struct slice text);

/* "NAME=value"; NULL: refused. */
const char *value_read_variable(struct value_reader *reader, struct slice name, struct slice value);

/* The text under which two items of a list are the same: http://a:80/v1/ is http://a. */
struct slice value_identity(const struct option *option, const char *item, struct arena *arena);

/* Sets what the table says. Lists with a default get that one item. */
void value_set_default(const struct option *option, void *base, struct arena *arena);
