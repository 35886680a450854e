"""Failure of a replica before the first byte: another one, within a budget; the last real answer when none is left."""
import threading

import pytest

from harness import client, replies
from harness import upstream as u
from harness.client import Connection, ask, chat, messages, request_bytes
from harness.replies import chunk, stream_head
from harness.wait import eventually
from harness.weir import model

SITE = {"count": 2, "policy": "round-robin"}


def refuse_half(site):
    """The other upstream is well."""
    return site.upstreams[0], site.upstreams[1]


FAULTS = {"reset": u.reset, "close": u.close, "500": u.answer(500, replies.openai_error("boom")),
          "502": u.answer(502, b"bad gateway", content_type="text/plain"), "503": u.answer(503, replies.VLLM_BUSY),
          "504": u.answer(504, {}), "529": u.answer(529, replies.anthropic_error()),
          "429": u.answer(429, replies.openai_error("slow down")), "408": u.answer(408, {}), "425": u.answer(425, {}),
          "draining": u.answer(500, replies.VLLM_DRAINING), "loading": u.answer(503, replies.LLAMA_LOADING),
          "garbage": u.raw(b"NOT HTTP AT ALL\r\n\r\n", then="fin"), "half a head": u.raw(b"HTTP/1.1 200 O", then="fin"),
          "bad status": u.raw(b"HTTP/1.1 9999 X\r\n\r\n", then="fin"),
          "two lengths": u.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", then="fin"),
          "huge head": u.raw(b"HTTP/1.1 200 OK\r\nX: " + b"a" * (2 << 20) + b"\r\n\r\n", then="fin")}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("fault", FAULTS)
def test_fr12_fault_before_the_first_byte_goes_to_another_replica(site, fault, streamed):
    bad, good = refuse_half(site)
    bad.always(FAULTS[fault])
    for i in range(4):
        response = chat(site.port, stream=streamed, headers=[("x-request-id", f"r-{fault}-{streamed}-{i}".replace(" ", ""))])
        assert response.status == 200 and response.is_complete, response
    assert len(good.requests) == 4 and bad.requests
    assert site.weir.access_of(f"r-{fault}-{streamed}-0".replace(" ", ""))["tries"] in (1, 2)
    tries = sum(site.weir.access_of(f"r-{fault}-{streamed}-{i}".replace(" ", ""))["tries"] for i in range(4))
    assert tries == len(site.requests())


def test_connect_refused_goes_to_another_replica(workshop):
    site = workshop.site(count=2, policy="round-robin", settings={"health": {"interval": "1h"}})
    site.upstreams[0].down()
    for _ in range(6):
        assert chat(site.port).status == 200
    assert len(site.upstreams[1].requests) == 6


def test_retry_sends_the_same_bytes(site):
    bad, good = refuse_half(site)
    bad.always(u.answer(500, {}))
    body = '{"model":"m","messages":[{"role":"user","content":"你好"}],  "x":1.0}'.encode()
    for _ in range(2):
        ask(site.port, "/v1/chat/completions", body)
    assert {r.body for r in site.requests()} == {body.replace(b'"m"', b'"engine-side"')}
    assert len({r.header("x-request-id") for r in bad.requests}) == len(bad.requests)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422])
def test_fr12_client_faults_are_tried_once(site, status):
    for up in site.upstreams:
        up.always(u.answer(status, replies.openai_error("no")))
    assert chat(site.port).status == status
    assert len(site.requests()) == 1


def test_fr12_501_is_not_tried_everywhere(site):
    for up in site.upstreams:
        up.always(u.answer(501, replies.openai_error("This server does not support embeddings", "not_supported_error", 501)))
    response = ask(site.port, "/v1/embeddings", {"model": "m", "input": "x"})
    assert response.status == 501 and len(site.requests()) == 1


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_fr12_the_last_real_answer_is_given_when_all_fail(site, status):
    body = b'{"error":{"message":"the real reason","type":"InternalServerError","param":null,"code":%d}}' % status
    for up in site.upstreams:
        up.always(u.answer(status, body))
    response = chat(site.port)
    assert (response.status, response.body) == (status, body)
    assert len(site.requests()) == 2, "each replica once"


