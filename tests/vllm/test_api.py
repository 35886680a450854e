"""The official SDKs through weir to a real vLLM."""
import json
import time

import anthropic
import openai
import pytest

from harness.client import Connection, ask, chat, chat_body, request_bytes
from harness.wait import eventually
from harness.weir import model
from vllm_engine import MODEL

NAME = "small"
HI = [{"role": "user", "content": "Say hi."}]
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
                   "required": ["city"], "additionalProperties": False}}}
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8},
                                           "age": {"type": "integer", "minimum": 0, "maximum": 99}},
          "required": ["name", "age"], "additionalProperties": False}


@pytest.fixture(scope="module")
def shared_weir(workshop, plain):
    return workshop.weir({"models": [model(plain.url, name=NAME, engine_model=MODEL, slo={"ttft": "120s", "tpot": "60s"})]})


@pytest.fixture
def weir(shared_weir):
    yield shared_weir
    shared_weir.assert_sound()


@pytest.fixture
def oai(openai_client):
    return openai_client.chat.completions


def test_chat_is_logged_with_the_engines_counts(weir, oai):
    raw = oai.with_raw_response.create(model=NAME, messages=HI, max_tokens=8, temperature=0)
    answer = raw.parse()
    assert answer.choices[0].message.content and answer.usage.completion_tokens >= 1
    line = weir.access_of(raw.headers["x-request-id"])
    assert (line["tokens_in"], line["tokens_out"]) == (answer.usage.prompt_tokens, answer.usage.completion_tokens)
    assert line["usage_known"] is True and line["outcome"] == "ok"


def test_stream_is_the_same_text_as_the_whole_answer(oai):
    ask_for = {"model": NAME, "messages": HI, "max_tokens": 12, "temperature": 0}
    oai.create(**ask_for)  # from here on the prompt is cached, and all answers are computed alike
    whole = oai.create(**ask_for)
    parts = list(oai.create(**ask_for, stream=True))
    assert "".join(p.choices[0].delta.content or "" for p in parts) == whole.choices[0].message.content
    assert parts[-1].choices[0].finish_reason == whole.choices[0].finish_reason


def test_usage_is_counted_but_shown_only_to_who_asked(weir, oai):
    ask_for = {"model": NAME, "messages": HI, "max_tokens": 6, "stream": True}
    raw = oai.with_raw_response.create(**ask_for)
    assert all(p.choices and p.usage is None for p in raw.parse())
    line = weir.access_of(raw.headers["x-request-id"])
    assert line["usage_known"] is True and 1 <= line["tokens_out"] <= 6 and line["tokens_in"] > 0
    assert line["outcome"] == "ok" and line["good"] is True and line["ttft_ms"] > 0

    *parts, last = oai.create(**ask_for, stream_options={"include_usage": True})
    assert all(p.choices for p in parts) and last.choices == [] and 1 <= last.usage.completion_tokens <= 6


def test_completions(openai_client):
    ask_for = {"model": NAME, "prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}
    assert "Paris" in openai_client.completions.create(**ask_for).choices[0].text
    assert "Paris" in "".join(p.choices[0].text for p in openai_client.completions.create(**ask_for, stream=True))


def test_responses(openai_client):
    assert openai_client.responses.create(model=NAME, input="Say hi.", max_output_tokens=8).output
    events = openai_client.responses.create(model=NAME, input="Say hi.", max_output_tokens=8, stream=True)
    kinds = [e.type for e in events]
    assert kinds[0] == "response.created" and kinds[-1] in ("response.completed", "response.incomplete")
    assert "response.output_text.delta" in kinds


def test_messages(weir, anthropic_client):
    answer = anthropic_client.messages.create(model=NAME, max_tokens=8, messages=HI)
    assert answer.content[0].text and answer.usage.output_tokens >= 1
    cached = answer.usage.cache_read_input_tokens or 0
    whole = answer.usage.input_tokens + cached + (answer.usage.cache_creation_input_tokens or 0)
    line = weir.access_of(answer._request_id)
    assert (line["tokens_in"], line["tokens_cached"]) == (whole, cached) and line["tokens_out"] == answer.usage.output_tokens
    with anthropic_client.messages.stream(model=NAME, max_tokens=8, messages=HI) as stream:
        assert "".join(stream.text_stream)
        final = stream.get_final_message()
    assert final.stop_reason in ("end_turn", "max_tokens")
    assert anthropic_client.messages.count_tokens(model=NAME, messages=HI).input_tokens == whole


def test_tokenize_and_back(weir):
    there = ask(weir.port, "/tokenize", {"model": NAME, "prompt": "hello world"})
    assert there.status == 200 and there.json["count"] == len(there.json["tokens"]) >= 2, there
    back = ask(weir.port, "/detokenize", {"model": NAME, "tokens": there.json["tokens"]})
    assert back.status == 200 and back.json["prompt"] == "hello world", back


def test_required_tool_call(weir, oai):
    ask_for = {"model": NAME, "messages": [{"role": "user", "content": "The weather in Paris?"}], "tools": [WEATHER],
               "tool_choice": "required", "max_tokens": 60, "temperature": 0}
    (call,) = oai.create(**ask_for).choices[0].message.tool_calls
    assert call.function.name == "get_weather" and call.id and json.loads(call.function.arguments)

    raw = oai.with_raw_response.create(**ask_for, stream=True)
    parts = list(raw.parse())
    calls = [c for p in parts for c in p.choices[0].delta.tool_calls or []]
    assert calls[0].id and calls[0].function.name == "get_weather"
    assert json.loads("".join(c.function.arguments or "" for c in calls))
    assert parts[-1].choices[0].finish_reason == "tool_calls"
    line = weir.access_of(raw.headers["x-request-id"])
    assert line["outcome"] == "ok" and line["ttft_ms"] > 0, "a tool delta is content"


def test_json_schema(oai):
    answer = oai.create(model=NAME, messages=[{"role": "user", "content": "A person."}], max_tokens=60, temperature=0,
                        response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}})
    assert set(json.loads(answer.choices[0].message.content)) == {"name", "age"}


