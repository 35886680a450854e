#include "launch/guard.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/heap.h"
#include "launch/processes.h"
#include "launch/spawn.h"
#include "launch/wire.h"

enum {
    SOCK_FD = 3,
    FIRST_OTHER_FD = 4,
    ENDING_TICK_MS = 100, /* how late a SIGKILL may be; ends that are in time wake us by SIGCHLD */
    MARK_MAX = 48
};

enum phase {
    PH_RUNNING, /* its leader has not been seen to end */
    PH_ENDING,  /* told to end, or its leader ended: waiting until nothing of it is left */
    PH_ENDED    /* nothing is left; forgotten as soon as weir was told */
};

struct engine {
    uint32_t id;
    enum phase phase;
    /*
     * Leader, group and session. Not reaped before PH_ENDED: a zombie keeps its number, so that it
     * cannot become somebody else's while signals are sent to it.
     */
    pid_t pid;
    bool leader_ended;
    uint64_t kill_at_ns; /* in PH_ENDING: from then on SIGKILL */
    uint64_t stop_timeout_ns;
    int exit_status;
    bool is_told;        /* weir knows the present phase */
    char mark[MARK_MAX]; /* in the environment of all that it forks, wherever that goes */
    char reason[WIRE_REASON_MAX];
};

struct guard {
    int sock; /* -1: weir is gone */
    int signals;
    struct engine *engines;
    size_t count;
    struct process_list descendants; /* recycled between looks */
    char message[WIRE_MESSAGE_MAX];
};

static struct engine *find_engine(struct guard *g, uint32_t id)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->engines[i].id == id)
            return &g->engines[i];
    return NULL;
}

static struct engine *add_engine(struct guard *g, const struct wire_command *command)
{
    g->engines = heap_realloc(g->engines, (g->count + 1) * sizeof(*g->engines));
    struct engine *e = &g->engines[g->count++];
    *e = (struct engine){.id = command->head.id, .stop_timeout_ns = command->head.stop_timeout_ns};
    snprintf(e->mark, sizeof(e->mark), "WEIR_ENGINE=%d.%u", (int)getpid(), (unsigned)e->id);
    return e;
}

/* Is it the leader of an engine other than `except`? */
static bool is_leader(const struct guard *g, pid_t pid, const struct engine *except)
{
    for (size_t i = 0; i < g->count; i++)
        if (&g->engines[i] != except && g->engines[i].phase != PH_ENDED && g->engines[i].pid == pid)
            return true;
    return false;
}

/* -- ending -- */

enum membership { NOT_OURS, MAYBE_OURS, OURS };

/*
 * An orphan that hides its environment may be this engine's, or anybody's in the middle of exec. It
 * keeps the engine from being over, and is killed when it still hides a tick after all others were.
 */
static enum membership belongs(const struct engine *e, const struct process *p)
{
    if (p->state == 'Z')
        return NOT_OURS;
    if (p->group == e->pid)
        return OURS;
    enum environment environment = process_environment(p->pid, e->mark);
    if (environment == ENVIRONMENT_HIDDEN && p->parent == getpid())
        return MAYBE_OURS;
    return environment == ENVIRONMENT_HAS ? OURS : NOT_OURS;
}

/* Signals all that is left of the engine (0: none is sent). Returns how many there are. */
static size_t signal_engine(struct guard *g, const struct engine *e, int number, bool maybe_too)
{
    size_t left = 0;
    if (number != 0)
        kill(-e->pid, number); /* at once, so that no fork slips through */
    for (size_t i = 0; i < g->descendants.count; i++) {
        const struct process *p = &g->descendants.items[i];
        enum membership membership = belongs(e, p);
        if (membership == NOT_OURS || is_leader(g, p->pid, e))
            continue;
        left++;
        if (number != 0 && p->group != e->pid && (membership == OURS || maybe_too))
            kill(p->pid, number);
    }
    return left;
}