def test_fr12_last_429_is_not_turned_into_a_500(site):
    for up in site.upstreams:
        up.always(u.answer(429, replies.openai_error("slow down", "requests", "rate_limit_exceeded")))
    response = chat(site.port)
    assert response.status == 429 and response.error["message"] == "slow down"


def test_fr12_a_real_answer_is_preferred_to_a_connect_error(workshop):
    site = workshop.site(count=2, policy="round-robin", settings={"health": {"interval": "1h"}})
    site.upstreams[0].always(u.answer(503, replies.VLLM_BUSY))
    site.upstreams[1].down()
    for _ in range(4):
        response = chat(site.port)
        assert response.status == 503 and response.error["message"] == replies.VLLM_BUSY["error"]["message"]


RETRY_HEADERS = [("retry-after", "30"), ("retry-after-ms", "1500"), ("x-ratelimit-remaining-requests", "0"),
                 ("anthropic-ratelimit-unified-status", "rejected"), ("x-should-retry", "false")]


@pytest.mark.parametrize("surface", ["chat", "messages"])
@pytest.mark.parametrize("status", [429, 503])
def test_fr13_retry_headers_of_the_engine_come_through(site, status, surface):
    for up in site.upstreams:
        up.always(u.answer(status, replies.openai_error("busy"), headers=RETRY_HEADERS))
    response = (chat if surface == "chat" else messages)(site.port)
    assert response.status in (status, 529)
    for name, value in RETRY_HEADERS:
        assert response.header_values(name) == [value], name


def test_fr13_not_when_the_retry_succeeded(site):
    site.upstreams[0].always(u.answer(429, {}, headers=RETRY_HEADERS))
    for _ in range(2):
        response = chat(site.port)
        assert response.status == 200
        assert not any(response.header(name) for name, _ in RETRY_HEADERS)


@pytest.mark.parametrize("surface, status", [("chat", 503), ("messages", 529)])
def test_fr13_weirs_own_refusal_carries_a_truthful_delay(workshop, surface, status):
    site = workshop.site()
    site.up.down()
    eventually(lambda: not site.weir.is_ready, "weir knows that the engine is gone")
    response = (chat if surface == "chat" else messages)(site.port)
    assert response.status == status
    assert 1 <= int(response.header("retry-after")) <= 120
    assert 1 <= int(response.header("retry-after-ms")) <= 120_000
    if surface == "chat":
        assert response.error["code"] == "no_replica_available" and response.error["type"] == "server_error"
    else:
        assert response.json["error"]["type"] == "overloaded_error"


def test_attempts_are_bounded(workshop):
    site = workshop.site(count=5, policy="round-robin", settings={"retry": {"attempts": 3}})
    for up in site.upstreams:
        up.always(u.answer(500, {}))
    chat(site.port)
    assert len(site.requests()) == 3


def test_one_attempt_means_no_retry(workshop):
    site = workshop.site(count=2, settings={"retry": {"attempts": 1}})
    for up in site.upstreams:
        up.always(u.answer(500, {}))
    assert chat(site.port).status == 500
    assert len(site.requests()) == 1


def test_fr12_retry_budget_bounds_the_load_of_an_outage(workshop):
    """All replicas fail: without a budget 200 requests would make 600 calls."""
    site = workshop.site(count=3, policy="round-robin",
                         settings={"retry": {"attempts": 3, "budget_ratio": 0.1, "budget_min_per_s": 0}})
    for up in site.upstreams:
        up.always(u.answer(500, {}))
    for _ in range(200):
        assert chat(site.port).status == 500
    assert 200 <= len(site.requests()) <= 260
    page = site.weir.metrics()
    assert page.value("weir_retries_total") == len(site.requests()) - 200


# ---- the keep-alive race ----

