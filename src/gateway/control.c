#include "gateway/control.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/heap.h"
#include "base/log.h"
#include "gateway/admin.h"
#include "gateway/admin_page.h"
#include "gateway/fleet_build.h"
#include "gateway/launches.h"
#include "gateway/prober.h"
#include "gateway/worker.h"
#include "net/address.h"
#include "net/fetch.h"
#include "net/resolve.h"
#include "observe/metrics.h"
#include "version.h"

#define SAMPLE_NS (1 * NS_PER_S)

struct control {
    struct config *config;
    const struct config_words *words;
    uint64_t started_ns, started_wall_ns;
    uint64_t generation, reload_failures;

    struct loop *loop;
    struct loop_fd signals;
    sigset_t signal_set;
    struct timer sample, drain;
    enum { RUNNING, LEAVING, DRAINING, ENDING } phase;

    struct traffic_registry *traffic;
    struct goodput_table *goodput;
    struct answer_book *answers;
    struct fleet *fleet;
    struct access_log *access_log;
    struct fetcher *fetcher;
    struct resolver *resolver;
    struct prober *prober;
    struct launches *launches; /* NULL: no pool launches anything */

    struct worker **workers;
    size_t worker_count, started_count;
    struct worker_counters *counters; /* filled for each page */
    struct admin admin;
    bool has_admin;
    bool is_listening;
    _Atomic bool is_ready; /* workers read it for /health/ready */
};

/* ---- readiness ---- */

static bool fleet_has_ready(const struct fleet *fleet)
{
    for (size_t m = 0; m < fleet->model_count; m++) {
        for (size_t p = 0; p < fleet->models[m].pool_count; p++) {
            const struct pool *pool = &fleet->models[m].pools[p];
            for (size_t r = 0; r < pool->replica_count; r++) {
                if (replica_state(pool->replicas[r]) == REPLICA_READY) {
                    return true;
                }
            }
        }
    }
    return false;
}

/* Ready: some engine can be asked, and this process is not about to leave. */
static void update_ready(struct control *c)
{
    bool is_ready = c->phase == RUNNING && fleet_has_ready(c->fleet);
    if (is_ready != atomic_exchange(&c->is_ready, is_ready)) {
        log_info("ready", "%s",
                 is_ready ? "ready: at least one engine answers" : "not ready any more");
    }
}

bool control_is_ready(const struct control *c)
{
    return atomic_load(&c->is_ready);
}

static void on_replica_state(void *ctx, struct replica *r, enum replica_state from,
                             enum replica_state to, const char *why)
{
    struct control *c = ctx;
    if (to == REPLICA_READY && c->launches) {
        launches_ready(c->launches, r->name);
    }
    update_ready(c);
}

/* The name of a replica points elsewhere now: nobody should reuse a connection to where it was. */
static void on_replica_address(void *ctx, struct replica *r, const struct endpoint *was)
{
    struct control *c = ctx;
    char text[160];
    address_format(was, text, sizeof text);
    log_info("address", "%s no longer points to %s", r->name, text);
    for (size_t i = 0; i < c->worker_count; i++) {
        if (c->workers[i]) {
            worker_forget_replica(c->workers[i], r->id);
        }
    }
}

static void on_launch_change(void *ctx, const char *url, bool is_running)
{
    struct control *c = ctx;
    for (size_t m = 0; m < c->fleet->model_count; m++) {
        for (size_t p = 0; p < c->fleet->models[m].pool_count; p++) {
            const struct pool *pool = &c->fleet->models[m].pools[p];
            for (size_t r = 0; r < pool->replica_count; r++) {
                if (strcmp(pool->replicas[r]->name, url) == 0) {
                    prober_check_soon(c->prober, pool->replicas[r]);
                }
            }
        }
    }
}

/* ---- the fleet ---- */

static struct fleet *build_fleet(struct control *c, const struct config *config, struct error *err)
{
    return fleet_build(
        &(struct fleet_sources){
            .config = config,
            .previous = c->fleet,
            .traffic = c->traffic,
            .answers = c->answers,
            .generation = c->generation + 1,
            .wall_s = clock_wall_ns() / NS_PER_S,
            .launched_url = c->launches ? launches_url : NULL,
            .ctx = c->launches,
        },
        err);
}

