#include "launch/launch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/heap.h"
#include "config/config.h"
#include "launch/backoff.h"
#include "launch/guard.h"
#include "launch/processes.h"
#include "launch/template.h"
#include "launch/wire.h"

static const uint64_t end_margin_ns = 5 * NS_PER_S; /* beyond the longest stop_timeout */
enum {
    END_TICK_MS = 20,
    SWEEP_TICK_MS = 2, /* in launcher_pump(): at most 0.2 s, once, when the guard was killed */
    SWEEPS_MAX = 100
};

/* What weir owes the guard for an engine. State, not a queue: sent as soon as there is room. */
enum order { ORDER_NONE, ORDER_RUN, ORDER_STOP };

struct launched {
    uint32_t id;
    enum launch_state state;
    enum order order;
    bool is_stop_wanted;
    int pid;
    int exit_status;
    uint32_t restarts;
    struct backoff backoff;
    uint64_t started_ns;
    uint64_t due_ns;           /* in BACKOFF: next start */
    uint64_t ready_timeout_ns; /* 0: none */
    uint64_t stop_timeout_ns;
    bool is_late;     /* stopped because it was not ready in time; it starts again */
    bool is_changed;  /* the next pump tells */
    struct slice run; /* the WIRE_RUN message; heap */
};

struct launcher {
    int sock; /* -1: the guard is gone */
    pid_t guard;
    struct launched *engines;
    size_t count;
    char message[WIRE_MESSAGE_MAX];
};

const char *launch_state_name(enum launch_state state)
{
    static const char *const names[] = {
        [LAUNCH_STARTING] = "starting", [LAUNCH_RUNNING] = "running", [LAUNCH_BACKOFF] = "backoff",
        [LAUNCH_STOPPING] = "stopping", [LAUNCH_STOPPED] = "stopped",
    };
    return names[state];
}

enum weir_err launcher_start(struct launcher **out, struct error *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return error_set_errno(err, errno, "cannot start the guard of launched engines: no socket");
    /* If the guard is killed, what the engines forked comes here and not to init. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);

    pid_t guard = fork();
    if (guard == 0)
        guard_main(pair[1]);
    int failure = errno;
    close(pair[1]);
    if (guard < 0) {
        close(pair[0]);
        return error_set_errno(err, failure, "cannot start the guard of launched engines");
    }
    struct launcher *l = heap_zalloc(sizeof(*l));
    l->sock = pair[0];
    l->guard = guard;
    *out = l;
    return WEIR_OK;
}

int launcher_fd(const struct launcher *l)
{
    return l->sock;
}

/* Stopped, and told so: its place is freed at the end of the pump. */
static bool is_over(const struct launched *e)
{
    return e->state == LAUNCH_STOPPED && !e->is_changed;
}

static struct launched *find_engine(struct launcher *l, uint32_t id)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->engines[i].id == id && !is_over(&l->engines[i]))
            return &l->engines[i];
    return NULL;
}

/* WEIR_EAGAIN: the guard is busy; the order stays for the next pump. */
static enum weir_err send_order(const struct launcher *l, struct launched *e)
{
    struct wire_stop stop = {.type = WIRE_STOP, .id = e->id};
    enum weir_err status = WEIR_OK;
    if (e->order == ORDER_RUN)
        status = wire_send(l->sock, e->run.ptr, e->run.len);
    else if (e->order == ORDER_STOP)
        status = wire_send(l->sock, &stop, sizeof(stop));
    if (status == WEIR_OK)
        e->order = ORDER_NONE;
    return status;
}

/* The same, at once where that is possible. If it is not, the next pump finds out why. */
static void try_order(const struct launcher *l, struct launched *e)
{
    enum weir_err ignored = send_order(l, e);
    (void)ignored;
}

/* -- asking for an engine -- */

static size_t count_words(const char *const *words)
{
    size_t count = 0;
    while (words && words[count])
        count++;
    return count;
}

