#include "net/resolve.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>

#include <ares.h>

#include "base/clock.h"
#include "base/heap.h"
#include "net/loop.h"

enum { QUERY_TIMEOUT_MS = 2000, QUERY_TRIES = 2 };

/*
 * A TTL of 0 ("do not keep this") or of the hosts file must not make a storm of questions, and one
 * of a day must not hold an address that has gone for so long.
 */
#define TTL_MIN_NS     (1 * NS_PER_S)
#define TTL_MAX_NS     (300 * NS_PER_S)
#define TTL_UNKNOWN_NS (5 * NS_PER_S)

struct watch {
    struct loop_fd fd; /* first: the loop hands it back */
    struct resolver *resolver;
    struct watch *next; /* of those in use, or of the dead */
};

struct resolver {
    struct loop *loop;
    ares_channel channel;
    struct timer timer;   /* when c-ares wants to look at its time-outs */
    struct timer deliver; /* answers that c-ares had at once still come from the loop */
    struct resolve *running;
    struct watch *watches, *dead;
    bool is_ending;
};

struct resolve {
    struct resolver *resolver;
    struct resolve *next, *prev;
    resolve_fn
        fn; /* NULL: cancelled; c-ares cannot forget a question, so it stays until answered */
    void *ctx;
    bool is_answered, is_over;
    size_t count;
    uint64_t ttl_ns;
    struct endpoint endpoints[RESOLVE_MAX_ENDPOINTS];
    char text[160];
    char host[256];
};

static void ares_once(void)
{
    if (ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS)
        WEIR_BUG("c-ares cannot be initialised");
}

/* Between c-ares and the loop */

static void rearm(struct resolver *r)
{
    struct timeval longest = {.tv_sec = 60}, left;
    const struct timeval *wait = ares_timeout(r->channel, &longest, &left);
    timer_set(r->loop, &r->timer,
              (uint64_t)wait->tv_sec * NS_PER_S + (uint64_t)wait->tv_usec * NS_PER_US);
}

static void process(struct resolver *r, ares_socket_t readable, ares_socket_t writable)
{
    ares_process_fd(r->channel, readable, writable);
    if (r->running)
        rearm(r);
    else
        timer_cancel(r->loop, &r->timer);
}

static void on_event(struct loop_fd *fd, unsigned events)
{
    struct watch *watch = (struct watch *)fd;
    bool is_readable = events & (LOOP_READ | LOOP_HANGUP | LOOP_ERROR);
    process(watch->resolver, is_readable ? fd->fd : ARES_SOCKET_BAD,
            events & LOOP_WRITE ? fd->fd : ARES_SOCKET_BAD);
}

