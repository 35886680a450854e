/*
 * load.c - a client for benchmarks: sends chat requests to one address, reads the answers as a
 * careful client would, and prints what it saw as one JSON object.
 *
 * Closed loop: each connection sends its next request when the last one is answered. Open loop
 * (--rate): requests are due on a fixed grid and their times count from when they were due, also
 * when every connection was busy then, so that a slow server cannot hide behind a waiting client.
 *
 * A stream without [DONE], with an error event, with a status other than 200 or cut short is an
 * error. Times: to first content (for an answer that is not streamed: to its end), of the whole
 * answer, and the gaps between content events.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/heap.h"
#include "base/slice.h"
#include "process.h"
#include "response.h"
#include "samples.h"

enum { MAX_PIDS = 64, PROMPT_GROUPS = 16, NUMBER_DIGITS = 12, MAX_CONNECTIONS = 1 << 16 };

static struct {
    uint64_t port, connections, requests, rate;
    uint64_t duration_ms, warmup_ms, ramp_ms, timeout_s;
    uint64_t body_bytes, max_tokens, pace_us;
    int stream;
    pid_t pids[MAX_PIDS];
    size_t pid_count;
} options = {
    .connections = 1,
    .duration_ms = 1000,
    .timeout_s = 10,
    .body_bytes = 300,
    .max_tokens = 16,
};

struct conn {
    int fd; /* -1: not connected */
    bool is_busy, is_connecting, waits_for_room;
    uint64_t start_ns; /* when the request was due */
    uint64_t last_content_ns, last_read_ns;
    char *request; /* heap */
    size_t request_len, request_sent;
    char *number; /* into request: what makes it unique */
    struct response response;
};

/* The measured window: what happens outside of it is not counted. */
static struct {
    bool is_open;
    uint64_t begin_ns, end_ns;
    struct process_use before;
    uint64_t requests, content_events, body_bytes;
    uint64_t failed_connects, bad_statuses, cut_short, missing_done, error_events, timeouts;
    int last_bad_status;
    struct samples ttft, total, gap;
} window;

static int epoll_fd;
static struct sockaddr_in target;
static struct conn *conns;
static struct conn **idle; /* stack; open loop only */
static size_t idle_count;
static uint64_t sent_requests, next_due_ns;
static char scratch[1 << 18];

static void begin_request(struct conn *conn, uint64_t due_ns);

