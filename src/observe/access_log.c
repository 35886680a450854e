#include "observe/access_log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/heap.h"
#include "base/log.h"

enum {
    RING_BYTES = 1 << 20, /* about 2,000 lines: 100 ms of 20,000 requests/s; a power of two */
    RING_MASK = RING_BYTES - 1,
    WRITE_EVERY_MS = 100,
    CLOSE_WAIT_MS = 300, /* a reader that is alive empties a pipe in far less */
    FILE_CHUNK = 256 << 10,
};

/* Positions grow for ever; their difference is what the ring holds. Whole lines only. */
struct access_log_ring {
    const struct access_log *log;
    enum access_log_format format;
    char *bytes;

    /* The worker's. */
    _Atomic uint64_t tail; /* it writes; the log thread reads */
    _Atomic uint64_t lost; /* it writes; any thread reads */
    char apart[64];        /* from the reader's cache line */

    /* The log thread's. */
    _Atomic uint64_t head; /* it writes; the worker reads */
    bool is_inside_line;   /* a write ended between two newlines: the rest must come next */
    char apart_too[64];    /* from the next ring */
};

struct access_log {
    char *path; /* NULL: standard output */
    int fd;
    size_t chunk; /* longest write() that cannot block after a poll() that said it will not */
    int wake_fd;
    pthread_t thread;
    _Atomic bool reopen_wanted; /* any thread or signal handler sets, the log thread clears */
    _Atomic bool is_closing;
    _Atomic uint64_t dropped; /* lines that were in a ring; the log thread writes */
    uint64_t lost_said;
    struct log_limit write_limit, lost_limit;
    size_t next_ring; /* where the next pass begins: at the ring that was not finished */
    size_t ring_count;
    struct access_log_ring *rings;
};

static const char *path_shown(const struct access_log *log)
{
    return log->path ? log->path : "standard output";
}

static void wake(const struct access_log *log)
{
    uint64_t one = 1;
    ssize_t ignored = write(log->wake_fd, &one, sizeof one); /* full means: already awake */
    (void)ignored;
}

/* ---- the worker's side ---- */

static void copy_in(struct access_log_ring *ring, uint64_t tail, const char *line, size_t len)
{
    size_t at = tail & RING_MASK;
    size_t first = len < RING_BYTES - at ? len : RING_BYTES - at;
    memcpy(ring->bytes + at, line, first);
    memcpy(ring->bytes, line + first, len - first);
}

void access_log_write(struct access_log_ring *ring, const struct request_record *record)
{
    char line[ACCESS_LOG_LINE_MAX];
    size_t len = access_log_format_line(record, ring->format, line, sizeof line);
    uint64_t tail = counter_get(&ring->tail);
    uint64_t used = tail - atomic_load_explicit(&ring->head, memory_order_acquire);
    if (len == 0 || used + len > RING_BYTES) {
        counter_add(&ring->lost, 1);
        return;
    }
    copy_in(ring, tail, line, len);
    atomic_store_explicit(&ring->tail, tail + len, memory_order_release);
    if (used < RING_BYTES / 2 && used + len >= RING_BYTES / 2) /* crossed: one system call */
        wake(ring->log);
}

struct access_log_ring *access_log_ring(struct access_log *log, size_t index)
{
    return &log->rings[index];
}

uint64_t access_log_lost(const struct access_log *log)
{
    uint64_t lost = counter_get(&log->dropped);
    for (size_t i = 0; i < log->ring_count; i++)
        lost += counter_get(&log->rings[i].lost);
    return lost;
}

/* ---- the log thread's side ---- */

static uint64_t held(const struct access_log_ring *ring)
{
    return atomic_load_explicit(&ring->tail, memory_order_acquire) - counter_get(&ring->head);
}

static char byte_at(const struct access_log_ring *ring, uint64_t position)
{
    return ring->bytes[position & RING_MASK];
}

/* How much to write at once: whole lines up to `max` bytes, or what `max` holds of a longer one. */
static size_t chunk_len(const struct access_log_ring *ring, size_t max)
{
    uint64_t head = counter_get(&ring->head);
    uint64_t left = held(ring);
    if (left <= max)
        return left;
    size_t len = max;
    while (len > 0 && byte_at(ring, head + len - 1) != '\n')
        len--;
    return len ? len : max;
}

