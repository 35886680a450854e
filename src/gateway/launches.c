#include "gateway/launches.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/map.h"
#include "base/slice.h"
#include "net/loop.h"

#define PUMP_NS (500 * NS_PER_MS)

struct entry {
    struct entry *next;
    uint32_t id;
    char *model, *pool;
    size_t index;
    uint64_t command_hash; /* of all that a running process cannot change any more */
    const struct config_launch
        *launch; /* of the configuration in force; NULL: it wants it no more */
    uint16_t port;
    char url[64];
    bool was_started;
    uint64_t stop_ns; /* retiring: when it is stopped at the latest; 0: not retiring */
    uint64_t drain_ns;
    struct replica *replica; /* held; NULL until the first fleet has it */
    enum launch_state state;
    int pid;
    uint32_t restarts;
};

struct launches {
    struct launcher *launcher;
    struct loop *loop;
    struct loop_fd io;
    struct timer pump;
    struct launches_hooks hooks;
    struct entry *entries;
    uint32_t next_id;
    bool guard_is_gone;
};

enum weir_err launches_new(struct launches **out, struct error *err)
{
    struct launches *l = heap_zalloc(sizeof *l);
    l->io.fd = -1;
    enum weir_err result = launcher_start(&l->launcher, err);
    if (result != WEIR_OK) {
        heap_free(l);
        return result;
    }
    *out = l;
    return WEIR_OK;
}

static struct entry *find_url(const struct launches *l, const char *url)
{
    struct entry *e = l->entries;
    while (e && strcmp(e->url, url) != 0) {
        e = e->next;
    }
    return e;
}

static struct entry *find_id(const struct launches *l, uint32_t id)
{
    struct entry *e = l->entries;
    while (e && e->id != id) {
        e = e->next;
    }
    return e;
}

static uint64_t hash_words(uint64_t hash, const char *const *words)
{
    for (; words && *words; words++) {
        uint64_t both[2] = {hash, map_hash(slice_str(*words))};
        hash = map_hash(slice_of((const char *)both, sizeof both));
    }
    return hash;
}

/* A process whose command, environment or port is to be another one is another process. */
static uint64_t hash_command(const struct config_launch *launch)
{
    return hash_words(hash_words(launch->first_port, launch->command), launch->environment);
}

static struct entry *find_place(const struct launches *l, const char *model,
                                const struct config_pool *pool, size_t index)
{
    uint64_t hash = hash_command(pool->launch);
    struct entry *e = l->entries;
    while (e && (e->stop_ns || e->index != index || e->command_hash != hash ||
                 strcmp(e->model, model) != 0 || strcmp(e->pool, pool->name) != 0)) {
        e = e->next;
    }
    return e;
}

/* A fixed port may still be another process's, which is on its way out. */
static bool is_port_taken(const struct launches *l, const struct entry *by)
{
    for (const struct entry *e = l->entries; e; e = e->next) {
        if (e != by && e->port == by->port && e->was_started) {
            return true;
        }
    }
    return false;
}

static void remove_entry(struct launches *l, struct entry *gone)
{
    struct entry **slot = &l->entries;
    while (*slot != gone) {
        slot = &(*slot)->next;
    }
    *slot = gone->next;
    if (gone->replica) {
        replica_drop(gone->replica);
    }
    heap_free(gone->model);
    heap_free(gone->pool);
    heap_free(gone);
}

bool launches_url(void *launches, const struct config_model *model, const struct config_pool *pool,
                  size_t index, char *out, size_t size)
{
    struct launches *l = launches;
    struct entry *e = find_place(l, model->name, pool, index);
    if (!e) {
        uint16_t port = pool->launch->first_port ? (uint16_t)(pool->launch->first_port + index)
                                                 : launcher_free_port();
        if (port == 0) {
            return false;
        }
        e = heap_zalloc(sizeof *e);
        e->id = ++l->next_id;
        e->model = heap_strdup(slice_str(model->name));
        e->pool = heap_strdup(slice_str(pool->name));
        e->index = index;
        e->command_hash = hash_command(pool->launch);
        e->port = port;
        snprintf(e->url, sizeof e->url, "http://127.0.0.1:%u", port);
        e->next = l->entries;
        l->entries = e;
    }
    snprintf(out, size, "%s", e->url);
    return true;
}

static void set_draining(struct entry *e, bool is_draining)
{
    if (e->replica) {
        atomic_store_explicit(&e->replica->wants_drain, is_draining, memory_order_relaxed);
    }
}

static void start(struct launches *l, struct entry *e)
{
    struct error err;
    if (launcher_run(l->launcher, e->id, e->launch, e->model, (uint32_t)e->index, e->port, &err) !=
        WEIR_OK) {
        log_error("launch", "engine %zu of %s cannot be started: %s", e->index, e->model, err.text);
        return;
    }
    e->was_started = true;
    e->drain_ns = e->launch->drain_timeout_ns;
    set_draining(e, false);
    log_info("launch", "starting engine %zu of %s on port %u", e->index, e->model, e->port);
}

static void want_pool(struct launches *l, const struct config_model *model,
                      const struct config_pool *pool)
{
    for (size_t i = 0; pool->launch && i < pool->launch->replicas; i++) {
        struct entry *e = find_place(l, model->name, pool, i);
        if (e) {
            e->launch = pool->launch;
        }
    }
}

static void start_wanted(struct launches *l)
{
    for (struct entry *e = l->entries; e; e = e->next) {
        if (e->launch && !e->was_started && !is_port_taken(l, e)) {
            start(l, e);
        }
    }
}

