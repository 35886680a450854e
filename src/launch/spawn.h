/*
 * spawn.h - starts one engine process from the guard.
 */
#pragma once

#include <sys/types.h>

#include "base/error.h"
#include "launch/wire.h"

/*
 * Forks and executes `command` in a session and process group of its own, with default signals, no
 * descriptors but the three standard ones, output as the command says, and SIGKILL when the calling
 * process (which must be single-threaded) dies. `mark` is added to the environment. Returns when
 * the program runs, or WEIR_EIO with what went wrong.
 */
WEIR_MUST_USE enum weir_err spawn(const struct wire_command *command, const char *mark, pid_t *pid,
                                  struct error *err);
