/*
 * gather.h - bytes of a connection to whole requests; the reading half of server.c, for it alone.
 *
 * Works on connections in the states HEAD and BODY, and takes them to HANDLE, by calling the
 * handler. It never closes a connection: it says that one is to be closed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "http/server.h"

enum gather_result {
    GATHER_WAIT,  /* for more bytes, or for the handler */
    GATHER_AGAIN, /* another step may follow at once */
    GATHER_ENDED  /* the client closed or broke the connection before a request was whole */
};

enum gather_result gather_step(struct http_conn *conn);

/* Hands the connection to the handler to be refused; it closes afterwards. */
void gather_refuse(struct http_conn *conn, enum http_refusal why, const char *text);

/* The message is not needed any more; bytes behind it move to the front. */
void gather_drop_message(struct http_conn *conn);

/* Gives all memory back. */
void gather_free(struct http_conn *conn);

/* read(), keeping `is_readable`. */
ssize_t gather_read(struct http_conn *conn, char *into, size_t room);
