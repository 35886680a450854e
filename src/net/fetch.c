#include "net/fetch.h"
#include <errno.h>

#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>

#include <curl/curl.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/endpoint.h"
#include "base/heap.h"
#include "net/address.h"
#include "net/loop.h"

enum { SERVER_MAX = 64, AUTHORIZATION_MAX = 8 << 10 };

/* A descriptor of curl's in the loop. */
struct watch {
    struct loop_fd fd; /* first: the loop hands it back */
    struct fetcher *fetcher;
    struct watch *next_dead;
};

struct fetcher {
    struct loop *loop;
    CURLM *multi;
    struct timer timer; /* curl has one timer for all */
    struct fetch *running;
    struct watch *dead; /* freed at the end of the turn, as the loop asks */
};

struct fetch {
    struct fetcher *fetcher;
    struct fetch *next, *prev;
    CURL *easy;
    fetch_fn fn;
    void *ctx;
    struct curl_slist *connect_to;
    struct curl_slist header; /* of one line, ours: a secret that is cleared */
    size_t header_size;
    struct buf body;
    bool is_too_long, is_over;
    size_t server_len;
    char server[SERVER_MAX];
    char address[128]; /* of the endpoint, for people; "": the URL says it */
    char error[CURL_ERROR_SIZE];
};

static void curl_once(void)
{
    if (curl_global_init(CURL_GLOBAL_ALL) != CURLE_OK)
        WEIR_BUG("libcurl cannot be initialised");
}

/* The end of a fetch */

static void unlink_fetch(struct fetch *fetch)
{
    if (fetch->prev)
        fetch->prev->next = fetch->next;
    else
        fetch->fetcher->running = fetch->next;
    if (fetch->next)
        fetch->next->prev = fetch->prev;
    curl_multi_remove_handle(fetch->fetcher->multi, fetch->easy);
}

static void free_fetch(struct fetch *fetch)
{
    curl_easy_cleanup(fetch->easy);
    curl_slist_free_all(fetch->connect_to);
    heap_free_secret(fetch->header.data, fetch->header_size);
    buf_free(&fetch->body);
    heap_free(fetch);
}

/* The errno of a connect that failed; 0: it did not, or the reason is not known. */
static int connect_errno(const struct fetch *fetch, CURLcode code)
{
    long os_error = 0;
    if (code != CURLE_COULDNT_CONNECT ||
        curl_easy_getinfo(fetch->easy, CURLINFO_OS_ERRNO, &os_error) != CURLE_OK)
        return 0;
    return (int)os_error;
}

static const char *failure_text(struct fetch *fetch, CURLcode code)
{
    int os_error = connect_errno(fetch, code);
    struct error err;
    if (fetch->is_too_long)
        return "the answer is longer than it may be";
    if (os_error && fetch->address[0]) {
        /* curl names the URL's host and not the reason */
        error_set_errno(&err, os_error, "cannot connect to %s", fetch->address);
        snprintf(fetch->error, sizeof fetch->error, "%s", err.text);
    }
    return fetch->error[0] ? fetch->error : curl_easy_strerror(code);
}

static void finish(struct fetch *fetch, CURLcode code)
{
    long status = 0;
    if (code == CURLE_OK)
        curl_easy_getinfo(fetch->easy, CURLINFO_RESPONSE_CODE, &status);
    struct fetch_answer answer = {
        .status = (int)status,
        .body = status ? buf_slice(&fetch->body) : (struct slice){0},
        .server = slice_of(fetch->server, fetch->server_len),
        .text = status ? "" : failure_text(fetch, code),
        .refused = connect_errno(fetch, code) == ECONNREFUSED,
    };
    unlink_fetch(fetch);
    fetch->is_over = true;
    fetch->fn(fetch->ctx, &answer);
    free_fetch(fetch);
}

/* Outside of curl's callbacks, so that ours may start and cancel fetches. */
static void harvest(struct fetcher *f)
{
    int left;
    CURLMsg *message;
    while ((message = curl_multi_info_read(f->multi, &left))) {
        if (message->msg != CURLMSG_DONE)
            continue;
        void *fetch = NULL;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &fetch);
        finish(fetch, code);
    }
}