static void die(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- requests ---- */

/*
 * Head and body once per connection; only the number changes. Prompts of a group of connections
 * begin alike, as system prompts do.
 */
static void make_request(struct conn *conn, size_t index)
{
    static const char tail[] = "\"}]}", words[] = "The weir keeps the river level. ";
    char begin[512];
    int begin_len =
        snprintf(begin, sizeof(begin),
                 "{\"model\":\"bench\",\"max_tokens\":%llu,%s\"bench_pace_us\":%llu,\"messages\":["
                 "{\"role\":\"user\",\"content\":\"You are assistant %02zu. ",
                 (unsigned long long)options.max_tokens, options.stream ? "\"stream\":true," : "",
                 (unsigned long long)options.pace_us, index % PROMPT_GROUPS);
    size_t least = (size_t)begin_len + NUMBER_DIGITS + sizeof(tail) - 1;
    size_t body_len = options.body_bytes > least ? options.body_bytes : least;

    conn->request = heap_alloc(body_len + 512);
    int head_len = snprintf(conn->request, 512,
                            "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%llu\r\n"
                            "Accept: application/json\r\nContent-Type: application/json\r\n"
                            "User-Agent: weir-bench/1\r\nAuthorization: Bearer bench\r\n"
                            "Content-Length: %zu\r\n\r\n",
                            (unsigned long long)options.port, body_len);
    char *at = conn->request + head_len;
    memcpy(at, begin, (size_t)begin_len);
    at += begin_len;
    for (size_t i = 0; i < body_len - least; i++)
        *at++ = words[i % (sizeof(words) - 1)];
    conn->number = at;
    memcpy(at + NUMBER_DIGITS, tail, sizeof(tail) - 1);
    conn->request_len = (size_t)head_len + body_len;
}

static void number_request(struct conn *conn, uint64_t number)
{
    for (int i = NUMBER_DIGITS - 1; i >= 0; i--, number /= 10)
        conn->number[i] = (char)('0' + number % 10);
}

/* ---- connections ---- */

static bool watch(int op, struct conn *conn, bool for_room)
{
    struct epoll_event ev = {.events = EPOLLIN | (for_room ? EPOLLOUT : 0), .data.ptr = conn};
    conn->waits_for_room = for_room;
    return epoll_ctl(epoll_fd, op, conn->fd, &ev) == 0;
}

static void disconnect(struct conn *conn)
{
    if (conn->fd >= 0)
        close(conn->fd);
    conn->fd = -1;
    conn->is_connecting = conn->waits_for_room = false;
}

static bool begin_connect(struct conn *conn)
{
    conn->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (conn->fd < 0)
        die("socket");
    setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    conn->is_connecting = true;
    return (connect(conn->fd, (struct sockaddr *)&target, sizeof(target)) == 0 ||
            errno == EINPROGRESS) &&
           watch(EPOLL_CTL_ADD, conn, true);
}

static bool send_rest(struct conn *conn)
{
    while (conn->request_sent < conn->request_len) {
        ssize_t n = send(conn->fd, conn->request + conn->request_sent,
                         conn->request_len - conn->request_sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return conn->waits_for_room || watch(EPOLL_CTL_MOD, conn, true);
        if (n < 0)
            return false;
        conn->request_sent += (size_t)n;
    }
    return !conn->waits_for_room || watch(EPOLL_CTL_MOD, conn, false);
}

/* ---- one request, from begin to end ---- */

static bool may_send_more(void)
{
    return !options.requests || sent_requests < options.requests;
}

static void next_request(struct conn *conn, uint64_t now_ns)
{
    if (!may_send_more())
        return;
    if (!options.rate) {
        begin_request(conn, now_ns);
    } else if (next_due_ns <= now_ns) {
        uint64_t due_ns = next_due_ns;
        next_due_ns += NS_PER_S / options.rate;
        begin_request(conn, due_ns);
    } else {
        idle[idle_count++] = conn;
    }
}

/* Failed requests leave their connection unused for the rest: no storm of errors. */
static void fail(struct conn *conn, uint64_t *counter)
{
    if (window.is_open)
        (*counter)++;
    disconnect(conn);
    conn->is_busy = false;
}

static void begin_request(struct conn *conn, uint64_t due_ns)
{
    conn->is_busy = true;
    conn->start_ns = due_ns;
    conn->last_content_ns = 0;
    conn->last_read_ns = due_ns;
    conn->request_sent = 0;
    response_begin(&conn->response);
    number_request(conn, ++sent_requests);
    if (conn->fd < 0 && !begin_connect(conn))
        fail(conn, &window.failed_connects);
    else if (!conn->is_connecting && !send_rest(conn))
        fail(conn, &window.cut_short);
}

static void finish(struct conn *conn, uint64_t now_ns)
{
    const struct response *r = &conn->response;
    if (r->status != 200) {
        window.last_bad_status = r->status;
        fail(conn, &window.bad_statuses);
    } else if (r->saw_error) {
        fail(conn, &window.error_events);
    } else if (options.stream && !r->saw_done) {
        fail(conn, &window.missing_done);
    } else {
        if (window.is_open) {
            window.requests++;
            samples_add(&window.total, now_ns - conn->start_ns);
            if (!options.stream)
                samples_add(&window.ttft, now_ns - conn->start_ns);
        }
        conn->is_busy = false;
        if (!r->is_kept_alive)
            disconnect(conn);
        next_request(conn, now_ns);
    }
}

/* `count` content events arrived together: the first after a gap, the others at once. */
static void note_content(struct conn *conn, uint64_t count, uint64_t now_ns)
{
    bool is_first = conn->last_content_ns == 0;
    if (window.is_open) {
        window.content_events += count;
        samples_add(is_first ? &window.ttft : &window.gap,
                    now_ns - (is_first ? conn->start_ns : conn->last_content_ns));
        for (uint64_t i = 1; i < count; i++)
            samples_add(&window.gap, 0);
    }
    conn->last_content_ns = now_ns;
}

static void on_bytes(struct conn *conn, struct slice bytes)
{
    uint64_t now_ns = clock_now_ns();
    struct response *r = &conn->response;
    uint64_t events = r->content_events, body_bytes = r->body_bytes;
    conn->last_read_ns = now_ns;
    response_feed(r, bytes);
    if (r->content_events > events)
        note_content(conn, r->content_events - events, now_ns);
    if (window.is_open)
        window.body_bytes += r->body_bytes - body_bytes;
    if (r->phase == RESPONSE_BAD)
        fail(conn, &window.cut_short);
    else if (r->phase == RESPONSE_COMPLETE)
        finish(conn, now_ns);
}

static void on_end(struct conn *conn)
{
    if (!conn->is_busy) { /* an idle connection was closed: the next request opens another */
        disconnect(conn);
        return;
    }
    response_end_of_stream(&conn->response);
    if (conn->response.phase != RESPONSE_COMPLETE) {
        fail(conn, &window.cut_short);
        return;
    }
    conn->response.is_kept_alive = false;
    finish(conn, clock_now_ns());
}

static bool finish_connect(struct conn *conn)
{
    int error = 0;
    getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof(error)});
    conn->is_connecting = false;
    return error == 0;
}

