#include "gateway/prober.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/map.h"
#include "base/rng.h"
#include "gateway/interview.h"
#include "model/fleet.h"
#include "net/address.h"
#include "net/loop.h"
#include "net/resolve.h"

enum { MAX_ROUNDS = 64, MAX_SUSPECT_ROUNDS = 32 };

/* A replica that was just added or started is asked this often, for so long. */
#define YOUNG_INTERVAL_NS (500 * NS_PER_MS)
#define YOUNG_NS          (120 * NS_PER_S)

/* A name that did not resolve is tried again so soon. */
#define RESOLVE_RETRY_NS (5 * NS_PER_S)

#define STORE(field, value) atomic_store_explicit(&(field), value, memory_order_relaxed)
#define LOAD(field)         atomic_load_explicit(&(field), memory_order_relaxed)

enum probe_step {
    STEP_IDLE,   /* its timer is armed */
    STEP_QUEUED, /* due; in one of the two queues */
    STEP_RESOLVE,
    STEP_DETECT,
    STEP_HEALTH,
    STEP_ONCE,
    STEP_SCRAPE
};

/* One replica under watch. */
struct probe {
    struct interview interview; /* first: it hands itself back */
    struct prober *prober;
    struct replica *replica; /* a reference */
    struct timer timer;
    struct probe *next_queued;
    enum probe_step step;
    bool is_suspect_round; /* counted among MAX_SUSPECT_ROUNDS */
    bool was_asked;        /* the `once` questions were answered */
    bool is_detected;      /* the engine's kind is sure */
    bool has_spread;       /* its rounds have left the crowd they came with */
    uint64_t mark;         /* generation of prober_set_fleet() that has it */

    struct base_url url; /* of the replica's name; slices point into it */
    bool is_name;        /* must be resolved */
    struct resolve *resolve;
    uint64_t resolve_due_ns;
    char no_address[160]; /* why there is none, while there is none */

    struct health_streak streak;
    struct engine_facts *facts; /* during a round only: they are large */
    uint64_t young_until_ns;
    uint64_t round_ns, check_started_ns;
    uint64_t checked_ns, took_ns, changed_ns;
    uint64_t checks, failed_checks;
    char why[160];
    char version[ENGINE_VERSION_MAX];
    char *models;
};

struct queue {
    struct probe *first, **last;
};

struct prober {
    struct loop *loop;
    struct fetcher *fetcher;
    struct resolver *resolver;
    struct prober_rules rules;
    struct prober_hooks hooks;
    struct rng rng;
    struct map by_id; /* bytes of replica->id -> struct probe * */
    struct probe **probes;
    size_t count, capacity;
    uint64_t mark;
    struct queue trusted, suspect;
    size_t rounds, suspect_rounds;
    bool is_starting; /* in start_queued(), which a round that ends at once must not nest in */
};

static struct probe *probe_of(struct interview *iv)
{
    return (struct probe *)iv;
}

static struct slice id_key(const struct replica *r)
{
    return slice_of((const char *)&r->id, sizeof r->id);
}

static uint64_t now(const struct prober *p)
{
    return loop_now_ns(p->loop);
}

/* Queues */

static void queue_push(struct queue *q, struct probe *probe)
{
    probe->next_queued = NULL;
    *q->last = probe;
    q->last = &probe->next_queued;
}

static struct probe *queue_pop(struct queue *q)
{
    struct probe *probe = q->first;
    if (!probe)
        return NULL;
    q->first = probe->next_queued;
    if (!q->first)
        q->last = &q->first;
    return probe;
}

static void queue_remove(struct queue *q, const struct probe *probe)
{
    struct probe **at = &q->first;
    while (*at && *at != probe)
        at = &(*at)->next_queued;
    if (!*at)
        return;
    *at = probe->next_queued;
    if (!*at)
        q->last = at;
}

/* Rounds: begin, and leave room for the next */

static void begin_round(struct probe *probe);

/* The next that may begin; who has not failed us goes first. */
static struct probe *take_queued(struct prober *p)
{
    if (p->rounds >= MAX_ROUNDS)
        return NULL;
    struct probe *probe = queue_pop(&p->trusted);
    if (probe)
        return probe;
    probe = p->suspect_rounds < MAX_SUSPECT_ROUNDS ? queue_pop(&p->suspect) : NULL;
    if (probe) {
        probe->is_suspect_round = true;
        p->suspect_rounds++;
    }
    return probe;
}

