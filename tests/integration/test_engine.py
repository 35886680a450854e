"""Real llama.cpp engines with a real model: the official SDKs and curl through weir."""
import json
import subprocess
import threading

import anthropic
import openai
import pytest

from harness import client, engine
from harness.client import Connection, ask, chat, chat_body, get, request_bytes
from harness.wait import eventually
from harness.weir import model

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

HI = [{"role": "user", "content": "Say hi."}]
NAME = "small"


class Real:
    def __init__(self, weir, engines):
        self.weir, self.engines, self.port = weir, engines, weir.port


@pytest.fixture(scope="module")
def shared_real(shared_workshop):
    engines = [engine.Engine("--embeddings") for _ in range(2)]
    try:
        for e in engines:
            e.wait_until_ready()
        weir = shared_workshop.weir({"models": [model(*[e.url for e in engines], name=NAME, engine="llamacpp",
                                                      engine_model=engine.MODEL, aliases=["gpt-tiny"],
                                                      slo={"ttft": "60s", "tpot": "10s"})], "workers": 2})
        yield Real(weir, engines)
    finally:
        for e in engines:
            e.stop()


@pytest.fixture
def real(shared_real):
    yield shared_real
    shared_real.weir.assert_sound()


@pytest.fixture
def oai(real):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{real.port}/v1", api_key="sk-x", max_retries=0, timeout=120) as c:
        yield c


@pytest.fixture
def claude(real):
    with anthropic.Anthropic(base_url=f"http://127.0.0.1:{real.port}", api_key="sk-x", max_retries=0, timeout=120) as c:
        yield c


def test_models(oai):
    assert [m.id for m in oai.models.list()] and oai.models.retrieve(NAME).id == NAME


def test_chat(real, oai):
    raw = oai.chat.completions.with_raw_response.create(model=NAME, messages=HI, max_tokens=8, temperature=0)
    answer = raw.parse()
    assert answer.choices[0].message.content and answer.usage.completion_tokens >= 1
    line = real.weir.access_of(raw.headers["x-request-id"])
    assert (line["tokens_in"], line["tokens_out"]) == (answer.usage.prompt_tokens, answer.usage.completion_tokens)


def test_stream_is_the_same_text_as_the_whole_answer(oai):
    whole = oai.chat.completions.create(model=NAME, messages=HI, max_tokens=12, temperature=0, seed=1)
    parts = list(oai.chat.completions.create(model=NAME, messages=HI, max_tokens=12, temperature=0, seed=1, stream=True))
    assert "".join(p.choices[0].delta.content or "" for p in parts) == whole.choices[0].message.content
    assert parts[-1].choices[0].finish_reason == whole.choices[0].finish_reason


def test_stream_usage_is_what_the_log_says(real, oai):
    raw = oai.chat.completions.with_raw_response.create(model=NAME, messages=HI, max_tokens=6, stream=True,
                                                        stream_options={"include_usage": True})
    *_, last = raw.parse()
    assert last.choices == [] and last.usage.completion_tokens <= 6
    line = real.weir.access_of(raw.headers["x-request-id"])
    assert line["tokens_out"] == last.usage.completion_tokens and line["good"] is True and line["ttft_ms"] > 0


def test_alias(oai):
    assert oai.chat.completions.create(model="gpt-tiny", messages=HI, max_tokens=2).choices


def test_json_schema(oai):
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
              "required": ["name", "age"], "additionalProperties": False}
    answer = oai.chat.completions.create(model=NAME, messages=[{"role": "user", "content": "A person."}], max_tokens=60, temperature=0,
                                         response_format={"type": "json_schema", "json_schema": {"name": "p", "schema": schema}})
    assert set(json.loads(answer.choices[0].message.content)) == {"name", "age"}


def test_logprobs(oai):
    answer = oai.chat.completions.create(model=NAME, messages=HI, max_tokens=3, logprobs=True, top_logprobs=2)
    assert len(answer.choices[0].logprobs.content) >= 1
    assert all(len(t.top_logprobs) == 2 for t in answer.choices[0].logprobs.content)
    parts = list(oai.chat.completions.create(model=NAME, messages=HI, max_tokens=3, logprobs=True, top_logprobs=2, stream=True))
    assert any(p.choices and p.choices[0].logprobs for p in parts)