/* Between curl and the loop */

static void advance(struct fetcher *f, curl_socket_t fd, int bits)
{
    int running;
    curl_multi_socket_action(f->multi, fd, bits, &running);
    harvest(f);
}

static void on_event(struct loop_fd *fd, unsigned events)
{
    struct watch *watch = (struct watch *)fd;
    int bits = (events & (LOOP_READ | LOOP_HANGUP) ? CURL_CSELECT_IN : 0) |
               (events & LOOP_WRITE ? CURL_CSELECT_OUT : 0) |
               (events & LOOP_ERROR ? CURL_CSELECT_ERR : 0);
    advance(watch->fetcher, fd->fd, bits);
}

static void on_timer(struct timer *timer)
{
    struct fetcher *f = (struct fetcher *)((char *)timer - offsetof(struct fetcher, timer));
    advance(f, CURL_SOCKET_TIMEOUT, 0);
}

static int want_timer(CURLM *multi, long timeout_ms, void *ctx)
{
    struct fetcher *f = ctx;
    if (timeout_ms < 0)
        timer_cancel(f->loop, &f->timer);
    else
        timer_set(f->loop, &f->timer, (uint64_t)timeout_ms * NS_PER_MS);
    return 0;
}

static void drop_watch(struct fetcher *f, struct watch *watch)
{
    loop_remove(f->loop, &watch->fd);
    watch->next_dead = f->dead;
    f->dead = watch;
}

static int want_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *socket_ctx)
{
    struct fetcher *f = ctx;
    struct watch *watch = socket_ctx;
    if (what == CURL_POLL_REMOVE) {
        if (watch)
            drop_watch(f, watch);
        curl_multi_assign(f->multi, fd, NULL);
        return 0;
    }
    unsigned events =
        (what & CURL_POLL_IN ? LOOP_READ : 0u) | (what & CURL_POLL_OUT ? LOOP_WRITE : 0u);
    if (watch)
        return loop_change_level(f->loop, &watch->fd, events) == WEIR_OK ? 0 : -1;
    watch = heap_zalloc(sizeof *watch);
    watch->fetcher = f;
    watch->fd = (struct loop_fd){.fd = -1, .on_event = on_event};
    if (loop_add_level(f->loop, &watch->fd, fd, events) != WEIR_OK) {
        heap_free(watch);
        return -1;
    }
    curl_multi_assign(f->multi, fd, watch);
    return 0;
}

static void free_dead(void *ctx)
{
    struct fetcher *f = ctx;
    while (f->dead) {
        struct watch *next = f->dead->next_dead;
        heap_free(f->dead);
        f->dead = next;
    }
}

struct fetcher *fetcher_new(struct loop *loop, struct error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, curl_once);
    CURLM *multi = curl_multi_init();
    if (!multi) {
        error_set(err, WEIR_EIO, "libcurl refused to make a transfer handle");
        return NULL;
    }
    struct fetcher *f = heap_zalloc(sizeof *f);
    f->loop = loop;
    f->multi = multi;
    f->timer.on_fire = on_timer;
    curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, want_socket);
    curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, f);
    curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, want_timer);
    curl_multi_setopt(multi, CURLMOPT_TIMERDATA, f);
    loop_at_turn_end(loop, free_dead, f);
    return f;
}

void fetcher_free(struct fetcher *f)
{
    while (f->running) {
        struct fetch *fetch = f->running;
        unlink_fetch(fetch);
        free_fetch(fetch);
    }
    curl_multi_cleanup(f->multi);
    timer_cancel(f->loop, &f->timer);
    free_dead(f);
    heap_free(f);
}

/* What curl reads */

static size_t on_body(char *bytes, size_t size, size_t count, void *ctx)
{
    struct fetch *fetch = ctx;
    if (buf_append(&fetch->body, slice_of(bytes, size * count)) == WEIR_OK)
        return size * count;
    fetch->is_too_long = true;
    return 0; /* ends the transfer */
}

