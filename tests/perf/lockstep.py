"""An engine and a client in one process that take turns, so that each event is a read of its own.

With events that are free to run together, what one costs depends on how many came at once. Here the
engine sends the next event when the client has read the last one: the path of each is the same.
"""

import json
import socket
import threading
import time

LIMIT_S = 30  # of one read; valgrind is slow, a hang is not
MODEL = "bench"
CHUNK = {"id": "chatcmpl-6f1d2c3b4a59687788990011", "object": "chat.completion.chunk",
         "created": 1764550000, "model": MODEL}
ANSWER = {**CHUNK, "object": "chat.completion", "choices": [{
    "index": 0, "finish_reason": "stop", "message": {
        "role": "assistant", "content": "The quick brown fox jumps over the lazy dog."}}],
    "usage": {"prompt_tokens": 42, "total_tokens": 58, "completion_tokens": 16}}
GETS = {
    "/health": {"status": "ok"},
    "/v1/models": {"object": "list", "data": [
        {"id": MODEL, "object": "model", "owned_by": "bench"}]},
}


def _json(value):
    return json.dumps(value, separators=(",", ":"))


def _read_until(stream, mark):
    """Bytes up to and with `mark`; empty when the peer closed before any came."""
    seen = b""
    while not seen.endswith(mark):
        line = stream.readline()
        if not line:
            return b""
        seen += line
    return seen


def _body_length(head):
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def _event(choice, **more):
    data = _json({**CHUNK, "choices": [choice] if choice else [], **more})
    return f"data: {data}\n\n".encode()


def _http_chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def _text(content):
    return _event({"index": 0, "delta": {"content": content}, "logprobs": None,
                   "finish_reason": None})


class Engine:
    """Speaks OpenAI's API on a free port of 127.0.0.1, a thread per connection.

    `turn` is a semaphore that the client releases: one more event.
    """

    def __init__(self, turn):
        self.turn = turn
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, connection.makefile("rb") as stream:
            try:
                while head := _read_until(stream, b"\r\n\r\n"):
                    self._answer(connection, head, stream.read(_body_length(head)))
            except OSError:
                pass  # weir ended

    def _answer(self, connection, head, body):
        method, path, _ = head.split(b" ", 2)
        request = json.loads(body) if method == b"POST" else {}
        if request.get("stream"):
            self._stream(connection, request)
            return
        answer = ANSWER if method == b"POST" else GETS.get(path.decode())
        body = _json(answer).encode() if answer else b""
        connection.sendall(b"HTTP/1.1 %s\r\nContent-Type: application/json\r\n"
                           b"Content-Length: %d\r\n\r\n%s" % (
                               b"200 OK" if answer else b"404 Not Found", len(body), body))

    def _stream(self, connection, request):
        role = _event({"index": 0, "delta": {"role": "assistant", "content": ""},
                       "finish_reason": None})
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                           b"Transfer-Encoding: chunked\r\n\r\n" + _http_chunk(role) +
                           _http_chunk(_text(" first")))
        for _ in range(request["max_tokens"] - 1):
            if not self.turn.acquire(timeout=LIMIT_S):
                return
            connection.sendall(_http_chunk(_text(" tokens")))
        tail = _http_chunk(_event({"index": 0, "delta": {}, "finish_reason": "stop"}))
        if request.get("stream_options", {}).get("include_usage"):
            tail += _http_chunk(_event(None, usage={
                "prompt_tokens": 42, "completion_tokens": request["max_tokens"],
                "total_tokens": 42 + request["max_tokens"]}))
        connection.sendall(tail + _http_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


class Client:
    """One kept-alive connection to weir."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb")

    def close(self):
        self.stream.close()
        self.socket.close()

    def _send(self, prompt_bytes, **options):
        words = "The weir keeps the river level. "
        prompt = (words * (prompt_bytes // len(words) + 1))[:prompt_bytes]
        body = _json({"model": MODEL, **options,
                      "messages": [{"role": "user", "content": prompt}]}).encode()
        self.socket.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: weir\r\nAccept: application/json\r\n"
            b"Content-Type: application/json\r\nUser-Agent: weir-perf/1\r\n"
            b"Authorization: Bearer bench\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        head = _read_until(self.stream, b"\r\n\r\n")
        assert head.split(b" ")[1] == b"200", f"weir answered {head!r}"
        return head

    def ask(self, prompt_bytes):
        """One request that is not streamed."""
        head = self._send(prompt_bytes)
        answer = self.stream.read(_body_length(head))
        assert json.loads(answer)["choices"], answer

    def stream_events(self, count, turn):
        """One stream of `count` content events, each read before the next is sent."""
        self._send(150, stream=True, max_tokens=count)
        seen = 0
        while True:
            size = int(self.stream.readline().split(b";")[0], 16)
            chunk = self.stream.read(size + 2)[:size]
            if size == 0:
                break
            assert b'"error"' not in chunk, chunk
            for _ in range(chunk.count(b'"content":" ')):
                seen += 1
                if seen < count:
                    turn.release()
        assert seen == count, f"{seen} events of {count} arrived"


def wait_until_served(port, is_alive, limit_s=60):
    """Returns when a request is answered; valgrind needs seconds to start."""
    deadline = time.monotonic() + limit_s
    problem = None
    while time.monotonic() < deadline and is_alive():
        try:
            client = Client(port)
            try:
                client.ask(100)
                return
            finally:
                client.close()
        except (OSError, AssertionError, IndexError) as error:
            problem = error
        time.sleep(0.2)
    raise AssertionError(f"weir did not serve within {limit_s} s: {problem}")
