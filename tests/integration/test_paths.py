"""Which paths exist, who answers them, and that nothing else ever reaches an engine."""
import pytest

from harness import client, replies
from harness.client import ask, chat_body, get
from harness.weir import model

NAMES = ["m", "org/name", "name:tag"]
SITE = {"aliases": ["quick", "org/alias"]}


@pytest.fixture(scope="module")
def shared_site(shared_workshop):
    from conftest import Site
    up = shared_workshop.upstream()
    models = [model(up, name=n, aliases=["quick"] if n == "m" else []) for n in NAMES]
    return Site(shared_workshop.weir({"models": models}), [up])


RELAYED = {
    "/v1/chat/completions": chat_body(),
    "/v1/completions": {"model": "m", "prompt": "hello"},
    "/v1/embeddings": {"model": "m", "input": "hello"},
    "/v1/responses": {"model": "m", "input": "hello"},
    "/v1/messages": client.messages_body(),
    "/v1/messages/count_tokens": client.messages_body(),
    "/tokenize": {"model": "m", "prompt": "hello"},
    "/detokenize": {"model": "m", "tokens": [1, 2]},
    "/v1/rerank": {"model": "m", "query": "q", "documents": ["d"]},
    "/v1/score": {"model": "m", "text_1": "a", "text_2": "b"},
}


@pytest.mark.parametrize("path", RELAYED)
def test_listed_path_is_relayed(site, path):
    response = ask(site.port, path, RELAYED[path])
    assert response.status == 200 and response.is_complete
    (seen,) = site.up.requests
    assert (seen.method, seen.target) == ("POST", path)


FORBIDDEN = [
    "/", "/health", "/ping", "/load", "/version", "/metrics", "/kv_event_sources", "/abort_requests", "/pause",
    "/resume", "/sleep", "/wake_up", "/reset_prefix_cache", "/collective_rpc", "/server_info",
    "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/scale_elastic_ep", "/fault_tolerance/x", "/abort_request",
    "/pd_role_switch", "/slow_down", "/v1/loads", "/slots", "/slots/0", "/props", "/lora-adapters", "/loads",
    "/busy_threshold", "/prometheus/metrics", "/inference/v1/generate", "/v1", "/v1/", "/v1/chat",
    "/v1/chat/completions/batch", "/v1/chat/completions/render", "/v1/files", "/admin/reload", "/docs", "/openapi.json",
    # disguises
    "//metrics", "/metrics/", "/v1/../metrics", "/v1/chat/completions/../../../metrics", "/./metrics", "/%6detrics",
    "/%2e%2e/metrics", "/v1/%2e%2e/metrics", "/v1%2f..%2fmetrics", "/%2Fmetrics", "/v1/chat%2Fcompletions",
    "/v1/chat/completions%2F..%2F..%2F..%2Fmetrics", "/v1/chat/completions;/metrics", "/v1/chat/completions/x",
    "/V1/CHAT/COMPLETIONS", "/v1/chat/completions%00", "/metrics?x=/v1/chat/completions", "/v1/messages/count_tokens/x",
    "/\\metrics", "/v1/models/../../metrics", "/pause#/v1/chat/completions", "/v1/chat/completions/./../pause",
]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", FORBIDDEN)
def test_path_not_on_the_list_never_reaches_an_engine(site, method, path):
    probes = len(site.up.probes)
    body = chat_body() if method == "POST" else b""
    response = ask(site.port, path, body, method=method)
    assert response.status in (400, 404, 405), response
    assert response.error["message"] and response.error["type"] in ("invalid_request_error", "not_found_error")
    assert not site.up.requests
    assert all(p.method == "GET" and p.path in ("/health", "/metrics", "/v1/models", "/version", "/load", "/props",
                                                "/slots", "/server_info", "/get_server_info", "/get_model_info")
               for p in site.up.probes[probes:])


def test_unknown_path_says_so_in_full(site):
    response = ask(site.port, "/v1/nonsense", b"{}")
    assert response.status == 404
    assert set(response.error) == {"message", "type", "param", "code"}
    assert response.error["code"] == "unknown_url" and "/v1/chat/completions" in response.error["message"]


def test_unknown_path_below_messages_answers_in_anthropic_form(site):
    response = ask(site.port, "/v1/messages/nonsense", b"{}")
    assert response.status == 404
    assert response.json["type"] == "error" and response.json["error"]["type"] == "not_found_error"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/tokenize"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_wrong_method_is_405_with_allow(site, path, method):
    response = ask(site.port, path, b"", method=method)
    assert response.status == 405 and response.header("allow") == "POST"
    assert not site.up.requests


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "BREW", "OPTIONS"])
def test_strange_methods_are_refused(site, method):
    target = "weir:80" if method == "CONNECT" else "/v1/chat/completions"
    with client.Connection(site.port) as c:
        c.send(client.request_bytes(target, b"", method=method))
        response = c.read_response()
    assert response.status in (400, 404, 405, 501)
    assert not site.up.requests


@pytest.mark.parametrize("target", ["/v1/chat/completions/", "//v1/chat/completions", "/v1//chat/completions",
                                    "/v1/chat//completions", "//v1//chat//completions/"])
