"""A slow reader costs its own bound and nobody's time (FR-33)."""
import threading

from harness import client, replies
from harness import upstream as u
from harness.client import Connection, chat, chat_body, request_bytes
from harness.replies import DONE, FINISH, ROLE, chunk, stream_head, word
from harness.wait import eventually

SITE = {"settings": {"limits": {"client_buffer": "64KiB"}, "timeouts": {"between_events": "60s"}}}

MIB = 1 << 20


class Counter:
    """Counts what the engine got rid of."""

    def __init__(self, total, size=16000):
        self.sent, self.total, self.size, self.pieces = 0, total, size, 0

    def __call__(self, x):
        piece = chunk(word("w" * self.size))
        x.send(stream_head() + chunk(ROLE))
        while self.sent < self.total:
            x.send(piece)
            self.sent += len(piece)
            self.pieces += 1
        x.send(chunk(FINISH) + chunk(DONE) + replies.LAST_CHUNK)


def slow_reader(site):
    c = Connection(site.port, receive_buffer=65536, timeout=60)
    c.send(request_bytes("/v1/chat/completions", chat_body(stream=True)))
    return c


def stands_still(counter):
    """No more progress between two looks, after some."""
    last = counter.sent
    threading.Event().wait(0.2)
    return counter.sent == last and last > 0


def test_fr33_slow_reader_stops_the_engine_and_memory_stays_flat(site):
    counter = Counter(50 * MIB)
    site.up.next(counter)
    before = site.weir.rss()
    c = slow_reader(site)
    eventually(lambda: stands_still(counter), "the engine is read no further")
    assert counter.sent < 16 * MIB, "kernel buffers of two sockets and weir's bound"
    site.weir.assert_grew_less(before, 4 * MIB)
    response = c.read_response()
    c.close()
    assert response.is_complete and response.events[-1].is_done
    assert len(response.body) > 49 * MIB and response.body.count(word("w" * counter.size)) == counter.pieces, "nothing was lost"
    site.weir.assert_grew_less(before, 8 * MIB)


def test_fr33_slow_reader_costs_nobody_else_time(site):
    counters = [Counter(50 * MIB) for _ in range(8)]
    site.up.next(*counters)
    readers = [slow_reader(site) for _ in counters]
    for counter in counters:
        eventually(lambda: stands_still(counter), "all engines are read no further")
    for _ in range(20):
        assert chat(site.port, stream=True).is_complete
    for c in readers:
        c.close()
    for seen in site.up.requests[:8]:
        assert seen.left.wait(10)