static void begin_ending(struct guard *g, struct engine *e, uint64_t now_ns, uint64_t grace_ns)
{
    if (e->phase != PH_RUNNING)
        return;
    e->phase = PH_ENDING;
    e->kill_at_ns = now_ns + grace_ns;
    processes_below(getpid(), &g->descendants);
    signal_engine(g, e, grace_ns > 0 ? SIGTERM : SIGKILL, false);
}

/* Has the leader ended? It stays a zombie: its number is still needed. */
static bool has_leader_ended(struct engine *e)
{
    siginfo_t info = {0};
    if (!e->leader_ended && waitid(P_PID, (id_t)e->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid != 0)
        e->leader_ended = true;
    return e->leader_ended;
}

static void advance_ending(struct guard *g, struct engine *e, uint64_t now_ns)
{
    bool is_late = now_ns >= e->kill_at_ns;
    bool is_very_late = now_ns >= e->kill_at_ns + ENDING_TICK_MS * NS_PER_MS;
    size_t left = signal_engine(g, e, is_late ? SIGKILL : 0, is_very_late);
    if (left > 0 || !has_leader_ended(e))
        return;
    waitpid(e->pid, &e->exit_status, 0);
    e->phase = PH_ENDED;
    e->is_told = false;
}

/* Orphans that ended are nobody else's to reap. Leaders are left: see advance_ending(). */
static void reap_orphans(struct guard *g)
{
    for (size_t i = 0; i < g->descendants.count; i++) {
        const struct process *p = &g->descendants.items[i];
        if (p->state == 'Z' && p->parent == getpid() && !is_leader(g, p->pid, NULL))
            waitpid(p->pid, NULL, WNOHANG);
    }
}

/* Some process ended, or time went by. An engine that ended by itself gets no grace for the rest.
 */
static void look_around(struct guard *g)
{
    uint64_t now_ns = clock_now_ns();
    for (size_t i = 0; i < g->count; i++)
        if (g->engines[i].phase == PH_RUNNING && has_leader_ended(&g->engines[i]))
            begin_ending(g, &g->engines[i], now_ns, 0);

    processes_below(getpid(), &g->descendants);
    reap_orphans(g);
    for (size_t i = 0; i < g->count; i++)
        if (g->engines[i].phase == PH_ENDING)
            advance_ending(g, &g->engines[i], now_ns);
}

/* -- weir's orders, and what it is told -- */

static void on_run(struct guard *g, struct slice message)
{
    struct wire_command command;
    struct error err = {0};
    if (wire_read_run(message, &command) != WEIR_OK)
        return;
    if (!find_engine(g, command.head.id)) { /* weir asks again only after it heard of the end */
        struct engine *e = add_engine(g, &command);
        if (spawn(&command, e->mark, &e->pid, &err) != WEIR_OK) {
            e->phase = PH_ENDED;
            snprintf(e->reason, sizeof(e->reason), "%s", err.text);
        }
    }
    heap_free(command.words);
}

static void on_stop(struct guard *g, struct slice message)
{
    struct wire_stop stop;
    if (message.len != sizeof(stop))
        return;
    memcpy(&stop, message.ptr, sizeof(stop));
    struct engine *e = find_engine(g, stop.id);
    if (e) /* else it has just ended, and weir will read that soon */
        begin_ending(g, e, clock_now_ns(), e->stop_timeout_ns);
}

static void on_weir_gone(struct guard *g)
{
    uint64_t now_ns = clock_now_ns();
    close(g->sock);
    g->sock = -1;
    for (size_t i = 0; i < g->count; i++)
        begin_ending(g, &g->engines[i], now_ns, g->engines[i].stop_timeout_ns);
}

static void read_orders(struct guard *g)
{
    struct slice message;
    enum weir_err status;
    while ((status = wire_receive(g->sock, g->message, &message)) == WEIR_OK) {
        uint32_t type = 0;
        if (message.len >= sizeof(type))
            memcpy(&type, message.ptr, sizeof(type));
        if (type == WIRE_RUN)
            on_run(g, message);
        else if (type == WIRE_STOP)
            on_stop(g, message);
    }
    if (status == WEIR_ECLOSED)
        on_weir_gone(g);
}

static bool tell(struct guard *g, struct engine *e)
{
    struct wire_state state = {.type = WIRE_STATE, .id = e->id, .exit_status = e->exit_status};
    if (e->phase != PH_ENDED)
        state.pid = e->pid;
    memcpy(state.reason, e->reason, sizeof(state.reason));
    e->is_told = g->sock < 0 || wire_send(g->sock, &state, sizeof(state)) != WEIR_EAGAIN;
    return e->is_told;
}

/* Returns whether weir knows all; if not, its socket is full. */
static bool tell_all(struct guard *g)
{
    bool knows_all = true;
    for (size_t i = 0; i < g->count;) {
        struct engine *e = &g->engines[i];
        if (!e->is_told && !tell(g, e))
            knows_all = false;
        if (e->is_told && e->phase == PH_ENDED)
            *e = g->engines[--g->count];
        else
            i++;
    }
    return knows_all;
}

/* -- life -- */

static bool is_any_ending(const struct guard *g)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->engines[i].phase == PH_ENDING)
            return true;
    return false;
}