static bool wants_launches(const struct config *config)
{
    for (size_t m = 0; m < config->model_count; m++) {
        for (size_t p = 0; p < config->models[m].pool_count; p++) {
            if (config->models[m].pools[p].launch) {
                return true;
            }
        }
    }
    return false;
}

/* ---- reload ---- */

static void put_in_force(struct control *c, struct config *config, struct fleet *fleet)
{
    for (size_t i = 0; i < c->worker_count; i++) {
        worker_set_config(c->workers[i], config, c->worker_count);
        worker_set_fleet(c->workers[i], fleet);
    }
    struct prober_rules rules = settings_of_prober(config);
    prober_set_rules(c->prober, &rules);
    prober_set_fleet(c->prober, fleet);
    if (c->launches) {
        launches_apply(c->launches, config, fleet);
    }
    log_setup(config->log_level, config->log_json);
    fleet_drop(c->fleet);
    config_free(c->config);
    c->fleet = fleet;
    c->config = config;
    c->generation = fleet->generation;
    update_ready(c);
}

static enum weir_err refuse_reload(struct control *c, struct buf *report, const char *text)
{
    c->reload_failures++;
    log_error("reload", "%s; the configuration in force stays", text);
    enum weir_err err = buf_printf(report, "%s\n", text);
    return err == WEIR_OK ? WEIR_EINVAL : err;
}

static struct config *read_config(struct control *c, struct buf *report)
{
    struct config_errors errors;
    config_errors_init(&errors);
    struct config *config = config_load(c->config->file, c->words, &errors);
    if (!config && buf_append(report, buf_slice(&errors.report)) != WEIR_OK) {
        log_warn("reload", "the report is longer than can be shown");
    }
    config_errors_free(&errors);
    return config;
}

static void warn_lines(const char *what, struct slice text)
{
    while (text.len) {
        const char *end = memchr(text.ptr, '\n', text.len);
        size_t len = end ? (size_t)(end - text.ptr) : text.len;
        log_warn("reload", "%s: %.*s", what, (int)len, text.ptr);
        text = slice_from(text, len + 1);
    }
}

enum weir_err control_reload(struct control *c, struct buf *report)
{
    if (c->phase != RUNNING) {
        return refuse_reload(c, report, "weir is about to end");
    }
    if (!c->config->file) {
        return refuse_reload(c, report, "weir was started from flags: there is no file to read");
    }
    struct config *config = read_config(c, report);
    if (!config) {
        return refuse_reload(c, report, "the configuration file has mistakes");
    }
    struct error err;
    if (wants_launches(config) && !c->launches) {
        config_free(config);
        return refuse_reload(c, report, "a first pool with `launch` needs a restart of weir");
    }
    struct fleet *fleet = build_fleet(c, config, &err);
    if (!fleet) {
        config_free(config);
        return refuse_reload(c, report, err.text);
    }
    if (config_restart_needed(c->config, config, report)) {
        warn_lines("waits for a restart", buf_slice(report));
    }
    put_in_force(c, config, fleet);
    log_info("reload", "configuration %llu is in force", (unsigned long long)c->generation);
    return WEIR_OK;
}

/* ---- pages ---- */

static void read_counters(const struct worker *w, struct worker_counters *to)
{
    *to = (struct worker_counters){
        .connections_accepted = counter_get(&w->server_counters.accepted),
        .connections_open = gauge_get(&w->server_counters.open),
        .requests_in_flight = gauge_get(&w->in_flight),
        .connections_refused = counter_get(&w->server_counters.refused),
        .parse_errors = counter_get(&w->server_counters.bad_requests),
        .upstream_connects = counter_get(&w->upstream_counters.connects),
        .upstream_reuses = counter_get(&w->upstream_counters.reuses),
        .upstream_connect_errors = counter_get(&w->upstream_counters.connect_errors),
        .refused_unknown_model = counter_get(&w->refused_unknown_model),
        .refused_other = counter_get(&w->refused_other),
        .loop_turns = loop_turns(w->loop),
        .body_bytes = gauge_get(&w->server_counters.body_bytes),
    };
}