def test_n_answers(real, oai):
    answer = oai.chat.completions.create(model=NAME, messages=HI, max_tokens=3, n=2)
    assert [c.index for c in answer.choices] == [0, 1]
    parts = list(oai.chat.completions.create(model=NAME, messages=HI, max_tokens=3, n=2, stream=True))
    assert {c.index for p in parts for c in p.choices} == {0, 1}
    ended = {c.index for p in parts for c in p.choices if c.finish_reason}
    assert ended == {0, 1}


def test_completions_and_embeddings(oai):
    assert oai.completions.create(model=NAME, prompt="The capital of France is", max_tokens=4).choices[0].text
    data = oai.embeddings.create(model=NAME, input=["hello", "world"], encoding_format="float").data
    assert [len(d.embedding) for d in data] == [576, 576]


def test_responses_api(oai):
    answer = oai.responses.create(model=NAME, input="Say hi.", max_output_tokens=8)
    assert answer.output
    kinds = [e.type for e in oai.responses.create(model=NAME, input="Say hi.", max_output_tokens=6, stream=True)]
    assert kinds[0] == "response.created" and kinds[-1] in ("response.completed", "response.incomplete")


def test_anthropic_messages(claude):
    answer = claude.messages.create(model=NAME, max_tokens=8, messages=HI)
    assert answer.content[0].text and answer.usage.output_tokens >= 1
    with claude.messages.stream(model=NAME, max_tokens=8, messages=HI) as stream:
        assert "".join(stream.text_stream)
        assert stream.get_final_message().stop_reason in ("end_turn", "max_tokens")


def test_count_tokens_and_tokenize(real, claude):
    assert claude.messages.count_tokens(model=NAME, messages=HI).input_tokens > 3
    response = ask(real.port, "/tokenize", {"model": NAME, "content": "hello world"})
    assert response.status == 200 and len(response.json["tokens"]) >= 2
    back = ask(real.port, "/detokenize", {"model": NAME, "tokens": response.json["tokens"]})
    assert back.json["content"] == "hello world"


def test_context_overflow(oai, claude):
    long = [{"role": "user", "content": "word " * 9000}]
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as e:
            oai.chat.completions.create(model=NAME, messages=long, stream=stream)
        assert e.value.code == "context_length_exceeded"
    with pytest.raises(anthropic.BadRequestError) as e:
        claude.messages.create(model=NAME, max_tokens=8, messages=long)
    assert e.value.body["error"]["type"] == "invalid_request_error"


def test_unknown_model_is_refused_although_the_engine_takes_any(oai):
    with pytest.raises(openai.NotFoundError):
        oai.chat.completions.create(model="gpt-9", messages=HI)


def test_bad_requests_keep_the_engines_words(oai):
    with pytest.raises(openai.BadRequestError):
        oai.chat.completions.create(model=NAME, messages="bad")


def test_cancel_frees_the_engine(real, oai):
    stream = oai.chat.completions.create(model=NAME, messages=[{"role": "user", "content": "Count to a thousand."}],
                                         max_tokens=1000, stream=True)
    for i, _ in enumerate(stream):
        if i == 3:
            break
    stream.close()
    eventually(lambda: sum(e.running() for e in real.engines) == 0, "the engines are idle")


def test_cancel_of_a_whole_answer_is_noticed_at_once(real):
    """llama.cpp itself may compute on for a while; the replica has no request of ours any more."""
    c = Connection(real.port)
    c.send(request_bytes("/v1/chat/completions", chat_body(model=NAME, text="Count to a thousand.", max_tokens=150,
                                                           ignore_eos=True), headers=[("x-request-id", "left-whole")]))
    eventually(lambda: sum(e.running() for e in real.engines) >= 1, "it is computed")
    c.close()
    real.weir.assert_idle()
    assert real.weir.access_of("left-whole")["status"] == 499


