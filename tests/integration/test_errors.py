"""Errors before the first byte: status and shape are kept, weir's own are in the client's dialect."""
import json
import threading

import pytest

from harness import client, replies
from harness import upstream as u
from harness.client import Connection, ask, chat, chat_body, messages, request_bytes
from harness.wait import eventually

SITE = {"settings": {"limits": {"body": "40MiB"}}}

OPENAI_KEYS = {"message", "type", "param", "code"}
ANTHROPIC_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
                   404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 500: "api_error",
                   529: "overloaded_error", 504: "timeout_error"}


def assert_openai_error(response, status, code=None, type_="invalid_request_error"):
    assert response.status == status, response
    assert response.header("content-type").startswith("application/json")
    assert set(response.error) == OPENAI_KEYS and isinstance(response.error["message"], str), response
    assert response.error["type"] == type_
    if code:
        assert response.error["code"] == code
    assert response.header("x-request-id")


def assert_anthropic_error(response, status, type_=None):
    assert response.status == status, response
    page = response.json
    assert page["type"] == "error" and isinstance(page["error"]["message"], str) and page["error"]["message"]
    assert page["error"]["type"] == (type_ or ANTHROPIC_TYPES[status])
    assert page["request_id"] == response.header("request-id")


# ---- context overflow ----

OVERFLOWS = {"llamacpp": replies.LLAMA_OVERFLOW, "vllm": replies.VLLM_OVERFLOW, "sglang": replies.SGLANG_OVERFLOW,
             "openai": replies.OPENAI_OVERFLOW}


@pytest.fixture(scope="module")
def by_engine(shared_workshop):
    return {kind: shared_workshop.site(kind=kind) for kind in OVERFLOWS}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kind", OVERFLOWS)
def test_context_overflow_of_every_engine_becomes_context_length_exceeded(by_engine, kind, streamed):
    site = by_engine[kind]
    site.clear()
    site.up.always(u.answer(400, OVERFLOWS[kind]))
    response = chat(site.port, stream=streamed)
    assert_openai_error(response, 400, "context_length_exceeded")
    assert "2048" in response.error["message"], "the engine's figures are kept"
    assert len(site.up.requests) == 1, "never retried"


@pytest.mark.parametrize("kind", OVERFLOWS)
def test_context_overflow_in_anthropic_form(by_engine, kind):
    site = by_engine[kind]
    site.clear()
    site.up.always(u.answer(400, OVERFLOWS[kind]))
    response = messages(site.port)
    assert_anthropic_error(response, 400)
    assert "2048" in response.json["error"]["message"] and len(site.up.requests) == 1


# ---- passing through (FR-12) ----

@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 413, 415, 418, 422])
def test_fr12_client_faults_pass_through_once_with_their_body(site, status):
    body = b'{"error" : {"message":"no, \\u00e9","type":"BadRequestError","param":null,"code":%d}}\n' % status
    site.up.next(u.answer(status, body, headers=[("X-Engine-Says", "hello")]))
    response = chat(site.port)
    assert (response.status, response.body) == (status, body)
    assert len(site.up.requests) == 1


@pytest.mark.parametrize("body, type_", [(b"plain words", "text/plain"), (b"<html>no</html>", "text/html"), (b"", None),
                                         (b'{"error":"Unauthorized"}', "application/json")])
def test_odd_error_bodies_reach_openai_clients_as_they_are_or_in_an_envelope(site, body, type_):
    site.up.next(u.answer(400, body, content_type=type_ or "application/octet-stream"))
    response = chat(site.port)
    assert response.status == 400
    if response.body != body:
        assert_openai_error(response, 400)


@pytest.mark.parametrize("status, body", [
    (400, replies.openai_error("bad things", "BadRequestError", 400)),
    (401, {"error": "Unauthorized"}), (404, replies.openai_error("no model", "NotFoundError", 404)),
    (422, replies.openai_error("unprocessable", "UnprocessableEntityError", 422)), (400, b"<html>"), (400, b""),
    (413, replies.openai_error("too big"))])