static struct metrics_input page_input(struct control *c)
{
    for (size_t i = 0; i < c->worker_count; i++) {
        read_counters(c->workers[i], &c->counters[i]);
    }
    return (struct metrics_input){
        .fleet = c->fleet,
        .traffic = c->traffic,
        .goodput = c->goodput,
        .workers = c->counters,
        .worker_count = c->worker_count,
        .now_ns = loop_now_ns(c->loop),
        .started_ns = c->started_ns,
        .started_wall_ns = c->started_wall_ns,
        .config_generation = c->generation,
        .config_reload_failures = c->reload_failures,
        .access_log_lost = c->access_log ? access_log_lost(c->access_log) : 0,
        .version = WEIR_VERSION,
    };
}

enum weir_err control_write_metrics(struct control *c, struct buf *out)
{
    struct metrics_input input = page_input(c);
    return metrics_write(&input, out);
}

enum weir_err control_write_status(struct control *c, struct buf *out)
{
    struct metrics_input input = page_input(c);
    return admin_write_status(&input, out);
}

enum weir_err control_write_config(struct control *c, struct buf *out)
{
    return config_show(c->config, out);
}

/* ---- the end ---- */

static void start_draining(struct control *c)
{
    c->phase = DRAINING;
    for (size_t i = 0; i < c->worker_count; i++) {
        worker_drain(c->workers[i]);
    }
    timer_set(c->loop, &c->drain, c->config->drain_timeout_ns);
}

static void end_now(struct control *c)
{
    c->phase = ENDING;
    for (size_t i = 0; i < c->worker_count; i++) {
        if (c->workers[i]) {
            worker_end(c->workers[i]);
        }
    }
}

/*
 * First nothing changes but the readiness, so that a balancer in front can look away before
 * connections are refused; a person's Ctrl-C does not wait for one.
 */
static void leave(struct control *c, int signal)
{
    if (c->phase != RUNNING) {
        log_warn("drain", "second signal: what still runs is broken off");
        end_now(c);
        return;
    }
    uint64_t delay_ns = signal == SIGTERM ? c->config->drain_delay_ns : 0;
    c->phase = LEAVING;
    update_ready(c);
    log_info("drain", "%s: not ready from now on; running requests may take %.0f s to end",
             strsignal(signal), (double)c->config->drain_timeout_ns / (double)NS_PER_S);
    if (delay_ns == 0) {
        start_draining(c);
    } else {
        timer_set(c->loop, &c->drain, delay_ns);
    }
}

static void on_drain_timer(struct timer *timer)
{
    struct control *c = (struct control *)((char *)timer - offsetof(struct control, drain));
    if (c->phase == LEAVING) {
        start_draining(c);
    } else if (c->phase == DRAINING) {
        log_warn("drain", "drain_timeout is over: what still runs is broken off");
        end_now(c);
    }
}

/* A worker's loop has ended; the thread of the last one brings the message. */
static void on_worker_done(void *ctx)
{
    struct control *c = ctx;
    if (--c->started_count == 0) {
        loop_stop(c->loop);
    }
}

/* ---- signals and time ---- */

static void on_signal(struct loop_fd *io, unsigned events)
{
    struct control *c = (struct control *)((char *)io - offsetof(struct control, signals));
    struct signalfd_siginfo info;
    while (read(io->fd, &info, sizeof info) == sizeof info) {
        struct buf report;
        switch (info.ssi_signo) {
        case SIGHUP:
            buf_init(&report, 256 * 1024);
            if (control_reload(c, &report) != WEIR_OK) {
                struct slice text = buf_slice(&report);
                fprintf(stderr, "%.*s", SLICE_ARG(text));
            }
            buf_free(&report);
            break;
        case SIGUSR1:
            if (c->access_log) {
                access_log_reopen(c->access_log);
            }
            break;
        default:
            leave(c, (int)info.ssi_signo);
        }
    }
}

static void on_sample(struct timer *timer)
{
    struct control *c = (struct control *)((char *)timer - offsetof(struct control, sample));
    goodput_sample(c->goodput, c->traffic, loop_now_ns(c->loop));
    timer_set(c->loop, &c->sample, SAMPLE_NS);
}

