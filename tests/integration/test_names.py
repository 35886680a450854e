"""Model names, aliases and engine-side names; everything else of the body reaches the engine byte for byte."""
import json

import pytest

from harness import client, replies
from harness import upstream as u
from harness.client import ask, chat
from harness.weir import model, pool

LONG = "a-name-that-is-a-good-deal-longer-than-what-the-client-wrote/with/slashes:and-a-tag"


@pytest.fixture(scope="module")
def shared_site(shared_workshop):
    from conftest import Site
    up, same = shared_workshop.upstream(), shared_workshop.upstream(models=["same"])
    models = [model(up, name="m", aliases=["fast", "größe"], engine_model=LONG),
              model(up, name="a-long-public-name", engine_model="s"),
              model(same, name="same", engine_model=None),
              model(up, name="quote", engine_model='engine "q" \\ é')]
    return Site(shared_workshop.weir({"models": models}), [up, same])


def edited(body, model_name, public=b'"m"'):
    return body.replace(b'"model":' + public, b'"model":' + json.dumps(model_name).encode())


def test_fr16_longer_engine_name_gets_a_true_length(site):
    response = chat(site.port, model="m")
    (seen,) = site.up.requests
    assert response.status == 200 and seen.json["model"] == LONG
    assert seen.header_values("content-length") == [str(len(seen.body))] and not seen.header("transfer-encoding")


def test_fr16_shorter_engine_name_gets_a_true_length(site):
    assert chat(site.port, model="a-long-public-name").status == 200
    (seen,) = site.up.requests
    assert seen.json["model"] == "s" and seen.header("content-length") == str(len(seen.body))


@pytest.mark.parametrize("alias", ["fast", "größe"])
def test_alias_is_rewritten(site, alias):
    assert chat(site.port, model=alias).status == 200
    assert site.up.requests[0].json["model"] == LONG


def test_alias_written_with_escapes_is_the_same_name(site):
    body = b'{"model":"f\\u0061st","messages":[]}'
    assert ask(site.port, "/v1/chat/completions", body).status == 200
    assert site.up.requests[0].json["model"] == LONG


def test_engine_name_is_escaped_as_json(site):
    assert chat(site.port, model="quote").status == 200
    assert site.up.requests[0].json["model"] == 'engine "q" \\ é'


def test_without_engine_name_the_body_is_identical(site):
    body = b'{ "model" : "same" , "messages":[ ] }'
    assert ask(site.port, "/v1/chat/completions", body).status == 200
    assert site.upstreams[1].requests[0].body == body


@pytest.mark.parametrize("name", ["nope", LONG, "s", "M", "m ", "", "../m", "engine-side"])
def test_unknown_model_is_refused_by_weir(site, name):
    response = chat(site.port, model=name)
    assert not site.requests()
    if name:
        assert response.status == 404 and response.error["code"] == "model_not_found"
        assert response.error["type"] == "invalid_request_error" and set(response.error) == {
            "message", "type", "param", "code"}
    else:
        assert response.status in (400, 404)


def test_unknown_model_in_anthropic_form(site):
    response = client.messages(site.port, model="nope")
    assert response.status == 404
    assert response.json["type"] == "error" and response.json["error"]["type"] == "not_found_error"
    assert response.json["request_id"] == response.header("request-id")


@pytest.mark.parametrize("body", [b'{"messages":[]}', b'{"model":null,"messages":[]}', b'{"model":1,"messages":[]}',
                                  b'{"model":["m"]}', b"{}"])
def test_missing_or_odd_model_is_400(site, body):
    response = ask(site.port, "/v1/chat/completions", body)
    assert response.status == 400 and response.error["param"] == "model" and not site.requests()


BODIES = {
    "pretty": json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}, indent=4).encode(),
    "compact": b'{"model":"m","messages":[]}',
    "model last": b'{"messages":[],"temperature":0.70,"model":"m"}',
    "odd spaces": b' \r\n\t{ "model"\t: \n"m" , "x" : [ 1 ,2.50, 1e-7 , -0 ] }\n\n',
    "numbers": b'{"model":"m","a":1.0,"b":1e400,"c":12345678901234567890123,"d":0.1000}',
    "escapes": b'{"model":"m","s":"\\u00e9\\/\\ud83d\\ude42\\t","k\\u0065y":"\\u0041"}',
    "utf-8": '{"model":"m","s":"你好🙂 é","größe":1}'.encode(),
    "nested model": b'{"x":{"model":"inner"},"model":"m","tools":[{"model":"other"}]}',
    "nested duplicates": b'{"model":"m","metadata":{"a":1,"a":2},"messages":[{"role":"user","role":"system"}]}',
    "duplicates that weir does not act on": b'{"model":"m","seed":1,"seed":2}',
    "nulls": b'{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"x","type":"function",'
             b'"function":{"name":"f","arguments":"{}"}}]},{"role":"assistant","content":"","tool_calls":null}],'
             b'"tools":null,"stream":null,"stream_options":null,"max_tokens":null,"n":null,"user":null}',
    "unknown fields": json.dumps({"model": "m", **{f"field_{i}": {"deep": [i, {"er": None}]} for i in range(20)},
                                  "chat_template_kwargs": {"enable_thinking": False}, "guided_json": {"type": "object"},
                                  "max_completion_tokens": 9, "cache_salt": "s", "priority": 0}).encode(),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses",
                                  "/v1/embeddings"])
def test_fr21_all_but_the_model_reaches_the_engine_byte_for_byte(site, name, path):
    body = BODIES[name]
    response = ask(site.port, path, body)
    assert response.status == 200, response
    (seen,) = site.up.requests
    quoted = json.dumps(LONG).encode()
    at = {"odd spaces": b'"model"\t: \n"m"', "pretty": b'"model": "m"', "unknown fields": b'"model": "m"'}
    old = at.get(name, b'"model":"m"')
    assert seen.body == body.replace(old, old[:-3] + quoted, 1)


