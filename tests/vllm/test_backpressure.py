"""An engine that queues one request and says 503 to the rest is busy, not broken; told to end, it is leaving, not broken."""
import concurrent.futures

import pytest

from harness.client import Connection, chat, chat_body, request_bytes, text_of
from harness.wait import eventually
from harness.weir import model
from vllm_engine import MODEL

BUSY_WORDS = "cannot accept new requests"
LEAVING_WORDS = "after shutdown"


@pytest.fixture(scope="module")
def limited(workshop):
    """Refuses what it cannot queue, and finishes what it has when it is told to end."""
    (engine,) = workshop.engines_with("--max-num-queued-reqs", "1", "--shutdown-timeout", "60")
    return engine


@pytest.fixture(scope="module")
def weir(workshop, limited, plain):
    """`alone` has the limited engine only, `pair` the other one too. One fault would eject."""
    return workshop.weir({
        "models": [model(limited.url, name="alone", engine_model=MODEL),
                   model(limited.url, plain.url, name="pair", engine_model=MODEL, policy="round-robin")],
        "health": {"eject": {"after": 1}}})


def burst(weir, name, count):
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda i: chat(weir.port, model=name, max_tokens=4, timeout=300), range(count)))


def states_of(weir, name):
    """Of the replicas of a model."""
    return {s.labels["state"] for s in weir.metrics().find("weir_replica_state", model=name) if s.value}


def assert_never_ejected(weir):
    assert weir.metrics().value("weir_replica_ejected") == 0 and "replica ejected" not in weir.stderr
    assert states_of(weir, "pair") == states_of(weir, "alone") == {"ready"}


def test_refusals_go_to_the_other_replica(weir, limited):
    def refused():
        return limited.figure("admission_rejections_total")
    before, asked = refused(), 0
    while refused() == before and asked < 80:
        answers = burst(weir, "pair", 8)
        assert [a.status for a in answers] == [200] * 8, answers
        asked += 8
    assert refused() > before, "the engine never refused, so nothing was tested"
    page = weir.metrics()
    assert page.value("weir_requests_total", model="pair", outcome="ok") == asked
    assert page.value("weir_retries_total", model="pair") >= refused() - before > 0
    assert_never_ejected(weir)


def test_refusals_of_the_only_replica_are_passed_on_with_a_time_to_come_back(weir, limited, record_property):
    answers = burst(weir, "alone", 16)
    taken = [a for a in answers if a.status == 200]
    refused = [a for a in answers if a.status == 503]
    record_property("taken", len(taken))
    record_property("refused", len(refused))
    assert taken and refused and len(taken) + len(refused) == 16, answers
    for answer in refused:
        assert BUSY_WORDS in answer.error["message"] and answer.header("x-request-id")
        assert 1 <= int(answer.header("retry-after")) <= 60
    assert_never_ejected(weir)
    eventually(lambda: weir.metrics().value("weir_replica_refusals_total", model="alone")
               == limited.figure("admission_rejections_total") > 0, "weir counts what the engine says")
    assert chat(weir.port, model="alone", max_tokens=2, timeout=120).status == 200, "busy is over at once"


def test_engine_that_drains_finishes_its_stream_while_new_requests_go_elsewhere(weir, limited):
    """--shutdown-timeout: /health stays 200, and each new request gets 500 at once."""
    with Connection(weir.port, timeout=300) as c:
        c.send(request_bytes("/v1/chat/completions",
                             chat_body(model="alone", stream=True, max_tokens=400, ignore_eos=True)))
        c.read_until(b'"content":"')
        limited.terminate()
        answer = None

        def refuses():
            nonlocal answer
            answer = chat(limited.port, model=MODEL, max_tokens=2, timeout=60)
            return answer.status == 500
        eventually(refuses, lambda: f"the engine takes nothing new; it said {answer}", timeout=60, every=0.1)
        assert LEAVING_WORDS in answer.error["message"], answer

        retried = weir.metrics().value("weir_retries_total", model="pair")
        answers = [chat(weir.port, model="pair", max_tokens=2, timeout=120) for _ in range(6)]
        assert [a.status for a in answers] == [200] * 6, answers
        assert weir.metrics().value("weir_retries_total", model="pair") > retried
        assert_never_ejected(weir)

        response = c.read_response()
    assert response.is_complete and response.events[-1].is_done and text_of(response.events), response
    assert not any(e.is_error for e in response.events)
    assert weir.access_of(response.header("x-request-id"))["outcome"] == "ok"


def test_drained_engine_is_down_and_its_model_answers_503(weir, limited):
    limited.terminate()
    eventually(lambda: not limited.is_alive, "the engine has ended", timeout=90, every=0.1)
    eventually(lambda: states_of(weir, "alone") == {"down"}, lambda: f"it is down; it is {states_of(weir, 'alone')}")
    refusal = chat(weir.port, model="alone", max_tokens=2)
    assert refusal.status == 503 and refusal.error["code"] == "no_replica_available" and refusal.header("retry-after")
    assert chat(weir.port, model="pair", max_tokens=2, timeout=120).status == 200
