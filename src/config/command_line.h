/*
 * command_line.h - one line into arguments, as a POSIX shell would split it, but without a shell:
 * quotes and backslashes work; what would need a shell (pipes, $variables, `~`) is refused, so that
 * nobody is surprised that it does nothing.
 */
#pragma once

#include "base/arena.h"
#include "base/slice.h"
#include "config/report.h"

enum { COMMAND_MAX_ARGUMENTS = 1024 };

/* A list that ends with NULL; NULL when refused, and `why` then says so. */
const char *const *command_line_split(struct slice text, struct arena *arena, size_t *count,
                                      struct complaint *why);
