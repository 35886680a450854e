"""The official SDKs as clients, before engines that follow a script: what users of weir really see."""
import threading

import anthropic
import openai
import pytest

from harness import replies
from harness import upstream as u
from harness.replies import DONE, ROLE, chunk, stream_head, word
from harness.wait import eventually

SITE = {"count": 2, "policy": "round-robin", "settings": {"timeouts": {"between_events": "10s"}}}

HI = [{"role": "user", "content": "hi"}]


@pytest.fixture
def oai(site):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{site.port}/v1", api_key="sk-test", max_retries=0, timeout=15) as c:
        yield c


@pytest.fixture
def claude(site):
    with anthropic.Anthropic(base_url=f"http://127.0.0.1:{site.port}", api_key="sk-test", max_retries=0, timeout=15) as c:
        yield c


def everywhere(site, script):
    for up in site.upstreams:
        up.always(script)


# ---- OpenAI ----

def test_chat(oai):
    answer = oai.chat.completions.create(model="m", messages=HI)
    assert answer.choices[0].message.content == "Hello" and answer.usage.total_tokens == 7
    assert answer._request_id


def test_chat_stream(oai):
    chunks = list(oai.chat.completions.create(model="m", messages=HI, stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "Hello"
    assert all(c.choices for c in chunks), "no usage chunk for those who did not ask"
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_chat_stream_with_usage(oai):
    chunks = list(oai.chat.completions.create(model="m", messages=HI, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 2


def test_completions_embeddings_responses_models(oai):
    assert oai.completions.create(model="m", prompt="x").choices[0].text == "Hello"
    assert "".join(c.choices[0].text for c in oai.completions.create(model="m", prompt="x", stream=True)) == "Hello"
    assert oai.embeddings.create(model="m", input="x", encoding_format="float").data[0].embedding == [0.5, -0.25]
    assert oai.responses.create(model="m", input="x").status == "completed"
    kinds = [e.type for e in oai.responses.create(model="m", input="x", stream=True)]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert [m.id for m in oai.models.list()] == ["m"] and oai.models.retrieve("m").id == "m"


def test_async_client(site):
    import asyncio

    async def go():
        async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{site.port}/v1", api_key="x", max_retries=0) as c:
            async def one(i):
                stream = await c.chat.completions.create(model="m", messages=HI, stream=True)
                return "".join([p.choices[0].delta.content or "" async for p in stream])
            return await asyncio.gather(*[one(i) for i in range(100)])
    assert asyncio.run(go()) == ["Hello"] * 100


ERRORS = [
    (400, openai.BadRequestError, replies.openai_error("bad")), (401, openai.AuthenticationError, {"error": "Unauthorized"}),
    (403, openai.PermissionDeniedError, replies.openai_error("no")), (404, openai.NotFoundError, replies.openai_error("none")),
    (409, openai.ConflictError, replies.openai_error("x")), (422, openai.UnprocessableEntityError, replies.openai_error("x")),
    (429, openai.RateLimitError, replies.openai_error("slow")), (500, openai.InternalServerError, replies.openai_error("boom")),
    (503, openai.InternalServerError, replies.VLLM_BUSY)]


@pytest.mark.parametrize("status, kind, body", ERRORS, ids=[str(e[0]) for e in ERRORS])
@pytest.mark.parametrize("streamed", [False, True])
def test_errors_are_raised_with_their_status(site, oai, status, kind, body, streamed):
    everywhere(site, u.answer(status, body))
    with pytest.raises(kind) as e:
        oai.chat.completions.create(model="m", messages=HI, stream=streamed)
    assert e.value.status_code == status and e.value.request_id


def test_context_overflow_has_the_code_that_users_look_for(site, oai):
    everywhere(site, u.answer(400, replies.VLLM_OVERFLOW))
    with pytest.raises(openai.BadRequestError) as e:
        oai.chat.completions.create(model="m", messages=HI)
    assert e.value.code == "context_length_exceeded"


def test_unknown_model(oai):
    with pytest.raises(openai.NotFoundError) as e:
        oai.chat.completions.create(model="none", messages=HI)
    assert e.value.code == "model_not_found"


@pytest.mark.parametrize("how", ["fin", "rst", "no-finish", "close-delimited"])
def test_fr04_every_truncation_raises(site, oai, how):
    """Without the error event the SDK is silent for two of these."""
    script = {"fin": u.stream(ROLE, word("Hel"), end=b"", then="fin"), "rst": u.stream(ROLE, word("Hel"), end=b"", then="rst"),
              "no-finish": u.stream(ROLE, word("Hel")),
              "close-delimited": u.raw(replies.head(200, [("Content-Type", "text/event-stream")]) + ROLE + word("Hel"),
                                       then="fin")}[how]
    everywhere(site, script)
    got = []
    with pytest.raises(openai.APIError) as e:
        for c in oai.chat.completions.create(model="m", messages=HI, stream=True):
            got.append(c.choices[0].delta.content or "")
    assert "".join(got) == "Hel" and e.value.message
    assert e.value.code == "upstream_disconnected"


def test_fr04_engine_error_then_done_raises(site, oai):
    error = replies.data_event({"error": {"message": "EngineCore died", "type": "InternalServerError", "param": None, "code": 500}})
    everywhere(site, u.stream(ROLE, word("Hel"), error, DONE))
    with pytest.raises(openai.APIError, match="EngineCore died"):
        list(oai.chat.completions.create(model="m", messages=HI, stream=True))


def test_weirs_503_is_retried_by_the_sdk_as_told(workshop):
    """The delay that weir gives is honoured, and the request succeeds once an engine is back."""
    site = workshop.site()
    site.up.down()
    eventually(lambda: not site.weir.is_ready, "weir knows")
    seen = []
    with openai.OpenAI(base_url=f"http://127.0.0.1:{site.port}/v1", api_key="x", max_retries=0) as c:
        with pytest.raises(openai.InternalServerError) as e:
            c.chat.completions.create(model="m", messages=HI)
        seen.append(e.value.response.headers)
    assert 1 <= int(seen[0]["retry-after"]) <= 120 and int(seen[0]["retry-after-ms"]) > 0
    threading.Timer(0.3, site.up.up).start()
    with openai.OpenAI(base_url=f"http://127.0.0.1:{site.port}/v1", api_key="x", max_retries=5) as c:
        assert c.chat.completions.create(model="m", messages=HI).choices


def test_closing_a_stream_early_reaches_the_engine(site, oai):
    def endless(x):
        x.send(stream_head() + chunk(ROLE))
        while not x.peer_left(0.02) and not x.upstream.stopping:
            x.send(chunk(word("w")))
    everywhere(site, endless)
    stream = oai.chat.completions.create(model="m", messages=HI, stream=True)
    for i, _ in enumerate(stream):
        if i == 5:
            break
    stream.close()
    (seen,) = site.requests()
    assert seen.left.wait(5)


def test_client_timeout_reaches_the_engine(site):
    everywhere(site, u.silent)
    with openai.OpenAI(base_url=f"http://127.0.0.1:{site.port}/v1", api_key="x", max_retries=0, timeout=0.3) as c:
        with pytest.raises(openai.APITimeoutError):
            c.chat.completions.create(model="m", messages=HI)
    (seen,) = site.requests()
    assert seen.left.wait(5)


def test_tool_calls(site, oai):
    def call(**delta):
        return replies.chat_chunk({"tool_calls": [delta]})
    everywhere(site, u.stream(ROLE, call(index=0, id="c1", type="function", function={"name": "f", "arguments": ""}),
                              call(index=0, function={"arguments": '{"a":'}), call(index=0, function={"arguments": "1}"}),
                              replies.chat_chunk({}, "tool_calls"), DONE))
    arguments = ""
    for c in oai.chat.completions.create(model="m", messages=HI, stream=True, tools=[
            {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]):
        for t in c.choices[0].delta.tool_calls or []:
            arguments += t.function.arguments or ""
    assert arguments == '{"a":1}'


def test_raw_response_headers(oai):
    raw = oai.chat.completions.with_raw_response.create(model="m", messages=HI, extra_headers={"x-request-id": "mine"})
    assert raw.headers["x-request-id"] == "mine"


# ---- Anthropic ----

def test_messages(claude):
    answer = claude.messages.create(model="m", max_tokens=10, messages=HI)
    assert answer.content[0].text == "Hello" and answer.usage.output_tokens == 2 and answer._request_id


def test_messages_stream(claude):
    with claude.messages.stream(model="m", max_tokens=10, messages=HI) as stream:
        assert "".join(stream.text_stream) == "Hello"
        assert stream.get_final_message().stop_reason == "end_turn"


def test_count_tokens(claude):
    assert claude.messages.count_tokens(model="m", messages=HI).input_tokens == 5


def test_beta_query_works(claude):
    assert claude.beta.messages.create(model="m", max_tokens=10, messages=HI).content[0].text == "Hello"


ANTHROPIC_ERRORS = [
    (400, anthropic.BadRequestError, "invalid_request_error"), (401, anthropic.AuthenticationError, "authentication_error"),
    (404, anthropic.NotFoundError, "not_found_error"), (429, anthropic.RateLimitError, "rate_limit_error"),
    (500, anthropic.InternalServerError, "api_error")]


@pytest.mark.parametrize("status, kind, type_", ANTHROPIC_ERRORS, ids=[str(e[0]) for e in ANTHROPIC_ERRORS])
def test_engine_errors_reach_anthropic_users_in_their_form(site, claude, status, kind, type_):
    """The engine speaks OpenAI's form, as vLLM does on this path too."""
    everywhere(site, u.answer(status, replies.openai_error("the reason", "BadRequestError", status)))
    with pytest.raises(kind) as e:
        claude.messages.create(model="m", max_tokens=10, messages=HI)
    assert e.value.status_code == status and "the reason" in str(e.value)
    assert e.value.body["error"]["type"] == type_ and e.value.request_id


def test_shedding_is_529_for_anthropic_users(workshop):
    site = workshop.site()
    site.up.down()
    eventually(lambda: not site.weir.is_ready, "weir knows")
    with anthropic.Anthropic(base_url=f"http://127.0.0.1:{site.port}", api_key="x", max_retries=0) as c:
        with pytest.raises(anthropic.APIStatusError) as e:
            c.messages.create(model="m", max_tokens=10, messages=HI)
    assert e.value.status_code == 529 and e.value.body["error"]["type"] == "overloaded_error"


def test_fr06_overload_event_after_content_raises(site, claude):
    everywhere(site, u.stream(*replies.message_events()[:3], replies.named_event("error", replies.anthropic_error())))
    got = []
    with pytest.raises(anthropic.APIStatusError) as e:
        with claude.messages.stream(model="m", max_tokens=10, messages=HI) as stream:
            for text in stream.text_stream:
                got.append(text)
    assert got == ["Hel"] and "verloaded" in str(e.value)


def test_fr04_truncated_messages_raise(site, claude):
    everywhere(site, u.stream(*replies.message_events()[:3], end=b"", then="fin"))
    with pytest.raises(anthropic.APIStatusError):
        with claude.messages.stream(model="m", max_tokens=10, messages=HI) as stream:
            list(stream.text_stream)


def test_messages_without_message_stop_raise(site, claude):
    everywhere(site, u.stream(*replies.message_events()[:-1]))
    with pytest.raises(anthropic.APIStatusError):
        with claude.messages.stream(model="m", max_tokens=10, messages=HI) as stream:
            list(stream.text_stream)