/* Blocked in every thread; the loop reads them as a descriptor. */
static enum weir_err take_signals(struct control *c, struct error *err)
{
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&c->signal_set);
    int wanted[] = {SIGHUP, SIGUSR1, SIGTERM, SIGINT};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        sigaddset(&c->signal_set, wanted[i]);
    }
    pthread_sigmask(SIG_BLOCK, &c->signal_set, NULL);
    int fd = signalfd(-1, &c->signal_set, SFD_CLOEXEC | SFD_NONBLOCK);
    c->signals.on_event = on_signal;
    if (fd < 0 || loop_add_level(c->loop, &c->signals, fd, LOOP_READ) != WEIR_OK) {
        return error_set_errno(err, errno, "cannot watch signals");
    }
    return WEIR_OK;
}

/* ---- the beginning ---- */

static enum weir_err open_log(struct control *c, struct error *err)
{
    if (!c->config->access_log) {
        return WEIR_OK;
    }
    return access_log_open(c->config->access_log,
                           c->config->access_log_json ? ACCESS_LOG_JSON : ACCESS_LOG_TEXT,
                           c->worker_count, &c->access_log, err);
}

static enum weir_err open_listener(const char *text, size_t count, int *sockets, struct error *err)
{
    struct endpoint address;
    enum weir_err result = address_parse_listen(slice_str(text), &address, err);
    return result == WEIR_OK ? listener_open(&address, count, sockets, err) : result;
}

/* sockets[listener * worker_count + worker] */
static enum weir_err open_listeners(struct control *c, int *sockets, int *admin, struct error *err)
{
    enum weir_err result = WEIR_OK;
    for (size_t i = 0; i < c->config->listen_count && result == WEIR_OK; i++) {
        result = open_listener(c->config->listen[i], c->worker_count, sockets + i * c->worker_count,
                               err);
    }
    *admin = -1;
    if (result == WEIR_OK && c->config->admin_listen) {
        result = open_listener(c->config->admin_listen, 1, admin, err);
    }
    return result;
}

static enum weir_err make_worker(struct control *c, size_t index, const int *sockets,
                                 struct error *err)
{
    size_t count = c->config->listen_count;
    int *own = heap_alloc(count * sizeof *own);
    for (size_t i = 0; i < count; i++) {
        own[i] = sockets[i * c->worker_count + index];
    }
    c->workers[index] = worker_new(
        &(struct worker_options){
            .index = index,
            .worker_count = c->worker_count,
            .config = c->config,
            .sockets = own,
            .socket_count = count,
            .fleet = c->fleet,
            .access_log = c->access_log ? access_log_ring(c->access_log, index) : NULL,
            .is_ready = &c->is_ready,
            .control_loop = c->loop,
            .on_done = on_worker_done,
            .ctx = c,
        },
        err);
    heap_free(own);
    return c->workers[index] ? WEIR_OK : WEIR_EIO;
}

static enum weir_err start_workers(struct control *c, const int *sockets, struct error *err)
{
    enum weir_err result = WEIR_OK;
    for (size_t i = 0; i < c->worker_count && result == WEIR_OK; i++) {
        result = make_worker(c, i, sockets, err);
    }
    for (size_t i = 0; i < c->worker_count && result == WEIR_OK; i++) {
        result = worker_start(c->workers[i], err);
        c->started_count += result == WEIR_OK;
    }
    return result;
}

static enum weir_err start_watching(struct control *c, struct error *err)
{
    c->fetcher = fetcher_new(c->loop, err);
    c->resolver = c->fetcher ? resolver_new(c->loop, err) : NULL;
    if (!c->resolver) {
        return WEIR_EIO;
    }
    struct prober_rules rules = settings_of_prober(c->config);
    struct prober_hooks hooks = {
        .on_state = on_replica_state, .on_address = on_replica_address, .ctx = c};
    c->prober = prober_new(c->loop, c->fetcher, c->resolver, &rules, &hooks);
    prober_set_fleet(c->prober, c->fleet);
    if (c->launches) {
        struct launches_hooks launch_hooks = {.on_change = on_launch_change, .ctx = c};
        enum weir_err result = launches_attach(c->launches, c->loop, &launch_hooks, err);
        if (result != WEIR_OK) {
            return result;
        }
        launches_apply(c->launches, c->config, c->fleet);
    }
    c->sample.on_fire = on_sample;
    c->drain.on_fire = on_drain_timer;
    goodput_sample(c->goodput, c->traffic, c->started_ns); /* what the first second brings counts */
    timer_set(c->loop, &c->sample, SAMPLE_NS);
    return WEIR_OK;
}

