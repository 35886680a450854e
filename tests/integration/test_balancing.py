"""Which replica is asked: spread, sessions, load that cannot leak (FR-25)."""
import threading
from collections import Counter

import pytest

from harness import replies
from harness import upstream as u
from harness.client import Connection, ask, chat, chat_body, close_all, request_bytes
from harness.replies import ROLE, chunk, stream_head, word
from harness.wait import eventually
from harness.weir import model, pool

POLICIES = ["round-robin", "least-load", "power-of-two", "session-affinity"]


@pytest.fixture(scope="module")
def sites(shared_workshop):
    """One weir; a model per policy, all on the same four upstreams."""
    from conftest import Site
    ups = [shared_workshop.upstream() for _ in range(4)]
    models = [model(*ups, name=p, policy=p) for p in POLICIES]
    return Site(shared_workshop.weir({"models": models, "workers": 2}), ups)


@pytest.fixture
def site(sites):
    sites.clear()
    yield sites
    close_all()
    sites.clear()
    sites.weir.assert_sound()


def shares(site):
    return [len(up.requests) for up in site.upstreams]


def test_round_robin_takes_turns(site):
    with Connection(site.port) as c:  # one connection is one worker is one order
        for _ in range(40):
            c.send(request_bytes("/v1/chat/completions", chat_body(model="round-robin")))
            assert c.read_response().status == 200
    assert shares(site) == [10, 10, 10, 10]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_uses_every_replica(site, policy):
    for i in range(80):
        assert chat(site.port, model=policy, user=f"user-{i}").status == 200
    assert min(shares(site)) >= 5, shares(site)


@pytest.mark.parametrize("policy", ["least-load", "power-of-two"])
def test_load_aware_policies_spread_what_runs_at_once(site, policy):
    go = threading.Event()
    for up in site.upstreams:
        up.always(u.after(go, u.ok))
    threads = [threading.Thread(target=chat, args=(site.port,), kwargs={"model": policy, "timeout": 30}) for _ in range(40)]
    [t.start() for t in threads]
    eventually(lambda: sum(shares(site)) == 40, lambda: f"all are at engines: {shares(site)}")
    spread = shares(site)
    go.set()
    [t.join() for t in threads]
    assert max(spread) <= (13 if policy == "least-load" else 18), spread


def test_least_load_avoids_a_replica_that_is_stuck(site):
    go = threading.Event()
    stuck = site.upstreams[2]
    stuck.always(u.after(go, u.ok))
    blocked = []

    def block():
        t = threading.Thread(target=chat, args=(site.port,), kwargs={"model": "least-load", "timeout": 30, "text": "x" * 4000})
        t.start()
        blocked.append(t)
        return stuck.requests
    eventually(block, "one request is stuck", every=0.02)
    before = len(stuck.requests)
    for _ in range(30):
        assert chat(site.port, model="least-load").status == 200
    assert len(stuck.requests) <= before + 1
    go.set()
    [t.join() for t in blocked]


def test_a_session_stays_on_one_replica_by_header(site):
    for session in range(10):
        for _ in range(5):
            assert chat(site.port, model="session-affinity", headers=[("x-session-id", f"s{session}")]).status == 200
    by_session = {}
    for i, up in enumerate(site.upstreams):
        for r in up.requests:
            by_session.setdefault(r.header("x-session-id"), set()).add(i)
    assert len(by_session) == 10 and all(len(places) == 1 for places in by_session.values()), by_session
    assert len(set.union(*by_session.values())) > 1, "not all on one"


@pytest.mark.parametrize("member", ["user", "session_id"])
def test_a_session_stays_on_one_replica_by_body(site, member):
    for _ in range(8):
        assert chat(site.port, model="session-affinity", **{member: "somebody"}).status == 200
    assert sorted(shares(site)) == [0, 0, 0, 8]


def test_a_session_moves_when_its_replica_is_gone(workshop):
    site = workshop.site(count=3, policy="session-affinity")
    headers = [("x-session-id", "abc")]
    assert chat(site.port, headers=headers).status == 200
    (home,) = [up for up in site.upstreams if up.requests]
    home.down()
    for _ in range(4):
        assert chat(site.port, headers=headers).status == 200
    others = [len(up.requests) for up in site.upstreams if up is not home]
    assert sorted(others) == [0, 4], "all to the same second choice"


def test_fr25_hot_session_does_not_drown_its_replica(site):
    """Bounded by the load of the target: with one session only, others are used once it is overloaded."""
    go = threading.Event()
    for up in site.upstreams:
        up.always(u.after(go, u.ok))
    threads = [threading.Thread(target=chat, args=(site.port,),
                                kwargs={"model": "session-affinity", "timeout": 60, "user": "hot", "text": "x" * 8000})
               for _ in range(80)]
    [t.start() for t in threads]
    eventually(lambda: sum(shares(site)) == 80, lambda: f"all are at engines: {shares(site)}")
    spread = shares(site)
    go.set()
    [t.join() for t in threads]
    assert max(spread) < 80, "not all on one"


