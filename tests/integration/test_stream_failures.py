"""Answers that break after they began: never passed off as success, one in-band error in the surface's own form."""
import json
import threading
import time

import pytest

from harness import client, replies
from harness import upstream as u
from harness.client import ask, chat, chat_body, messages
from harness.replies import DONE, FINISH, ROLE, chunk, stream_head, word
from harness.wait import eventually

HEL, LO = word("Hel"), word("lo")


def clean_end(*events):
    return stream_head() + b"".join(map(chunk, events)) + replies.LAST_CHUNK


def close_delimited(*events):
    return replies.head(200, [("Content-Type", "text/event-stream"), ("Connection", "close")]) + b"".join(events)


TRUNCATIONS = {
    "a-fin": u.stream(ROLE, HEL, LO, end=b"", then="fin"),
    "b-rst": u.stream(ROLE, HEL, LO, end=b"", then="rst"),
    "c-no-finish-no-done": u.raw(clean_end(ROLE, HEL, LO)),
    "c-no-done": u.raw(clean_end(ROLE, HEL, LO, FINISH)),
    "c-done-without-finish": u.raw(clean_end(ROLE, HEL, LO, DONE)),
    "d-close-delimited": u.raw(close_delimited(ROLE, HEL, LO), then="fin"),
    "e-in-mid-chunk": u.raw(stream_head() + chunk(ROLE) + chunk(HEL) + chunk(LO) + b"40\r\ndata: {\"choi", then="fin"),
    "f-in-mid-event": u.raw(clean_end(ROLE, HEL, LO, b'data: {"choices":[{"index":0,"del')),
    "g-bad-chunk-size": u.raw(stream_head() + chunk(ROLE) + chunk(HEL) + chunk(LO) + b"zz\r\n", then="fin"),
    "h-chunk-size-overflow": u.raw(stream_head() + chunk(ROLE) + chunk(HEL) + chunk(LO) + b"f" * 40 + b"\r\n", then="fin"),
    "i-chunk-without-crlf": u.raw(stream_head() + chunk(ROLE) + chunk(HEL) + chunk(LO) + b"2\r\nabXX", then="fin"),
    "j-content-length-too-long": u.raw(
        replies.head(200, [("Content-Type", "text/event-stream"), ("Content-Length", 100000)]) + ROLE + HEL + LO,
        then="fin"),
}


def assert_failed_in_band(response, code="upstream_disconnected"):
    """What arrived, then exactly one error event, no [DONE]."""
    assert response.status == 200
    errors = [e for e in response.events if e.is_error]
    assert len(errors) == 1 and response.events[-1].is_error, response
    error = errors[0].json["error"]
    assert isinstance(error["message"], str) and error["message"]
    assert set(error) >= {"message", "type", "param", "code"} and error["param"] is None
    if code:
        assert (error["type"], error["code"]) == ("upstream_error", code)
    assert not any(e.is_done for e in response.events)
    assert response.body.endswith(b"\n\n")


@pytest.mark.parametrize("how", TRUNCATIONS)
def test_fr04_truncated_stream_is_not_passed_off_as_success(site, how):
    site.up.next(TRUNCATIONS[how])
    response = chat(site.port, stream=True)
    assert response.body.startswith(ROLE + HEL + LO), "what arrived is forwarded"
    assert_failed_in_band(response, code=None if how[0] in "ghi" else "upstream_disconnected")
    line = site.weir.access_of(response.header("x-request-id"))
    assert line["outcome"] == "failed" and line["status"] == 200 and line["good"] is False
    assert len(site.up.requests) == 1, "never replayed"


def test_fr04_fin_after_a_proper_end_of_events_without_zero_chunk_is_decided_one_way(site):
    """Everything was said, [DONE] too; only the framing is cut."""
    site.up.next(u.stream(ROLE, HEL, LO, FINISH, DONE, end=b"", then="fin"))
    response = chat(site.port, stream=True)
    assert response.body.startswith(ROLE + HEL + LO)
    assert response.is_complete