/* DIR/MODEL-INDEX.log; what a file name cannot hold becomes '_'. Empty: the engine has no file. */
static enum weir_err write_log_path(struct buf *out, const char *dir, const char *model,
                                    uint32_t index)
{
    if (!dir)
        return buf_append(out, SLICE("\0"));
    enum weir_err status = buf_printf(out, "%s/", dir);
    for (const char *c = model; *c && status == WEIR_OK; c++) {
        bool is_odd = *c == '/' || (*c == '.' && c == model) || (unsigned char)*c < ' ';
        status = buf_append(out, is_odd ? SLICE("_") : slice_of(c, 1));
    }
    if (status == WEIR_OK)
        status = buf_printf(out, "-%u.log", (unsigned)index);
    return status == WEIR_OK ? buf_append(out, SLICE("\0")) : status;
}

static enum weir_err write_words(struct buf *out, const char *const *words,
                                 const struct template_values *values)
{
    enum weir_err status = WEIR_OK;
    for (; words && *words && status == WEIR_OK; words++) {
        status = template_fill(out, *words, values);
        if (status == WEIR_OK)
            status = buf_append(out, SLICE("\0"));
    }
    return status;
}

static enum weir_err write_run(struct buf *out, uint32_t id, const struct config_launch *launch,
                               const struct template_values *values)
{
    struct wire_run head = {
        .type = WIRE_RUN,
        .id = id,
        .stop_timeout_ns = launch->stop_timeout_ns,
        .argc = (uint32_t)count_words(launch->command),
        .envc = (uint32_t)count_words(launch->environment),
    };
    enum weir_err status = buf_append(out, slice_of((const char *)&head, sizeof(head)));
    if (status == WEIR_OK)
        status = write_log_path(out, launch->log_dir, values->model, values->index);
    if (status == WEIR_OK)
        status = write_words(out, launch->command, values);
    return status == WEIR_OK ? write_words(out, launch->environment, values) : status;
}

static enum weir_err make_log_dir(const char *dir, struct error *err)
{
    if (dir && mkdir(dir, 0750) < 0 && errno != EEXIST)
        return error_set_errno(err, errno, "cannot make the folder '%s' for engine logs", dir);
    return WEIR_OK;
}

enum weir_err launcher_run(struct launcher *l, uint32_t id, const struct config_launch *launch,
                           const char *model, uint32_t index, uint16_t port, struct error *err)
{
    struct template_values values = {.model = model, .index = index, .port = port};
    struct buf run;

    if (l->sock < 0)
        return error_set(err, WEIR_ECLOSED, "the guard of launched engines is gone; restart weir");
    if (find_engine(l, id))
        return error_set(err, WEIR_EEXIST, "engine %u is launched already", (unsigned)id);
    if (count_words(launch->command) == 0)
        return error_set(err, WEIR_EINVAL, "the launch command is empty");
    enum weir_err status = make_log_dir(launch->log_dir, err);
    if (status != WEIR_OK)
        return status;

    buf_init(&run, WIRE_MESSAGE_MAX);
    status = write_run(&run, id, launch, &values);
    if (status != WEIR_OK) {
        buf_free(&run);
        return error_set(err, status,
                         "launch command and environment have more than %d bytes; put some into a "
                         "script",
                         WIRE_MESSAGE_MAX);
    }
    l->engines = heap_realloc(l->engines, (l->count + 1) * sizeof(*l->engines));
    l->engines[l->count++] = (struct launched){
        .id = id,
        .state = LAUNCH_STARTING,
        .order = ORDER_RUN,
        .ready_timeout_ns = launch->ready_timeout_ns,
        .stop_timeout_ns = launch->stop_timeout_ns,
        .run = {heap_strdup(buf_slice(&run)), buf_len(&run)},
    };
    buf_free(&run);
    try_order(l, &l->engines[l->count - 1]);
    return WEIR_OK;
}

/* -- moves -- */

static void enter(struct launched *e, enum launch_state state)
{
    e->state = state;
    e->is_changed = true;
}