def test_engine_errors_become_anthropic_shaped_on_messages(site, status, body):
    site.up.next(u.answer(status, body))
    response = messages(site.port)
    assert response.status == status
    assert response.json["type"] == "error" and response.json["error"]["type"] in set(ANTHROPIC_TYPES.values())
    if isinstance(body, dict) and isinstance(body["error"], dict):
        assert response.json["error"]["message"] == body["error"]["message"]


def test_anthropic_shaped_engine_errors_pass_unchanged(site):
    body = replies.dumps(replies.anthropic_error("invalid_request_error", "max_tokens: required"))
    site.up.next(u.answer(400, body))
    response = messages(site.port)
    assert (response.status, response.body) == (400, body)


def test_fr40_engine_500_of_a_nan_logprob_is_passed_through(site):
    body = b'{"error":{"message":"Out of range float values are not JSON compliant: -inf","type":"InternalServerError",' \
           b'"param":null,"code":500}}'
    site.up.always(u.answer(500, body))
    response = chat(site.port, logprobs=True)
    assert (response.status, response.body) == (500, body)


@pytest.mark.parametrize("number", [b"-Infinity", b"NaN", b"-9999.0", b"1e999"])
def test_fr40_numbers_that_only_lax_readers_take_are_relayed(site, number):
    whole = b'{"id":"x","choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop","logprobs":{"content":' \
            b'[{"logprob":' + number + b'}]}}]}'
    site.up.next(u.answer(200, whole))
    assert chat(site.port, logprobs=True).body == whole
    event = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"logprobs":{"content":[{"logprob":' + number + b'}]}}]}\n\n'
    site.up.next(u.stream(replies.ROLE, event, replies.FINISH, replies.DONE))
    response = chat(site.port, stream=True, logprobs=True)
    assert response.body == replies.ROLE + event + replies.FINISH + replies.DONE


def test_fr31_slow_engine_error_keeps_its_status(site):
    go = threading.Event()
    site.up.next(u.after(go, u.answer(400, replies.openai_error("late"))))
    with Connection(site.port) as c:
        c.send(request_bytes("/v1/chat/completions", chat_body(stream=True)))
        site.up.wait_for_requests()
        c.timeout = 0.3
        c.fill()
        assert c.buffer == b"", "nothing is sent before the engine has answered"
        c.timeout = client.PATIENCE
        go.set()
        response = c.read_response()
    assert response.status == 400 and response.error["message"] == "late"


# ---- malformed JSON ----

BAD_JSON = {
    "not json": b"hello", "empty": b"", "spaces": b"  \n ", "array": b"[]", "string": b'"m"', "number": b"1",
    "null": b"null", "cut": b'{"model":"m","messages":[', "cut string": b'{"model":"m","x":"abc', "trailing comma": b'{"model":"m",}',
    "two values": b'{"model":"m"}{"model":"m"}', "trailing bytes": b'{"model":"m"} x', "single quotes": b"{'model':'m'}",
    "unquoted key": b'{model:"m"}', "comment": b'{"model":"m"/*x*/}', "nan": b'{"model":"m","x":NaN}',
    "bad number": b'{"model":"m","x":01}', "bad number 2": b'{"model":"m","x":1.}', "plus": b'{"model":"m","x":+1}',
    "bad escape": b'{"model":"m","x":"\\x41"}', "cut escape": b'{"model":"m","x":"\\u12"}', "control": b'{"model":"m","x":"a\nb"}',
    "nul": b'{"model":"m"}\x00', "bom": b'\xef\xbb\xbf{"model":"m"}x', "missing colon": b'{"model" "m"}',
    "closing too much": b'{"model":"m"}}', "wrong close": b'{"model":"m","x":[1}', "utf-16": '{"model":"m"}'.encode("utf-16"),
}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("name", BAD_JSON)
def test_malformed_json_is_400_and_never_reaches_an_engine(site, name, path):
    response = ask(site.port, path, BAD_JSON[name])
    if path == "/v1/messages":
        assert_anthropic_error(response, 400)
    else:
        assert_openai_error(response, 400)
    assert not site.up.requests