def test_logprobs(oai):
    ask_for = {"model": NAME, "messages": HI, "max_tokens": 3, "logprobs": True, "top_logprobs": 2}
    tokens = oai.create(**ask_for).choices[0].logprobs.content
    assert tokens and all(len(t.top_logprobs) == 2 for t in tokens)
    parts = list(oai.create(**ask_for, stream=True))
    assert any(p.choices[0].logprobs and p.choices[0].logprobs.content for p in parts)


def test_two_answers(oai):
    ask_for = {"model": NAME, "messages": HI, "max_tokens": 4, "n": 2}
    assert [c.index for c in oai.create(**ask_for).choices] == [0, 1]
    ended = [c.index for p in oai.create(**ask_for, stream=True) for c in p.choices if c.finish_reason]
    assert sorted(ended) == [0, 1]


@pytest.mark.parametrize("stream", [False, True])
def test_context_overflow_has_the_code_that_users_look_for(weir, oai, anthropic_client, stream):
    long = [{"role": "user", "content": "word " * 3000}]
    before = weir.metrics().value("weir_retries_total")
    with pytest.raises(openai.BadRequestError) as e:
        oai.create(model=NAME, messages=long, max_tokens=4, stream=stream)
    assert e.value.code == "context_length_exceeded"
    with pytest.raises(anthropic.BadRequestError) as e:
        anthropic_client.messages.create(model=NAME, max_tokens=4, messages=long, stream=stream)
    assert e.value.body["error"]["type"] == "invalid_request_error"
    assert weir.metrics().value("weir_retries_total") == before


def test_unknown_model_is_refused_by_weir(weir, plain, oai):
    before = weir.metrics().value("weir_refused_requests_total")
    for name in ("gpt-9", MODEL):  # the engine's own name is not one that clients may use
        with pytest.raises(openai.NotFoundError) as e:
            oai.create(model=name, messages=HI)
        assert e.value.code == "model_not_found"
    assert weir.metrics().value("weir_refused_requests_total") == before + 2


def test_bad_request_keeps_the_engines_words(weir):
    response = ask(weir.port, "/v1/chat/completions", {"model": NAME, "messages": "bad"})
    assert response.status == 400 and "valid list" in response.error["message"], response


@pytest.mark.parametrize("stream", [False, True])
def test_client_that_leaves_frees_the_engine(weir, plain, record_property, stream):
    before = weir.metrics().value("weir_requests_total", outcome="abandoned")
    with Connection(weir.port, timeout=120) as c:
        c.send(request_bytes("/v1/chat/completions", chat_body(model=NAME, stream=stream, max_tokens=900, ignore_eos=True)))
        eventually(lambda: plain.figure("num_requests_running") == 1, "it is computed", timeout=60, every=0.1)
    left = time.monotonic()
    eventually(lambda: plain.running() == 0, "the engine is idle", timeout=60, every=0.05)
    record_property("idle_after_s", round(time.monotonic() - left, 2))
    eventually(lambda: weir.metrics().value("weir_requests_total", outcome="abandoned") == before + 1, "counted apart")
    assert chat(weir.port, model=NAME, max_tokens=2, timeout=120).status == 200