void launcher_ready(struct launcher *l, uint32_t id)
{
    struct launched *e = find_engine(l, id);
    if (e && e->state == LAUNCH_STARTING && e->pid != 0)
        enter(e, LAUNCH_RUNNING);
}

void launcher_stop(struct launcher *l, uint32_t id)
{
    struct launched *e = find_engine(l, id);
    if (!e || e->is_stop_wanted)
        return;
    e->is_stop_wanted = true;
    if (e->state == LAUNCH_STOPPING)
        return; /* because it was late; now that is final */
    bool runs = e->state != LAUNCH_BACKOFF && e->order != ORDER_RUN;
    e->order = runs ? ORDER_STOP : ORDER_NONE;
    enter(e, runs ? LAUNCH_STOPPING : LAUNCH_STOPPED);
    try_order(l, e);
}

static void on_started(struct launched *e, int pid, uint64_t now_ns)
{
    e->pid = pid;
    e->started_ns = now_ns;
    e->is_changed = true;
}

static void on_ended(struct launched *e, int exit_status, uint64_t now_ns)
{
    bool was_ready = e->state == LAUNCH_RUNNING;
    uint64_t lived_ns = e->pid != 0 ? now_ns - e->started_ns : 0;

    e->pid = 0;
    e->exit_status = exit_status;
    e->order = ORDER_NONE;
    if (e->is_stop_wanted) {
        enter(e, LAUNCH_STOPPED);
        return;
    }
    e->due_ns = now_ns + backoff_next(&e->backoff, lived_ns, was_ready);
    enter(e, LAUNCH_BACKOFF);
}

/* -- pump -- */

struct pump {
    struct launcher *launcher;
    uint64_t now_ns;
    void (*on_event)(void *ctx, const struct launch_event *);
    void *ctx;
};

static void report(const struct pump *p, struct launched *e, const char *reason)
{
    struct launch_event event = {
        .id = e->id,
        .state = e->state,
        .pid = e->pid,
        .exit_status = e->exit_status,
        .restarts = e->restarts,
        .retry_ns = e->state == LAUNCH_BACKOFF ? e->due_ns - p->now_ns : 0,
        .reason = reason && reason[0] ? reason : NULL,
    };
    e->is_changed = false;
    p->on_event(p->ctx, &event); /* may move `engines`: `e` is not used any more */
}

static void take_state(const struct pump *p, struct slice message)
{
    struct wire_state state;
    if (message.len != sizeof(state))
        return;
    memcpy(&state, message.ptr, sizeof(state));
    state.reason[sizeof(state.reason) - 1] = '\0';
    struct launched *e = find_engine(p->launcher, state.id);
    if (!e)
        return;
    if (state.pid != 0)
        on_started(e, state.pid, p->now_ns);
    else
        on_ended(e, state.exit_status, p->now_ns);
    report(p, e, e->is_late ? "was not ready in time" : state.reason);
}

static enum weir_err read_states(const struct pump *p)
{
    struct launcher *l = p->launcher;
    struct slice message;
    enum weir_err status;
    while ((status = wire_receive(l->sock, l->message, &message)) == WEIR_OK)
        take_state(p, message);
    return status == WEIR_EAGAIN ? WEIR_OK : status;
}

static void start_if_due(struct launched *e, uint64_t now_ns)
{
    if (e->state != LAUNCH_BACKOFF || now_ns < e->due_ns)
        return;
    e->restarts++;
    e->order = ORDER_RUN;
    e->is_late = false;
    e->state = LAUNCH_STARTING; /* told when there is a process to tell of */
}

static void stop_if_late(struct launched *e, uint64_t now_ns)
{
    if (e->state != LAUNCH_STARTING || e->pid == 0 || e->ready_timeout_ns == 0 ||
        now_ns - e->started_ns < e->ready_timeout_ns)
        return;
    e->is_late = true;
    e->order = ORDER_STOP;
    enter(e, LAUNCH_STOPPING);
}