def test_kept_connection_that_the_engine_just_closed_is_retried_once(workshop):
    """One replica only, no budget: the race is no fault and no retry of the budget."""
    site = workshop.site(settings={"retry": {"attempts": 1, "budget_ratio": 0, "budget_min_per_s": 0},
                                   "health": {"interval": "1h"}})
    for streamed in (False, True, False):
        def answer_then_close_on_the_next(x):
            u.ok(x)
        site.up.next(answer_then_close_on_the_next, u.close, u.ok)
        assert chat(site.port).status == 200
        response = chat(site.port, stream=streamed)
        assert response.status == 200 and response.is_complete
        site.up.clear()


def test_kept_connection_reset_is_retried_once(workshop):
    site = workshop.site(settings={"retry": {"attempts": 1}, "health": {"interval": "1h"}})
    site.up.next(u.ok, u.reset, u.ok)
    assert chat(site.port).status == 200
    assert chat(site.port).status == 200
    assert len(site.up.requests) == 3


def test_fresh_connection_that_is_closed_is_a_fault(workshop):
    site = workshop.site(settings={"retry": {"attempts": 1}, "health": {"interval": "1h"}})
    site.up.always(u.close)
    response = chat(site.port)
    assert response.status == 502 and len(site.up.requests) == 1


def test_kept_connection_closed_while_idle_is_not_used(site):
    for up in site.upstreams:
        up.always(lambda x: (u.ok(x), x.fin()))
    for _ in range(20):
        assert chat(site.port).status == 200
    assert len(site.requests()) == 20


def test_connection_close_of_the_engine_is_honoured(site):
    for up in site.upstreams:
        up.always(u.answer(200, replies.chat_json(), headers=[("Connection", "close")]))
    for _ in range(6):
        assert chat(site.port).status == 200
    assert len({(id(up), r.connection) for up in site.upstreams for r in up.requests}) == 6


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_engine_that_answers_before_the_body_is_read(site, how):
    """413 and a close while weir is still writing: the answer counts, not the broken pipe."""
    def early(x):
        x.send(replies.reply(413, replies.openai_error("too large"), [("Connection", "close")]))
        u.finish(x, how)
        if how == "fin":
            x.upstream._wait_for_close(x)
    for up in site.upstreams:
        up.on_head = early
    response = chat(site.port, text="x" * (8 << 20), timeout=30)
    assert response.status in (413, 502)
    assert how == "rst" or response.status == 413


# ---- ejection and return (FR-28) ----

EJECT = {"health": {"interval": "1h", "eject": {"after": 3, "base": "400ms", "max": "400ms", "max_share": 0.5},
                    "ramp": "0s"}, "retry": {"attempts": 2, "budget_ratio": 1, "budget_min_per_s": 1000}}


def test_fr28_failing_replica_is_ejected_and_comes_back_by_one_trial(workshop):
    site = workshop.site(count=2, policy="round-robin", settings=EJECT)
    bad, good = site.upstreams
    bad.always(u.answer(500, {}))
    eventually(lambda: chat(site.port).status == 200 and len(bad.requests) >= 3, "three failures seen")
    failures = len(bad.requests)
    for _ in range(10):
        assert chat(site.port).status == 200
    assert len(bad.requests) <= failures + 1, "out: at most a trial"
    bad.always(u.ok)
    before = len(bad.requests)
    eventually(lambda: chat(site.port).status == 200 and len(bad.requests) > before + 3, "it serves again")


def test_fr28_trial_is_one_request(workshop):
    site = workshop.site(count=2, policy="round-robin", settings=EJECT)
    bad, good = site.upstreams
    bad.always(u.answer(500, {}))
    eventually(lambda: chat(site.port).status == 200 and len(bad.requests) >= 3, "three failures seen")
    go = threading.Event()
    bad.always(u.after(go, u.ok))
    before = len(bad.requests)
    threads = []

    def one():
        assert chat(site.port, timeout=30).status == 200

    def trial_began():
        t = threading.Thread(target=one)
        t.start()
        threads.append(t)
        return len(bad.requests) > before
    eventually(trial_began, "a trial begins", every=0.05)
    for _ in range(20):
        assert chat(site.port).status == 200
    assert len(bad.requests) == before + 1, "half open: one at a time"
    go.set()
    [t.join() for t in threads]


