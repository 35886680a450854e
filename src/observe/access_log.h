/*
 * access_log.h - one line per request, JSON or text, off the workers.
 *
 * A worker formats a line into its own ring (one writer, one reader, no lock); one log thread
 * writes rings to the file every 100 ms. A full ring, a full disk or a closed pipe loses lines,
 * counts them and says so once a second at most; it never slows a request. Reopened on request
 * (log rotation).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "observe/record.h"

enum access_log_format { ACCESS_LOG_JSON, ACCESS_LOG_TEXT };

struct access_log;
struct access_log_ring;

/* `path`: a file, or "-" for standard output. Starts the thread. */
WEIR_MUST_USE enum weir_err access_log_open(const char *path, enum access_log_format format,
                                            size_t ring_count, struct access_log **out,
                                            struct error *err);
struct access_log_ring *access_log_ring(struct access_log *log, size_t index);
void access_log_write(struct access_log_ring *ring, const struct request_record *record);
void access_log_reopen(struct access_log *log); /* async-signal-safe: sets a flag */
uint64_t access_log_lost(const struct access_log *log);
void access_log_close(struct access_log *log); /* writes what is left, ends the thread */

/* The line itself, newline included, at most `size` bytes; returns its length. Pure. */
size_t access_log_format_line(const struct request_record *record, enum access_log_format format,
                              char *out, size_t size);
