"""vLLM that dies in the middle of an answer: told in-band, never passed off as a success."""
import time

import pytest

from harness.client import Connection, chat, chat_body, request_bytes
from harness.wait import eventually
from harness.weir import model
from vllm_engine import MODEL


@pytest.fixture(scope="module")
def victims(workshop):
    """One for each death."""
    return workshop.engines_with(count=2)


@pytest.fixture(scope="module")
def weir(workshop, victims, plain):
    """`killed` and `ended` have one engine each; `pair` has them and one that stays well."""
    killed, ended = victims
    return workshop.weir({
        "models": [model(killed.url, name="killed", engine_model=MODEL), model(ended.url, name="ended", engine_model=MODEL),
                   model(killed.url, ended.url, plain.url, name="pair", engine_model=MODEL, policy="round-robin")],
        "timeouts": {"between_events": "1h", "first_byte": "1h"}})  # so that silence alone ends nothing


class Broken:
    """A stream, and how it went on after its engine was hurt."""

    def __init__(self, weir, name, hurt):
        self.weir, self.name = weir, name
        failed = self.failed()
        with Connection(weir.port, timeout=120) as c:
            c.send(request_bytes("/v1/chat/completions", chat_body(model=name, stream=True, max_tokens=900, ignore_eos=True)))
            c.read_until(b'"content":"')
            hurt()
            begin = time.monotonic()
            self.response = c.read_response()
            self.seconds = round(time.monotonic() - begin, 2)
        eventually(lambda: self.failed() == failed + 1, "counted as a failure")

    def failed(self):
        return self.weir.metrics().value("weir_requests_total", model=self.name, outcome="failed")

    def assert_told_in_band(self):
        """What came, then one error, and no [DONE] after it."""
        response = self.response
        errors = [e for e in response.events if e.is_error]
        assert response.status == 200 and response.is_complete, response
        assert len(errors) == 1 and response.events[-1].is_error, response
        assert not any(e.is_done for e in response.events)
        line = self.weir.access_of(response.header("x-request-id"))
        assert line["outcome"] == "failed" and line["good"] is False and line["tries"] == 1
        return errors[0].json["error"]


def assert_served_elsewhere(weir):
    answers = [chat(weir.port, model="pair", max_tokens=2, timeout=120) for _ in range(6)]
    assert [a.status for a in answers] == [200] * 6, answers


def test_engine_killed_in_mid_stream(weir, victims, record_property):
    """vLLM says so in an event, and then [DONE], which alone would look like a success."""
    broken = Broken(weir, "killed", victims[0].kill_engine)
    error = broken.assert_told_in_band()
    record_property("error", error["message"])
    record_property("error_after_s", broken.seconds)
    assert "EngineCore encountered an issue" in error["message"]
    assert_served_elsewhere(weir)


def test_stream_that_stalls_after_sigterm_ends_once_the_listener_refuses(weir, victims, record_property):
    """vLLM closes its listener and leaves open streams without a byte, an error or an end, for ever."""
    broken = Broken(weir, "ended", victims[1].terminate)
    error = broken.assert_told_in_band()
    record_property("error", error["message"])
    record_property("error_after_s", broken.seconds)
    assert error["type"] == "upstream_error" and error["message"]
    assert_served_elsewhere(weir)