static void start_queued(struct prober *p)
{
    if (p->is_starting)
        return;
    p->is_starting = true;
    struct probe *probe;
    while ((probe = take_queued(p))) {
        p->rounds++;
        begin_round(probe);
    }
    p->is_starting = false;
}

static void enqueue(struct probe *probe)
{
    struct prober *p = probe->prober;
    probe->step = STEP_QUEUED;
    timer_cancel(p->loop, &probe->timer);
    bool is_trusted = probe->checks == 0 || replica_state(probe->replica) == REPLICA_READY;
    queue_push(is_trusted ? &p->trusted : &p->suspect, probe);
}

static void on_due(struct timer *timer)
{
    struct probe *probe = (struct probe *)((char *)timer - offsetof(struct probe, timer));
    enqueue(probe);
    start_queued(probe->prober);
}

static uint64_t pause_of(struct probe *probe)
{
    struct prober *p = probe->prober;
    uint64_t interval = p->rules.interval_ns;
    enum replica_state state = replica_state(probe->replica);
    bool is_coming = state == REPLICA_LOADING || state == REPLICA_UNKNOWN ||
                     (state == REPLICA_DOWN && now(p) < probe->young_until_ns);
    if (is_coming)
        return interval < YOUNG_INTERVAL_NS ? interval : YOUNG_INTERVAL_NS;
    if (!probe->has_spread) { /* all were asked at once; from here on they part */
        probe->has_spread = true;
        return (uint64_t)((double)interval * rng_unit(&p->rng));
    }
    return (uint64_t)((double)interval * (0.95 + 0.1 * rng_unit(&p->rng)));
}

static void leave_round(struct probe *probe)
{
    struct prober *p = probe->prober;
    heap_free(probe->facts);
    probe->facts = NULL;
    probe->step = STEP_IDLE;
    p->rounds--;
    p->suspect_rounds -= probe->is_suspect_round;
    probe->is_suspect_round = false;
}

static void end_round(struct probe *probe)
{
    struct prober *p = probe->prober;
    uint64_t pause = pause_of(probe);
    uint64_t took = now(p) - probe->round_ns;
    leave_round(probe);
    timer_set(p->loop, &probe->timer, pause > took ? pause - took : 0);
    start_queued(p);
}

/* States */

static void change_state(struct probe *probe, enum replica_state to)
{
    struct prober *p = probe->prober;
    struct replica *r = probe->replica;
    enum replica_state from = replica_state(r);
    if (from == to)
        return;
    STORE(r->state, to);
    probe->changed_ns = now(p);
    if (to == REPLICA_READY)
        probe->was_asked = false; /* perhaps it is another process by now */
    enum log_level level = to == REPLICA_DOWN ? LOG_WARN : LOG_INFO;
    log_line(level, "replica_state", "%s is %s (was %s): %s", r->name, replica_state_name(to),
             replica_state_name(from), probe->why);
    if (p->hooks.on_state)
        p->hooks.on_state(p->hooks.ctx, r, from, to, probe->why);
}

static void judge(struct probe *probe, enum replica_state seen, const char *why)
{
    struct prober *p = probe->prober;
    probe->checks++;
    probe->failed_checks += seen == REPLICA_DOWN;
    probe->checked_ns = now(p);
    probe->took_ns = now(p) - probe->check_started_ns;
    snprintf(probe->why, sizeof probe->why, "%s", why);
    if (seen == REPLICA_READY && LOAD(probe->replica->wants_drain)) {
        seen = REPLICA_DRAINING;
        snprintf(probe->why, sizeof probe->why, "it is being taken away");
    }
    STORE(probe->replica->refuses, seen == REPLICA_DOWN && probe->interview.refused);
    change_state(probe,
                 health_check(probe->replica, &probe->streak, &p->rules.health, seen, now(p)));
}

/* What the engine said */

static void note_restart(struct probe *probe, const struct engine_facts *f)
{
    if (f->has_load && f->prefix_queries < LOAD(probe->replica->report.prefix_queries))
        probe->was_asked = false; /* counters went back: asked again in the next round */
}

