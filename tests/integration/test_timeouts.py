"""Each timer on its own: connect, first byte, between events, whole, idle, slow head, slow body (FR-30)."""
import socket
import threading

import pytest

from harness import client, replies
from harness import upstream as u
from harness.client import Connection, chat, chat_body, messages, request_bytes
from harness.replies import DONE, FINISH, ROLE, chunk, stream_head, word
from harness.wait import eventually
from harness.weir import model

SITE = {"settings": {
    "timeouts": {"client_head": "400ms", "client_body": "400ms", "client_idle": "400ms", "first_byte": "700ms",
                 "between_events": "500ms"},
    "retry": {"attempts": 1}}}


def test_first_byte_timeout_is_504(site):
    site.up.next(u.silent)
    response = chat(site.port)
    assert response.status == 504
    assert response.error["type"] == "upstream_error" and response.error["code"] == "upstream_timeout"
    assert site.up.requests[0].left.wait(5)
    line = site.weir.access_of(response.header("x-request-id"))
    assert line["outcome"] == "failed" and line["reason"] == "upstream_timeout"


def test_first_byte_timeout_in_anthropic_form(site):
    site.up.next(u.silent)
    response = messages(site.port)
    assert response.status == 504 and response.json["error"]["type"] == "timeout_error"


def test_silence_between_events_ends_in_band(site):
    """vLLM on SIGTERM: the stream stalls for ever."""
    def stall(x):
        x.send(stream_head() + chunk(ROLE) + chunk(word("Hel")))
        x.hold()
    site.up.next(stall)
    response = chat(site.port, stream=True)
    assert response.status == 200 and response.body.startswith(ROLE + word("Hel"))
    assert response.events[-1].json["error"]["code"] == "upstream_timeout"
    assert site.up.requests[0].left.wait(5)


def test_silence_inside_a_whole_answer_is_504(site):
    def stall(x):
        x.send(replies.head(200, [("Content-Type", "application/json"), ("Content-Length", 1000)]) + b'{"id":')
        x.hold()
    site.up.next(stall)
    assert chat(site.port).status == 504


def test_fr30_a_long_stream_with_short_gaps_is_not_cut(site):
    """Its whole length is several times every timer; total is off by default."""
    def slow(x):
        x.send(stream_head() + chunk(ROLE))
        for i in range(20):
            x.send(chunk(word(f"w{i}")))
            if x.peer_left(0.1):
                return
        x.send(chunk(FINISH) + chunk(DONE) + replies.LAST_CHUNK)
    site.up.next(slow)
    response = chat(site.port, stream=True)
    assert response.is_complete and response.events[-1].is_done


def test_fr2_comments_reset_the_idle_timer(site):
    def pings(x):
        x.send(stream_head() + chunk(ROLE) + chunk(word("a")))
        for _ in range(12):
            x.send(chunk(b": ping\n\n"))
            if x.peer_left(0.1):
                return
        x.send(chunk(FINISH) + chunk(DONE) + replies.LAST_CHUNK)
    site.up.next(pings)
    response = chat(site.port, stream=True)
    assert response.is_complete and response.events[-1].is_done


def test_slow_head_is_408_and_closed(site):
    """One byte at a time, for ever: the timer is over the whole head."""
    with Connection(site.port) as c:
        stop = threading.Event()

        def drip():
            for byte in b"POST /v1/chat/completions HTTP/1.1\r\nX-Slow: " + b"a" * 10000:
                if stop.is_set():
                    return
                c.send(bytes([byte]))
                stop.wait(0.02)
        t = threading.Thread(target=drip)
        t.start()
        c.read_to_end()
        stop.set()
        t.join()
    assert c.ended in (client.EOF, client.RESET)
    assert not c.buffer or c.buffer.startswith(b"HTTP/1.1 408 ")


def test_slow_body_is_408_and_closed(site):
    with Connection(site.port) as c:
        c.send(request_bytes("/v1/chat/completions", b"", headers=[("Content-Length", "100")]) + b'{"model"')
        response = c.read_response()
        assert response.status == 408 and response.error["code"] == "request_timeout"
        assert c.is_closed_by_peer()
    assert not site.up.requests


