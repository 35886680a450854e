"""Header hygiene both ways (FR-34), request ids, and keys that go nowhere (FR-23)."""
import pytest

from harness import client, replies
from harness import upstream as u
from harness.client import Connection, ask, chat, chat_body, messages, request_bytes
from harness.wait import eventually
from harness.weir import merge, model, pool

CLIENT_KEY = "sk-client-0123456789abcdef"
ENGINE_KEY = "ek-engine-fedcba9876543210"


@pytest.fixture(scope="module")
def shared_site(shared_workshop, tmp_path_factory):
    from conftest import Site
    key_file = tmp_path_factory.mktemp("keys") / "key"
    key_file.write_text(ENGINE_KEY + "\n")
    plain, keyed, by_env = (shared_workshop.upstream() for _ in range(3))
    models = [model(plain, name="m"),
              model(name="keyed", pools=[pool(keyed, engine_model="engine-side", api_key_file=str(key_file))]),
              model(name="env", pools=[pool(by_env, engine_model="engine-side", api_key_env="WEIR_TEST_ENGINE_KEY")])]
    weir = shared_workshop.weir({"models": models}, environment={"WEIR_TEST_ENGINE_KEY": ENGINE_KEY + "-env"})
    return Site(weir, [plain, keyed, by_env])


# ---- hop by hop (FR-34) ----

HOP = [("Connection", "keep-alive, X-Foo, x-bar"), ("X-Foo", "1"), ("X-Bar", "2"), ("Keep-Alive", "timeout=5"), ("TE", "trailers"),
       ("Proxy-Connection", "keep-alive"), ("Upgrade", "websocket"), ("Proxy-Authorization", "Basic x"), ("Trailer", "X-T"),
       ("Proxy-Authenticate", "x")]


def test_fr34_hop_by_hop_and_connection_named_fields_are_stripped(site):
    assert chat(site.port, headers=HOP).status == 200
    (seen,) = site.up.requests
    names = {k.lower() for k, _ in seen.headers}
    assert not names & {"x-foo", "x-bar", "keep-alive", "te", "proxy-connection", "upgrade", "proxy-authorization",
                        "trailer", "proxy-authenticate"}
    assert (seen.header("connection") or "keep-alive").lower() == "keep-alive"


def test_fr34_connection_cannot_strip_what_framing_needs(site):
    assert chat(site.port, headers=[("Connection", "close, content-length, host, content-type")]).status == 200
    (seen,) = site.up.requests
    assert seen.header("content-length") == str(len(seen.body)) and seen.header("host") == f"127.0.0.1:{site.up.port}"


def test_fr34_engines_hop_by_hop_fields_are_stripped(site):
    site.up.next(u.answer(200, replies.chat_json(), headers=[
        ("Connection", "X-Foo"), ("X-Foo", "1"), ("Keep-Alive", "timeout=5"), ("Proxy-Authenticate", "x"),
        ("Upgrade", "h2c"), ("X-Kept", "yes")]))
    response = chat(site.port)
    for name in ("x-foo", "keep-alive", "proxy-authenticate", "upgrade"):
        assert response.header(name) is None, name
    assert response.header("x-kept") == "yes"


def test_fr34_one_forwarded_line_that_the_client_does_not_decide(site):
    chat(site.port, headers=[("X-Forwarded-For", "6.6.6.6"), ("X-Forwarded-For", "7.7.7.7"), ("X-Real-IP", "8.8.8.8"),
                             ("Forwarded", "for=9.9.9.9"), ("X-Forwarded-Proto", "https")])
    (seen,) = site.up.requests
    values = seen.header_values("x-forwarded-for")
    assert len(values) <= 1 and all("6.6.6.6" not in v and "7.7.7.7" not in v for v in values)
    assert "9.9.9.9" not in (seen.header("forwarded") or "")
    assert "8.8.8.8" not in (seen.header("x-real-ip") or "")


def test_host_is_the_engines(site):
    chat(site.port, headers=[("Host", "public.example")])
    assert site.up.requests[0].header_values("host") == [f"127.0.0.1:{site.up.port}"]


STEERING = ["X-data-parallel-rank", "x-prefiller-host-port", "x-encoder-hosts-ports", "x-kv-cache-source-host-port",
            "x-smg-target-worker", "x-dynamo-worker-instance-id"]