def wrap(text):
    return b'{"model":"m","messages":[{"role":"user","content":"' + text + b'"}]}'


@pytest.mark.parametrize("text", [b"\\ud83d", b"\\ude00", b"\\ud83d\\ud83d", b"\\ud83dx", b"\\ud83d\\u0041",
                                  b"a\xff", b"\xc0\x80", b"\xed\xa0\xbd\xed\xb8\x80", b"\xf5\x80\x80\x80", b"\xe4\xbd"])
def test_fr18_lone_surrogates_and_bad_utf8_are_400_naming_the_offset(site, text):
    body = wrap(text)
    response = ask(site.port, "/v1/chat/completions", body)
    assert_openai_error(response, 400)
    assert any(c.isdigit() for c in response.error["message"]), "an offset is named"
    assert not site.up.requests


@pytest.mark.parametrize("text", [b"\\ud83d\\ude00", b"\\u0000", b"\\u4f60", "你好🙂".encode(), b"\\uD83D\\uDE00"])
def test_fr18_valid_text_is_untouched(site, text):
    body = wrap(text)
    assert ask(site.port, "/v1/chat/completions", body).status == 200
    assert site.up.requests[0].body == body.replace(b'"model":"m"', b'"model":"engine-side"')


@pytest.mark.parametrize("body", [
    b'{"model":"m","model":"secret","messages":[]}', b'{"model":"m","mod\\u0065l":"secret","messages":[]}',
    b'{"model":"m","stream":false,"stream":true}', b'{"model":"m","max_tokens":1,"max_tokens":100000}',
    b'{"model":"m","n":1,"n":50}', b'{"model":"m","stream_options":{},"stream_options":null}',
    b'{"stream":true,"model":"m","\\u0073tream":false}'])
def test_fr19_duplicate_of_a_key_that_weir_acts_on_is_400(site, body):
    response = ask(site.port, "/v1/chat/completions", body)
    assert_openai_error(response, 400)
    assert not site.up.requests


DEEP = 100_000


@pytest.mark.parametrize("body", [
    b'{"model":"m","x":' + b"[" * DEEP + b"]" * DEEP + b"}", b'{"model":"m","x":' + b"[" * DEEP,
    b'{"model":"m","x":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}", b"[" * DEEP, b'{"a":' * DEEP,
    b'{"model":"m","tools":[{"type":"function","function":{"name":"f","parameters":' + b"[" * DEEP + b"]" * DEEP + b"}}]}",
], ids=["array", "cut", "object", "bare", "bare object", "tools"])
def test_fr20_nesting_bomb_is_400(site, body):
    assert_openai_error(ask(site.port, "/v1/chat/completions", body), 400)
    assert not site.up.requests


def test_fr20_ordinary_depth_is_fine(site):
    body = b'{"model":"m","x":' + b"[" * 60 + b"]" * 60 + b"}"
    assert ask(site.port, "/v1/chat/completions", body).status == 200


def test_fr20_bomb_in_the_answer_is_relayed_or_failed_but_survived(site):
    bomb = b'{"usage":' + b"[" * DEEP + b"]" * DEEP + b"}"
    site.up.next(u.answer(200, bomb))
    response = chat(site.port)
    assert response.status in (200, 502)
    site.up.next(u.stream(replies.ROLE, replies.word("x"), b'data: {"usage":' + b"[" * DEEP + b"\n\n", replies.FINISH,
                          replies.DONE))
    assert chat(site.port, stream=True).status == 200


# ---- steering the engine past weir ----

@pytest.mark.parametrize("member", [b'"kv_transfer_params":{"do_remote_decode":true}', b'"bootstrap_host":"x"',
                                    b'"bootstrap_port":1', b'"bootstrap_room":1', b'"disagg_prefill_dp_rank":0',
                                    b'"routed_dp_rank":0'])
def test_members_that_steer_the_engine_are_refused(site, member):
    response = ask(site.port, "/v1/chat/completions", b'{"model":"m","messages":[],' + member + b"}")
    assert_openai_error(response, 400)
    assert member.split(b'"')[1].decode() in response.error["message"] + str(response.error["param"])
    assert not site.up.requests


# ---- content type ----

@pytest.mark.parametrize("value", ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON",
                                   "text/plain", "application/x-www-form-urlencoded"])
