"""A client that leaves is noticed in every state, and the engine's connection is closed (FR-10)."""
import threading

import pytest

from harness import client, replies
from harness import upstream as u
from harness.client import Connection, chat_body, request_bytes
from harness.replies import ROLE, chunk, stream_head, word
from harness.weir import model
from harness.wait import eventually

SITE = {"count": 1}


def slow_stream(x):
    """A token now and then, for ever."""
    x.send(stream_head() + chunk(ROLE))
    while True:
        x.send(chunk(word("w")))
        if x.peer_left(0.05) or x.upstream.stopping:
            raise u.Gone


def stalled_stream(x):
    x.send(stream_head() + chunk(ROLE) + chunk(word("w")))
    x.hold()


def half_an_answer(x):
    x.send(replies.head(200, [("Content-Type", "application/json"), ("Content-Length", 1000)]) + b'{"id":')
    x.hold()


def only_a_head(x):
    x.send(stream_head() + chunk(ROLE))
    x.hold()


STATES = {
    "waiting for headers, streamed": (u.silent, True, None),
    "waiting for headers, whole": (u.silent, False, None),
    "held prelude": (only_a_head, True, None),
    "streaming": (slow_stream, True, word("w")),
    "streaming, engine stalled": (stalled_stream, True, word("w")),
    "inside a whole answer": (half_an_answer, False, None),
}


def leave(connection, how):
    {"fin": connection.close, "rst": connection.reset, "half": connection.half_close}[how]()


@pytest.mark.parametrize("how", ["fin", "rst", "half"])
@pytest.mark.parametrize("state", STATES)
def test_fr10_leaving_closes_the_engines_connection(site, state, how):
    script, streamed, seen_first = STATES[state]
    site.up.next(script)
    c = Connection(site.port)
    request_id = f"fr10-{how}-{state}".replace(" ", "_").replace(",", "")
    c.send(request_bytes("/v1/chat/completions", chat_body(stream=streamed), headers=[("x-request-id", request_id)]))
    seen = site.up.wait_for_requests()
    if seen_first:
        c.read_until(seen_first)
    leave(c, how)
    assert seen.left.wait(5), "the engine's connection is closed"
    line = site.weir.access_of(request_id)
    assert (line["status"], line["outcome"]) == (499, "abandoned") and line["good"] is None, line
    assert len(site.up.requests) == 1
    c.close()


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_fr10_leaving_with_unsent_bytes_of_a_pipelined_request(site, how):
    site.up.next(slow_stream)
    c = Connection(site.port)
    c.send(request_bytes("/v1/chat/completions", chat_body(stream=True))
           + request_bytes("/v1/chat/completions", chat_body()))
    seen = site.up.wait_for_requests()
    c.read_until(word("w"))
    leave(c, how)
    assert seen.left.wait(5)
    assert len(site.up.requests) == 1, "the second one is not begun for nobody"


def test_fr10_leaving_while_connecting(workshop):
    """A replica whose accept queue is full: connect() hangs."""
    import socket
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    port = listener.getsockname()[1]
    fill = [socket.socket() for _ in range(4)]
    for s in fill:
        s.setblocking(False)
        s.connect_ex(("127.0.0.1", port))
    weir = workshop.weir({"models": [model(f"http://127.0.0.1:{port}")], "timeouts": {"connect": "60s"},
                          "health": {"interval": "1h", "timeout": "100ms"}}, expect_ready=False)
    c = Connection(weir.port)
    c.send(request_bytes("/v1/chat/completions", chat_body(), headers=[("x-request-id", "connecting")]))
    eventually(lambda: weir.metrics().in_flight(), "the request is counted as in flight")
    c.close()
    weir.assert_idle()
    assert weir.access_of("connecting")["status"] == 499
    [s.close() for s in fill]
    listener.close()


def test_fr10_leaving_during_the_body_upload(site):
    c = Connection(site.port)
    c.send(request_bytes("/v1/chat/completions", b"", headers=[("Content-Length", "100000")]) + b'{"model":"m"')
    c.close()
    site.weir.assert_idle()
    assert not site.up.requests