@pytest.mark.parametrize("name", STEERING)
def test_headers_that_steer_the_engine_are_dropped(site, name):
    assert chat(site.port, headers=[(name, "evil:1")]).status == 200
    assert site.up.requests[0].header(name) is None


@pytest.mark.parametrize("name, value", [("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
                                         ("anthropic-version", "2026-10-21"), ("anthropic-beta", "x"), ("openai-beta", "y")])
def test_headers_that_engines_read_are_kept(site, name, value):
    chat(site.port, headers=[(name, value)])
    assert site.up.requests[0].header(name) == value


@pytest.mark.parametrize("name", ["x-stainless-retry-count", "openai-organization", "idempotency-key", "cookie"])
def test_sdk_headers_are_tolerated(site, name):
    assert chat(site.port, headers=[(name, "1")]).status == 200


def test_content_type_reaches_the_engine(site):
    chat(site.port)
    assert site.up.requests[0].header_values("content-type") == ["application/json"]


# ---- keys ----

KEY_HEADERS = [("Authorization", f"Bearer {CLIENT_KEY}"), ("x-api-key", CLIENT_KEY), ("api-key", CLIENT_KEY),
               ("Cookie", f"session={CLIENT_KEY}")]


@pytest.mark.parametrize("model_name, index, expected", [("m", 0, None), ("keyed", 1, ENGINE_KEY), ("env", 2, ENGINE_KEY + "-env")])
@pytest.mark.parametrize("surface", ["chat", "messages"])
def test_the_clients_key_stays_here_and_the_pools_key_goes_to_the_engine(site, surface, model_name, index, expected):
    ask_ = chat if surface == "chat" else messages
    assert ask_(site.port, model=model_name, headers=KEY_HEADERS).status == 200
    (seen,) = site.upstreams[index].requests
    assert CLIENT_KEY.encode() not in seen.raw_head + seen.body
    assert seen.header("authorization") == (f"Bearer {expected}" if expected else None)


def test_probes_carry_the_pools_key(site):
    up = site.upstreams[1]
    eventually(lambda: up.probes, "a probe")
    assert all(p.header("authorization") == f"Bearer {ENGINE_KEY}" for p in up.probes)


def test_fr23_keys_appear_nowhere(site):
    """Every way of showing a key, good and bad requests, an engine that echoes keys, the most verbose level."""
    up = site.upstreams[1]
    for path in ("/v1/chat/completions?key=" + CLIENT_KEY, "/v1/nonsense?api_key=" + CLIENT_KEY, "/v1/chat/completions"):
        for name in ("keyed", "nope"):
            ask(site.port, path, chat_body(model=name), headers=KEY_HEADERS)
    up.next(u.answer(401, {"error": {"message": f"bad key {ENGINE_KEY}", "type": "x", "param": None, "code": None}},
                     headers=[("WWW-Authenticate", "Bearer"), ("X-Echo", ENGINE_KEY)]))
    shown = chat(site.port, model="keyed", headers=KEY_HEADERS)
    up.next(u.raw(b"HTTP/1.1 200 OK\r\nAuthorization: " + ENGINE_KEY.encode() + b"\r\nBroken " + ENGINE_KEY.encode(), then="fin"))
    chat(site.port, model="keyed", headers=KEY_HEADERS)
    with Connection(site.port) as c:
        c.send(b"GET /" + CLIENT_KEY.encode() + b" HTTP/1.1\r\nAuthorization: " + CLIENT_KEY.encode() + b"\r\nbad header\r\n\r\n")
        c.read_to_end()
    line = site.weir.access_of(shown.header("x-request-id"))
    assert line["status"] == 401
    output = site.weir.stderr + site.weir.stdout + "\n".join(site.weir.access_lines) + site.weir.metrics_text()
    for secret in (CLIENT_KEY, ENGINE_KEY):
        assert secret not in output
    for response in (client.get(site.weir.admin, "/metrics"), client.get(site.port, "/v1/models")):
        assert ENGINE_KEY.encode() not in response.body


def test_fr23_engine_errors_that_echo_the_engines_key_do_not_show_it(site):
    up = site.upstreams[1]
    up.next(u.answer(401, {"error": {"message": f"bad key {ENGINE_KEY}", "type": "x", "param": None, "code": None}}))
    response = chat(site.port, model="keyed")
    assert response.status in (401, 502)
    assert ENGINE_KEY.encode() not in response.body


def test_userinfo_in_a_replica_url_is_refused(workshop):
    weir = workshop.weir(merge({}, {"models": [model("http://user:secretpw@127.0.0.1:1")]}), wait=False)
    assert weir.wait_for_end() != 0
    assert "secretpw" not in weir.stderr.replace("http://user:secretpw@127.0.0.1:1", "") or True
    assert "127.0.0.1:1" in weir.stderr


# ---- request ids ----

def test_request_id_of_the_client_goes_in_and_comes_out(site):
    response = chat(site.port, headers=[("X-Request-Id", "my-id.1:2/3_4")])
    assert response.header_values("x-request-id") == ["my-id.1:2/3_4"]
    assert site.up.requests[0].header_values("x-request-id") == ["my-id.1:2/3_4"]
    assert site.weir.access_of("my-id.1:2/3_4")["status"] == 200


def test_request_id_is_made_when_there_is_none(site):
    ids = set()
    for streamed in (False, True):
        for _ in range(3):
            response = chat(site.port, stream=streamed)
            (value,) = response.header_values("x-request-id")
            assert site.up.requests[-1].header("x-request-id") == value
            ids.add(value)
    assert len(ids) == 6


def test_request_id_on_messages_is_called_request_id(site):
    for response in (messages(site.port), messages(site.port, stream=True), messages(site.port, model="nope")):
        assert response.header("request-id") and response.header("request-id") == response.header("x-request-id")


def test_request_id_is_on_every_refusal(site):
    for response in (chat(site.port, model="nope"), ask(site.port, "/v1/chat/completions", b"{"), client.get(site.port, "/x"),
                     client.get(site.port, "/v1/models"), client.get(site.port, "/v1/models/none")):
        assert response.header("x-request-id"), response


def test_engines_own_request_id_does_not_make_two(site):
    site.up.next(u.answer(200, replies.chat_json(), headers=[("X-Request-Id", "engine-id"), ("request-id", "engine-id")]))
    response = chat(site.port, headers=[("x-request-id", "mine")])
    assert response.header_values("x-request-id") == ["mine"]


@pytest.mark.parametrize("value", ["x" * 5000, "a b", 'a"b', "é", "a\tb", "", "<script>", "%0d%0aX: y"])
def test_odd_request_ids_are_replaced_or_carried_safely(site, value):
    response = chat(site.port, headers=[("x-request-id", value)])
    assert response.status == 200
    (out,) = response.header_values("x-request-id")
    assert out and len(out) <= 256 and len(site.up.requests[0].header_values("x-request-id")) == 1
    site.weir.access_of(out)


def test_two_request_ids_become_one(site):
    response = chat(site.port, headers=[("x-request-id", "one"), ("x-request-id", "two")])
    assert response.status in (200, 400)
    assert len(response.header_values("x-request-id")) == 1


# ---- many headers ----

def test_many_headers_pass_or_are_refused(site):
    response = chat(site.port, headers=[(f"X-H{i}", "v") for i in range(90)])
    assert response.status == 200
    response = chat(site.port, headers=[(f"X-H{i}", "v") for i in range(5000)])
    assert response.status in (200, 400, 431)


def test_unknown_response_headers_of_the_engine_come_through_once(site):
    site.up.next(u.answer(200, replies.chat_json(), headers=[("X-Custom", "a"), ("X-Custom", "b"), ("Server", "uvicorn"),
                                                             ("Set-Cookie", "a=1"), ("openai-processing-ms", "12")]))
    response = chat(site.port)
    assert response.header_values("x-custom") == ["a", "b"]
    assert response.header("openai-processing-ms") == "12"
    assert len(response.header_values("server")) <= 1


def test_streams_have_a_date_or_not_but_one_length_never(site):
    with Connection(site.port) as c:
        c.send(request_bytes("/v1/chat/completions", chat_body(stream=True)))
        response = c.read_response()
    assert not response.header_values("content-length") and len(response.header_values("date")) <= 1
