/* endpoint.h - a socket address as plain data; fits AF_INET, AF_INET6 and AF_UNIX. */
#pragma once

#include <stdint.h>

struct endpoint {
    uint32_t length; /* 0: none */
    uint32_t family;
    unsigned char bytes[128]; /* struct sockaddr_storage */
};
