/*
 * launch.h - engine processes that weir starts itself, on this machine.
 *
 * A guard process is forked before any thread exists. It starts the engines, each in a process group
 * of its own, and holds a socket to weir: when weir ends, however it ends, the guard sees the socket
 * close, ends every group (SIGTERM, then SIGKILL after stop_timeout) and exits. The guard is a
 * sub-reaper, so what engines fork cannot escape; engines die with the guard by PR_SET_PDEATHSIG.
 *
 * The control thread drives this: launch_fd() goes into its loop, launch_pump() runs on readiness
 * and about once a second. Nothing here blocks.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct config_launch; /* config/config.h */
struct launcher;

enum launch_state {
    LAUNCH_STARTING,  /* process runs, not ready yet */
    LAUNCH_RUNNING,
    LAUNCH_BACKOFF,   /* ended by itself; starts again after a growing pause */
    LAUNCH_STOPPING,
    LAUNCH_STOPPED
};

/* Forks the guard. Call before threads are started. */
WEIR_MUST_USE enum weir_err launcher_start(struct launcher **out, struct error *err);

/*
 * Asks for one engine process. `id` is the caller's and comes back in events. The configuration is
 * copied. `port` is written into the command.
 */
WEIR_MUST_USE enum weir_err launcher_run(struct launcher *l, uint32_t id,
                                         const struct config_launch *launch, const char *model,
                                         uint32_t index, uint16_t port, struct error *err);

/* SIGTERM now, SIGKILL after stop_timeout; it is not started again. */
void launcher_stop(struct launcher *l, uint32_t id);

struct launch_event {
    uint32_t id;
    enum launch_state state;
    int pid;         /* of the process group leader; 0: none */
    int exit_status; /* as waitpid() gives it, in BACKOFF and STOPPED */
    uint32_t restarts;
};

int launcher_fd(const struct launcher *l);

/* Reads what the guard says; calls back for each change. WEIR_ECLOSED: the guard is gone. */
WEIR_MUST_USE enum weir_err launcher_pump(struct launcher *l, uint64_t now_ns,
                                          void (*on_event)(void *ctx, const struct launch_event *),
                                          void *ctx);

/* Tells launcher that `id` passed its readiness check: back-off starts anew at its next end. */
void launcher_ready(struct launcher *l, uint32_t id);

/* Ends all, waits until the guard is gone (bounded by the stop timeouts). */
void launcher_end(struct launcher *l);

/* A TCP port of 127.0.0.1 that is free now. 0: none. */
uint16_t launcher_free_port(void);
