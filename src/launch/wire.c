#include "launch/wire.h"

#include <errno.h>
#include <sys/socket.h>

#include "base/heap.h"

/* Takes one terminated string off `rest`; NULL: there is none. */
static const char *take_string(struct slice *rest)
{
    const char *end = rest->len ? memchr(rest->ptr, '\0', rest->len) : NULL;
    if (!end)
        return NULL;
    const char *string = rest->ptr;
    *rest = slice_from(*rest, (size_t)(end - string) + 1);
    return string;
}

enum weir_err wire_read_run(struct slice message, struct wire_command *out)
{
    *out = (struct wire_command){0};
    if (message.len < sizeof(out->head))
        return WEIR_ESYNTAX;
    memcpy(&out->head, message.ptr, sizeof(out->head));

    struct slice rest = slice_from(message, sizeof(out->head));
    size_t argc = out->head.argc, envc = out->head.envc;
    /* Each string takes a byte at least, so this also bounds what is allocated. */
    if (out->head.type != WIRE_RUN || argc == 0 || argc > rest.len || envc > rest.len)
        return WEIR_ESYNTAX;

    out->log_path = take_string(&rest);
    out->words = heap_zalloc((argc + envc + 2) * sizeof(*out->words));
    out->environment = out->words + argc + 1;
    bool whole = out->log_path != NULL;
    for (size_t i = 0; i < argc && whole; i++)
        whole = (out->words[i] = take_string(&rest)) != NULL;
    for (size_t i = 0; i < envc && whole; i++)
        whole = (out->environment[i] = take_string(&rest)) != NULL;
    if (whole && rest.len == 0)
        return WEIR_OK;
    heap_free(out->words);
    *out = (struct wire_command){0};
    return WEIR_ESYNTAX;
}

enum weir_err wire_send(int sock, const void *message, size_t size)
{
    for (;;) {
        if (send(sock, message, size, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
            return WEIR_OK;
        if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)
            return WEIR_EAGAIN;
        if (errno != EINTR)
            return WEIR_ECLOSED;
    }
}

enum weir_err wire_receive(int sock, char *room, struct slice *message)
{
    for (;;) {
        ssize_t got = recv(sock, room, WIRE_MESSAGE_MAX, MSG_DONTWAIT);
        if (got > 0) {
            *message = slice_of(room, (size_t)got);
            return WEIR_OK;
        }
        if (got < 0 && errno == EAGAIN)
            return WEIR_EAGAIN;
        if (got == 0 || errno != EINTR)
            return WEIR_ECLOSED;
    }
}
