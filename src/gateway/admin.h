/*
 * admin.h - the admin API, on a listener and on the loop of the control thread: requests there
 * never touch a worker. It has no authentication: it listens on the loopback address unless told
 * otherwise.
 *
 *   GET  /              the status page        GET  /status.json     the same for machines
 *   GET  /metrics       Prometheus             GET  /config          what is in force, as YAML
 *   GET  /health/live   GET  /health/ready     POST /admin/reload    as SIGHUP
 */
#pragma once

#include "base/error.h"
#include "http/server.h"
#include "net/listener.h"

struct control;

struct admin {
    struct control *control;
    struct http_server server;
    struct http_server_counters counters;
    struct listener listener;
};

/* Takes the bound socket. */
WEIR_MUST_USE enum weir_err admin_start(struct admin *a, struct control *control, struct loop *loop,
                                        int socket, struct error *err);
void admin_stop(struct admin *a);
