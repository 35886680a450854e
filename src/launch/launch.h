/*
 * launch.h - engine processes that weir starts itself, on this machine.
 *
 * A guard process is forked before any thread exists. It starts the engines, each in a session and
 * process group of its own, and holds a socket to weir: when weir ends, however it ends, the guard
 * sees the socket close, ends every group (SIGTERM, then SIGKILL after stop_timeout) and exits. The
 * guard is a sub-reaper, so what engines fork comes back to it even when it left its group; engines
 * die with the guard by PR_SET_PDEATHSIG, and what they leave then comes back to weir, which is a
 * sub-reaper too and ends it in launcher_pump().
 *
 * The control thread drives this: launcher_fd() goes into its loop, launcher_pump() runs on
 * readiness and about once a second, which is also the grain of restarts. Nothing waits but
 * launcher_end(), and once launcher_pump(), for 0.2 s at most, when the guard was killed. The
 * README beside this file tells who watches whom.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct config_launch; /* config/config.h */
struct launcher;

enum launch_state {
    LAUNCH_STARTING, /* asked for, or the process runs and is not ready yet */
    LAUNCH_RUNNING,  /* launcher_ready() was called for this process */
    LAUNCH_BACKOFF,  /* ended by itself; starts again after a growing pause */
    LAUNCH_STOPPING, /* SIGTERM was sent, its group is not empty yet; also when not ready in time */
    LAUNCH_STOPPED   /* nothing of it is left; the id is free again */
};

/* Lower-case word for logs. Static lifetime. */
const char *launch_state_name(enum launch_state state);

/* Forks the guard. Call before threads are started and before listeners are opened. */
WEIR_MUST_USE enum weir_err launcher_start(struct launcher **out, struct error *err);

/*
 * Asks for one engine process. `id` is the caller's and comes back in events. Everything is copied.
 * {port}, {model} and {index} are filled in, in the command and in the environment; any other word
 * in braces is left as it is (engines take JSON on their command lines). Output goes to
 * log_dir/MODEL-INDEX.log, appended, or to weir's stderr. WEIR_EEXIST: that id is in use;
 * WEIR_ELIMIT: command and environment are too long; WEIR_ECLOSED: the guard is gone.
 */
WEIR_MUST_USE enum weir_err launcher_run(struct launcher *l, uint32_t id,
                                         const struct config_launch *launch, const char *model,
                                         uint32_t index, uint16_t port, struct error *err);

/* SIGTERM now, SIGKILL after stop_timeout; it is not started again. Unknown ids are ignored. */
void launcher_stop(struct launcher *l, uint32_t id);

struct launch_event {
    uint32_t id;
    enum launch_state state;
    int pid;            /* of the process group leader; 0: none */
    int exit_status;    /* as waitpid() gives it, in BACKOFF and STOPPED */
    uint32_t restarts;  /* how often it was started again */
    uint64_t retry_ns;  /* in BACKOFF: until the next start */
    const char *reason; /* other than its exit: "cannot start …", "was not ready in time"; NULL:
                           none. Borrowed for the call */
};

/* Readable when the guard has something to say. Level-triggered or edge-triggered watching works.
 */
int launcher_fd(const struct launcher *l);

/*
 * Reads what the guard says, starts what is due, and calls back for each change; the callback may
 * call anything here but launcher_pump() and launcher_end(). WEIR_ECLOSED: the guard was killed;
 * its engines have been ended and reported as stopped, and no other can be started.
 */
WEIR_MUST_USE enum weir_err launcher_pump(struct launcher *l, uint64_t now_ns,
                                          void (*on_event)(void *ctx, const struct launch_event *),
                                          void *ctx);

/*
 * Tells the launcher that `id` passed its readiness check. A process for which this is not said
 * within ready_timeout of its start is ended and started anew, as if it had ended by itself; one
 * that was ready and lived for a minute has its back-off start from the shortest pause again.
 */
void launcher_ready(struct launcher *l, uint32_t id);

/*
 * Ends all and waits until the guard is gone, bounded by the longest stop_timeout and a few
 * seconds; a guard that is still waiting for the kernel then goes on by itself. Frees `l`; NULL is
 * allowed.
 */
void launcher_end(struct launcher *l);

/*
 * A TCP port of 127.0.0.1 that is free now; below the range that the kernel hands to outgoing
 * connections, and another one on each call. 0: none.
 */
uint16_t launcher_free_port(void);
