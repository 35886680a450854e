/*
 * template.h - fills {port}, {model} and {index} into a word of a launch command.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

struct template_values {
    const char *model;
    uint32_t index;
    uint16_t port;
};

/*
 * Appends `text` with the placeholders filled in. Other words in braces stay as they are, and what
 * was filled in is not looked at again. WEIR_ELIMIT: `out` is full.
 */
WEIR_MUST_USE enum weir_err template_fill(struct buf *out, const char *text,
                                          const struct template_values *values);
