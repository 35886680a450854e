"""The harness itself, without weir: an upstream that lies would make every other test worthless."""
import socket
import threading

import pytest

from harness import client, replies
from harness import upstream as u
from harness.client import Connection, ask, chat, request_bytes
from harness.wait import eventually


@pytest.fixture
def up():
    up = u.Upstream()
    yield up
    up.stop()


def test_default_script_answers_and_streams(up):
    whole = chat(up.port)
    assert (whole.status, whole.ended, whole.json["choices"][0]["message"]["content"]) == (200, "complete", "Hello")
    streamed = chat(up.port, stream=True)
    assert streamed.body == b"".join(replies.chat_events()) and streamed.is_complete
    assert client.text_of(streamed.events) == "Hello" and streamed.events[-1].is_done


def test_request_is_recorded_to_the_byte(up):
    ask(up.port, "/v1/chat/completions?x=1", b'{"a" :\t1}', headers=[("X-Odd", "v")])
    (seen,) = up.requests
    assert (seen.body, seen.target, seen.header("x-odd")) == (b'{"a" :\t1}', "/v1/chat/completions?x=1", "v")


def test_probes_are_not_requests(up):
    assert client.get(up.port, "/health").status == 200
    assert client.get(up.port, "/v1/models").json["data"][0]["id"] == "engine-side"
    assert not up.requests and len(up.probes) == 2


@pytest.mark.parametrize("then, ended", [("fin", "eof"), ("rst", "reset")])
def test_cut_streams_are_seen_as_cut(up, then, ended):
    up.next(u.stream(replies.ROLE, replies.word("Hel"), end=b"", then=then))
    response = chat(up.port, stream=True)
    assert response.ended == ended and response.body == replies.ROLE + replies.word("Hel")


def test_broken_chunks_are_seen(up):
    up.next(u.raw(replies.stream_head() + b"zz\r\nhello\r\n", then="fin"))
    assert chat(up.port, stream=True).ended == "broken framing"


def test_keep_alive_and_connection_numbers(up):
    with Connection(up.port) as c:
        for _ in range(2):
            c.send(request_bytes("/v1/chat/completions", client.chat_body()))
            assert c.read_response().status == 200
    assert [r.connection for r in up.requests] == [0, 0]


def test_down_refuses_and_up_returns(up):
    up.down()
    with pytest.raises(ConnectionRefusedError):
        chat(up.port)
    up.up()
    assert chat(up.port).status == 200


def test_hold_notices_that_the_peer_left(up):
    up.next(u.silent)
    with Connection(up.port) as c:
        c.send(request_bytes("/v1/chat/completions", client.chat_body()))
        seen = up.wait_for_requests()
        assert not seen.left.is_set()
    assert seen.left.wait(5)


def test_after_waits_for_its_event(up):
    go = threading.Event()
    up.next(u.after(go, u.ok))
    with Connection(up.port) as c:
        c.send(request_bytes("/v1/chat/completions", client.chat_body()))
        up.wait_for_requests()
        go.set()
        assert c.read_response().status == 200


def test_eventually_fails_with_its_reason():
    with pytest.raises(AssertionError, match="the moon"):
        eventually(lambda: False, "the moon", timeout=0.05)


def test_ports_are_bindable():
    from harness.ports import free_port
    with socket.socket() as s:
        s.bind(("127.0.0.1", free_port()))
