/*
 * secret.h - keys from where they are kept: a file or the environment, never the configuration.
 */
#pragma once

#include "base/arena.h"
#include "config/report.h"

enum { SECRET_MAX = 4096 };

/*
 * The key, without spaces and newlines around it, in `arena`, where it is overwritten when the
 * arena ends. NULL: there is none that could stand in a header; `why` says so, and never the key.
 */
const char *secret_from_file(const char *path, struct arena *arena, struct complaint *why);
const char *secret_from_environment(const char *name, struct arena *arena, struct complaint *why);

/* A copy with the same care. NULL for NULL. */
const char *secret_copy(const char *secret, struct arena *arena);
