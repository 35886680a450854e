/*
 * unknown.h - what somebody meant who wrote an option that does not exist.
 */
#pragma once

#include "base/slice.h"
#include "config/option.h"
#include "config/report.h"

/* Where the keys of a map go: a model with one pool may hold the pool's options too. */
struct target {
    enum option_scope scope;
    void *base;
};
struct targets {
    struct target list[2];
    size_t count;
};

/* Fills `complaint` for `key`, found in the section `prefix` ("" or "timeouts."). */
void unknown_option(struct complaint *complaint, struct slice key, const char *prefix,
                    const struct targets *targets);
