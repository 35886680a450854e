#include "gateway/stream_state.h"

#include <stdint.h>

static const char *const names[ST_COUNT] = {
    [ST_READ] = "read",   [ST_CONNECT] = "connect", [ST_WAIT] = "wait",
    [ST_RELAY] = "relay", [ST_SETTLE] = "settle",   [ST_DEAD] = "dead",
};

#define TO(state) (1u << (state))
static const uint8_t allowed[ST_COUNT] = {
    [ST_READ] = TO(ST_CONNECT) | TO(ST_SETTLE),
    [ST_CONNECT] = TO(ST_CONNECT) | TO(ST_WAIT) | TO(ST_SETTLE),
    [ST_WAIT] = TO(ST_CONNECT) | TO(ST_RELAY) | TO(ST_SETTLE),
    [ST_RELAY] = TO(ST_SETTLE),
    [ST_SETTLE] = TO(ST_DEAD),
};

bool stream_state_may(enum stream_state from, enum stream_state to)
{
    return (allowed[from] & TO(to)) != 0;
}

const char *stream_state_name(enum stream_state state)
{
    return names[state];
}