static ssize_t write_ring(int fd, const struct access_log_ring *ring, size_t len)
{
    size_t at = counter_get(&ring->head) & RING_MASK;
    size_t first = len < RING_BYTES - at ? len : RING_BYTES - at;
    struct iovec parts[2] = {{ring->bytes + at, first}, {ring->bytes, len - first}};
    return writev(fd, parts, len > first ? 2 : 1);
}

static void consume(struct access_log_ring *ring, size_t len)
{
    uint64_t head = counter_get(&ring->head);
    ring->is_inside_line = byte_at(ring, head + len - 1) != '\n';
    atomic_store_explicit(&ring->head, head + len, memory_order_release);
}

/* Throws away what is held, or only up to the next newline; counts the lines. */
static void drop_held(struct access_log *log, struct access_log_ring *ring, bool only_one)
{
    uint64_t left = held(ring);
    uint64_t head = counter_get(&ring->head);
    uint64_t i = 0;
    while (i < left) {
        bool ends_line = byte_at(ring, head + i++) == '\n';
        counter_add(&log->dropped, ends_line);
        if (ends_line && only_one)
            break;
    }
    if (i > 0)
        consume(ring, i);
}

static void drop_all(struct access_log *log)
{
    for (size_t i = 0; i < log->ring_count; i++)
        drop_held(log, &log->rings[i], false);
}

enum progress {
    WENT_ON,   /* bytes were written */
    MUST_WAIT, /* the reader is slow */
    REFUSED    /* an error, which was said */
};

/*
 * Standard output is shared with whoever started us, so it must not be made non-blocking; poll()
 * tells whether a chunk will be taken. Up to PIPE_BUF bytes of whole lines are also never mixed
 * with what others write to the same pipe.
 */
static enum progress write_chunk(struct access_log *log, struct access_log_ring *ring)
{
    struct pollfd poller = {.fd = log->fd, .events = POLLOUT};
    if (poll(&poller, 1, 0) <= 0)
        return MUST_WAIT;
    ssize_t wrote = write_ring(log->fd, ring, chunk_len(ring, log->chunk));
    if (wrote > 0) {
        consume(ring, (size_t)wrote);
        return WENT_ON;
    }
    int why = wrote < 0 ? errno : ENOSPC;
    if (why == EINTR)
        return WENT_ON;
    if (why == EAGAIN)
        return MUST_WAIT;
    log_limited(&log->write_limit, clock_now_ns(), LOG_ERROR, "access_log",
                "cannot write the access log to %s: %s; requests go on, lines are held in memory "
                "and then lost",
                path_shown(log), strerror(why));
    if (why == EPIPE) /* nobody will ever read them */
        drop_all(log);
    return REFUSED;
}

/* Rings in turn, each until it is empty. WENT_ON: all is written. */
static enum progress write_rings(struct access_log *log)
{
    for (size_t n = 0; n < log->ring_count; n++) {
        struct access_log_ring *ring = &log->rings[log->next_ring];
        /* What is there now and not what comes meanwhile: a busy worker must not starve others. */
        uint64_t end = atomic_load_explicit(&ring->tail, memory_order_acquire);
        while (counter_get(&ring->head) < end || ring->is_inside_line) {
            enum progress progress = write_chunk(log, ring);
            if (progress != WENT_ON)
                return progress;
        }
        log->next_ring = (log->next_ring + 1) % log->ring_count;
    }
    return WENT_ON;
}

static void say_lost(struct access_log *log)
{
    uint64_t lost = access_log_lost(log);
    if (lost == log->lost_said)
        return;
    log_limited(&log->lost_limit, clock_now_ns(), LOG_WARN, "access_log",
                "%llu access log lines were lost so far: %s takes them too slowly or not at all",
                (unsigned long long)lost, path_shown(log));
    log->lost_said = lost;
}

/* O_NONBLOCK: a FIFO without a reader must not stop the thread; files do not mind. */
static int open_file(const char *path)
{
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0640);
}

static void use_fd(struct access_log *log, int fd)
{
    struct stat st;
    log->fd = fd;
    log->chunk = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? FILE_CHUNK : PIPE_BUF;
}

