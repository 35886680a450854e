/*
 * access_line.h - the text of one line of the access log. Pure.
 *
 * JSON: one object, the same members in each line, null where a member does not apply.
 * Text: the same as key=value (logfmt), "-" where it does not apply, quoted where it must be.
 * Durations are milliseconds with three decimals. Strings are cut to 256 bytes as written; control
 * codes and invalid UTF-8 in them are made harmless.
 */
#pragma once

#include <stddef.h>

struct request_record; /* observe/record.h */

enum access_log_format { ACCESS_LOG_JSON, ACCESS_LOG_TEXT };

/* No line is longer, whatever is in the record. */
enum { ACCESS_LOG_LINE_MAX = 4096 };

/* The line, newline included; returns its length, 0 when `size` is too small. */
size_t access_log_format_line(const struct request_record *record, enum access_log_format format,
                              char *out, size_t size);