def test_fr04_a_close_delimited_stream_that_is_complete_is_a_success(site):
    site.up.next(u.raw(close_delimited(ROLE, HEL, LO, FINISH, DONE), then="fin"))
    response = chat(site.port, stream=True)
    assert response.is_complete and response.body == ROLE + HEL + LO + FINISH + DONE
    assert response.header("transfer-encoding") == "chunked", "never answered close-delimited"


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_fr04_truncated_whole_answer_is_502_never_a_short_200(site, how):
    body = replies.dumps(replies.chat_json())
    head = replies.head(200, [("Content-Type", "application/json"), ("Content-Length", len(body) + 50)])
    site.up.always(u.raw(head + body, then=how))
    response = chat(site.port)
    assert response.status == 502
    assert response.error["type"] == "upstream_error" and response.error["code"] == "upstream_disconnected"


def test_fr04_truncated_chunked_whole_answer_is_502(site):
    site.up.always(u.raw(replies.head(200, [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")])
                         + chunk(b'{"id":"x","choices":['), then="fin"))
    assert chat(site.port).status == 502


def test_fr04_engine_error_then_done_is_a_failure(site):
    """vLLM, engine process killed: error event, [DONE], a clean end."""
    error = b'data: {"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "param": null, "code": 500}}\n\n'
    site.up.next(u.stream(ROLE, HEL, error, DONE))
    response = chat(site.port, stream=True)
    assert response.body.startswith(ROLE + HEL)
    assert_failed_in_band(response, code=None)
    assert "EngineCore encountered an issue." in response.events[-1].json["error"]["message"]
    assert site.weir.access_of(response.header("x-request-id"))["outcome"] == "failed"


def test_fr04_failure_counts_in_the_metrics(site):
    def failed():
        return site.weir.metrics().value("weir_requests_total", outcome="failed")
    before = failed()
    site.up.next(TRUNCATIONS["a-fin"])
    chat(site.port, stream=True)
    eventually(lambda: failed() == before + 1, "one more failure in the metrics")


# ---- other surfaces ----

def test_fr04_truncated_messages_end_in_an_error_event_of_that_surface(site):
    site.up.next(u.stream(replies.MESSAGE_START, replies.BLOCK_START, replies.text_delta("Hel"), end=b"", then="fin"))
    response = messages(site.port, stream=True)
    last = response.events[-1]
    assert last.name == "error" and last.json["type"] == "error" and last.json["error"]["type"] == "api_error"
    assert sum(e.name == "error" for e in response.events) == 1
    assert not any(e.name == "message_stop" for e in response.events)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_fr04_messages_without_message_stop_are_a_failure(site, cut):
    site.up.next(u.stream(*replies.message_events()[:-cut]))
    response = messages(site.port, stream=True)
    assert response.events[-1].name == "error"


def test_fr04_truncated_responses_end_in_an_error_event_with_a_sequence_number(site):
    events = replies.response_events()
    site.up.next(u.stream(*events[:-1], end=b"", then="rst"))
    response = ask(site.port, "/v1/responses", {"model": "m", "input": "x", "stream": True})
    last = response.events[-1]
    assert last.name == "error" and last.json["type"] == "error" and last.json["message"]
    assert last.json["sequence_number"] == len(events) - 1
    assert response.body.startswith(b"".join(events[:-1]))


def test_fr04_truncated_completions(site):
    site.up.next(u.stream(*replies.completion_events()[:2], end=b"", then="fin"))
    response = ask(site.port, "/v1/completions", {"model": "m", "prompt": "x", "stream": True})
    assert_failed_in_band(response)


def test_fr04_responses_failed_by_the_engine_is_relayed_and_counted(site):
    failed = replies.response_event("response.failed", 5, response={
        "id": "resp_1", "status": "failed", "error": {"code": "server_error", "message": "boom"}})
    site.up.next(u.stream(*replies.response_events()[:5], failed))
    response = ask(site.port, "/v1/responses", {"model": "m", "input": "x", "stream": True})
    assert response.body == b"".join(replies.response_events()[:5]) + failed
    assert site.weir.access_of(response.header("x-request-id"))["outcome"] == "failed"


def test_responses_incomplete_is_a_proper_end(site):
    end = replies.response_event("response.incomplete", 6, response={"id": "resp_1", "status": "incomplete"})
    site.up.next(u.stream(*replies.response_events()[:6], end))
    response = ask(site.port, "/v1/responses", {"model": "m", "input": "x", "stream": True})
    assert response.body == b"".join(replies.response_events()[:6]) + end and response.is_complete
    assert site.weir.access_of(response.header("x-request-id"))["outcome"] == "ok"


# ---- the error frame itself (FR-5) ----

NASTY = 'quote " backslash \\ newline \n tab \t </script> \u2028 \u2029 nul \x00 é 🙂 {"a":1} data: [DONE]\n\n'


@pytest.mark.parametrize("surface", ["chat", "messages"])
def test_fr05_error_frame_is_json_whatever_the_engine_said(site, surface):
    if surface == "chat":
        site.up.next(u.stream(ROLE, HEL, replies.data_event({"error": {"message": NASTY, "type": "x", "code": 500}})))
        response = chat(site.port, stream=True)
    else:
        site.up.next(u.stream(*replies.message_events()[:3], replies.named_event(
            "error", {"type": "error", "error": {"type": "api_error", "message": NASTY}})))
        response = messages(site.port, stream=True)
    assert response.is_complete and response.body.endswith(b"\n\n")
    errors = [e for e in response.events if e.is_error]
    assert len(errors) == 1 and response.events[-1].is_error
    message = errors[0].json["error"]["message"]
    assert 'quote " backslash \\ newline \n tab \t </script>' in message


@pytest.mark.parametrize("frame", [b"data: {'error': 'single quotes'}\n\n", b'data: {"error": "a bare string"}\n\n',
                                   b"data: bare words\n\n", b'data: {"error":{"message":5}}\n\n', b'data: {"error":\n\n'])
def test_fr05_garbled_error_frames_of_the_engine_end_in_one_proper_one(site, frame):
    site.up.next(u.stream(ROLE, HEL, frame, end=b"", then="fin"))
    response = chat(site.port, stream=True)
    last = response.events[-1]
    assert last.is_error and isinstance(last.json["error"], dict) and isinstance(last.json["error"]["message"], str)
    assert not any(e.is_done for e in response.events)


def test_fr05_nothing_follows_the_error(site):
    error = replies.data_event(replies.openai_error("first"))
    site.up.next(u.stream(ROLE, HEL, error, replies.data_event(replies.openai_error("second")), LO, FINISH, DONE))
    response = chat(site.port, stream=True)
    assert_failed_in_band(response, code=None)
    assert "first" in response.events[-1].json["error"]["message"]
    assert b"second" not in response.body and LO not in response.body


# ---- overload after 200 (FR-6) ----

OVERLOADED = replies.named_event("error", replies.anthropic_error())


@pytest.mark.parametrize("prelude", [0, 1, 2])
def test_fr06_overload_before_any_content_is_529(site, prelude):
    site.up.always(u.stream(*replies.message_events()[:prelude], OVERLOADED))
    response = messages(site.port, stream=True)
    assert response.status == 529, response
    assert response.json["error"]["type"] == "overloaded_error"


def test_fr06_overload_before_any_content_may_fail_over(workshop):
    site = workshop.site(count=2, policy="round-robin")
    for up in site.upstreams:
        up.next(u.stream(replies.MESSAGE_START, OVERLOADED))
    response = messages(site.port, stream=True)
    assert (response.status == 200 and response.body == b"".join(replies.message_events())) or response.status == 529
    site.clear()
    site.upstreams[0].always(u.stream(OVERLOADED))
    for _ in range(4):
        assert messages(site.port, stream=True).body == b"".join(replies.message_events())


def test_fr06_overload_after_content_stays_an_error_event(site):
    site.up.next(u.stream(*replies.message_events()[:3], OVERLOADED))
    response = messages(site.port, stream=True)
    assert response.status == 200 and response.body.startswith(b"".join(replies.message_events()[:3]))
    last = response.events[-1]
    assert last.name == "error" and last.json["error"]["type"] == "overloaded_error"
    assert len([e for e in response.events if e.name == "error"]) == 1
    assert site.weir.access_of(response.header("request-id"))["outcome"] == "failed"


@pytest.mark.parametrize("surface", ["chat", "messages", "responses"])
def test_error_before_any_content_has_its_status(site, surface):
    """200, then an error as the first event: the status is still ours to choose."""
    site.up.always(u.stream(replies.data_event(replies.openai_error("boom", "InternalServerError", 500))))
    if surface == "chat":
        response = chat(site.port, stream=True)
    elif surface == "messages":
        site.up.always(u.stream(replies.named_event("error", replies.anthropic_error("api_error", "boom"))))
        response = messages(site.port, stream=True)
    else:
        site.up.always(u.stream(replies.named_event("error", {"type": "error", "code": "server_error", "message": "boom",
                                                              "param": None, "sequence_number": 0})))
        response = ask(site.port, "/v1/responses", {"model": "m", "input": "x", "stream": True})
    assert response.status >= 500, response
    assert "boom" in json.dumps(response.json)


@pytest.mark.parametrize("how", ["fin", "rst", "end"])
def test_truncation_before_any_content_is_a_plain_502(site, how):
    ends = {"fin": u.stream(ROLE, end=b"", then="fin"), "rst": u.stream(ROLE, end=b"", then="rst"), "end": u.stream(ROLE)}
    site.up.always(ends[how])
    response = chat(site.port, stream=True)
    assert response.status == 502 and response.error["type"] == "upstream_error"


# ---- after the first byte (FR-11) ----

@pytest.mark.parametrize("how", ["fin", "rst"])
def test_fr11_never_replayed_after_the_first_byte(workshop, how):
    site = workshop.site(count=2)
    for up in site.upstreams:
        up.always(u.stream(ROLE, HEL, end=b"", then=how))
    response = chat(site.port, stream=True)
    assert client.text_of(response.events) == "Hel"
    assert_failed_in_band(response)
    assert len(site.requests()) == 1


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_fr11_role_only_was_held_back_and_may_go_elsewhere(workshop, how):
    site = workshop.site(count=2, policy="round-robin")
    site.upstreams[0].always(u.stream(ROLE, b": ping\n\n", end=b"", then=how))
    for _ in range(4):
        response = chat(site.port, stream=True)
        assert response.is_complete and response.body == b"".join(replies.chat_events(usage=False))
    assert len(site.upstreams[0].requests) >= 1
    assert len(site.upstreams[1].requests) == 4


def test_client_connection_survives_or_closes_cleanly_after_an_in_band_error(site):
    site.up.next(TRUNCATIONS["a-fin"])
    with client.Connection(site.port) as c:
        c.send(client.request_bytes("/v1/chat/completions", chat_body(stream=True)))
        first = c.read_response()
        assert_failed_in_band(first)
        if first.is_complete:
            c.send(client.request_bytes("/v1/chat/completions", chat_body()))
            second = c.read_response()
            assert second is None or second.status == 200


def test_a_busy_engine_that_fails_its_checks_keeps_its_streams(workshop):
    """Only a listener that refuses says that an engine is gone; one that is late may be in a long prefill."""
    site = workshop.site()
    go = threading.Event()
    rest = replies.chat_events()
    site.up.next(lambda x: (x.send(stream_head() + chunk(rest[0]) + chunk(rest[1])), x.hold(go),
                            x.send(b"".join(map(chunk, rest[2:])) + replies.LAST_CHUNK)))
    answers = []
    client = threading.Thread(target=lambda: answers.append(chat(site.port, stream=True, timeout=30)))
    client.start()
    site.up.wait_for_requests()
    site.up.health = (500, b"busy")
    eventually(lambda: not site.weir.is_ready, "the replica is down")
    time.sleep(4)  # longer than weir lets a refusing engine's streams be silent
    go.set()
    client.join()
    site.up.health = (200, b"")
    assert answers[0].status == 200 and answers[0].body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("end", ["fin", "rst", "keep"])
def test_a_whole_answer_without_the_end_of_its_framing_is_a_success(workshop, end):
    """All events came, [DONE] too: that the engine then closed or fell silent takes nothing from the client."""
    site = workshop.site(settings={"timeouts": {"between_events": "1s"}})
    script = u.stream(*replies.chat_events(), end=b"", then=end)
    site.up.next(script if end != "keep" else lambda x: (script(x), x.hold(timeout=10)))
    response = chat(site.port, stream=True, timeout=20)
    assert response.is_complete and response.body.endswith(b"data: [DONE]\n\n") and response.body.count(b"data: [DONE]") == 1
    line = site.weir.access_of(response.header("x-request-id"))
    assert (line["status"], line["outcome"], line["good"]) == (200, "ok", True)