def test_content_type_is_json_or_clearly_refused(site, value):
    """curl -d without -H sends a form type; engines differ, weir may be kind or say 415, never 5xx."""
    response = ask(site.port, "/v1/chat/completions", chat_body(), headers=[("Content-Type", value)])
    if "json" in value.lower():
        assert response.status == 200
    else:
        assert response.status in (200, 415)


# ---- big bodies (FR-17) ----

def big(size):
    start = b'{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,'
    end = b'"}}]}]}'
    return start + b"A" * (size - len(start) - len(end)) + end


@pytest.mark.parametrize("size", [1 << 20, 10 << 20, 32 << 20])
def test_fr17_big_body_passes_byte_for_byte(site, size):
    body = big(size)
    assert ask(site.port, "/v1/chat/completions", body, timeout=60).status == 200
    assert site.up.requests[0].body == body.replace(b'"model":"m"', b'"model":"engine-side"', 1)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_fr17_one_byte_over_the_limit_is_413_decided_from_the_length(site, path):
    with Connection(site.port) as c:
        c.send(request_bytes(path, b"", headers=[("Content-Length", str((40 << 20) + 1))]))
        response = c.read_response()  # before any body byte was sent
        assert c.is_closed_by_peer()
    if path == "/v1/messages":
        assert_anthropic_error(response, 413)
    else:
        assert_openai_error(response, 413, "request_too_large")
    assert not site.up.requests


def test_fr17_limit_holds_for_chunked_bodies(site):
    with Connection(site.port) as c:
        c.send(request_bytes("/v1/chat/completions", b"", headers=[("Transfer-Encoding", "chunked")], length=False))
        for _ in range(42):
            c.send(replies.chunk(b" " * (1 << 20)))
        response = c.read_response()
    assert_openai_error(response, 413)
    assert not site.up.requests


def test_fr17_413_reaches_a_client_that_sends_on(site):
    """The answer must not be lost to a reset while the client is still writing."""
    with Connection(site.port) as c:
        c.send(request_bytes("/v1/chat/completions", b" " * (41 << 20)))
        response = c.read_response()
    assert response is not None and response.status == 413


def test_expect_100_continue_is_answered(site):
    body = replies.dumps(chat_body())
    with Connection(site.port) as c:
        c.send(request_bytes("/v1/chat/completions", b"", headers=[("Expect", "100-continue"),
                                                                     ("Content-Length", str(len(body)))]))
        c.read_until(b"\r\n\r\n")
        assert c.buffer.startswith(b"HTTP/1.1 100 ")
        c.send(body)
        assert c.read_response().status == 200


def test_expect_100_continue_with_too_large_a_body_is_refused_at_once(site):
    with Connection(site.port) as c:
        c.send(request_bytes("/v1/chat/completions", b"", headers=[("Expect", "100-continue"),
                                                                     ("Content-Length", str(100 << 20))]))
        assert c.read_response().status == 413


def test_head_too_large_is_431(site):
    response = chat(site.port, headers=[("X-Long", "a" * (256 << 10))])
    assert response.status == 431
    assert not site.up.requests


def test_error_texts_are_valid_json_whatever_the_client_wrote(site):
    nasty = 'x"\\\n\u2028</script>\u0001🙂' + "y" * 2000
    response = ask(site.port, "/v1/chat/completions", json.dumps({"model": nasty}).encode())
    assert_openai_error(response, response.status)
    assert response.status in (400, 404) and len(response.body) < 2000


def test_metric_counts_of_refusals_rise(site):
    before = site.weir.metrics_text()
    chat(site.port, model="nope")
    eventually(lambda: site.weir.metrics_text() != before, "some figure moved")
