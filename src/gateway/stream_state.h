/* stream_state.h - the states of a request and its legal moves. See stream.h for the picture. */
#pragma once

#include <stdbool.h>

enum stream_state {
    ST_READ,    /* the request is being understood; nothing was asked of an engine */
    ST_CONNECT, /* replica chosen; waiting for a connection */
    ST_WAIT,    /* request being sent, or sent; the client has seen no byte */
    ST_RELAY,   /* bytes flow to the client; nothing is replayed from here on */
    ST_SETTLE,  /* over: log, metrics and counters, once */
    ST_DEAD,    /* on the worker's dead list until the end of the turn */
    ST_COUNT
};

bool stream_state_may(enum stream_state from, enum stream_state to);
const char *stream_state_name(enum stream_state state);