static void say_addresses(const struct control *c, const int *sockets, int admin)
{
    char text[160];
    struct endpoint address = {0};
    for (size_t i = 0; i < c->config->listen_count; i++) {
        listener_address(sockets[i * c->worker_count], &address);
        address_format(&address, text, sizeof text);
        log_info("listen", "%s for clients, %zu worker(s)", text, c->worker_count);
    }
    if (admin >= 0) {
        listener_address(admin, &address);
        address_format(&address, text, sizeof text);
        log_info("listen", "%s for the admin API and /metrics", text);
    }
}

static enum weir_err start(struct control *c, struct error *err)
{
    enum weir_err result = wants_launches(c->config) ? launches_new(&c->launches, err) : WEIR_OK;
    if (result != WEIR_OK) {
        return result;
    }
    c->loop = loop_new(err);
    if (!c->loop || take_signals(c, err) != WEIR_OK) {
        return WEIR_EIO;
    }
    c->traffic = traffic_registry_new(c->worker_count);
    c->goodput = goodput_table_new();
    c->answers = answer_book_new();
    c->fleet = build_fleet(c, c->config, err);
    if (!c->fleet) {
        return WEIR_EINVAL;
    }
    c->generation = c->fleet->generation;
    int admin = -1;
    int *sockets = heap_zalloc(c->config->listen_count * c->worker_count * sizeof *sockets);
    result = open_log(c, err);
    if (result == WEIR_OK) {
        result = open_listeners(c, sockets, &admin, err);
    }
    if (result == WEIR_OK) {
        c->is_listening = true;
        result = start_watching(c, err);
    }
    if (result == WEIR_OK && admin >= 0) {
        result = admin_start(&c->admin, c, c->loop, admin, err);
        c->has_admin = result == WEIR_OK;
    }
    if (result == WEIR_OK) {
        say_addresses(c, sockets, admin);
        result = start_workers(c, sockets, err);
    }
    heap_free(sockets);
    return result;
}

static void clean_up_listeners(const struct control *c)
{
    struct endpoint address;
    for (size_t i = 0; i < c->config->listen_count; i++) {
        if (address_parse_listen(slice_str(c->config->listen[i]), &address, NULL) == WEIR_OK) {
            listener_cleanup(&address);
        }
    }
    if (c->has_admin &&
        address_parse_listen(slice_str(c->config->admin_listen), &address, NULL) == WEIR_OK) {
        listener_cleanup(&address);
    }
}

static void stop(struct control *c)
{
    for (size_t i = 0; i < c->worker_count; i++) {
        if (c->workers[i]) {
            worker_join(c->workers[i]);
            worker_free(c->workers[i]);
        }
    }
    access_log_close(c->access_log);
    if (c->is_listening) {
        clean_up_listeners(c);
    }
    if (c->has_admin) {
        admin_stop(&c->admin);
    }
    if (c->launches) {
        launches_free(c->launches);
    }
    if (c->prober) {
        prober_free(c->prober);
    }
    if (c->resolver) {
        resolver_free(c->resolver);
    }
    if (c->fetcher) {
        fetcher_free(c->fetcher);
    }
    if (c->loop) {
        loop_close(&c->signals);
        loop_free(c->loop);
    }
    if (c->fleet) {
        fleet_drop(c->fleet);
    }
    if (c->answers) {
        answer_book_free(c->answers);
        goodput_table_free(c->goodput);
        traffic_registry_free(c->traffic);
    }
    config_free(c->config);
    heap_free(c->workers);
    heap_free(c->counters);
}

enum weir_err control_run(const struct control_options *options, struct error *err)
{
    struct control *c = heap_zalloc(sizeof *c);
    c->config = options->config;
    c->words = options->words;
    c->started_ns = clock_now_ns();
    c->started_wall_ns = options->started_wall_ns;
    c->signals.fd = -1;
    c->worker_count = c->config->workers;
    c->workers = heap_zalloc(c->worker_count * sizeof(struct worker *));
    c->counters = heap_zalloc(c->worker_count * sizeof *c->counters);
    log_setup(c->config->log_level, c->config->log_json);
    enum weir_err result = start(c, err);
    if (result == WEIR_OK) {
        loop_run(c->loop);
        log_info("end", "all requests have ended");
    } else {
        end_now(c);
    }
    stop(c);
    heap_free(c);
    return result;
}
