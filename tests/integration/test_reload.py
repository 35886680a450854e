"""SIGHUP and POST /admin/reload: a new file takes effect, running requests finish, a bad file changes nothing."""
import threading

import pytest

from harness import replies
from harness import upstream as u
from harness.client import Connection, ask, chat, chat_body, get, request_bytes
from harness.replies import ROLE, chunk, stream_head, word
from harness.wait import eventually
from harness.weir import model

HOW = ["signal", "admin"]


def reload(weir, how):
    """Asks for a reload and waits until it is done, well or not."""
    before = weir.metrics()
    if how == "signal":
        weir.hangup()
    else:
        response = ask(weir.admin, "/admin/reload", b"")
        assert response.status in (200, 204, 400, 409, 422), response

    def done():
        now = weir.metrics()
        return any(now.value(n) > before.value(n) for n in ("weir_config_generation", "weir_config_reload_failures_total"))
    eventually(done, lambda: f"the reload is over; stderr: {weir.stderr[-1500:]}")


@pytest.mark.parametrize("how", HOW)
def test_new_models_appear_and_old_ones_go(workshop, how):
    one, two = workshop.upstream(), workshop.upstream()
    weir = workshop.weir({"models": [model(one, name="old"), model(one, name="kept")]})
    weir.write_config({"models": [model(two, name="kept"), model(two, name="new", aliases=["n"])]})
    reload(weir, how)
    assert chat(weir.port, model="old").status == 404
    for name in ("kept", "new", "n"):
        eventually(lambda: chat(weir.port, model=name).status == 200, f"{name} is served")
    assert not one.requests and len(two.requests) >= 3
    assert {m["id"] for m in get(weir.port, "/v1/models").json["data"]} >= {"kept", "new"}


@pytest.mark.parametrize("how", HOW)
def test_running_streams_finish_on_the_old_configuration(workshop, how):
    site = workshop.site()
    go = threading.Event()

    def held(x):
        x.send(stream_head() + chunk(ROLE) + chunk(word("before ")))
        x.hold(go)
        x.send(chunk(word("after")) + chunk(replies.FINISH) + chunk(replies.DONE) + replies.LAST_CHUNK)
    site.up.next(*[held] * 10)
    connections = [Connection(site.port) for _ in range(10)]
    for c in connections:
        c.send(request_bytes("/v1/chat/completions", chat_body(stream=True)))
        c.read_until(word("before "))
    other = workshop.upstream()
    for i in range(5):
        site.weir.write_config({"models": [model(other, name="else"), *([model(site.up)] if i == 4 else [])]})
        reload(site.weir, how)
    assert chat(site.port, model="else").status == 200
    go.set()
    for c in connections:
        response = c.read_response()
        assert response.is_complete and response.body == (
            ROLE + word("before ") + word("after") + replies.FINISH + replies.DONE)
        c.close()


BAD = {
    "not yaml": "models: [\n  - {", "unknown key": "modles: []\n", "wrong type": "workers: many\nmodels: []\n",
    "empty": "", "binary": "\x01\x02\x00", "model twice": None, "unknown policy": None, "bad url": None}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_changes_nothing(workshop, name, how):
    site = workshop.site()
    generation = site.weir.metrics().value("weir_config_generation")
    if BAD[name] is not None:
        site.weir.write_text(BAD[name])
    else:
        models = {"model twice": [model(site.up), model(site.up)], "unknown policy": [model(site.up, policy="best")],
                  "bad url": [model("ftp://x")]}[name]
        site.weir.write_config({"models": models})
    if how == "admin":
        response = ask(site.weir.admin, "/admin/reload", b"")
        assert 400 <= response.status < 500 and b"weir.yaml" in response.body, "the mistakes are in the answer"
    else:
        reload(site.weir, how)
    page = site.weir.metrics()
    assert page.value("weir_config_generation") == generation
    assert page.value("weir_config_reload_failures_total") == 1
    assert chat(site.port).status == 200
    assert how == "admin" or "weir.yaml" in site.weir.stderr, "the log names the file"
    assert "reload" in site.weir.stderr


def test_a_missing_file_changes_nothing(workshop):
    site = workshop.site()
    site.weir.config_file.unlink()
    reload(site.weir, "signal")
    assert chat(site.port).status == 200
    site.weir.write_config(site.weir.settings)
    reload(site.weir, "signal")
    assert site.weir.metrics().value("weir_config_generation") >= 2


def test_reload_needs_a_post_on_the_admin_listener(workshop):
    site = workshop.site()
    assert get(site.weir.admin, "/admin/reload").status == 405
    assert ask(site.port, "/admin/reload", b"").status == 404


def test_counters_survive_a_reload(workshop):
    site = workshop.site()
    for _ in range(3):
        chat(site.port)
    site.weir.write_config({"models": [model(site.up), model(site.up, name="two")]})
    reload(site.weir, "signal")
    chat(site.port)
    eventually(lambda: site.weir.metrics().value("weir_requests_total", model="m", outcome="ok") == 4,
               "the count went on")


def test_limits_and_timeouts_take_effect(workshop):
    site = workshop.site()
    assert chat(site.port, text="x" * 100_000).status == 200
    site.weir.write_config({"models": [model(site.up)], "limits": {"body": "64KiB"}, "timeouts": {"first_byte": "300ms"},
                            "retry": {"attempts": 1}})
    reload(site.weir, "signal")
    eventually(lambda: chat(site.port, text="x" * 100_000).status == 413, "the new limit holds")
    site.up.next(u.silent)
    assert chat(site.port).status == 504


def test_removed_replica_finishes_what_it_has(workshop):
    one, two = workshop.upstream(), workshop.upstream()
    weir = workshop.weir({"models": [model(one)]})
    go = threading.Event()
    one.next(u.after(go, u.ok))
    with Connection(weir.port) as c:
        c.send(request_bytes("/v1/chat/completions", chat_body()))
        one.wait_for_requests()
        weir.write_config({"models": [model(two)]})
        reload(weir, "signal")
        assert chat(weir.port).status == 200 and len(two.requests) == 1
        go.set()
        assert c.read_response().status == 200


def test_many_reloads_under_load_lose_nothing_and_leak_nothing(workshop):
    one, two = workshop.upstream(), workshop.upstream()
    weir = workshop.weir({"models": [model(one)], "workers": 2})
    stop, wrong = threading.Event(), []

    def load():
        while not stop.is_set():
            response = chat(weir.port, stream=True)
            if response.status != 200 or not response.is_complete:
                wrong.append(response)
    threads = [threading.Thread(target=load) for _ in range(4)]
    [t.start() for t in threads]
    for i in range(10):
        weir.write_config({"models": [model(one if i % 2 else two)]})
        reload(weir, "signal")
    before, fds = weir.rss(), weir.descriptors()
    for i in range(30):
        weir.write_config({"models": [model(one if i % 2 else two)]})
        reload(weir, "signal")
    stop.set()
    [t.join() for t in threads]
    assert not wrong, wrong[:3]
    weir.assert_grew_less(before, 8 << 20)
    assert weir.descriptors() - fds < 20


def test_options_that_need_a_restart_are_said_to(workshop):
    site = workshop.site()
    site.weir.write_config({"models": [model(site.up)], "workers": 2})
    reload(site.weir, "signal")
    assert "workers" in site.weir.stderr and "restart" in site.weir.stderr
    assert chat(site.port).status == 200