def test_body_that_moves_is_not_timed_out(site):
    body = replies.dumps(chat_body())
    with Connection(site.port) as c:
        c.send(request_bytes("/v1/chat/completions", b"", headers=[("Content-Length", str(len(body)))]))
        pause = threading.Event()
        for i in range(0, len(body), len(body) // 8):
            c.send(body[i:i + len(body) // 8])
            pause.wait(0.1)
        assert c.read_response().status == 200


def test_idle_kept_alive_connection_is_closed(site):
    with Connection(site.port) as c:
        c.send(request_bytes("/v1/models", method="GET"))
        assert c.read_response().status == 200
        assert c.read_to_end() in (client.EOF, client.RESET) and c.buffer == b""


def test_connection_that_never_speaks_is_closed(site):
    with Connection(site.port) as c:
        assert c.read_to_end() in (client.EOF, client.RESET)


def test_idle_timer_does_not_hit_running_requests(site):
    go = threading.Event()
    site.up.next(u.after(go, u.ok))
    threading.Timer(0.6, go.set).start()
    assert chat(site.port).status == 200


def test_whole_request_timeout(workshop):
    site = workshop.site(settings={"timeouts": {"request": "700ms"}, "retry": {"attempts": 1}})
    site.up.next(u.silent)
    response = chat(site.port)
    assert response.status == 504

    def endless(x):
        x.send(stream_head() + chunk(ROLE))
        while not x.peer_left(0.05) and not x.upstream.stopping:
            x.send(chunk(word("w")))
    site.up.next(endless)
    response = chat(site.port, stream=True)
    assert response.status == 200 and response.events[-1].is_error
    assert not any(e.is_done for e in response.events)
    assert site.up.requests[-1].left.wait(5)


def full_listener():
    """An address where connect() hangs: its accept queue is full."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    fill = [socket.socket() for _ in range(4)]
    for s in fill:
        s.setblocking(False)
        s.connect_ex(listener.getsockname())
    return listener, fill


def test_connect_timeout_goes_to_another_replica(workshop):
    listener, fill = full_listener()
    up = workshop.upstream()
    weir = workshop.weir({"models": [model(f"http://127.0.0.1:{listener.getsockname()[1]}", up, policy="round-robin")],
                          "timeouts": {"connect": "200ms"}, "health": {"interval": "1h", "timeout": "100ms"}})
    for _ in range(4):
        assert chat(weir.port).status == 200
    assert len(up.requests) == 4
    [s.close() for s in [listener, *fill]]


def test_connect_timeout_without_another_replica_says_so(workshop):
    listener, fill = full_listener()
    weir = workshop.weir({"models": [model(f"http://127.0.0.1:{listener.getsockname()[1]}")],
                          "timeouts": {"connect": "200ms"}, "health": {"interval": "1h", "timeout": "100ms"}},
                         expect_ready=False)
    response = chat(weir.port)
    assert response.status in (502, 503, 504) and response.error["message"]
    [s.close() for s in [listener, *fill]]


def test_first_byte_timeout_goes_to_another_replica(workshop):
    site = workshop.site(count=2, policy="round-robin", settings={"timeouts": {"first_byte": "300ms"}})
    site.upstreams[0].always(u.silent)
    for _ in range(3):
        response = chat(site.port)
        assert response.status in (200, 504)
    assert site.upstreams[1].requests


def test_a_stalled_reader_is_cut_off(workshop):
    """client_write: no byte taken although there are some for it."""
    site = workshop.site(settings={"timeouts": {"client_write": "500ms"}})

    def flood(x):
        x.send(stream_head() + chunk(ROLE))
        while True:
            x.send(chunk(word("w" * 8000)))
    site.up.next(flood)
    c = Connection(site.port, receive_buffer=4096)
    c.send(request_bytes("/v1/chat/completions", chat_body(stream=True), headers=[("x-request-id", "stalled")]))
    seen = site.up.wait_for_requests()
    assert seen.left.wait(15)
    line = site.weir.access_of("stalled")
    assert line["outcome"] in ("abandoned", "failed")
    c.close()


@pytest.mark.parametrize("then", ["fin", "hold"])
def test_engine_that_sends_half_a_head_and_stops(site, then):
    def half(x):
        x.send(b"HTTP/1.1 200 OK\r\nContent-Ty")
        x.fin() if then == "fin" else x.hold()
    site.up.next(half)
    response = chat(site.port)
    assert response.status == (502 if then == "fin" else 504)
    eventually(lambda: chat(site.port).status == 200, "serves on")