static size_t on_header(char *bytes, size_t size, size_t count, void *ctx)
{
    struct fetch *fetch = ctx;
    struct slice line = slice_of(bytes, size * count);
    struct slice name = SLICE("server:");
    if (line.len < name.len || !slice_eq_nocase(slice_of(bytes, name.len), name))
        return line.len;
    struct slice value = slice_from(line, name.len);
    while (value.len && (value.ptr[value.len - 1] == '\n' || value.ptr[value.len - 1] == '\r'))
        value.len--;
    value = slice_trim(value);
    fetch->server_len = value.len < SERVER_MAX ? value.len : SERVER_MAX;
    if (fetch->server_len)
        memcpy(fetch->server, value.ptr, fetch->server_len);
    return line.len;
}

/* The start of a fetch */

static void set_endpoint(struct fetch *fetch, const struct endpoint *endpoint)
{
    char route[sizeof fetch->address + 2];
    address_format(endpoint, fetch->address, sizeof fetch->address);
    if (endpoint->family == AF_UNIX) {
        curl_easy_setopt(fetch->easy, CURLOPT_UNIX_SOCKET_PATH,
                         fetch->address + sizeof "unix:" - 1);
        return;
    }
    snprintf(route, sizeof route, "::%s", fetch->address); /* any host, any port: there */
    fetch->connect_to = curl_slist_append(NULL, route);
    curl_easy_setopt(fetch->easy, CURLOPT_CONNECT_TO, fetch->connect_to);
}

static void set_authorization(struct fetch *fetch, const char *value)
{
    static const char name[] = "Authorization: ";
    size_t len = strnlen(value, AUTHORIZATION_MAX);
    fetch->header_size = sizeof name + len;
    fetch->header.data = heap_alloc(fetch->header_size);
    snprintf(fetch->header.data, fetch->header_size, "%s%.*s", name, (int)len, value);
    curl_easy_setopt(fetch->easy, CURLOPT_HTTPHEADER, &fetch->header);
}

static void set_options(struct fetch *fetch, const struct fetch_request *request)
{
    CURL *easy = fetch->easy;
    long timeout_ms = (long)((request->timeout_ns + NS_PER_MS - 1) / NS_PER_MS);
    curl_easy_setopt(easy, CURLOPT_URL, request->url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, timeout_ms);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, timeout_ms);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "weir");
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, fetch->error);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, fetch);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, fetch);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, fetch);
    if (request->endpoint)
        set_endpoint(fetch, request->endpoint);
    if (request->authorization)
        set_authorization(fetch, request->authorization);
}

struct fetch *fetch_start(struct fetcher *f, const struct fetch_request *request, fetch_fn fn,
                          void *ctx)
{
    struct fetch *fetch = heap_zalloc(sizeof *fetch);
    *fetch = (struct fetch){.fetcher = f, .fn = fn, .ctx = ctx, .easy = curl_easy_init()};
    if (!fetch->easy)
        WEIR_BUG("out of memory: libcurl refused a handle");
    buf_init(&fetch->body, request->max_body);
    set_options(fetch, request);
    fetch->next = f->running;
    if (f->running)
        f->running->prev = fetch;
    f->running = fetch;
    curl_multi_add_handle(f->multi, fetch->easy); /* starts from the loop, by curl's timer */
    return fetch;
}

struct fetch *fetch_get(struct fetcher *f, const char *url, const char *authorization,
                        uint64_t timeout_ns, size_t max_body, fetch_fn fn, void *ctx)
{
    struct fetch_request request = {
        .url = url, .authorization = authorization, .timeout_ns = timeout_ns, .max_body = max_body};
    return fetch_start(f, &request, fn, ctx);
}

void fetch_cancel(struct fetch *fetch)
{
    if (fetch->is_over)
        return;
    unlink_fetch(fetch);
    free_fetch(fetch);
}
