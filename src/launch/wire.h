/*
 * wire.h - what weir and its guard say to each other.
 *
 * They are one program on one machine, forked apart, and talk over a SOCK_SEQPACKET pair: the
 * kernel keeps messages whole, each is one struct in memory layout, and WIRE_RUN is followed by its
 * strings. Both sides keep state and not queues: what could not be sent is sent later, as it is
 * then.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/slice.h"

enum {
    WIRE_MESSAGE_MAX = 65536, /* well under the default send buffer of a socket, 208 KiB */
    WIRE_REASON_MAX = 200
};

enum wire_type {
    WIRE_RUN = 1, /* weir -> guard: struct wire_run and strings */
    WIRE_STOP,    /* weir -> guard: struct wire_stop */
    WIRE_STATE    /* guard -> weir: struct wire_state */
};

struct wire_run {
    uint32_t type, id;
    uint64_t stop_timeout_ns;
    uint32_t argc, envc; /* at least one word of command */
    /* then, each with its zero: path of the log file ("": none), argc words, envc NAME=value */
};

struct wire_stop {
    uint32_t type, id;
};

struct wire_state {
    uint32_t type, id;
    int32_t pid;                  /* 0: it has ended, and nothing of its group is left */
    int32_t exit_status;          /* as waitpid() gives it */
    char reason[WIRE_REASON_MAX]; /* why it could not be started; "": it was */
};

/* A message read back: pointers into the message; `words` and `environment` are NULL-terminated. */
struct wire_command {
    struct wire_run head;
    const char *log_path;
    const char **words;       /* argv, then NULL, then the environment, then NULL: one block, */
    const char **environment; /* on the heap: heap_free(words) */
};

/* WEIR_ESYNTAX: not what wire_run promises. `message` is borrowed by the result. */
WEIR_MUST_USE enum weir_err wire_read_run(struct slice message, struct wire_command *out);

/*
 * One message, whole or not at all. WEIR_EAGAIN: no room now. WEIR_ECLOSED: nobody there.
 */
WEIR_MUST_USE enum weir_err wire_send(int sock, const void *message, size_t size);

/* The next message into `room` of WIRE_MESSAGE_MAX bytes. WEIR_EAGAIN: none. WEIR_ECLOSED: no more.
 */
WEIR_MUST_USE enum weir_err wire_receive(int sock, char *room, struct slice *message);