def test_client_timeout(real):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{real.port}/v1", api_key="x", max_retries=0, timeout=0.5) as c:
        with pytest.raises(openai.APITimeoutError):
            c.chat.completions.create(model=NAME, messages=[{"role": "user", "content": "Count."}], max_tokens=150,
                                      extra_body={"ignore_eos": True}, extra_headers={"x-request-id": "timed-out"})
    assert real.weir.access_of("timed-out")["status"] == 499


def test_a_hundred_at_once(real):
    answers, before = [], real.weir.metrics()

    def one(i):
        with openai.OpenAI(base_url=f"http://127.0.0.1:{real.port}/v1", api_key="x", max_retries=0, timeout=240) as c:
            parts = list(c.chat.completions.create(model=NAME, messages=[{"role": "user", "content": f"{i}"}], max_tokens=3, stream=True))
            answers.append((i, len({p.id for p in parts}), parts[-1].choices[0].finish_reason))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(100)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(answers) == 100 and all(ids == 1 and finish for _, ids, finish in answers)
    eventually(lambda: real.weir.metrics().value("weir_requests_total", model=NAME, outcome="ok")
               - before.value("weir_requests_total", model=NAME, outcome="ok") == 100, "all counted as good ends")
    by_replica = {}
    for line in real.weir.access:
        by_replica[line["replica"]] = by_replica.get(line["replica"], 0) + 1
    assert {e.url for e in real.engines} <= set(by_replica)


def test_curl(real):
    def curl(*arguments):
        return subprocess.run(["curl", "-sS", "--max-time", "60", *arguments], capture_output=True, text=True, timeout=90)
    base = f"http://127.0.0.1:{real.port}"
    body = json.dumps({"model": NAME, "messages": HI, "max_tokens": 4})
    run = curl(f"{base}/v1/chat/completions", "-H", "Content-Type: application/json", "-d", body)
    assert json.loads(run.stdout)["choices"], run.stderr
    run = curl("-N", f"{base}/v1/chat/completions", "-H", "Content-Type: application/json", "-d",
               json.dumps({"model": NAME, "messages": HI, "max_tokens": 4, "stream": True}))
    assert run.returncode == 0 and run.stdout.endswith("data: [DONE]\n\n")
    run = curl("-o", "/dev/null", "-w", "%{http_code}", f"{base}/v1/models")
    assert run.stdout == "200"
    run = curl("-T", "-", f"{base}/v1/chat/completions", "-X", "POST", "-H", "Content-Type: application/json",
               "-H", "Transfer-Encoding: chunked", "-d", body)
    assert run.returncode in (0, 2)


def test_metrics_of_real_engines(real):
    eventually(lambda: len(real.weir.metrics().find("weir_replica_reported_running", model=NAME)) == 2, "both are scraped")
    assert real.weir.metrics().value("weir_slo_ttft_seconds", model=NAME) == 60
    assert get(real.weir.admin, "/metrics").status == 200


def test_prefix_cache_of_the_engine_shows(real, oai):
    long = [{"role": "user", "content": "Tell me about the sea. " * 20}]
    details = [oai.chat.completions.create(model=NAME, messages=long, max_tokens=2).usage.prompt_tokens_details for _ in range(4)]
    assert max((d.cached_tokens or 0) for d in details if d) > 50
    eventually(lambda: real.weir.metrics().value("weir_tokens_total", model=NAME, direction="cached") > 50, "counted")


def test_utf8_text_comes_through(real):
    response = chat(real.port, model=NAME, stream=True, text="Repeat: 你好🙂 é", max_tokens=12, temperature=0)
    assert response.is_complete and client.text_of(response.events) is not None
    response.body.decode()


def test_discovery_of_real_engines(workshop, real):
    from harness.ports import free_port
    port, admin = free_port(), free_port()
    weir = workshop.weir(arguments=["serve", "--listen", f"127.0.0.1:{port}", "--admin-listen", f"127.0.0.1:{admin}",
                                    "--backends", ",".join(e.url for e in real.engines)], wait=False)
    weir.port, weir.admin = port, admin
    weir.wait_until_ready()
    assert chat(port, model=engine.MODEL, max_tokens=2, timeout=60).status == 200
