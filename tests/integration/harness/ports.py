"""Free ports, taken below the range that the kernel hands to outgoing connections, so that nobody else gets them."""
import os
import random
import socket

_draw = random.Random(os.getpid() * 7919 + int.from_bytes(os.urandom(4), "big"))
_given = set()


def free_port():
    for _ in range(1000):
        port = _draw.randrange(12000, 32000)
        if port in _given:
            continue
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise RuntimeError("no free port between 12000 and 32000")
