/*
 * stream.h - what an engine's SSE stream says, one whole event at a time.
 *
 * The reader changes nothing and copies nothing: it is shown an event and says what it is, and the
 * relay decides. Until the first content every event is parsed; after it a look for a few keys
 * comes first and JSON is parsed only where a finish reason, usage or an error shows (well under
 * 0.5 µs for an ordinary event). No allocation for ordinary events.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "dialects/errors.h"
#include "dialects/surface.h"
#include "dialects/usage.h"

enum stream_event {
    STREAM_META, /* comment, unknown field, blank line, event without answer: counts for nothing */
    STREAM_PRELUDE, /* role delta, message_start, ping, …: before content; held until it comes */
    STREAM_CONTENT, /* text, reasoning, tool-call or refusal delta; logprobs with text */
    STREAM_USAGE,   /* usage and nothing else: shown only to those who asked */
    STREAM_FINISH,  /* finish reason, message_delta: relay */
    STREAM_DONE,    /* the terminal marker: [DONE], message_stop, response.completed/incomplete */
    STREAM_ERROR    /* the engine reports a failure in-band; see reader->error */
};

struct stream_reader {
    enum dialect dialect;
    bool saw_content;
    bool saw_finish; /* finish_reason on at least one choice, stop_reason, terminal status */
    bool saw_done;   /* the terminal marker, with no error before it */
    bool saw_error;
    bool error_is_native; /* that event has the dialect's own form: clients find what they look for
                           */
    bool usage_unknown;   /* an event was not JSON, or (the relay says so) too large: estimates */
    uint64_t content_events;
    uint64_t sequence; /* responses: last sequence_number + 1, for an error of ours */
    struct usage usage;
    struct api_error error; /* of the first error; valid when saw_error: kind, and text with the
                               engine's words */
};

void stream_reader_init(struct stream_reader *r, enum dialect dialect);

/* `event` is one whole event, its blank line included (http/sse.h cuts them). */
enum stream_event stream_reader_event(struct stream_reader *r, struct slice event);

/*
 * The same for what the body ended with, its blank line added by the caller. It is always read in
 * full: STREAM_META when it is no whole event, such as one that was torn.
 */
enum stream_event stream_reader_tail(struct stream_reader *r, struct slice event);

/*
 * May this stream be called a success, now that the engine's body ended properly? Every dialect
 * wants its finish and its terminal marker, and no error, not even before a marker.
 */
bool stream_reader_complete(const struct stream_reader *r);
