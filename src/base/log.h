/*
 * log.h - what weir says about itself. One line per event, text for people or JSON for machines,
 * with the same fields. Thread-safe: a line is one write() of at most 2 kB to stderr, never torn.
 * Control codes and invalid UTF-8 in arguments are made harmless. The process should ignore
 * SIGPIPE; a line that cannot be written is dropped and counted, never waited for.
 *
 * Error: somebody should act. Warn: somebody will want to know. Info: what happened. Debug: why.
 * A client's mistakes are never above info. Nothing here is called per token. Secrets, prompts
 * and answers are never arguments.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_setup(enum log_level level, bool json);
bool log_enabled(enum log_level level);

/* Lines that stderr did not take (full disk, full or broken pipe) since the start. */
uint64_t log_lost(void);

/* `what` is a short stable word or phrase to search for; `fmt` the sentence. */
void log_line(enum log_level level, const char *what, const char *fmt, ...) WEIR_PRINTF(3, 4);

#define log_error(what, ...) log_line(LOG_ERROR, what, __VA_ARGS__)
#define log_warn(what, ...)  log_line(LOG_WARN, what, __VA_ARGS__)
#define log_info(what, ...)  log_line(LOG_INFO, what, __VA_ARGS__)
#define log_debug(what, ...)                                                                       \
    do {                                                                                           \
        if (log_enabled(LOG_DEBUG))                                                                \
            log_line(LOG_DEBUG, what, __VA_ARGS__);                                                \
    } while (0)

/*
 * A repeating event (no descriptors left, disk full) at most once a second per `limit`, with the
 * number that was left out. A zeroed struct is ready for use; safe from any thread.
 */
struct log_limit {
    _Atomic uint64_t next_ns;
    _Atomic uint64_t suppressed;
};
void log_limited(struct log_limit *limit, uint64_t now_ns, enum log_level level, const char *what,
                 const char *fmt, ...) WEIR_PRINTF(5, 6);