# ---- usage ----

def stream_body(extra=b""):
    return b'{"model":"m","messages":[],"stream":true' + extra + b"}"


@pytest.mark.parametrize("extra", [
    b"", b',"stream_options":null', b',"stream_options":{}', b',"stream_options":{"include_usage":false}',
    b',"stream_options":{"include_usage":null}', b',"stream_options": { "other" : 1 } ',
    b',"stream_options":{"include_usage":true}',
    b',"stream_options":{"continuous_usage_stats":false,"include_usage":true}',
    b',"stream_options":{"a":{"include_usage":false}}'])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_fr7_usage_is_always_asked_of_the_engine(site, path, extra):
    response = ask(site.port, path, stream_body(extra))
    assert response.status == 200
    (seen,) = site.up.requests
    assert seen.json["stream_options"]["include_usage"] is True
    asked = json.loads(stream_body(extra)).get("stream_options") or {}
    assert {k: v for k, v in seen.json["stream_options"].items() if k != "include_usage"} == {
        k: v for k, v in asked.items() if k != "include_usage"}
    assert seen.body.count(b"include_usage") == 1 + (b'"a":{"include_usage' in extra)
    assert seen.header("content-length") == str(len(seen.body))


def test_fr7_asked_for_usage_changes_nothing_in_the_body(site):
    body = stream_body(b',"stream_options":{ "include_usage" :  true }')
    ask(site.port, "/v1/chat/completions", body)
    assert site.up.requests[0].body == edited(body, LONG)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
def test_fr7_surfaces_without_the_option_do_not_get_it(site, path):
    body = stream_body()
    assert ask(site.port, path, body).status == 200
    assert site.up.requests[0].body == edited(body, LONG)


def test_unstreamed_requests_get_no_stream_options(site):
    body = b'{"model":"m","messages":[],"stream":false}'
    ask(site.port, "/v1/chat/completions", body)
    assert site.up.requests[0].body == edited(body, LONG)


USAGE_FORMS = {
    "empty choices": [replies.FINISH, replies.usage_chunk()],
    "empty delta": [replies.FINISH, replies.chat_chunk({}, None, usage=replies.USAGE)],
    "on the finish chunk": [replies.chat_chunk({}, "stop", usage=replies.USAGE)],
}


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("form", USAGE_FORMS)
def test_fr7_usage_chunk_is_shown_only_to_those_who_asked(site, form, asked):
    events = [replies.ROLE, replies.word("Hi"), *USAGE_FORMS[form], replies.DONE]
    site.up.next(u.stream(*events))
    options = {"stream_options": {"include_usage": True}} if asked else {}
    response = chat(site.port, stream=True, headers=[("x-request-id", f"fr7-{form}-{asked}".replace(" ", "-"))], **options)
    assert response.status == 200 and response.is_complete
    hidden = USAGE_FORMS[form][1:] if not asked else []
    assert response.body == b"".join(e for e in events if e not in hidden)
    empty = [e for e in response.events if e.data and not e.is_done and e.json["choices"] == []]
    assert len(empty) == (1 if asked and form == "empty choices" else 0)
    line = site.weir.access_of(response.header("x-request-id"))
    assert (line["tokens_in"], line["tokens_out"], line["tokens_cached"]) == (5, 2, 3)


def test_fr7_empty_choices_without_usage_are_not_invented_or_lost(site):
    """Azure-like prompt filter chunk: no usage, so it is the engine's business and is relayed."""
    odd = replies.data_event({"id": "x", "object": "chat.completion.chunk", "choices": [], "prompt_filter_results": []})
    events = [replies.ROLE, replies.word("Hi"), odd, replies.FINISH, replies.DONE]
    site.up.next(u.stream(*events))
    assert chat(site.port, stream=True).body == b"".join(events)


def test_fr27_explicit_zero_usage_stays_zero(site):
    zero = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    site.up.next(u.stream(replies.ROLE, replies.word("Hi"), replies.FINISH, replies.usage_chunk(zero), replies.DONE))
    response = chat(site.port, stream=True)
    line = site.weir.access_of(response.header("x-request-id"))
    assert (line["tokens_in"], line["tokens_out"]) == (0, 0)


def test_fr8_tool_call_fragments_are_relayed_verbatim(site):
    def call(**delta):
        return replies.chat_chunk({"tool_calls": [delta]})
    events = [replies.ROLE,
              replies.chat_chunk({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": '{"a":'}},
                                                 {"id": "b", "function": {"name": "g", "arguments": "{"}}]}),
              call(index=0, function={"arguments": "1}"}), call(index=0, id="c", function={"name": "h"}),
              call(index=1, function={"arguments": '"b":2}'}), call(index=0, function={"arguments": ""}),
              replies.chat_chunk({}, "tool_calls"), replies.DONE]
    site.up.next(u.stream(*events))
    assert chat(site.port, stream=True).body == b"".join(events)


def test_several_pools_of_one_model_know_their_own_names(workshop):
    one, two = workshop.upstream(models=["one"]), workshop.upstream(models=["two"])
    weir = workshop.weir({"models": [model(name="m", pools=[pool(one, name="p1", engine_model="one"),
                                                            pool(two, name="p2", engine_model="two")])]})
    for _ in range(20):
        assert chat(weir.port).status == 200
    assert {r.json["model"] for r in one.requests} <= {"one"} and {r.json["model"] for r in two.requests} <= {"two"}
    assert len(one.requests) + len(two.requests) == 20
    one.down(), two.down()
    one.up()
    one.clear()
    assert chat(weir.port).status == 200 and one.requests[-1].json["model"] == "one"
