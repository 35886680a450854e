#include "net/listener.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/address.h"

enum {
    BACKLOG = 4096,
    ACCEPTS_PER_EVENT = 64, /* then the connections at hand get their turn */
};
#define RETRY_NS (50 * NS_PER_MS)

static enum weir_err refuse_address(const struct endpoint *address, int errnum, struct error *err)
{
    char text[160];
    address_format(address, text, sizeof text);
    if (errnum == EADDRINUSE) {
        return error_set(err, WEIR_EBUSY,
                         "%s is in use by another process; stop it (ss -ltnp shows it) or listen "
                         "elsewhere",
                         text);
    }
    return error_set_errno(err, errnum, "cannot listen on %s", text);
}

/* Returns a socket that is bound, or -1 with errno. */
static int bind_socket(const struct endpoint *address, bool share_port)
{
    int fd = socket((int)address->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (share_port) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    }
    if (address->family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    }
    if (bind(fd, (const struct sockaddr *)address->bytes, address->length) != 0) {
        int errnum = errno;
        close(fd);
        errno = errnum;
        return -1;
    }
    return fd;
}

/* A socket file that nobody listens on is left over from a process that was killed. */
static void remove_stale_unix(const struct endpoint *address)
{
    struct sockaddr_un sun;
    struct stat st;
    memcpy(&sun, address->bytes, sizeof sun);
    if (stat(sun.sun_path, &st) != 0 || !S_ISSOCK(st.st_mode)) {
        return;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        if (connect(fd, (const struct sockaddr *)&sun, sizeof sun) != 0 && errno == ECONNREFUSED) {
            unlink(sun.sun_path);
        }
        close(fd);
    }
}

static enum weir_err open_unix(const struct endpoint *address, size_t count, int *out,
                               struct error *err)
{
    remove_stale_unix(address);
    out[0] = bind_socket(address, false);
    if (out[0] < 0 || listen(out[0], BACKLOG) != 0) {
        return refuse_address(address, errno, err);
    }
    for (size_t i = 1; i < count; i++) {
        out[i] = dup(out[0]);
        if (out[i] < 0) {
            return refuse_address(address, errno, err);
        }
    }
    return WEIR_OK;
}

enum weir_err listener_open(const struct endpoint *address, size_t count, int *out,
                            struct error *err)
{
    if (address->family == AF_UNIX) {
        return open_unix(address, count, out, err);
    }
    int probe = bind_socket(address, false); /* fails where somebody else listens */
    if (probe < 0) {
        return refuse_address(address, errno, err);
    }
    struct endpoint real = *address; /* with the port that was chosen for port 0 */
    listener_address(probe, &real);
    close(probe);
    for (size_t i = 0; i < count; i++) {
        out[i] = bind_socket(&real, true);
        if (out[i] < 0 || listen(out[i], BACKLOG) != 0) {
            int errnum = errno;
            for (size_t j = 0; j <= i; j++) {
                if (out[j] >= 0) {
                    close(out[j]);
                }
            }
            return refuse_address(address, errnum, err);
        }
    }
    return WEIR_OK;
}

void listener_address(int socket, struct endpoint *out)
{
    struct sockaddr_storage storage = {0};
    socklen_t length = sizeof storage;
    if (getsockname(socket, (struct sockaddr *)&storage, &length) == 0) {
        *out = (struct endpoint){.length = length, .family = storage.ss_family};
        memcpy(out->bytes, &storage, sizeof out->bytes);
    }
}

static bool is_about_one_connection(int errnum)
{
    return errnum == EINTR || errnum == ECONNABORTED || errnum == EPROTO || errnum == EPERM;
}

/* The socket stays readable: without this the loop would spin. */
static void pause_accepting(struct listener *l)
{
    if (loop_change_level(l->loop, &l->io, 0) == WEIR_OK) {
        timer_set(l->loop, &l->retry, RETRY_NS);
    }
}

static void accept_all(struct listener *l)
{
    static struct log_limit limit;
    for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
        struct sockaddr_storage storage = {0};
        socklen_t length = sizeof storage;
        int fd =
            accept4(l->io.fd, (struct sockaddr *)&storage, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            struct endpoint peer = {.length = length, .family = storage.ss_family};
            memcpy(peer.bytes, &storage, sizeof peer.bytes);
            l->on_accept(l->ctx, fd, &peer);
        } else if (errno == EAGAIN) {
            return;
        } else if (!is_about_one_connection(errno)) {
            log_limited(&limit, loop_now_ns(l->loop), LOG_ERROR, "accept",
                        "cannot accept connections: %s; they wait in the kernel (raise ulimit -n?)",
                        strerror(errno));
            pause_accepting(l);
            return;
        }
    }
}

static void on_io(struct loop_fd *io, unsigned events)
{
    accept_all((struct listener *)io);
}

static void on_retry(struct timer *timer)
{
    struct listener *l = (struct listener *)((char *)timer - offsetof(struct listener, retry));
    if (loop_change_level(l->loop, &l->io, LOOP_READ) != WEIR_OK) {
        timer_set(l->loop, &l->retry, RETRY_NS);
    }
}

enum weir_err listener_start(struct listener *l, struct loop *loop, int socket,
                             void (*on_accept)(void *, int, const struct endpoint *), void *ctx)
{
    *l = (struct listener){.io = {.fd = -1, .on_event = on_io},
                           .retry = {.on_fire = on_retry},
                           .loop = loop,
                           .on_accept = on_accept,
                           .ctx = ctx};
    /* Level-triggered: what one turn left over brings the next turn at once. */
    return loop_add_level(loop, &l->io, socket, LOOP_READ);
}

void listener_stop(struct listener *l)
{
    timer_cancel(l->loop, &l->retry);
    int socket = l->io.fd;
    loop_remove(l->loop, &l->io); /* a Unix socket is shared: the kernel would go on reporting it */
    if (socket >= 0) {
        close(socket);
    }
}

void listener_cleanup(const struct endpoint *address)
{
    if (address->family == AF_UNIX) {
        struct sockaddr_un sun;
        memcpy(&sun, address->bytes, sizeof sun);
        unlink(sun.sun_path);
    }
}