def test_fr10_retry_is_not_begun_for_a_client_that_left(workshop):
    site = workshop.site(count=2)
    go = threading.Event()
    for up in site.upstreams:
        up.always(u.after(go, u.answer(500, {})))
    c = Connection(site.port)
    c.send(request_bytes("/v1/chat/completions", chat_body()))
    eventually(site.requests, "one request at an engine")
    c.close()
    site.weir.assert_idle()
    go.set()
    assert len(site.requests()) == 1


def test_fr10_leaving_says_nothing_about_the_replica(workshop):
    site = workshop.site(settings={"health": {"eject": {"after": 1, "base": "60s", "max_share": 1.0}}})
    for i in range(5):
        site.up.next(u.silent)
        c = Connection(site.port)
        c.send(request_bytes("/v1/chat/completions", chat_body()))
        site.up.wait_for_requests(i + 1)
        c.close()
        site.weir.assert_idle()
    assert client.chat(site.port).status == 200


def test_fr10_a_hundred_leave_at_once(site):
    site.up.always(slow_stream)
    connections = [Connection(site.port) for _ in range(100)]
    for c in connections:
        c.send(request_bytes("/v1/chat/completions", chat_body(stream=True)))
    site.up.wait_for_requests(100)
    for c in connections:
        c.close()
    for seen in site.up.requests:
        assert seen.left.wait(10)


def test_half_close_is_tolerated_when_the_option_says_so(workshop):
    site = workshop.site(settings={"half_close": True})
    go = threading.Event()
    for streamed in (False, True):
        go.clear()
        site.up.next(u.after(go, u.ok))
        with Connection(site.port) as c:
            c.send(request_bytes("/v1/chat/completions", chat_body(stream=streamed)))
            seen = site.up.wait_for_requests(1 + streamed)
            c.half_close()
            assert not seen.left.wait(0.3)
            go.set()
            response = c.read_response()
            assert response.status == 200 and response.is_complete
            assert c.is_closed_by_peer()


def test_half_close_option_still_notices_a_reset(workshop):
    site = workshop.site(settings={"half_close": True})
    site.up.always(slow_stream)
    c = Connection(site.port)
    c.send(request_bytes("/v1/chat/completions", chat_body(stream=True)))
    seen = site.up.wait_for_requests()
    c.read_until(word("w"))
    c.reset()
    assert seen.left.wait(5)


def test_fr27_tokens_of_a_cancelled_stream_are_counted(site):
    """Ten tokens came out before the client left: they were generated, and are in the log."""
    def ten(x):
        x.send(stream_head() + chunk(ROLE) + b"".join(chunk(word(f"w{i} ")) for i in range(10)))
        x.hold()
    site.up.next(ten)
    c = Connection(site.port)
    c.send(request_bytes("/v1/chat/completions", chat_body(stream=True), headers=[("x-request-id", "fr27")]))
    c.read_until(word("w9 "))
    c.close()
    line = site.weir.access_of("fr27")
    assert line["tokens_out"] == 10 and line["usage_known"] is False and line["status"] == 499


@pytest.mark.parametrize("surface", ["chat", "messages"])
def test_client_that_closes_right_behind_the_last_event_has_not_left(site, surface):
    """SDKs close as soon as they have read [DONE]; the engine's own end may come a moment later."""
    go = threading.Event()
    events = replies.chat_events(usage=False) if surface == "chat" else replies.message_events()

    def script(x):
        x.send(stream_head() + b"".join(map(chunk, events)))
        x.hold(go)
        x.send(replies.LAST_CHUNK)
    site.up.next(script)
    path, body = (("/v1/chat/completions", chat_body(stream=True)) if surface == "chat"
                  else ("/v1/messages", client.messages_body(stream=True)))
    request_id = f"closed-behind-{surface}"
    with Connection(site.port) as c:
        c.send(request_bytes(path, body, headers=[("x-request-id", request_id)]))
        c.read_until(events[-1])
    go.set()
    line = site.weir.access_of(request_id)
    assert (line["status"], line["outcome"], line["good"]) == (200, "ok", True)
