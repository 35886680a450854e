/*
 * sse.h - where events end. WHATWG framing: lines end in LF, CR or CRLF, an empty line ends an
 * event. Incremental and linear: no byte is looked at twice.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/slice.h"

/* Zero it at the start of a stream and after each event that was taken. */
struct sse_cursor {
    size_t scanned;  /* bytes of the pending event already looked at */
    bool line_empty; /* nothing since the last line end: the next line end completes the event */
};

/*
 * Length of the first whole event in `pending`, blank line included, or 0 while it is incomplete.
 * `pending` starts where the last call's did and may have grown. Line ends where an event would
 * begin are returned at once as an event of their own that has no field: nothing needs to wait for
 * what follows them. So a CR at the very end of `pending` may end an event; a LF that follows it
 * comes alone.
 */
size_t sse_event_length(struct sse_cursor *cursor, struct slice pending);

/*
 * The next field of an event: name and value without the one optional space behind the colon; a
 * comment has an empty name. Empty lines are skipped. False at the end. Start with *offset = 0.
 */
bool sse_next_field(struct slice event, size_t *offset, struct slice *name, struct slice *value);
