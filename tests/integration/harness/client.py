"""A client that hides nothing: it sends exact bytes and keeps exact bytes."""
import json
import socket
import struct
import time
import weakref

from .wait import PATIENCE

COMPLETE, EOF, RESET, TIMEOUT, BROKEN = "complete", "eof", "reset", "timeout", "broken framing"


class Response:
    def __init__(self, raw_head, raw_body, body, ended):
        self.raw_head, self.raw_body, self.body, self.ended = raw_head, raw_body, body, ended
        lines = raw_head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = [tuple(part.strip() for part in line.split(":", 1)) for line in lines[1:] if line]

    def header(self, name, default=None):
        values = self.header_values(name)
        return values[0] if values else default

    def header_values(self, name):
        return [v for k, v in self.headers if k.lower() == name.lower()]

    @property
    def is_complete(self):
        return self.ended == COMPLETE

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    @property
    def events(self):
        return sse_events(self.body)

    def __repr__(self):
        return f"<{self.status}, {self.ended}, {self.body[:300]!r}{'…' if len(self.body) > 300 else ''}>"


class Event:
    """One SSE event as WHATWG reads it."""

    def __init__(self, raw):
        self.raw, self.name, self.comments = raw, None, []
        data = []
        for line in raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
            field, _, value = line.partition(b":")
            value = value[1:] if value.startswith(b" ") else value
            if line.startswith(b":"):
                self.comments.append(value)
            elif field == b"data":
                data.append(value)
            elif field == b"event":
                self.name = value.decode()
        self.data = b"\n".join(data) if data else None

    @property
    def is_done(self):
        return self.data == b"[DONE]"

    @property
    def json(self):
        return json.loads(self.data)

    @property
    def is_error(self):
        if self.data is None or self.is_done:
            return False
        try:
            return "error" in self.json or self.json.get("type") == "error"
        except ValueError:
            return False

    def __repr__(self):
        return f"<event {self.raw!r}>"


def sse_events(body):
    """The whole events of a stream; an unfinished one at the end is kept too, so that tests see it."""
    parts = body.replace(b"\r\n", b"\n").split(b"\n\n")
    return [Event(p) for p in parts if p.strip(b"\n")]


def text_of(events):
    """The answer that a chat stream spells."""
    out = ""
    for e in events:
        if e.data and not e.is_done and not e.is_error:
            for choice in e.json.get("choices") or []:
                out += (choice.get("delta") or {}).get("content") or ""
    return out


_open = weakref.WeakSet()


def close_all():
    """Closes what a failed test left open, so that the next one finds weir idle."""
    for connection in list(_open):
        connection.close()