static void on_event(struct conn *conn, uint32_t events)
{
    if (conn->fd < 0)
        return;
    if (conn->is_connecting && !finish_connect(conn)) {
        fail(conn, &window.failed_connects);
        return;
    }
    if ((events & EPOLLOUT) && !send_rest(conn)) {
        fail(conn, &window.cut_short);
        return;
    }
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    ssize_t n = recv(conn->fd, scratch, sizeof(scratch), 0);
    if (n > 0)
        on_bytes(conn, slice_of(scratch, (size_t)n));
    else if (n == 0 || errno != EAGAIN)
        on_end(conn);
}

/* ---- the run ---- */

static void open_window(uint64_t now_ns)
{
    window.before = process_use_of(options.pids, options.pid_count);
    window.begin_ns = now_ns;
    window.is_open = true;
}

static void fail_overdue(uint64_t now_ns)
{
    for (size_t i = 0; i < options.connections; i++)
        if (conns[i].is_busy && now_ns > conns[i].last_read_ns &&
            now_ns - conns[i].last_read_ns > options.timeout_s * NS_PER_S)
            fail(&conns[i], &window.timeouts);
}

/* Starts what is due: connections during the ramp, then requests of the open loop. */
static void start_due(uint64_t begin_ns, uint64_t now_ns)
{
    static size_t started;
    while (started < options.connections &&
           now_ns - begin_ns >= options.ramp_ms * NS_PER_MS * started / options.connections)
        next_request(&conns[started++], now_ns);
    while (options.rate && idle_count && next_due_ns <= now_ns && may_send_more())
        next_request(idle[--idle_count], now_ns);
}

static bool is_over(uint64_t now_ns)
{
    if (now_ns >= window.end_ns)
        return true;
    if (!options.requests || may_send_more())
        return false;
    for (size_t i = 0; i < options.connections; i++)
        if (conns[i].is_busy)
            return false;
    return true;
}

static void wait_for_events(uint64_t now_ns)
{
    uint64_t ns = NS_PER_MS;
    if (options.rate && idle_count)
        ns = next_due_ns > now_ns ? next_due_ns - now_ns : 0;
    if (ns > NS_PER_MS)
        ns = NS_PER_MS;
    struct timespec ts = {.tv_nsec = (long)ns};
    struct epoll_event events[512];
    int n = epoll_pwait2(epoll_fd, events, 512, &ts, NULL);
    for (int i = 0; i < n; i++)
        on_event(events[i].data.ptr, events[i].events);
}

static void run(void)
{
    uint64_t begin_ns = clock_now_ns(), next_check_ns = begin_ns;
    uint64_t open_ns = begin_ns + options.warmup_ms * NS_PER_MS;
    window.end_ns = open_ns + options.duration_ms * NS_PER_MS;
    next_due_ns = begin_ns;
    for (uint64_t now = begin_ns; !is_over(now); now = clock_now_ns()) {
        if (!window.is_open && now >= open_ns)
            open_window(now);
        start_due(begin_ns, now);
        wait_for_events(now);
        if (now >= next_check_ns) {
            fail_overdue(now);
            next_check_ns = now + NS_PER_S;
        }
    }
    window.end_ns = clock_now_ns();
}

static double us(struct samples *samples, double q)
{
    return (double)samples_quantile(samples, q) / 1e3;
}

