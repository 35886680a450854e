"""An engine that follows a script to the byte.

A script is a function of one argument, an Exchange: it sends what it likes, when it likes, and ends
the connection as it likes. Scripts for common cases are made by the functions at the end. Probes
(health, models, metrics …) are answered apart, in the manner of the engine named by `kind`, and are
not counted among `requests`.
"""
import json
import select
import socket
import struct
import threading
import time
from collections import deque

from . import replies
from .ports import free_port
from .wait import PATIENCE, eventually


class Gone(Exception):
    """The peer has closed, or the upstream is being stopped: the script ends here."""


class Seen:
    """One request as it came in, to the byte."""

    def __init__(self, connection, raw_head):
        self.connection = connection  # number of the TCP connection, from 0
        self.raw_head, self.body, self.raw_body = raw_head, b"", b""
        lines = raw_head.decode("latin-1").split("\r\n")
        self.method, self.target, self.version = lines[0].split(" ", 2)
        self.headers = [tuple(part.strip() for part in line.split(":", 1)) for line in lines[1:] if line]
        self.left = threading.Event()      # the peer closed before the answer was over
        self.answered = threading.Event()  # the script has returned

    def header(self, name, default=None):
        values = self.header_values(name)
        return values[0] if values else default

    def header_values(self, name):
        return [v for k, v in self.headers if k.lower() == name.lower()]

    @property
    def path(self):
        return self.target.split("?")[0]

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.method} {self.target} {self.body[:200]!r}>"


class Exchange:
    """One request being answered. All sends are immediate (TCP_NODELAY)."""

    def __init__(self, upstream, sock, seen):
        self.upstream, self.socket, self.seen = upstream, sock, seen
        self.keep = True  # read another request afterwards

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            self.seen.left.set()
            raise Gone from None

    def send_bytewise(self, data, step=1):
        for i in range(0, len(data), step):
            self.send(data[i:i + step])

    def fin(self):
        self.keep = False
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def rst(self):
        self.keep = False
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def hold(self, until=None, timeout=PATIENCE * 2):
        """Says nothing until `until` (an Event) is set; raises Gone as soon as the peer leaves."""
        deadline = time.monotonic() + timeout
        while not (until and until.is_set()):
            if self.peer_left(0.01):
                raise Gone
            if self.upstream.stopping or time.monotonic() > deadline:
                raise Gone

    def peer_left(self, wait=0.0):
        ready, _, _ = select.select([self.socket], [], [], wait)
        if not ready:
            return False
        try:
            data = self.socket.recv(1, socket.MSG_PEEK)
        except OSError:
            data = b""
        if not data:
            self.seen.left.set()
            return True
        time.sleep(wait)  # bytes of a next request: not a close
        return False


