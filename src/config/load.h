/*
 * load.h - what making a config from a file and from flags have in common.
 */
#pragma once

#include "config/config.h"
#include "config/option.h"

/* Every option of the scope at its default; strings in `arena`. */
void load_defaults(enum option_scope scope, void *base, struct arena *arena);

/* A config at its defaults, to be filled and completed. */
struct config *load_begin(const char *file);

/* Resolves what depends on the machine. */
void load_complete(struct config *config);
