"""Engines end and return under load: nothing that could be saved is lost, nothing is answered twice."""
import random
import threading
import time

import pytest

from harness import client, engine, replies
from harness import upstream as u
from harness.client import Connection, chat_body, request_bytes
from harness.replies import DONE, ROLE, chunk, stream_head, word
from harness.wait import eventually
from harness.weir import model

PATIENT = {"retry": {"attempts": 5, "budget_ratio": 1.0, "budget_min_per_s": 100000},
           "health": {"interval": "50ms", "eject": {"after": 3, "base": "100ms", "max": "200ms"}}, "workers": 2}


class Load:
    """Clients in a loop; each answer is judged."""

    def __init__(self, port, clients, body, make_id):
        self.port, self.body, self.make_id = port, body, make_id
        self.stop, self.lost, self.whole, self.cut = threading.Event(), [], 0, 0
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self._run, args=(i,)) for i in range(clients)]
        [t.start() for t in self.threads]

    def _run(self, number):
        count = 0
        while not self.stop.is_set():
            count += 1
            request_id = self.make_id(number, count)
            try:
                with Connection(self.port, timeout=90) as c:
                    c.send(request_bytes("/v1/chat/completions", self.body(request_id), headers=[("x-request-id", request_id)]))
                    self._judge(request_id, c.read_response())
            except (AssertionError, OSError, ValueError, KeyError) as e:
                with self.lock:
                    self.lost.append((request_id, repr(e)))

    def _judge(self, request_id, response):
        assert response is not None, "closed without an answer"
        assert response.status == 200, response
        done = [e for e in response.events if e.is_done]
        errors = [e for e in response.events if e.is_error]
        ids = {e.json["id"] for e in response.events if e.data and not e.is_done and not e.is_error}
        assert len(ids) == 1, f"chunks of several answers: {ids}"
        assert response.is_complete and len(done) + len(errors) == 1, "one end, good or bad"
        if errors:
            assert client.text_of(response.events), "an error after 200 only behind content"
        with self.lock:
            self.whole += len(done)
            self.cut += len(errors)

    def end(self):
        self.stop.set()
        [t.join() for t in self.threads]
        return self


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_scripted_engines_come_and_go(workshop, seed):
    """Three engines, one of them always well; answers carry the request's id, so doubles would show."""
    site = workshop.site(count=3, policy="least-load", settings=PATIENT)
    rng = random.Random(seed)
    finished = []

    def named(x):
        request_id = x.seen.header("x-request-id")
        rid = replies.data_event({"id": request_id, "object": "chat.completion.chunk", "choices": [
            {"index": 0, "delta": {"content": request_id}, "finish_reason": None}]})
        end = rid.replace(b'"finish_reason":null', b'"finish_reason":"stop"').replace(request_id.encode() + b'"}', b'"}', 1)
        x.send(stream_head() + chunk(rid))
        if x.peer_left(0.002):
            return
        finished.append(request_id)  # before the last bytes: a reset may follow them at once
        x.send(chunk(end) + chunk(DONE) + replies.LAST_CHUNK)
    for up in site.upstreams:
        up.always(named)
    load = Load(site.port, 8, lambda rid: chat_body(stream=True, text=rid), lambda n, c: f"{seed}-{n}-{c}")
    deadline = time.monotonic() + 6
    rounds = 0
    while time.monotonic() < deadline:
        victim = rng.choice(site.upstreams[:2])
        victim.down(reset=bool(rng.randrange(2)))
        load.stop.wait(rng.uniform(0.02, 0.15))
        victim.up()
        load.stop.wait(rng.uniform(0.02, 0.15))
        rounds += 1
    load.end()
    assert not load.lost, (len(load.lost), load.lost[:3])
    assert load.whole > 50 and rounds > 3
    assert len(set(finished)) >= load.whole
    site.weir.assert_idle()
    ids = [line["id"] for line in site.weir.access]
    eventually(lambda: len({line["id"] for line in site.weir.access}) == load.whole + load.cut, "each has its line")
    assert len(ids) == len(set(ids)), "none logged twice"
    outcomes = {}
    for line in site.weir.access:
        outcomes[line["outcome"]] = outcomes.get(line["outcome"], 0) + 1
    assert outcomes.get("ok", 0) == load.whole and outcomes.get("failed", 0) == load.cut, outcomes