def test_fr22_doubled_and_trailing_slashes_are_tolerated_without_redirect(site, target):
    response = ask(site.port, target, chat_body())
    assert response.status == 200
    (seen,) = site.up.requests
    assert seen.path == "/v1/chat/completions"


@pytest.mark.parametrize("target, path", [("/v1/messages?beta=true", "/v1/messages"),
                                          ("/v1/chat/completions?a=b&c=%20d", "/v1/chat/completions")])
def test_fr22_query_is_ignored_for_routing_and_kept_upstream(site, target, path):
    body = client.messages_body() if "messages" in target else chat_body()
    assert ask(site.port, target, body).status == 200
    (seen,) = site.up.requests
    assert seen.target == target and seen.path == path


def test_absolute_form_target_is_understood(site):
    response = ask(site.port, "http://weir/v1/chat/completions", chat_body())
    assert response.status == 200
    assert site.up.requests[0].target == "/v1/chat/completions"


@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/", "/gpu/7", "/gpu/7/", "/gpu/7/v1"])
def test_fr22_upstream_base_with_and_without_v1_and_slash(workshop, base):
    up = workshop.upstream()
    weir = workshop.weir({"models": [model(up.url + base)]}, expect_ready=False)
    response = client.chat(weir.port)
    prefix = "/gpu/7" if "gpu" in base else ""
    (seen,) = up.requests
    assert seen.target == prefix + "/v1/chat/completions"
    assert response.status == 200


# ---- models ----

def test_models_list_has_every_name(site):
    response = get(site.port, "/v1/models")
    assert response.status == 200 and response.header("content-type").startswith("application/json")
    page = response.json
    assert page["object"] == "list"
    ids = [m["id"] for m in page["data"]]
    assert set(NAMES) <= set(ids)
    for m in page["data"]:
        assert m["object"] == "model" and isinstance(m["created"], int) and isinstance(m["owned_by"], str)


def test_models_list_is_weirs_own(site):
    assert "engine-side" not in get(site.port, "/v1/models").body.decode()
    assert not site.up.requests


@pytest.mark.parametrize("path, name", [
    ("/v1/models/m", "m"), ("/v1/models/org/name", "org/name"), ("/v1/models/org%2Fname", "org/name"),
    ("/v1/models/org%2fname", "org/name"), ("/v1/models/name:tag", "name:tag"), ("/v1/models/name%3Atag", "name:tag"),
    ("/v1/models/m?x=1", "m"), ("/v1/models/m/", "m"), ("//v1/models/m", "m"),
])
def test_fr22_model_id_is_all_after_the_prefix_decoded_once(site, path, name):
    response = get(site.port, path)
    assert response.status == 200, response
    assert response.json["id"] == name and response.json["object"] == "model"


@pytest.mark.parametrize("path", ["/v1/models/none", "/v1/models/org%252Fname", "/v1/models/engine-side",
                                  "/v1/models/%zz", "/v1/models/%", "/v1/models/%00", "/v1/models/m%0d%0aX:%20y"])
def test_unknown_model_id_is_404(site, path):
    response = get(site.port, path)
    assert response.status in (400, 404), response
    assert response.error["type"] == "invalid_request_error"
    assert response.header("x") is None


def test_alias_can_be_fetched(site):
    assert get(site.port, "/v1/models/quick").status == 200


def test_models_answers_anthropic_clients_too(site):
    response = get(site.port, "/v1/models", headers=[("x-api-key", "k"), ("anthropic-version", "2023-06-01")])
    assert response.status == 200


# ---- health ----

def test_live_and_ready(site):
    assert get(site.port, "/health/live").status == 200
    assert get(site.port, "/health/ready").status == 200
    assert not site.up.requests


def test_head_has_no_body(site):
    with client.Connection(site.port) as c:
        c.send(client.request_bytes("/health/live", method="HEAD"))
        response = c.read_response(method="HEAD")
        assert response.status in (200, 405)
        c.send(client.request_bytes("/health/live", method="GET"))
        assert c.read_response().status == 200


def test_admin_paths_are_only_on_the_admin_listener(site):
    assert get(site.port, "/metrics").status == 404
    assert get(site.weir.admin, "/metrics").status == 200
    response = ask(site.weir.admin, "/v1/chat/completions", chat_body())
    assert response.status in (404, 405)
    assert not site.up.requests


def test_not_ready_without_a_usable_replica(workshop):
    up = workshop.upstream()
    up.down()
    weir = workshop.weir({"models": [model(up)]}, expect_ready=False)
    assert get(weir.port, "/health/live").status == 200
    client_sees = get(weir.port, "/health/ready")
    assert client_sees.status == 503
    up.up()
    weir.wait_until_ready()
    up.down()
    from harness.wait import eventually
    eventually(lambda: not weir.is_ready, "not ready once the only engine is gone")


def test_replies_of_relayed_paths_are_untouched(site):
    body = b'{"b":1,  "a":2, "usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n'
    from harness import upstream as u
    site.up.next(u.answer(200, body))
    assert client.chat(site.port).body == body
    site.up.next(u.answer(200, replies.dumps({"input_tokens": 3})))
    assert ask(site.port, "/v1/messages/count_tokens", client.messages_body()).json == {"input_tokens": 3}