class Connection:
    """One TCP connection. Received bytes stay in `buffer` until a response is cut out of them."""

    def __init__(self, port, host="127.0.0.1", timeout=PATIENCE, receive_buffer=None):
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.timeout, self.buffer, self.ended = timeout, b"", None
        _open.add(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        """What the peer no longer wants to read is not an error: its answer is what counts."""
        try:
            self.socket.sendall(data)
        except OSError:
            pass
        return self

    def send_bytewise(self, data, step=1):
        for i in range(0, len(data), step):
            self.send(data[i:i + step])
        return self

    def half_close(self):
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self):
        self.socket.close()

    def fill(self, deadline=None):
        """Reads once; False when nothing more comes, and `ended` says why."""
        left = self.timeout if deadline is None else max(0.01, deadline - time.monotonic())
        self.socket.settimeout(left)
        try:
            data = self.socket.recv(262144)
        except TimeoutError:
            self.ended = TIMEOUT
            return False
        except OSError:
            self.ended = RESET
            return False
        if not data:
            self.ended = EOF
            return False
        self.buffer += data
        return True

    def read_until(self, marker):
        """Fills until `marker` is in the buffer; leaves everything there."""
        deadline = time.monotonic() + self.timeout
        while marker not in self.buffer:
            if not self.fill(deadline):
                raise AssertionError(f"{marker!r} did not come ({self.ended}); got {self.buffer[-2000:]!r}")
        return self.buffer

    def read_to_end(self):
        deadline = time.monotonic() + self.timeout
        while self.fill(deadline):
            pass
        return self.ended

    def is_closed_by_peer(self):
        """True once the peer has closed; reads away what it sent before."""
        return self.read_to_end() in (EOF, RESET)

    def read_response(self, method="POST"):
        """The next final response; interim ones (100, 103) are skipped. None when the peer closed without a byte."""
        while True:
            response = self._read_one(method)
            if response is None or response.status >= 200:
                return response

    def _read_one(self, method):
        deadline = time.monotonic() + self.timeout
        while b"\r\n\r\n" not in self.buffer:
            if not self.fill(deadline):
                if self.ended == TIMEOUT:
                    raise AssertionError(f"no response head within {self.timeout:g} s; got {self.buffer!r}")
                if not self.buffer:
                    return None
                raise AssertionError(f"response head cut ({self.ended}): {self.buffer!r}")
        raw_head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        head = Response(raw_head, b"", b"", COMPLETE)
        if head.status < 200 or head.status in (204, 304) or method == "HEAD":
            return head
        lengths = head.header_values("content-length")
        chunked = head.header_values("transfer-encoding")
        if chunked:
            assert [v.lower() for v in chunked] == ["chunked"] and not lengths, f"two framings: {raw_head!r}"
            raw, body, ended = self._read_chunked(deadline)
        elif lengths:
            assert len(lengths) == 1, f"two lengths: {raw_head!r}"
            raw, body, ended = self._read_length(int(lengths[0]), deadline)
        else:
            ended = self.read_to_end()
            raw, body, self.buffer = self.buffer, self.buffer, b""
        return Response(raw_head, raw, body, ended)

    def _read_length(self, length, deadline):
        while len(self.buffer) < length:
            if not self.fill(deadline):
                raw, self.buffer = self.buffer, b""
                return raw, raw, self.ended
        raw, self.buffer = self.buffer[:length], self.buffer[length:]
        return raw, raw, COMPLETE

    def _read_chunked(self, deadline):
        raw, body, at = [], [], 0  # `at`: where in the buffer the next chunk begins

        def over(ended, rest=True):
            raw.append(self.buffer if rest else self.buffer[:at])
            self.buffer = b"" if rest else self.buffer[at:]
            return b"".join(raw), b"".join(body), ended

        while True:
            while at > 65536 or (line_end := self.buffer.find(b"\r\n", at)) < 0:
                is_empty = at <= 65536
                raw.append(self.buffer[:at])
                self.buffer, at = self.buffer[at:], 0
                if is_empty and not self.fill(deadline):
                    return over(self.ended)
            try:
                size = int(self.buffer[at:line_end].split(b";")[0], 16)
            except ValueError:
                return over(BROKEN)
            begin, end = line_end + 2, line_end + 2 + size
            while len(self.buffer) < end + 2:
                if not self.fill(deadline):
                    body.append(self.buffer[begin:end])
                    return over(self.ended)
            body.append(self.buffer[begin:end])
            proper, at = self.buffer[end:end + 2] == b"\r\n", end + 2
            if size == 0 or not proper:
                return over(COMPLETE if proper else BROKEN, rest=False)


def request_bytes(path, body=b"", method="POST", headers=(), host="weir", length=True):
    """A request as bytes. `body` may be anything JSON can hold, or exact bytes."""
    if not isinstance(body, bytes):
        body = json.dumps(body, ensure_ascii=False).encode()
    names = {name.lower() for name, _ in headers}
    lines = [f"{method} {path} HTTP/1.1"]
    if "host" not in names:
        lines.append(f"Host: {host}")
    if method == "POST" and "content-type" not in names:
        lines.append("Content-Type: application/json")
    if length and (body or method == "POST") and "content-length" not in names:
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body


def ask(port, path, body=b"", method="POST", headers=(), timeout=PATIENCE, host="127.0.0.1"):
    """One request on a connection of its own; the whole response."""
    with Connection(port, host=host, timeout=timeout) as c:
        c.send(request_bytes(path, body, method, headers))
        response = c.read_response(method)
        assert response is not None, f"{method} {path}: connection closed without an answer"
        return response


def get(port, path, headers=(), timeout=PATIENCE):
    return ask(port, path, method="GET", headers=headers, timeout=timeout)


def chat_body(model="m", stream=False, text="hello", **members):
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    if stream:
        body["stream"] = True
    body.update(members)
    return body


def chat(port, headers=(), timeout=PATIENCE, path="/v1/chat/completions", **members):
    return ask(port, path, chat_body(**members), headers=headers, timeout=timeout)


def messages_body(model="m", stream=False, text="hello", **members):
    body = {"model": model, "max_tokens": 16, "messages": [{"role": "user", "content": text}]}
    if stream:
        body["stream"] = True
    body.update(members)
    return body


def messages(port, headers=(), timeout=PATIENCE, **members):
    return ask(port, "/v1/messages", messages_body(**members), headers=headers, timeout=timeout)