def test_memory_and_descriptors_are_flat_over_rounds_of_failure(workshop):
    site = workshop.site(count=2, settings=PATIENT)

    def round_of_failure():
        for up in site.upstreams:
            up.down()
            up.up()
            for script in (u.reset, u.close, u.answer(500, {}), u.stream(ROLE, word("a"), end=b"", then="fin"), u.ok):
                up.next(script)
        for i in range(20):
            client.chat(site.port, stream=bool(i % 2))
        for up in site.upstreams:
            up.clear()
    for _ in range(5):
        round_of_failure()
    rss, fds = site.weir.rss(), site.weir.descriptors()
    for _ in range(15):
        round_of_failure()
    site.weir.assert_grew_less(rss, 2 << 20)
    assert site.weir.descriptors() - fds < 12


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_real_engines_are_killed_and_return_under_load(workshop):
    engines = [engine.Engine() for _ in range(2)]
    try:
        for e in engines:
            e.wait_until_ready()
        weir = workshop.weir({"models": [model(*[e.url for e in engines], engine="llamacpp", engine_model=engine.MODEL)],
                              **PATIENT})

        def ready():
            return weir.metrics().value("weir_replica_state", state="ready")
        eventually(lambda: ready() == 2, "both are ready")
        load = Load(weir.port, 4, lambda rid: chat_body(stream=True, text=f"Hi {rid}", max_tokens=8),
                    lambda n, c: f"real-{n}-{c}")
        sizes = []
        for round_number in range(4):
            victim = engines[round_number % 2]
            count = load.whole
            eventually(lambda: load.whole >= count + 4, "the load runs", timeout=60)
            victim.kill()
            count = load.whole
            eventually(lambda: load.whole >= count + 4, "the other serves on", timeout=60)
            victim.start().wait_until_ready()
            eventually(lambda: ready() == 2, "weir has it back", timeout=30)
            sizes.append(weir.rss())
        load.end()
        assert not load.lost, (len(load.lost), load.lost[:3])
        assert load.cut <= 4 * 4, "only streams that ran on the victim were cut"
        weir.assert_idle()
        assert max(sizes) - sizes[0] < 2 << 20, sizes
        assert len({line["id"] for line in weir.access}) == len(weir.access)
        eventually(lambda: all(e.running() == 0 for e in engines), "the engines are idle")
    finally:
        for e in engines:
            e.stop()


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_launcher_with_real_engines(workshop):
    """weir starts two, one is killed and comes back, nothing remains at the end."""
    import os
    import signal
    command = engine.command("{port}")
    weir = workshop.weir({"models": [model(pools=[{"name": "local", "engine": "llamacpp", "engine_model": engine.MODEL,
                                                   "launch": {"command": command, "replicas": 2}}])]}, wait=False)
    eventually(lambda: _ready_count(weir) == 2, lambda: f"both are ready; {weir.stderr[-2000:]}", timeout=120, every=0.1)
    assert client.chat(weir.port, max_tokens=2, timeout=60).status == 200
    victims = [p for p in weir.processes() if "engine_llamacpp" in open(f"/proc/{p}/cmdline").read()]
    assert len(victims) == 2
    os.kill(victims[0], signal.SIGKILL)
    assert client.chat(weir.port, max_tokens=2, timeout=60).status == 200
    eventually(lambda: _ready_count(weir) < 2, "the loss is seen")
    eventually(lambda: _ready_count(weir) == 2, "started again", timeout=120, every=0.1)
    pids = weir.processes()
    weir.stop()
    weir.ended_on_purpose = True
    eventually(lambda: not any(os.path.exists(f"/proc/{p}") for p in pids), "no orphan")


def _ready_count(weir):
    try:
        return weir.metrics().value("weir_replica_state", state="ready")
    except (OSError, AssertionError):
        assert weir.is_alive, weir.stderr[-2000:]
        return 0
