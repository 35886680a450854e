"""SIGTERM drains with a deadline, a second one ends at once (FR-29)."""
import signal
import threading

import pytest

from harness import client, replies
from harness import upstream as u
from harness.client import Connection, chat, chat_body, get, request_bytes
from harness.replies import ROLE, chunk, stream_head, word
from harness.wait import eventually


def held_by(go):
    def held(x):
        x.send(stream_head() + chunk(ROLE) + chunk(word("before ")))
        x.hold(go)
        x.send(chunk(word("after")) + chunk(replies.FINISH) + chunk(replies.DONE) + replies.LAST_CHUNK)
    return held


def open_streams(site, count):
    connections = [Connection(site.port) for _ in range(count)]
    for c in connections:
        c.send(request_bytes("/v1/chat/completions", chat_body(stream=True)))
    for c in connections:
        c.read_until(word("before "))
    return connections


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_idle_weir_ends_with_status_0(workshop, number):
    site = workshop.site()
    assert chat(site.port).status == 200
    site.weir.signal(number)
    assert site.weir.wait_for_end() == 0


def test_fr29_running_streams_finish_while_draining(workshop):
    site = workshop.site(settings={"drain_timeout": "30s"})
    go = threading.Event()
    site.up.always(held_by(go))
    connections = open_streams(site, 50)
    site.weir.signal(signal.SIGTERM)
    go.set()
    for c in connections:
        response = c.read_response()
        assert response.is_complete and client.text_of(response.events) == "before after"
        assert c.is_closed_by_peer(), "the connection is not kept"
        c.close()
    assert site.weir.wait_for_end() == 0
    assert len([r for r in site.weir.access if r["outcome"] == "ok"]) == 50


def test_fr29_readiness_says_503_first_and_requests_are_still_served(workshop):
    """A balancer that polls readiness over a kept connection, and requests that come meanwhile."""
    site = workshop.site(settings={"drain_timeout": "30s"})
    go = threading.Event()
    site.up.next(held_by(go))
    probe, busy = Connection(site.port), Connection(site.port)
    probe.send(request_bytes("/health/ready", method="GET"))
    assert probe.read_response().status == 200
    busy.send(request_bytes("/v1/models", method="GET"))
    assert busy.read_response().status == 200
    (running,) = open_streams(site, 1)
    site.weir.signal(signal.SIGTERM)

    def not_ready():
        try:
            return get(site.port, "/health/ready", timeout=5).status == 503
        except (OSError, AssertionError):
            probe.send(request_bytes("/health/ready", method="GET"))
            response = probe.read_response()
            return response is None or response.status == 503
    eventually(not_ready, "readiness is 503")
    assert site.weir.is_alive
    busy.send(request_bytes("/v1/chat/completions", chat_body()))
    response = busy.read_response()
    if response is not None:
        assert response.status in (200, 503)
        assert response.header("connection", "").lower() == "close"
    go.set()
    assert running.read_response().is_complete
    assert site.weir.wait_for_end() == 0


def test_drain_deadline_ends_what_is_left_in_band(workshop):
    site = workshop.site(settings={"drain_timeout": "300ms"})
    go = threading.Event()
    site.up.always(held_by(go))
    (c,) = open_streams(site, 1)
    site.weir.signal(signal.SIGTERM)
    response = c.read_response()
    assert not any(e.is_done for e in response.events)
    assert response.events[-1].is_error or not response.is_complete
    site.weir.wait_for_end()
    (line,) = site.weir.access
    assert line["outcome"] == "failed"


def test_second_sigterm_ends_at_once(workshop):
    site = workshop.site(settings={"drain_timeout": "1h"})
    go = threading.Event()
    site.up.always(held_by(go))
    connections = open_streams(site, 5)
    site.weir.signal(signal.SIGTERM)
    eventually(lambda: "drain" in site.weir.stderr.lower(), "the log says that it drains")
    assert site.weir.is_alive
    site.weir.signal(signal.SIGTERM)
    site.weir.wait_for_end()
    for c in connections:
        response = c.read_response()
        assert not any(e.is_done for e in response.events)
        c.close()
    for seen in site.up.requests:
        assert seen.left.wait(5)


def test_idle_kept_connections_do_not_hold_up_the_end(workshop):
    site = workshop.site(settings={"drain_timeout": "1h"})
    idle = [Connection(site.port) for _ in range(10)]
    for c in idle[:5]:
        c.send(request_bytes("/v1/models", method="GET"))
        assert c.read_response().status == 200
    site.weir.signal(signal.SIGTERM)
    assert site.weir.wait_for_end() == 0
    [c.close() for c in idle]


def test_requests_without_an_answer_yet_are_finished_too(workshop):
    site = workshop.site(settings={"drain_timeout": "30s"})
    go = threading.Event()
    site.up.next(u.after(go, u.ok))
    with Connection(site.port) as c:
        c.send(request_bytes("/v1/chat/completions", chat_body()))
        site.up.wait_for_requests()
        site.weir.signal(signal.SIGTERM)
        eventually(lambda: "drain" in site.weir.stderr.lower(), "the log says that it drains")
        go.set()
        response = c.read_response()
    assert response.status == 200
    assert site.weir.wait_for_end() == 0


def test_access_log_is_complete_at_the_end(workshop):
    site = workshop.site()
    for _ in range(100):
        chat(site.port)
    site.weir.signal(signal.SIGTERM)
    site.weir.wait_for_end()
    assert len(site.weir.access) == 100


def test_other_signals_do_no_harm(workshop):
    site = workshop.site()
    for number in (signal.SIGPIPE, signal.SIGUSR1, signal.SIGHUP, signal.SIGWINCH):
        site.weir.signal(number)
        assert chat(site.port).status == 200


def test_new_connections_after_the_drain_are_refused_not_hung(workshop):
    site = workshop.site(settings={"drain_timeout": "30s"})
    go = threading.Event()
    site.up.always(held_by(go))
    (running,) = open_streams(site, 1)
    site.weir.signal(signal.SIGTERM)
    eventually(lambda: "drain" in site.weir.stderr.lower(), "the log says that it drains")
    for _ in range(5):
        try:
            response = get(site.port, "/v1/models", timeout=5)
            assert response.status in (200, 503)
        except (OSError, AssertionError) as e:
            assert "no response head" not in str(e), "a new connection hangs"
    go.set()
    assert running.read_response().is_complete
    assert site.weir.wait_for_end() == 0
