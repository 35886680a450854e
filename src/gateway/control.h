/*
 * control.h - the control thread: builds what workers serve, watches engines, answers the admin
 * API, takes signals.
 *
 *   SIGHUP            read the configuration again; a bad file changes nothing
 *   SIGUSR1           open the access log again, after a rotation
 *   SIGTERM, SIGINT   drain: not ready at once, then no new connections, then the end of the last
 *                     request or of drain_timeout; a second one ends at once
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "config/config.h"

struct control;

struct control_options {
    struct config *config;            /* taken; its backends, if any, are resolved already */
    const struct config_words *words; /* kept */
    uint64_t started_wall_ns;
};

/* Serves until told to end. WEIR_OK after a drain, also a cut one; else it could not start. */
WEIR_MUST_USE enum weir_err control_run(const struct control_options *options, struct error *err);

/* ---- for admin.c ---- */

/* Reads the file again and puts it into force. On a mistake nothing changes and `report` says why.
 */
WEIR_MUST_USE enum weir_err control_reload(struct control *c, struct buf *report);

/* The pages of the admin API. WEIR_ELIMIT: the page is too long. */
WEIR_MUST_USE enum weir_err control_write_metrics(struct control *c, struct buf *out);
WEIR_MUST_USE enum weir_err control_write_status(struct control *c, struct buf *out);
WEIR_MUST_USE enum weir_err control_write_config(struct control *c, struct buf *out);
bool control_is_ready(const struct control *c);