static void reopen(struct access_log *log)
{
    if (!log->path)
        return;
    int fd = open_file(log->path);
    if (fd < 0) {
        log_error("access_log", "cannot reopen the access log %s: %s; the old file stays in use",
                  log->path, strerror(errno));
        return;
    }
    for (size_t i = 0; i < log->ring_count; i++)
        if (log->rings[i].is_inside_line) /* its first half is in the old file */
            drop_held(log, &log->rings[i], true);
    close(log->fd);
    use_fd(log, fd);
}

static void wait_for_work(const struct access_log *log)
{
    struct pollfd poller = {.fd = log->wake_fd, .events = POLLIN};
    if (poll(&poller, 1, WRITE_EVERY_MS) <= 0)
        return;
    uint64_t times;
    ssize_t ignored = read(log->wake_fd, &times, sizeof times);
    (void)ignored;
}

static void write_rest(struct access_log *log)
{
    uint64_t deadline_ns = clock_now_ns() + CLOSE_WAIT_MS * NS_PER_MS;
    while (write_rings(log) == MUST_WAIT && clock_now_ns() < deadline_ns)
        poll(NULL, 0, WRITE_EVERY_MS / 10);
    drop_all(log);
    say_lost(log);
}

static void *run(void *arg)
{
    struct access_log *log = arg;
    while (!atomic_load_explicit(&log->is_closing, memory_order_acquire)) {
        wait_for_work(log);
        if (atomic_exchange_explicit(&log->reopen_wanted, false, memory_order_acquire))
            reopen(log);
        write_rings(log);
        say_lost(log);
    }
    write_rest(log);
    return NULL;
}

/* ---- life ---- */

static struct access_log *log_new(const char *path, enum access_log_format format,
                                  size_t ring_count)
{
    struct access_log *log = heap_zalloc(sizeof *log);
    log->path = strcmp(path, "-") == 0 ? NULL : heap_strdup(slice_str(path));
    log->fd = log->wake_fd = -1;
    log->ring_count = ring_count;
    log->rings = heap_zalloc(ring_count * sizeof *log->rings);
    for (size_t i = 0; i < ring_count; i++) {
        log->rings[i].log = log;
        log->rings[i].format = format;
        log->rings[i].bytes = heap_alloc(RING_BYTES);
    }
    return log;
}

static void log_free(struct access_log *log)
{
    if (log->path && log->fd >= 0)
        close(log->fd);
    if (log->wake_fd >= 0)
        close(log->wake_fd);
    for (size_t i = 0; i < log->ring_count; i++)
        heap_free(log->rings[i].bytes);
    heap_free(log->rings);
    heap_free(log->path);
    heap_free(log);
}

/* Signals are for the main thread. */
static int start_thread(struct access_log *log)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&log->thread, NULL, run, log);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static enum weir_err start(struct access_log *log, struct error *err)
{
    int fd = log->path ? open_file(log->path) : STDOUT_FILENO;
    if (fd < 0)
        return error_set_errno(err, errno, "cannot open the access log %s", log->path);
    use_fd(log, fd);
    log->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (log->wake_fd < 0)
        return error_set_errno(err, errno, "cannot make an eventfd for the access log");
    int rc = start_thread(log);
    return rc ? error_set_errno(err, rc, "cannot start the thread of the access log") : WEIR_OK;
}

enum weir_err access_log_open(const char *path, enum access_log_format format, size_t ring_count,
                              struct access_log **out, struct error *err)
{
    struct access_log *log = log_new(path, format, ring_count);
    enum weir_err rc = start(log, err);
    if (rc)
        log_free(log);
    else
        *out = log;
    return rc;
}

void access_log_reopen(struct access_log *log)
{
    int saved = errno; /* of what a signal may have interrupted */
    atomic_store_explicit(&log->reopen_wanted, true, memory_order_release);
    wake(log);
    errno = saved;
}

void access_log_close(struct access_log *log)
{
    if (!log)
        return;
    atomic_store_explicit(&log->is_closing, true, memory_order_release);
    wake(log);
    pthread_join(log->thread, NULL);
    log_free(log);
}