def test_fr28_never_all_are_ejected(workshop):
    site = workshop.site(count=2, policy="round-robin", settings=EJECT)
    for up in site.upstreams:
        up.always(u.answer(500, {}))
    for _ in range(10):
        chat(site.port)
    for up in site.upstreams:
        up.clear()
    assert chat(site.port).status == 200


def test_sglang_25811_client_faults_never_eject(workshop):
    site = workshop.site(settings={"health": {"eject": {"after": 1, "base": "60s", "max_share": 1.0}}})
    for status in (400, 401, 404, 413, 422):
        site.up.next(u.answer(status, replies.openai_error("no")))
        assert chat(site.port).status == status
    assert chat(site.port).status == 200


@pytest.mark.parametrize("status", [429, 503, 529])
def test_busy_answers_never_eject(workshop, status):
    site = workshop.site(settings={"health": {"eject": {"after": 1, "base": "60s", "max_share": 1.0}, "interval": "1h"}})
    for _ in range(5):
        site.up.next(u.answer(status, replies.VLLM_BUSY))
        chat(site.port)
    site.up.clear()
    assert chat(site.port).status == 200


def test_active_checks_take_a_replica_out_and_bring_it_back(workshop):
    site = workshop.site(count=2, policy="round-robin")
    bad, good = site.upstreams
    bad.health = (500, b"")
    eventually(lambda: "down" in site.weir.metrics_text() and _share(site, bad) == 0, "no traffic for the failing one")
    bad.health = (200, b"")
    eventually(lambda: _share(site, bad) > 0, "traffic again")


def _share(site, up):
    for each in site.upstreams:
        each.requests = []
    for _ in range(6):
        assert chat(site.port).status == 200
    return len(up.requests)


def test_loading_replica_gets_no_traffic(workshop):
    site = workshop.site(count=2, policy="round-robin")
    site.upstreams[0].health = (503, replies.dumps(replies.LLAMA_LOADING))
    eventually(lambda: _share(site, site.upstreams[0]) == 0, "no traffic while loading")


def test_fr38_ipv6_replica(workshop):
    up = workshop.upstream(host="::1")
    weir = workshop.weir({"models": [model(up)]})
    assert chat(weir.port).status == 200
    assert up.requests[0].header("host") == f"[::1]:{up.port}"


def test_replica_by_host_name(workshop):
    up = workshop.upstream()
    weir = workshop.weir({"models": [model(f"http://localhost:{up.port}")]})
    assert chat(weir.port).status == 200
    assert up.requests[0].header("host") == f"localhost:{up.port}"


def test_name_that_does_not_resolve_is_a_plain_503(workshop):
    weir = workshop.weir({"models": [model("http://no-such-host.invalid:1234")]}, expect_ready=False)
    response = chat(weir.port, timeout=30)
    assert response.status in (502, 503) and response.error["message"]
    with Connection(weir.port) as c:
        c.send(request_bytes("/v1/models", method="GET"))
        assert c.read_response().status == 200
    assert client.get(weir.port, "/health/ready").status == 503


def test_an_answer_that_begins_before_the_request_was_sent_ends_the_connection(workshop):
    """Its rest is never sent, so nothing else may follow on that connection."""
    site = workshop.site()
    site.up.on_head = lambda x: (x.send(stream_head() + b"".join(map(chunk, replies.chat_events())) + replies.LAST_CHUNK),
                                 x.hold(timeout=5))
    big = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "x" * (16 << 20)}]}
    first = ask(site.port, "/v1/chat/completions", big, timeout=30)
    assert first.status == 200
    site.up.on_head = None
    site.up.clear()
    second = chat(site.port)
    assert second.status == 200 and site.up.requests[-1].json["messages"][0]["content"] != big["messages"][0]["content"]