/* Waits for a message (`events` on the socket), the end of a process, or the next look. */
static short wait_for_work(struct guard *g, short events)
{
    struct signalfd_siginfo info;
    struct pollfd fds[] = {
        {.fd = g->sock, .events = events}, /* -1 is passed over */
        {.fd = g->signals, .events = POLLIN},
    };
    int ready = poll(fds, 2, g->sock < 0 || is_any_ending(g) ? ENDING_TICK_MS : -1);
    while (read(g->signals, &info, sizeof(info)) == sizeof(info))
        continue;
    if (ready == 0 || fds[1].revents)
        look_around(g);
    return fds[0].revents;
}

static void serve(struct guard *g)
{
    bool knows_all = true;
    while (g->sock >= 0) {
        if (wait_for_work(g, (short)(POLLIN | (knows_all ? 0 : POLLOUT))))
            read_orders(g);
        knows_all = tell_all(g);
    }
}

/* Engines first, with their grace; then whatever else is left, until nothing is. */
static void end_all(struct guard *g)
{
    for (;;) {
        look_around(g);
        tell_all(g);
        if (g->count == 0 && g->descendants.count == 0)
            return;
        for (size_t i = 0; g->count == 0 && i < g->descendants.count; i++)
            kill(g->descendants.items[i].pid, SIGKILL);
        wait_for_work(g, 0);
    }
}

/* No Ctrl-C, no terminal, no descriptor of weir's but its stderr: nothing but the socket ends it.
 */
static int detach(int sock)
{
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2};
    sigset_t child;
    setsid();
    prctl(PR_SET_NAME, "weir-guard");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
        signal(ignored[i], SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_SETMASK, &child, NULL);

    sock = fcntl(sock, F_DUPFD, FIRST_OTHER_FD); /* out of the way of what follows */
    int null = open("/dev/null", O_RDWR);
    if (sock < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
        (fcntl(STDERR_FILENO, F_GETFD) < 0 && dup2(null, STDERR_FILENO) < 0) ||
        dup2(sock, SOCK_FD) < 0)
        _exit(1); /* weir sees the socket close */
    closefrom(FIRST_OTHER_FD);
    fcntl(SOCK_FD, F_SETFD, FD_CLOEXEC);
    return signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC);
}

_Noreturn void guard_main(int sock)
{
    struct guard *g = heap_zalloc(sizeof(*g));
    g->signals = detach(sock);
    if (g->signals < 0)
        _exit(1);
    g->sock = SOCK_FD;
    serve(g);
    end_all(g);
    _exit(0);
}
