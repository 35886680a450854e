#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/launch.h"

/* Below 32768, where Linux begins to number outgoing connections unless it was told otherwise. */
enum { PORT_FIRST = 20000, PORT_COUNT = 12000 };

static bool is_free(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons(port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (sock < 0)
        return false;
    /* As engines do: a connection of an earlier engine in TIME_WAIT is no hindrance. */
    setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    bool ok = bind(sock, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(sock, 1) == 0;
    close(sock);
    return ok;
}

uint16_t launcher_free_port(void)
{
    static atomic_uint next;
    for (unsigned tried = 0; tried < PORT_COUNT; tried++) {
        /* Two weirs of one machine begin at different places. */
        unsigned step = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed);
        uint16_t port = (uint16_t)(PORT_FIRST + ((unsigned)getpid() * 97 + step) % PORT_COUNT);
        if (is_free(port))
            return port;
    }
    return 0;
}