def test_fr33_forty_slow_readers_cost_forty_bounds(site):
    before = site.weir.rss()
    counters = [Counter(20 * MIB) for _ in range(40)]
    site.up.next(*counters)
    readers = [slow_reader(site) for _ in counters]
    eventually(lambda: all(counter.sent for counter in counters), "all stream")
    for counter in counters[::8]:
        eventually(lambda: stands_still(counter), "read no further")
    site.weir.assert_grew_less(before, 40 * MIB // 2)
    for c in readers:
        c.close()


def test_slow_reader_of_a_whole_answer(site):
    body = replies.dumps(replies.chat_json("z" * (6 * MIB)))
    site.up.next(u.answer(200, body))
    with Connection(site.port, receive_buffer=65536, timeout=60) as c:
        c.send(request_bytes("/v1/chat/completions", chat_body()))
        site.up.wait_for_requests()
        for _ in range(5):
            assert chat(site.port).status == 200
        response = c.read_response()
    assert response.status == 200 and response.body == body


def test_slow_upload_blocks_nobody(site):
    body = replies.dumps(chat_body(text="x" * MIB))
    c = Connection(site.port)
    c.send(request_bytes("/v1/chat/completions", b"", headers=[("Content-Length", str(len(body)))]) + body[:1000])
    for _ in range(20):
        assert chat(site.port).status == 200
    c.send(body[1000:])
    assert c.read_response().status == 200
    c.close()


def test_engine_that_takes_the_body_slowly_blocks_nobody(site):
    """Back-pressure the other way: the request's body is written as the engine reads it."""
    go = threading.Event()
    site.up.on_head = lambda x: x.hold(go)
    done = []
    t = threading.Thread(target=lambda: done.append(_ask_or_none(site.port, 8 * MIB)))
    t.start()
    site.up.wait_for_requests()
    site.up.on_head = None
    for _ in range(20):
        assert chat(site.port).status == 200
    go.set()
    t.join()


def _ask_or_none(port, size):
    try:
        return chat(port, text="x" * size, timeout=30)
    except AssertionError:
        return None


def test_fr17_memory_of_big_bodies_is_given_back(site):
    body = replies.dumps(chat_body(text="x" * (10 * MIB)))
    for _ in range(3):
        assert client.ask(site.port, "/v1/chat/completions", body, timeout=30).status == 200
    settled = site.weir.rss()
    for _ in range(10):
        assert client.ask(site.port, "/v1/chat/completions", body, timeout=30).status == 200
        site.up.clear()
    site.weir.assert_grew_less(settled, 12 * MIB)


def test_fr17_body_memory_has_a_total(workshop):
    """limits.body_memory: what does not fit is refused at once, in words, and nothing is left behind."""
    site = workshop.site(settings={"limits": {"body": "8MiB", "body_memory": "16MiB"}})
    go = threading.Event()
    site.up.always(u.after(go, u.ok))
    body = replies.dumps(chat_body(text="x" * (6 * MIB)))
    statuses = []

    def one():
        statuses.append(client.ask(site.port, "/v1/chat/completions", body, timeout=30).status)
    threads = [threading.Thread(target=one) for _ in range(6)]
    [t.start() for t in threads]
    eventually(lambda: len(statuses) >= 4, "what does not fit is refused while the others wait")
    go.set()
    [t.join() for t in threads]
    assert sorted(statuses) == [200, 200, 503, 503, 503, 503], statuses
    assert client.ask(site.port, "/v1/chat/completions", body, timeout=30).status == 200


def test_idle_streams_hold_no_buffers(site):
    """300 streams that wait for their next token."""
    go = threading.Event()

    def waiting(x):
        x.send(stream_head() + chunk(ROLE) + chunk(word("a")))
        x.hold(go, timeout=60)
        x.send(chunk(FINISH) + chunk(DONE) + replies.LAST_CHUNK)
    site.up.always(waiting)
    chat_connections = []
    before = site.weir.rss()
    for _ in range(300):
        c = Connection(site.port, timeout=60)
        c.send(request_bytes("/v1/chat/completions", chat_body(stream=True)))
        chat_connections.append(c)
    for c in chat_connections:
        c.read_until(word("a"))
    site.weir.assert_grew_less(before, 300 * 16 * 1024)
    go.set()
    for c in chat_connections:
        assert c.read_response().is_complete
        c.close()


def test_event_larger_than_every_other_bound_waits_for_a_slow_reader(workshop):
    """What is handed over in one piece fits behind the mark, whatever the limits are."""
    site = workshop.site(settings={"limits": {"event": "8MiB", "response": "4KiB", "client_buffer": "4KiB"}})
    big = word("w" * (6 * MIB))
    site.up.next(u.stream(ROLE, big, FINISH, DONE))
    c = slow_reader(site)
    eventually(lambda: site.up.requests, "the engine was asked")
    threading.Event().wait(0.5)
    response = c.read_response()
    c.close()
    assert response.is_complete and big in response.body


def test_all_answers_in_memory_together_have_a_bound(workshop):
    """limits.response_memory: what does not fit is passed on as it comes, and nothing is lost."""
    site = workshop.site(settings={"limits": {"response_memory": "1MiB", "response": "8MiB", "client_buffer": "1MiB"}})
    body = replies.dumps({"object": "chat.completion", "choices": [], "padding": "y" * (4 * MIB)})
    before = site.weir.rss()
    site.up.always(u.answer(200, body))
    readers = [Connection(site.port, receive_buffer=65536, timeout=60) for _ in range(12)]
    for c in readers:
        c.send(request_bytes("/v1/chat/completions", chat_body()))
    eventually(lambda: len(site.up.requests) == 12, "all are asked")
    threading.Event().wait(0.5)
    site.weir.assert_grew_less(before, 16 * MIB)
    for c in readers:
        response = c.read_response()
        assert response.is_complete and response.body == body
        c.close()