static void keep_report(struct probe *probe)
{
    const struct engine_facts *f = probe->facts;
    struct replica *r = probe->replica;
    if (f->kv_tokens)
        STORE(r->report.kv_tokens, f->kv_tokens);
    if (f->slots)
        STORE(r->report.slots, f->slots);
    if (!f->has_load)
        return;
    note_restart(probe, f);
    STORE(r->report.running, f->running);
    STORE(r->report.waiting, f->waiting);
    STORE(r->report.kv_used_ppm, f->kv_used_ppm);
    STORE(r->report.prefix_queries, f->prefix_queries);
    STORE(r->report.prefix_hits, f->prefix_hits);
    STORE(r->report.preemptions, f->preemptions);
    STORE(r->report.refusals, f->refusals);
    STORE(r->report.taken_ns, now(probe->prober));
}

static char *join_models(const struct engine_facts *f)
{
    size_t size = 1;
    for (size_t i = 0; i < f->model_count; i++)
        size += strlen(f->models[i]) + 2;
    char *text = heap_zalloc(size);
    for (size_t i = 0, at = 0; i < f->model_count; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%s", i ? ", " : "", f->models[i]);
    return text;
}

static void keep_identity(struct probe *probe)
{
    const struct engine_facts *f = probe->facts;
    if (probe->interview.answered == 0)
        return;
    probe->was_asked = true;
    snprintf(probe->version, sizeof probe->version, "%s", f->version);
    heap_free(probe->models);
    probe->models = join_models(f);
    STORE(probe->replica->max_context_tokens, f->max_context_tokens);
    const struct engine *engine = atomic_load(&probe->replica->engine);
    log_info("replica_facts", "%s: %s %s, models: %s; context %u tokens, %u slots",
             probe->replica->name, engine->name, f->version[0] ? f->version : "(no version)",
             f->model_count ? probe->models : "(none listed)", f->max_context_tokens, f->slots);
}

/* Steps of a round */

static void check_health(struct probe *probe)
{
    struct replica *r = probe->replica;
    probe->check_started_ns = now(probe->prober);
    if (!replica_endpoint_get(r, &probe->interview.endpoint)) {
        judge(probe, REPLICA_DOWN, probe->no_address);
        end_round(probe);
        return;
    }
    probe->interview.timeout_ns = probe->prober->rules.timeout_ns;
    if (r->detect_engine && !probe->is_detected) {
        probe->step = STEP_DETECT;
        interview_detect(&probe->interview);
        return;
    }
    probe->step = STEP_HEALTH;
    interview_health(&probe->interview, atomic_load(&r->engine));
}

static void ask_more(struct probe *probe)
{
    const struct engine *engine = atomic_load(&probe->replica->engine);
    if (replica_state(probe->replica) != REPLICA_READY) {
        end_round(probe);
        return;
    }
    probe->facts = heap_zalloc(sizeof *probe->facts);
    probe->step = probe->was_asked ? STEP_SCRAPE : STEP_ONCE;
    interview_ask(&probe->interview, probe->was_asked ? engine->scrape : engine->once,
                  probe->facts);
}

static void after_detect(struct probe *probe)
{
    struct interview *iv = &probe->interview;
    if (!iv->engine) {
        judge(probe, iv->seen, iv->why);
        end_round(probe);
        return;
    }
    probe->is_detected = true;
    atomic_store(&probe->replica->engine, iv->engine);
    log_info("replica_engine", "%s speaks as %s", probe->replica->name, iv->engine->name);
    probe->step = STEP_HEALTH;
    interview_health(iv, iv->engine);
}

static void after_once(struct probe *probe)
{
    keep_identity(probe);
    keep_report(probe);
    *probe->facts = (struct engine_facts){0};
    probe->step = STEP_SCRAPE;
    interview_ask(&probe->interview, atomic_load(&probe->replica->engine)->scrape, probe->facts);
}

static void on_done(struct interview *iv)
{
    struct probe *probe = probe_of(iv);
    switch (probe->step) {
    case STEP_DETECT:
        after_detect(probe);
        return;
    case STEP_HEALTH:
        judge(probe, iv->seen, iv->why);
        ask_more(probe);
        return;
    case STEP_ONCE:
        after_once(probe);
        return;
    case STEP_SCRAPE:
        if (iv->answered)
            keep_report(probe);
        end_round(probe);
        return;
    case STEP_IDLE:
    case STEP_QUEUED:
    case STEP_RESOLVE:
        WEIR_BUG("an interview of %s ended in step %d", probe->replica->name, (int)probe->step);
    }
}

/* Names */

static bool endpoint_eq(const struct endpoint *a, const struct endpoint *b)
{
    return a->family == b->family && a->length == b->length &&
           memcmp(a->bytes, b->bytes, a->length) == 0;
}

static bool still_listed(const struct resolve_answer *answer, const struct endpoint *current)
{
    for (size_t i = 0; i < answer->count; i++)
        if (endpoint_eq(&answer->endpoints[i], current))
            return true;
    return false;
}

static void move_to(struct probe *probe, const struct endpoint *to, const struct endpoint *from)
{
    char new_text[128], old_text[128];
    address_format(to, new_text, sizeof new_text);
    replica_endpoint_set(probe->replica, to);
    if (from->length == 0)
        return;
    address_format(from, old_text, sizeof old_text);
    log_info("replica_address", "%s has moved from %s to %s", probe->replica->name, old_text,
             new_text);
    if (probe->prober->hooks.on_address)
        probe->prober->hooks.on_address(probe->prober->hooks.ctx, probe->replica, from);
}

/* The address in use is kept while the name still has it: servers of names like to shuffle. */
static void on_resolved(void *ctx, const struct resolve_answer *answer)
{
    struct probe *probe = ctx;
    struct prober *p = probe->prober;
    struct endpoint current = {0};
    bool has_address = replica_endpoint_get(probe->replica, &current);
    probe->resolve = NULL;
    probe->resolve_due_ns = now(p) + (answer->count ? answer->ttl_ns : RESOLVE_RETRY_NS);
    if (answer->count == 0) {
        snprintf(probe->no_address, sizeof probe->no_address, "%s", answer->text);
        if (has_address) /* the server of names is not the engine: the last address stays */
            log_warn("replica_address", "%s: %s; the last address stays in use",
                     probe->replica->name, answer->text);
    } else if (!has_address || !still_listed(answer, &current)) {
        move_to(probe, &answer->endpoints[0], &current);
    }
    check_health(probe);
}

static void begin_round(struct probe *probe)
{
    struct prober *p = probe->prober;
    probe->round_ns = now(p);
    if (!probe->is_name || now(p) < probe->resolve_due_ns) {
        check_health(probe);
        return;
    }
    probe->step = STEP_RESOLVE;
    probe->resolve =
        resolve_start(p->resolver, probe->url.host, probe->url.port, on_resolved, probe);
}

/* Coming and going */

static void find_address(struct probe *probe)
{
    struct error err;
    struct endpoint endpoint;
    struct replica *r = probe->replica;
    if (base_url_parse(slice_str(r->name), &probe->url, &err) != WEIR_OK) {
        snprintf(probe->no_address, sizeof probe->no_address, "%.150s", err.text);
        return;
    }
    enum weir_err rc =
        address_from_host(probe->url.host, probe->url.port, probe->url.is_unix, &endpoint);
    probe->is_name = rc == WEIR_ENOTFOUND;
    if (rc == WEIR_OK)
        replica_endpoint_set(r, &endpoint);
}

static struct probe *add_probe(struct prober *p, struct replica *r)
{
    struct probe *probe = heap_zalloc(sizeof *probe);
    probe->prober = p;
    probe->replica = replica_hold(r);
    probe->timer.on_fire = on_due;
    probe->young_until_ns = now(p) + YOUNG_NS;
    probe->interview = (struct interview){
        .fetcher = p->fetcher,
        .authority = r->host,
        .path_prefix = r->path_prefix,
        .authorization = r->authorization,
        .done = on_done,
    };
    find_address(probe);
    if (p->count == p->capacity) {
        p->capacity = p->capacity ? p->capacity * 2 : 64;
        p->probes = heap_realloc(p->probes, p->capacity * sizeof(struct probe *));
    }
    p->probes[p->count++] = probe;
    map_set(&p->by_id, id_key(r), probe);
    enqueue(probe);
    return probe;
}

static void free_probe(struct probe *probe)
{
    struct prober *p = probe->prober;
    if (probe->step == STEP_QUEUED) {
        queue_remove(&p->trusted, probe);
        queue_remove(&p->suspect, probe);
    } else if (probe->step != STEP_IDLE) {
        interview_stop(&probe->interview);
        if (probe->resolve)
            resolve_cancel(probe->resolve);
        leave_round(probe);
    }
    timer_cancel(p->loop, &probe->timer);
    map_remove(&p->by_id, id_key(probe->replica));
    replica_drop(probe->replica);
    heap_free(probe->models);
    heap_free(probe);
}

static void sweep(struct prober *p)
{
    size_t kept = 0;
    for (size_t i = 0; i < p->count; i++) {
        if (p->probes[i]->mark == p->mark)
            p->probes[kept++] = p->probes[i];
        else
            free_probe(p->probes[i]);
    }
    p->count = kept;
}

void prober_set_fleet(struct prober *p, const struct fleet *fleet)
{
    p->mark++;
    for (size_t m = 0; m < fleet->model_count; m++) {
        for (size_t k = 0; k < fleet->models[m].pool_count; k++) {
            const struct pool *pool = &fleet->models[m].pools[k];
            for (size_t i = 0; i < pool->replica_count; i++) {
                struct probe *probe = map_get(&p->by_id, id_key(pool->replicas[i]));
                if (!probe)
                    probe = add_probe(p, pool->replicas[i]);
                probe->mark = p->mark;
            }
        }
    }
    sweep(p);
    start_queued(p);
}

struct prober *prober_new(struct loop *loop, struct fetcher *fetcher, struct resolver *resolver,
                          const struct prober_rules *rules, const struct prober_hooks *hooks)
{
    struct prober *p = heap_zalloc(sizeof *p);
    *p = (struct prober){.loop = loop, .fetcher = fetcher, .resolver = resolver, .rules = *rules};
    if (hooks)
        p->hooks = *hooks;
    p->trusted.last = &p->trusted.first;
    p->suspect.last = &p->suspect.first;
    uint64_t seed;
    rng_secret(&seed, sizeof seed); /* gateways must not ask in step */
    rng_seed(&p->rng, seed);
    return p;
}

void prober_free(struct prober *p)
{
    p->mark++; /* nobody has it: all go */
    sweep(p);
    map_free(&p->by_id);
    heap_free(p->probes);
    heap_free(p);
}

void prober_set_rules(struct prober *p, const struct prober_rules *rules)
{
    p->rules = *rules;
}

void prober_check_soon(struct prober *p, const struct replica *r)
{
    struct probe *probe = map_get(&p->by_id, id_key(r));
    if (!probe)
        return;
    probe->young_until_ns = now(p) + YOUNG_NS;
    if (probe->step != STEP_IDLE)
        return;
    enqueue(probe);
    start_queued(p);
}

/* For people */

size_t prober_count(const struct prober *p)
{
    return p->count;
}

static void fill_row(const struct probe *probe, struct prober_row *row)
{
    struct endpoint endpoint;
    *row = (struct prober_row){
        .replica = probe->replica,
        .state = replica_state(probe->replica),
        .why = probe->why,
        .version = probe->version,
        .models = probe->models ? probe->models : "",
        .checked_ns = probe->checked_ns,
        .took_ns = probe->took_ns,
        .changed_ns = probe->changed_ns,
        .checks = probe->checks,
        .failed_checks = probe->failed_checks,
    };
    if (replica_endpoint_get(probe->replica, &endpoint))
        address_format(&endpoint, row->address, sizeof row->address);
}

bool prober_snapshot(const struct prober *p, size_t index, struct prober_row *row)
{
    if (index >= p->count)
        return false;
    fill_row(p->probes[index], row);
    return true;
}

bool prober_find(const struct prober *p, const struct replica *r, struct prober_row *row)
{
    const struct probe *probe = map_get(&p->by_id, id_key(r));
    if (probe)
        fill_row(probe, row);
    return probe != NULL;
}