static enum weir_err send_orders(const struct pump *p)
{
    struct launcher *l = p->launcher;
    enum weir_err status = WEIR_OK;
    for (size_t i = 0; i < l->count && status == WEIR_OK; i++) {
        start_if_due(&l->engines[i], p->now_ns);
        stop_if_late(&l->engines[i], p->now_ns);
        status = send_order(l, &l->engines[i]);
    }
    return status == WEIR_EAGAIN ? WEIR_OK : status;
}

static void report_changes(const struct pump *p)
{
    for (size_t i = 0; i < p->launcher->count; i++)
        if (p->launcher->engines[i].is_changed)
            report(p, &p->launcher->engines[i], NULL);
}

static void forget_stopped(struct launcher *l)
{
    for (size_t i = 0; i < l->count;) {
        struct launched *e = &l->engines[i];
        if (is_over(e)) {
            heap_free((char *)e->run.ptr);
            *e = l->engines[--l->count];
        } else {
            i++;
        }
    }
}

/* -- a guard that is gone -- */

/*
 * Kills and reaps what is below weir once the guard has gone: weir has no other children, so all of
 * it is the engines'. Was anything found?
 */
static bool sweep(void)
{
    struct process_list below = {0};
    bool found = false;
    processes_below(getpid(), &below);
    for (size_t i = 0; i < below.count; i++) {
        const struct process *p = &below.items[i];
        if (p->state != 'Z') {
            kill(p->pid, SIGKILL);
            found = true;
        } else if (p->parent == getpid()) {
            waitpid(p->pid, NULL, WNOHANG);
        }
    }
    process_list_free(&below);
    return found;
}

static enum weir_err on_guard_gone(const struct pump *p)
{
    struct launcher *l = p->launcher;
    if (l->sock >= 0) {
        close(l->sock);
        l->sock = -1;
    }
    for (int i = 0; i < SWEEPS_MAX && sweep(); i++)
        poll(NULL, 0, SWEEP_TICK_MS); /* whatever is left then, launcher_end() ends */
    for (size_t i = 0; i < l->count; i++) {
        l->engines[i].pid = 0;
        l->engines[i].exit_status = SIGKILL;
        enter(&l->engines[i], LAUNCH_STOPPED);
    }
    report_changes(p);
    forget_stopped(l);
    return WEIR_ECLOSED;
}

enum weir_err launcher_pump(struct launcher *l, uint64_t now_ns,
                            void (*on_event)(void *ctx, const struct launch_event *), void *ctx)
{
    struct pump p = {.launcher = l, .now_ns = now_ns, .on_event = on_event, .ctx = ctx};
    if (l->sock < 0 || read_states(&p) != WEIR_OK || send_orders(&p) != WEIR_OK)
        return on_guard_gone(&p);
    report_changes(&p);
    forget_stopped(l);
    return WEIR_OK;
}

/* -- the end -- */

static uint64_t longest_stop_ns(const struct launcher *l)
{
    uint64_t longest = 0;
    for (size_t i = 0; i < l->count; i++)
        if (l->engines[i].stop_timeout_ns > longest)
            longest = l->engines[i].stop_timeout_ns;
    return longest;
}

void launcher_end(struct launcher *l)
{
    if (!l)
        return;
    uint64_t until_ns = clock_now_ns() + longest_stop_ns(l) + end_margin_ns;
    if (l->sock >= 0)
        close(l->sock);
    while (waitpid(l->guard, NULL, WNOHANG) == 0) {
        if (clock_now_ns() >= until_ns)
            goto out; /* it goes on by itself */
        poll(NULL, 0, END_TICK_MS);
    }
    while (sweep() && clock_now_ns() < until_ns) /* a guard that was killed leaves engines */
        poll(NULL, 0, END_TICK_MS);
out:
    for (size_t i = 0; i < l->count; i++)
        heap_free((char *)l->engines[i].run.ptr);
    heap_free(l->engines);
    heap_free(l);
}
