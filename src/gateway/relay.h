/*
 * relay.h - the worker's scratch buffer: one read of an engine, with room before it for a chunk's
 * size line and behind it for what ends a chunk and a body, so that a framed event is one write.
 */
#pragma once

#include "gateway/worker.h"

enum {
    MAX_ANSWER_HEAD = 64 * 1024, /* of an engine */
    RELAY_READ_BYTES = 64 * 1024,
    RELAY_ROOM_BEFORE = 32,
    RELAY_ROOM_BEHIND = 16,
    RELAY_SCRATCH_BYTES = RELAY_ROOM_BEFORE + RELAY_READ_BYTES + RELAY_ROOM_BEHIND
};

static inline char *relay_scratch(const struct worker *w)
{
    return w->scratch + RELAY_ROOM_BEFORE;
}