def test_fr25_load_goes_back_to_zero_on_every_path(site):
    """Good, failed, refused, truncated, cancelled, unknown: the gauge of each replica ends at zero."""
    scripts = [u.ok, u.answer(500, {}), u.answer(400, {}), u.answer(429, {}), u.reset, u.close,
               u.stream(ROLE, word("a"), end=b"", then="fin"), u.stream(ROLE, word("a"), end=b"", then="rst"),
               u.raw(b"garbage\r\n\r\n", then="fin"), u.silent]
    for policy in POLICIES:
        for script in scripts:
            for up in site.upstreams:
                up.always(script)
            with Connection(site.port, timeout=0.5 if script is u.silent else 15) as c:
                c.send(request_bytes("/v1/chat/completions", chat_body(model=policy, stream=True)))
                if script is not u.silent:
                    c.read_response()
                else:
                    eventually(site.requests, "the request is at an engine")
            site.clear()
    site.weir.assert_idle()
    for gauge in site.weir.metrics().find("weir_replica_requests_in_flight"):
        assert gauge.value == 0


def test_fr25_load_is_seen_while_it_lasts(site):
    go = threading.Event()
    for up in site.upstreams:
        up.always(u.after(go, u.ok))
    threads = [threading.Thread(target=chat, args=(site.port,), kwargs={"model": "round-robin", "timeout": 30}) for _ in range(8)]
    [t.start() for t in threads]
    eventually(lambda: site.weir.metrics().value("weir_replica_requests_in_flight", model="round-robin") == 8,
               "eight in flight on the replicas")
    assert site.weir.metrics().value("weir_requests_in_flight") == 8
    go.set()
    [t.join() for t in threads]


def test_fr25_health_checks_do_not_reset_live_counters(site):
    go = threading.Event()

    def held(x):
        x.send(stream_head() + chunk(ROLE) + chunk(word("a")))
        x.hold(go)
        x.send(chunk(replies.FINISH) + chunk(replies.DONE) + replies.LAST_CHUNK)
    for up in site.upstreams:
        up.always(held)
    connections = [Connection(site.port) for _ in range(8)]
    for c in connections:
        c.send(request_bytes("/v1/chat/completions", chat_body(model="least-load", stream=True)))
        c.read_until(word("a"))
    probes = [len(up.probes) for up in site.upstreams]
    eventually(lambda: all(len(up.probes) > n + 3 for up, n in zip(site.upstreams, probes)), "several checks went by")
    assert site.weir.metrics().value("weir_replica_requests_in_flight", model="least-load") == 8
    go.set()
    for c in connections:
        assert c.read_response().is_complete
        c.close()


def test_two_pools_of_one_model_share_its_traffic_and_its_failures(workshop):
    one, two = workshop.upstream(), workshop.upstream()
    weir = workshop.weir({"models": [model(name="m", pools=[pool(one, name="a", engine_model="engine-side"),
                                                            pool(two, name="b", engine_model="engine-side")])]})
    for _ in range(20):
        assert chat(weir.port).status == 200
    one.down()
    for _ in range(10):
        assert chat(weir.port).status == 200
    one.up()
    two.down()
    for _ in range(10):
        assert chat(weir.port).status == 200


def test_draining_engine_gets_nothing_new_while_another_serves(workshop):
    site = workshop.site(count=2, policy="round-robin")
    for up in site.upstreams[:1]:
        up.always(u.answer(500, replies.VLLM_DRAINING))
    for _ in range(10):
        assert chat(site.port).status == 200


def test_returning_replica_comes_back_by_a_ramp(workshop):
    """Gradual: in its first moments a replica that was away gets less than its even share."""
    site = workshop.site(count=2, policy="least-load", settings={"health": {"ramp": "60s", "interval": "50ms"}})
    back = site.upstreams[0]
    back.down()
    eventually(lambda: site.weir.metrics().value("weir_replica_state", state="down") == 1, "it is down")
    back.up()
    eventually(lambda: site.weir.metrics().value("weir_replica_state", state="ready") == 2, "it is ready again")
    go = threading.Event()
    for up in site.upstreams:
        up.clear()
        up.always(u.after(go, u.ok))
    threads = [threading.Thread(target=chat, args=(site.port,), kwargs={"timeout": 30}) for _ in range(40)]
    [t.start() for t in threads]
    eventually(lambda: len(site.requests()) == 40, "all are at engines")
    share = len(back.requests)
    go.set()
    [t.join() for t in threads]
    assert share < 15, f"{share} of 40"


def test_health_path_does_not_matter_to_embeddings(site):
    for policy in POLICIES:
        assert ask(site.port, "/v1/embeddings", {"model": policy, "input": "x"}).status == 200
    site.weir.assert_idle()


def test_requests_spread_over_workers_without_disturbing_the_counts(site):
    def many():
        for _ in range(10):
            assert chat(site.port, model="round-robin").status == 200
    threads = [threading.Thread(target=many) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    counts = Counter(shares(site))
    assert sum(shares(site)) == 80 and max(counts) - min(counts) <= 12
