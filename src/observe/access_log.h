/*
 * access_log.h - one line per request, JSON or text, off the workers.
 *
 * A worker formats a line into its own ring (one writer, one reader, no lock); one log thread
 * writes the rings to the file every 100 ms, or at once when one is half full. Lines are never
 * torn or interleaved. A disk that is full or a reader that is slow holds lines back until the
 * ring is full; then, and when a pipe was closed, lines are lost, counted and said through the log
 * at most once a second. Nothing here ever slows a request. The process must ignore SIGPIPE.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "observe/access_line.h"
#include "observe/record.h"

struct access_log;
struct access_log_ring;

/*
 * `path`: a file (appended to; made with mode 0640), or "-" for standard output. Starts the thread.
 * `ring_count` workers; each ring is written by one thread.
 */
WEIR_MUST_USE enum weir_err access_log_open(const char *path, enum access_log_format format,
                                            size_t ring_count, struct access_log **out,
                                            struct error *err);
struct access_log_ring *access_log_ring(struct access_log *log, size_t index);
void access_log_write(struct access_log_ring *ring, const struct request_record *record);

/* After a rotation. Async-signal-safe. If the path cannot be opened, the old file stays in use. */
void access_log_reopen(struct access_log *log);

/* Lines lost since the start. Any thread. */
uint64_t access_log_lost(const struct access_log *log);

/*
 * When no worker writes any more: writes what is left, for 0.3 s at most if the file does not
 * take it, and ends the thread. NULL is allowed.
 */
void access_log_close(struct access_log *log);
