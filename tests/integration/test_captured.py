"""Bytes that real engines sent, through weir: success stays success, failure is seen, every event as it came."""
import json
import pathlib

import pytest

from harness import replies
from harness import upstream as u
from harness.client import ask, chat_body, messages_body, sse_events
from harness.wait import eventually

STREAMS = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "streams"
ENGINES = {"llama-server": "llamacpp", "xllamacpp": "llamacpp", "vllm-0.32.0": "vllm", "llm-d-sim": "vllm"}

BODIES = {"anthropic": ("/v1/messages", messages_body), "responses": ("/v1/responses", None),
          "completions": ("/v1/completions", None), "embeddings": ("/v1/embeddings", None)}


def captured(*names):
    return [f"{folder}/{name}" for folder in ENGINES for name in names if (STREAMS / folder / f"{name}.http").exists()]


def body_of(raw):
    """The captured body without its chunk framing."""
    head, _, rest = raw.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return rest
    out = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            break
        out, rest = out + rest[:length], rest[length + 2:]
    return out


@pytest.fixture(scope="module")
def sites(shared_workshop):
    return {kind: shared_workshop.site(kind=kind, settings={"timeouts": {"between_events": "500ms"},
                                                            "retry": {"attempts": 1}})
            for kind in sorted(set(ENGINES.values()))}


def replay(sites, which, stream, each=1 << 30, usage=True, then="fin"):
    site = sites[ENGINES[which.split("/")[0]]]
    site.clear()
    raw = (STREAMS / f"{which}.http").read_bytes()

    def script(x):
        x.send_bytewise(raw, each)
        x.hold() if then == "hold" else u.finish(x, then)
    site.up.next(script)
    name = which.split("/")[1]
    path, make = next((v for k, v in BODIES.items() if name.startswith(k)), ("/v1/chat/completions", chat_body))
    body = make(stream=stream) if make else {"model": "m", "input": "x", "prompt": "x", "stream": stream}
    if usage and stream and path in ("/v1/chat/completions", "/v1/completions"):
        body["stream_options"] = {"include_usage": True}
    response = ask(site.port, path, body)
    return site, raw, response


@pytest.mark.parametrize("each", [1, 13, 1 << 30])
@pytest.mark.parametrize("which", captured("chat-stream-usage", "tool-stream", "logprobs-stream", "completions-stream",
                                           "responses-stream", "anthropic-stream"))
def test_whole_streams_arrive_as_they_were_sent(sites, which, each):
    if each == 1 and len((STREAMS / f"{which}.http").read_bytes()) > 12_000:
        each = 3
    site, raw, response = replay(sites, which, stream=True, each=each)
    assert response.status == 200
    if which == "llama-server/anthropic-stream":  # captured without its message_start
        return
    assert response.is_complete and response.body == body_of(raw)
    line = site.weir.access_of(response.header("x-request-id"))
    assert line["outcome"] == "ok" and line["tokens_out"] > 0


@pytest.mark.parametrize("which", captured("chat-stream-usage"))
def test_usage_chunk_of_real_engines_is_hidden_from_those_who_did_not_ask(sites, which):
    site, raw, response = replay(sites, which, stream=True, usage=False)
    expected = [e.raw for e in sse_events(body_of(raw)) if not (e.data and b'"choices":[]' in e.data)]
    assert [e.raw for e in response.events] == expected and len(expected) == len(sse_events(body_of(raw))) - 1
    line = site.weir.access_of(response.header("x-request-id"))
    assert line["usage_known"] and line["tokens_out"] > 0


@pytest.mark.parametrize("which", captured("chat-nonstream", "tool-nonstream"))
def test_whole_answers_arrive_as_they_were_sent(sites, which):
    site, raw, response = replay(sites, which, stream=False)
    assert response.status == 200 and response.body == body_of(raw)
    line = site.weir.access_of(response.header("x-request-id"))
    assert line["usage_known"] and line["tokens_in"] > 0 and line["tokens_out"] > 0


@pytest.mark.parametrize("which", captured("ctx-overflow"))
@pytest.mark.parametrize("stream", [False, True])
def test_context_overflow_of_real_engines(sites, which, stream):
    site, raw, response = replay(sites, which, stream=stream)
    assert response.status == 400 and response.error["code"] == "context_length_exceeded"
    assert site.weir.access_of(response.header("x-request-id"))["outcome"] == "client_fault"


@pytest.mark.parametrize("which", captured("bad-messages", "embeddings"))
def test_refusals_of_real_engines_keep_status_and_body(sites, which):
    site, raw, response = replay(sites, which, stream=False)
    assert response.status == int(raw.split()[1])
    said = body_of(raw)
    if b'"error"' in said:
        assert response.body == said
    else:  # vLLM's {"detail": ...}, which no SDK reads: in the surface's own shape, with its words
        assert response.json["error"]["message"] == json.loads(said)["detail"]


@pytest.mark.parametrize("which", captured("midstream-sigkill", "midstream-engine-died", "midstream-sigterm-stall"))
def test_real_failures_in_the_middle_are_seen(sites, which):
    site, raw, response = replay(sites, which, stream=True, then="hold" if "stall" in which else "fin")
    assert response.status == 200
    assert [e.is_error for e in response.events].count(True) == 1 and response.events[-1].is_error, response.events[-3:]
    assert not any(e.is_done for e in response.events)
    content = [e.raw for e in sse_events(body_of(raw)) if e.data and not e.is_done and b'"error"' not in e.data]
    shown = [e.raw for e in response.events[:-1]]
    assert shown == content[:len(shown)] and len(shown) >= len(content) - 1
    assert site.weir.access_of(response.header("x-request-id"))["outcome"] == "failed"


@pytest.mark.parametrize("which", ["vllm-0.32.0/503-queue-full", "vllm-0.32.0/draining-chat",
                                   "llama-server/loading-chat-stream", "llm-d-sim/429"])
def test_real_refusals_for_lack_of_room_go_elsewhere(workshop, which):
    site = workshop.site(count=2, policy="round-robin", kind=ENGINES[which.split("/")[0]])
    raw = (STREAMS / f"{which}.http").read_bytes()
    site.upstreams[0].always(u.raw(raw, then="fin"))
    for _ in range(4):
        response = ask(site.port, "/v1/chat/completions", chat_body(stream=True))
        assert response.status == 200 and response.body == b"".join(replies.chat_events(usage=False))
    eventually(lambda: site.upstreams[1].requests, "the other serves")