class Upstream:
    def __init__(self, kind="vllm", models=("engine-side",), host="127.0.0.1", port=None):
        self.kind, self.models, self.host = kind, list(models), host
        self.port = port or free_port()
        self.requests, self.probes, self.connections = [], [], 0
        self.health = (200, b"")       # what the health path answers
        self.metrics = None            # bytes, to override
        self.on_head = None            # a script that answers before the body is read; then the connection ends
        self.stopping = False
        self._scripts, self._default = deque(), ok
        self._lock, self._live, self._listener = threading.Lock(), set(), None
        self.up()

    # -- what a test says --

    @property
    def url(self):
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def next(self, *scripts):
        """The coming requests get these, one each; then the default again."""
        with self._lock:
            self._scripts.extend(scripts)
        return self

    def always(self, script):
        self._default = script
        return self

    def clear(self):
        """As after start; connections stay open."""
        with self._lock:
            self._scripts.clear()
            self.requests, self.probes = [], []
        self._default, self.health, self.metrics, self.on_head = ok, (200, b""), None, None

    def wait_for_requests(self, count=1):
        eventually(lambda: len(self.requests) >= count,
                   lambda: f"{count} requests at the engine; there are {self.requests}")
        return self.requests[count - 1]

    def down(self, reset=True):
        """Refuses connections (the port stays ours) and drops those it has."""
        self._close_listener()
        self._listener = self._bound()  # bound without listen(): the kernel refuses
        with self._lock:
            for s in list(self._live):
                try:
                    if reset:
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    s.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)  # a thread may sit in recv()
                except OSError:
                    pass
                s.close()
            self._live.clear()

    def up(self):
        self._close_listener()
        self._listener = self._bound()
        self._listener.listen(1024)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def stop(self):
        self.stopping = True
        self.down()
        self._close_listener()

    # -- the machinery --

    def _bound(self):
        s = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((self.host, self.port))
        return s

    def _close_listener(self):
        if self._listener:
            try:
                self._listener.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            self._listener.close()
            self._listener = None

    def _accept(self, listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                number, self.connections = self.connections, self.connections + 1
                self._live.add(sock)
            threading.Thread(target=self._serve, args=(sock, number), daemon=True).start()

    def _serve(self, sock, number):
        buffer = b""
        try:
            while True:
                seen, buffer = self._read_request(sock, number, buffer)
                if seen is None:
                    return
                if not self._answer(sock, seen):
                    return
        except (OSError, Gone, ValueError):
            pass
        finally:
            with self._lock:
                self._live.discard(sock)
            try:
                sock.close()
            except OSError:
                pass

    def _read_request(self, sock, number, buffer):
        while b"\r\n\r\n" not in buffer:
            data = sock.recv(262144)
            if not data:
                return None, b""
            buffer += data
        raw_head, _, rest = buffer.partition(b"\r\n\r\n")
        seen = Seen(number, raw_head)
        if self.on_head and seen.method == "POST":
            self.requests.append(seen)
            self.on_head(Exchange(self, sock, seen))
            return None, b""
        length = int(seen.header("content-length", "0"))
        parts, have = [rest], len(rest)
        while have < length:
            data = sock.recv(1 << 20)
            if not data:
                seen.left.set()
                break
            parts.append(data)
            have += len(data)
        rest = b"".join(parts)
        seen.body = seen.raw_body = rest[:length]
        return seen, rest[length:]

    def _answer(self, sock, seen):
        exchange = Exchange(self, sock, seen)
        probe = self._probe(seen) if seen.method == "GET" else None
        if probe is not None:
            with self._lock:
                self.probes.append(seen)
            exchange.send(probe)
            return True
        with self._lock:
            self.requests.append(seen)
            script = self._scripts.popleft() if self._scripts else self._default
        try:
            script(exchange)
        finally:
            seen.answered.set()
        if not exchange.keep:
            self._wait_for_close(exchange)
        return exchange.keep

    @staticmethod
    def _wait_for_close(exchange):
        """After our FIN: lets the peer close first, so that unread bytes do not turn it into a reset."""
        deadline = time.monotonic() + PATIENCE
        try:
            while time.monotonic() < deadline and not exchange.upstream.stopping:
                ready, _, _ = select.select([exchange.socket], [], [], 0.05)
                if ready and not exchange.socket.recv(65536):
                    return
        except (OSError, ValueError):
            return

    def _probe(self, seen):
        """What an engine of this kind says of itself."""
        path, listed = seen.path, [{"id": m, "object": "model", "created": 1796100000} for m in self.models]
        server = [("Server", {"vllm": "uvicorn", "llamacpp": "llama.cpp"}.get(self.kind, "mock"))]

        def answer(value, status=200):
            return replies.reply(status, value, server)

        if path == "/health":
            return replies.reply(self.health[0], self.health[1], server)
        if path == "/v1/models":
            owner = {"vllm": "vllm", "llamacpp": "llamacpp", "sglang": "sglang"}.get(self.kind, "somebody")
            extra = {"max_model_len": 2048} if self.kind == "vllm" else {}
            if self.kind == "llamacpp":
                extra = {"meta": {"n_ctx": 2048, "n_ctx_train": 8192}}
            return answer({"object": "list", "data": [{**m, "owned_by": owner, **extra} for m in listed]})
        if path == "/metrics" and (self.metrics is not None or self.kind in ("vllm", "llamacpp")):
            text = self.metrics if self.metrics is not None else self._metrics()
            return replies.reply(200, text, server, "text/plain; version=0.0.4")
        if path == "/version" and self.kind == "vllm":
            return answer({"version": "0.32.0"})
        if path == "/props" and self.kind == "llamacpp":
            return answer({"default_generation_settings": {"n_ctx": 2048}, "total_slots": 4,
                           "model_alias": self.models[0], "build_info": "b11434-00000000"})
        if path == "/slots" and self.kind == "llamacpp":
            return answer([{"id": i, "n_ctx": 2048, "is_processing": False} for i in range(4)])
        if path.startswith("/v1/") and path != "/v1/models":
            return None
        return answer({"error": {"message": "Not Found", "type": "NotFoundError", "param": None, "code": 404}}, 404)

    def _metrics(self):
        label = '{engine="0",model_name="%s"}' % self.models[0]
        if self.kind == "vllm":
            return (f"vllm:num_requests_running{label} 0.0\nvllm:num_requests_waiting{label} 0.0\n"
                    f"vllm:kv_cache_usage_perc{label} 0.25\n"
                    f"vllm:prefix_cache_queries_total{label} 100.0\nvllm:prefix_cache_hits_total{label} 40.0\n"
                    f"vllm:num_preemptions_total{label} 0.0\n"
                    'vllm:cache_config_info{block_size="16",num_gpu_blocks="1000",engine="0"} 1.0\n').encode()
        return b"llamacpp:requests_processing 0\nllamacpp:requests_deferred 0\nllamacpp:prompt_tokens_total 0\n"


# ---- scripts ----

def ok(exchange):
    """The answer of a well-behaved engine: by path, streamed when asked."""
    path, body = exchange.seen.path, exchange.seen.json
    streamed = bool(body.get("stream"))
    if path.endswith("/chat/completions"):
        return _send_either(exchange, streamed, replies.chat_events(), replies.chat_json())
    if path.endswith("/v1/completions"):
        return _send_either(exchange, streamed, replies.completion_events(), {
            "id": "cmpl-1", "object": "text_completion", "created": 1, "model": "engine-side",
            "choices": [{"index": 0, "text": "Hello", "finish_reason": "stop"}], "usage": replies.USAGE})
    if path.endswith("/messages"):
        return _send_either(exchange, streamed, replies.message_events(), replies.message_json())
    if path.endswith("/responses"):
        return _send_either(exchange, streamed, replies.response_events(), {
            "id": "resp_1", "object": "response", "status": "completed", "model": "engine-side", "output": [],
            "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}})
    others = {"/messages/count_tokens": {"input_tokens": 5},
              "/embeddings": {"object": "list", "model": "engine-side", "usage": {"prompt_tokens": 5, "total_tokens": 5},
                              "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}]},
              "/tokenize": {"tokens": [1, 2, 3], "count": 3}, "/detokenize": {"prompt": "hello"},
              "/rerank": {"id": "r", "results": []}, "/score": {"id": "s", "object": "list", "data": []}}
    for end, value in others.items():
        if path.endswith(end):
            return exchange.send(replies.reply(200, value))
    return exchange.send(replies.reply(404, replies.openai_error("no such path")))


def _send_either(exchange, streamed, events, whole):
    if not streamed:
        return exchange.send(replies.reply(200, whole))
    exchange.send(replies.stream_head() + b"".join(map(replies.chunk, events)) + replies.LAST_CHUNK)


def answer(status, body, headers=(), content_type="application/json"):
    return lambda x: x.send(replies.reply(status, body, headers, content_type))


def raw(data, then="keep"):
    """Exact bytes; `then` is keep, fin or rst."""
    def script(x):
        x.send(data)
        finish(x, then)
    return script


def finish(x, then):
    if then == "fin":
        x.fin()
    elif then == "rst":
        time.sleep(0.05)  # a reset overtakes bytes that the peer has not read: let them be read first
        x.rst()


def stream(*events, end=replies.LAST_CHUNK, then="keep", headers=(), hold=None, each=1 << 30):
    """Events as one chunk each, sent in pieces of `each` bytes; `hold` (an Event) is awaited before `end`."""
    def script(x):
        x.send(replies.stream_head(headers))
        for e in events:
            x.send_bytewise(replies.chunk(e), each)
        if hold is not None:
            x.hold(hold)
        x.send(end)
        finish(x, then)
    return script


def silent(x):
    """Never answers; ends when the peer leaves."""
    x.hold()


def reset(x):
    x.rst()


def close(x):
    x.fin()


def after(event, script):
    """`script`, once `event` is set; ends early when the peer leaves."""
    def wait_then(x):
        x.hold(event)
        script(x)
    return wait_then