static void report(void)
{
    struct process_use after = process_use_of(options.pids, options.pid_count);
    uint64_t user = after.user_ticks - window.before.user_ticks;
    uint64_t ticks = user + after.system_ticks - window.before.system_ticks;
    size_t open = 0;
    for (size_t i = 0; i < options.connections; i++)
        open += conns[i].is_busy && conns[i].last_content_ns;
    printf("{\"seconds\":%.6f,\"requests\":%llu,\"events\":%llu,\"body_bytes\":%llu,",
           (double)(window.end_ns - window.begin_ns) / 1e9, (unsigned long long)window.requests,
           (unsigned long long)window.content_events, (unsigned long long)window.body_bytes);
    printf("\"ttft_p50_us\":%.1f,\"ttft_p99_us\":%.1f,\"total_p50_us\":%.1f,\"total_p99_us\":%.1f,"
           "\"gap_p50_us\":%.1f,\"gap_p99_us\":%.1f,",
           us(&window.ttft, 0.5), us(&window.ttft, 0.99), us(&window.total, 0.5),
           us(&window.total, 0.99), us(&window.gap, 0.5), us(&window.gap, 0.99));
    printf("\"errors\":{\"connect\":%llu,\"status\":%llu,\"cut_short\":%llu,\"no_done\":%llu,"
           "\"error_event\":%llu,\"timeout\":%llu},\"last_bad_status\":%d,",
           (unsigned long long)window.failed_connects, (unsigned long long)window.bad_statuses,
           (unsigned long long)window.cut_short, (unsigned long long)window.missing_done,
           (unsigned long long)window.error_events, (unsigned long long)window.timeouts,
           window.last_bad_status);
    printf("\"cpu_ns\":%llu,\"user_share\":%.3f,\"rss_bytes\":%llu,\"open_streams\":%zu}\n",
           (unsigned long long)(after.cpu_ns - window.before.cpu_ns),
           ticks ? (double)user / (double)ticks : 0.0, (unsigned long long)after.rss_bytes, open);
}

/* ---- the command line ---- */

static const struct {
    const char *name, *help;
    uint64_t *value;
} numbers[] = {
    {"port", "of 127.0.0.1", &options.port},
    {"connections", "at once (default 1)", &options.connections},
    {"requests", "stop after so many (default: by time)", &options.requests},
    {"rate", "per second: open loop (default: closed loop)", &options.rate},
    {"duration-ms", "of the measured window (default 1000)", &options.duration_ms},
    {"warmup-ms", "before it (default 0)", &options.warmup_ms},
    {"ramp-ms", "in which the connections are opened (default 0)", &options.ramp_ms},
    {"timeout-s", "without a byte is an error (default 10)", &options.timeout_s},
    {"body-bytes", "of a request's body (default 300)", &options.body_bytes},
    {"max-tokens", "content events of a stream (default 16)", &options.max_tokens},
    {"pace-us", "between two events, asked of bench/upstream", &options.pace_us},
};
enum { NUMBER_COUNT = sizeof(numbers) / sizeof(numbers[0]) };

_Noreturn static void usage(void)
{
    fprintf(stderr, "usage: load --port PORT [OPTION]...\n");
    for (size_t i = 0; i < NUMBER_COUNT; i++)
        fprintf(stderr, "  --%-12s N  %s\n", numbers[i].name, numbers[i].help);
    fprintf(stderr, "  --stream          ask for SSE\n"
                    "  --pids P,P        processes whose CPU time and memory are reported\n");
    exit(2);
}

static void read_pids(const char *list)
{
    char *end = NULL;
    for (const char *at = list; *at && options.pid_count < MAX_PIDS; at = *end ? end + 1 : end) {
        long pid = strtol(at, &end, 10);
        if (end == at || pid <= 0)
            usage();
        options.pids[options.pid_count++] = (pid_t)pid;
    }
}

static void read_options(int argc, char **argv)
{
    struct option table[NUMBER_COUNT + 3] = {0};
    for (size_t i = 0; i < NUMBER_COUNT; i++)
        table[i] = (struct option){numbers[i].name, required_argument, NULL, 0};
    table[NUMBER_COUNT] = (struct option){"stream", no_argument, &options.stream, 1};
    table[NUMBER_COUNT + 1] = (struct option){"pids", required_argument, NULL, 0};
    int index, found;
    while ((found = getopt_long(argc, argv, "", table, &index)) != -1) {
        if (found != 0)
            usage();
        if (index < NUMBER_COUNT && !slice_to_u64(slice_str(optarg), numbers[index].value))
            usage();
        if (index == NUMBER_COUNT + 1)
            read_pids(optarg);
    }
    if (optind != argc || !options.port || options.port > UINT16_MAX || !options.connections ||
        options.connections > MAX_CONNECTIONS || options.rate > NS_PER_S)
        usage();
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0)
        die("epoll_create1");
    target = (struct sockaddr_in){.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)options.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    conns = heap_zalloc(options.connections * sizeof(conns[0]));
    idle = heap_zalloc(options.connections * sizeof(idle[0]));
    for (size_t i = 0; i < options.connections; i++) {
        conns[i].fd = -1;
        make_request(&conns[i], i);
    }
    run();
    report();
    return 0;
}