static void on_timer(struct timer *timer)
{
    struct resolver *r = (struct resolver *)((char *)timer - offsetof(struct resolver, timer));
    process(r, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
}

static struct watch **find_watch(struct resolver *r, int fd)
{
    struct watch **at = &r->watches;
    while (*at && (*at)->fd.fd != fd)
        at = &(*at)->next;
    return at;
}

static void want_socket(void *ctx, ares_socket_t fd, int readable, int writable)
{
    struct resolver *r = ctx;
    struct watch **at = find_watch(r, fd);
    struct watch *watch = *at;
    unsigned events = (readable ? LOOP_READ : 0u) | (writable ? LOOP_WRITE : 0u);
    if (watch && events) {
        (void)!loop_change_level(r->loop, &watch->fd, events); /* else the time-out ends it */
    } else if (watch) {
        loop_remove(r->loop, &watch->fd);
        *at = watch->next;
        watch->next = r->dead;
        r->dead = watch;
    } else if (events) {
        watch = heap_zalloc(sizeof *watch);
        *watch = (struct watch){.fd = {.fd = -1, .on_event = on_event}, .resolver = r};
        if (loop_add_level(r->loop, &watch->fd, fd, events) != WEIR_OK) {
            heap_free(watch); /* the question times out, and says so */
            return;
        }
        watch->next = r->watches;
        r->watches = watch;
    }
}

static void free_dead(void *ctx)
{
    struct resolver *r = ctx;
    while (r->dead) {
        struct watch *next = r->dead->next;
        heap_free(r->dead);
        r->dead = next;
    }
}

/* Answers */

static void unlink_resolve(struct resolve *resolve)
{
    if (resolve->prev)
        resolve->prev->next = resolve->next;
    else
        resolve->resolver->running = resolve->next;
    if (resolve->next)
        resolve->next->prev = resolve->prev;
}

static void on_deliver(struct timer *timer)
{
    struct resolver *r = (struct resolver *)((char *)timer - offsetof(struct resolver, deliver));
    struct resolve *resolve = r->running;
    while (resolve) {
        if (!resolve->is_answered) {
            resolve = resolve->next;
            continue;
        }
        unlink_resolve(resolve);
        resolve->is_over = true;
        struct resolve_answer answer = {resolve->endpoints, resolve->count, resolve->ttl_ns,
                                        resolve->text};
        if (resolve->fn)
            resolve->fn(resolve->ctx, &answer);
        heap_free(resolve);
        resolve = r->running; /* the callback may have changed the list */
    }
}

static uint64_t bounded_ttl(int ttl_s)
{
    uint64_t ttl = ttl_s > 0 ? (uint64_t)ttl_s * NS_PER_S : TTL_UNKNOWN_NS;
    return ttl < TTL_MIN_NS ? TTL_MIN_NS : ttl > TTL_MAX_NS ? TTL_MAX_NS : ttl;
}

static void add_endpoint(struct resolve *resolve, const struct ares_addrinfo_node *node)
{
    bool is_ip = node->ai_family == AF_INET || node->ai_family == AF_INET6;
    struct endpoint *e = &resolve->endpoints[resolve->count];
    if (!is_ip || node->ai_addrlen > sizeof e->bytes || resolve->count == RESOLVE_MAX_ENDPOINTS)
        return;
    *e = (struct endpoint){.length = node->ai_addrlen, .family = (uint32_t)node->ai_family};
    memcpy(e->bytes, node->ai_addr, node->ai_addrlen);
    uint64_t ttl = bounded_ttl(node->ai_ttl);
    if (resolve->count == 0 || ttl < resolve->ttl_ns)
        resolve->ttl_ns = ttl;
    resolve->count++;
}

static void on_answer(void *ctx, int status, int timeouts, struct ares_addrinfo *result)
{
    struct resolve *resolve = ctx;
    if (resolve->resolver->is_ending) /* resolver_free() has the list in hand */
        return;
    for (struct ares_addrinfo_node *n = result ? result->nodes : NULL; n; n = n->ai_next)
        add_endpoint(resolve, n);
    if (result)
        ares_freeaddrinfo(result);
    if (resolve->count == 0)
        snprintf(resolve->text, sizeof resolve->text, "cannot resolve %.80s: %s", resolve->host,
                 status == ARES_SUCCESS ? "it has no address" : ares_strerror(status));
    resolve->is_answered = true;
    timer_set(resolve->resolver->loop, &resolve->resolver->deliver, 0);
}

struct resolver *resolver_new(struct loop *loop, struct error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ares_once);
    struct resolver *r = heap_zalloc(sizeof *r);
    r->loop = loop;
    r->timer.on_fire = on_timer;
    r->deliver.on_fire = on_deliver;
    struct ares_options options = {.timeout = QUERY_TIMEOUT_MS,
                                   .tries = QUERY_TRIES,
                                   .sock_state_cb = want_socket,
                                   .sock_state_cb_data = r};
    int mask = ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB;
    int rc = ares_init_options(&r->channel, &options, mask);
    if (rc != ARES_SUCCESS) {
        error_set(err, WEIR_EIO, "cannot set up name resolution: %s", ares_strerror(rc));
        heap_free(r);
        return NULL;
    }
    loop_at_turn_end(loop, free_dead, r);
    return r;
}

void resolver_free(struct resolver *r)
{
    r->is_ending = true;
    ares_destroy(r->channel); /* answers every question with "ending" and closes its sockets */
    timer_cancel(r->loop, &r->timer);
    timer_cancel(r->loop, &r->deliver);
    while (r->running) {
        struct resolve *resolve = r->running;
        unlink_resolve(resolve);
        heap_free(resolve);
    }
    free_dead(r);
    heap_free(r);
}

struct resolve *resolve_start(struct resolver *r, struct slice host, uint16_t port, resolve_fn fn,
                              void *ctx)
{
    struct resolve *resolve = heap_zalloc(sizeof *resolve);
    resolve->resolver = r;
    resolve->fn = fn;
    resolve->ctx = ctx;
    resolve->next = r->running;
    if (r->running)
        r->running->prev = resolve;
    r->running = resolve;
    if (host.len >= sizeof resolve->host) {
        on_answer(resolve, ARES_EBADNAME, 0, NULL);
        return resolve;
    }
    memcpy(resolve->host, host.ptr, host.len);
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    struct ares_addrinfo_hints hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = ARES_AI_NUMERICSERV};
    ares_getaddrinfo(r->channel, resolve->host, service, &hints, on_answer, resolve);
    rearm(r);
    return resolve;
}

void resolve_cancel(struct resolve *resolve)
{
    if (!resolve->is_over)
        resolve->fn = NULL;
}