/* Each entry keeps its replica, so that it knows later whether requests are left. */
static void find_replicas(struct launches *l, const struct fleet *fleet)
{
    for (size_t m = 0; m < fleet->model_count; m++) {
        for (size_t p = 0; p < fleet->models[m].pool_count; p++) {
            const struct pool *pool = &fleet->models[m].pools[p];
            for (size_t r = 0; r < pool->replica_count; r++) {
                struct entry *e = find_url(l, pool->replicas[r]->name);
                if (e && !e->replica) {
                    e->replica = replica_hold(pool->replicas[r]);
                }
            }
        }
    }
}

void launches_apply(struct launches *l, const struct config *config, const struct fleet *fleet)
{
    find_replicas(l, fleet);
    for (struct entry *e = l->entries; e; e = e->next) {
        e->launch = NULL;
    }
    for (size_t m = 0; m < config->model_count; m++) {
        for (size_t p = 0; p < config->models[m].pool_count; p++) {
            want_pool(l, &config->models[m], &config->models[m].pools[p]);
        }
    }
    uint64_t now_ns = loop_now_ns(l->loop);
    for (struct entry *e = l->entries, *next; e; e = next) {
        next = e->next;
        if (!e->launch && !e->was_started) {
            remove_entry(l, e);
        } else if (!e->launch && e->stop_ns == 0) {
            e->stop_ns = now_ns + e->drain_ns;
            set_draining(e, true);
            log_info("launch",
                     "engine %zu of %s is not wanted any more; it may finish its requests",
                     e->index, e->model);
        }
    }
    start_wanted(l);
}

static void describe_exit(int status, char *out, size_t size)
{
    if (WIFSIGNALED(status)) {
        snprintf(out, size, "was ended by signal %d", WTERMSIG(status));
    } else {
        snprintf(out, size, "exited with status %d", WEXITSTATUS(status));
    }
}

static void on_event(void *ctx, const struct launch_event *event)
{
    struct launches *l = ctx;
    struct entry *e = find_id(l, event->id);
    if (!e) {
        return;
    }
    e->state = event->state;
    e->pid = event->pid;
    e->restarts = event->restarts;
    bool is_running = event->state == LAUNCH_STARTING && event->pid;
    if (event->state == LAUNCH_BACKOFF) {
        char how[64];
        describe_exit(event->exit_status, how, sizeof how);
        log_warn("launch", "engine %zu of %s %s; it starts again in %.1f s", e->index, e->model,
                 event->reason ? event->reason : how, (double)event->retry_ns / (double)NS_PER_S);
    } else if (is_running) {
        log_info("launch", "engine %zu of %s runs as process %d", e->index, e->model, event->pid);
    }
    if (is_running || event->state == LAUNCH_BACKOFF || event->state == LAUNCH_STOPPED) {
        l->hooks.on_change(l->hooks.ctx, e->url, is_running);
    }
    if (event->state == LAUNCH_STOPPED && !e->launch) {
        remove_entry(l, e);
        start_wanted(l);
    }
}

static void pump(struct launches *l)
{
    uint64_t now_ns = loop_now_ns(l->loop);
    for (struct entry *e = l->entries; e; e = e->next) {
        bool is_due = now_ns >= e->stop_ns || !e->replica || replica_in_flight(e->replica) == 0;
        if (e->stop_ns && is_due && e->state != LAUNCH_STOPPING) {
            e->state = LAUNCH_STOPPING;
            launcher_stop(l->launcher, e->id);
        }
    }
    if (!l->guard_is_gone && launcher_pump(l->launcher, now_ns, on_event, l) == WEIR_ECLOSED) {
        l->guard_is_gone = true;
        loop_remove(l->loop, &l->io);
        log_error("launch", "the process that guards the engines was killed, and they with it; "
                            "restart weir to have them back");
    }
    timer_set(l->loop, &l->pump, PUMP_NS);
}

static void on_io(struct loop_fd *io, unsigned events)
{
    pump((struct launches *)((char *)io - offsetof(struct launches, io)));
}

static void on_timer(struct timer *timer)
{
    pump((struct launches *)((char *)timer - offsetof(struct launches, pump)));
}

enum weir_err launches_attach(struct launches *l, struct loop *loop,
                              const struct launches_hooks *hooks, struct error *err)
{
    l->loop = loop;
    l->hooks = *hooks;
    l->io.on_event = on_io;
    l->pump.on_fire = on_timer;
    if (loop_add_level(loop, &l->io, launcher_fd(l->launcher), LOOP_READ) != WEIR_OK) {
        return error_set(err, WEIR_EIO, "cannot watch the engines' guard");
    }
    timer_set(loop, &l->pump, PUMP_NS);
    return WEIR_OK;
}

void launches_free(struct launches *l)
{
    if (l->loop) {
        loop_remove(l->loop, &l->io);
        timer_cancel(l->loop, &l->pump);
    }
    launcher_end(l->launcher);
    while (l->entries) {
        remove_entry(l, l->entries);
    }
    heap_free(l);
}

void launches_ready(struct launches *l, const char *url)
{
    const struct entry *e = find_url(l, url);
    if (e) {
        launcher_ready(l->launcher, e->id);
    }
}

bool launches_row(const struct launches *l, size_t index, struct launch_row *row)
{
    const struct entry *e = l->entries;
    while (e && index--) {
        e = e->next;
    }
    if (!e) {
        return false;
    }
    *row = (struct launch_row){.url = e->url,
                               .model = e->model,
                               .pool = e->pool,
                               .state = e->state,
                               .pid = e->pid,
                               .restarts = e->restarts};
    return true;
}
