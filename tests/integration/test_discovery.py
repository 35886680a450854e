"""`weir serve --backends`: kinds, models and limits are asked of the engines; --print-config says the same."""
import subprocess
import threading

import pytest
import yaml

from harness import replies
from harness.client import chat, get
from harness.ports import free_port
from harness.wait import eventually
from harness.weir import BASE, BINARY


def serve(workshop, *ups, extra=(), **kwargs):
    port, admin = free_port(), free_port()
    weir = workshop.weir(arguments=["serve", "--listen", f"127.0.0.1:{port}", "--admin-listen", f"127.0.0.1:{admin}",
                                    "--backends", ",".join(u if isinstance(u, str) else u.url for u in ups), *extra],
                         wait=False, **kwargs)
    weir.port, weir.admin = port, admin
    weir.wait_until_ready()
    return weir


def ids(weir):
    return {m["id"] for m in get(weir.port, "/v1/models").json["data"]}


@pytest.mark.parametrize("kind", ["vllm", "llamacpp", "openai"])
def test_models_of_an_engine_are_found(workshop, kind):
    up = workshop.upstream(kind=kind, models=["org/some-model"])
    weir = serve(workshop, up)
    assert ids(weir) == {"org/some-model"}
    assert chat(weir.port, model="org/some-model").status == 200
    assert chat(weir.port, model="other").status == 404
    (seen,) = up.requests
    assert seen.json["model"] == "org/some-model"


def test_equal_engines_become_one_pool_and_different_ones_stay_apart(workshop):
    a, b = workshop.upstream(models=["one"]), workshop.upstream(models=["one"])
    c = workshop.upstream(kind="llamacpp", models=["two"])
    weir = serve(workshop, a, b, c)
    assert ids(weir) == {"one", "two"}
    for _ in range(10):
        assert chat(weir.port, model="one").status == 200
        assert chat(weir.port, model="two").status == 200
    assert a.requests and b.requests and len(c.requests) == 10
    assert {r.json["model"] for r in a.requests + b.requests} == {"one"}


def test_one_model_on_different_kinds_of_engine(workshop):
    a, b = workshop.upstream(models=["one"]), workshop.upstream(kind="llamacpp", models=["one"])
    weir = serve(workshop, a, b)
    assert ids(weir) == {"one"}
    eventually(lambda: chat(weir.port, model="one").status == 200 and a.requests and b.requests, "both serve")


def test_an_engine_that_lists_several_models(workshop):
    up = workshop.upstream(models=["base", "lora-1", "lora-2"])
    weir = serve(workshop, up)
    assert ids(weir) == {"base", "lora-1", "lora-2"}
    assert chat(weir.port, model="lora-2").status == 200 and up.requests[-1].json["model"] == "lora-2"


def test_engine_that_is_still_starting_is_waited_for(workshop):
    late, here = workshop.upstream(models=["late"]), workshop.upstream(models=["here"])
    late.health = (503, replies.dumps(replies.LLAMA_LOADING))
    threading.Timer(1, late.clear).start()
    weir = serve(workshop, late, here)
    assert ids(weir) == {"late", "here"}


def test_engine_that_does_not_come_is_named_and_the_others_serve(workshop):
    gone, here = workshop.upstream(models=["gone"]), workshop.upstream(models=["here"])
    gone.down()
    weir = serve(workshop, gone, here, extra=["--wait", "1"])
    assert ids(weir) == {"here"} and chat(weir.port, model="here").status == 200
    assert gone.url in weir.stderr


def test_without_any_engine_the_start_is_refused_in_words(workshop):
    gone = workshop.upstream()
    gone.down()
    run = subprocess.run([BINARY, "serve", "--backends", gone.url, "--wait", "1", "--listen", f"127.0.0.1:{free_port()}",
                          "--admin-listen", "off"], capture_output=True, text=True, timeout=30)
    assert run.returncode == 1 and gone.url in run.stderr


def test_policy_flag(workshop):
    a, b = workshop.upstream(models=["one"]), workshop.upstream(models=["one"])
    weir = serve(workshop, a, b, extra=["--policy", "session-affinity"])
    for _ in range(6):
        assert chat(weir.port, model="one", headers=[("x-session-id", "s")]).status == 200
    assert sorted([len(a.requests), len(b.requests)]) == [0, 6]


@pytest.mark.parametrize("kind", ["vllm", "llamacpp"])
def test_print_config_writes_the_file_that_says_the_same(workshop, kind, tmp_path):
    a, b = workshop.upstream(kind=kind, models=["one"]), workshop.upstream(kind=kind, models=["one"])
    run = subprocess.run([BINARY, "serve", "--backends", f"{a.url},{b.url}", "--print-config"], capture_output=True,
                         text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    page = yaml.safe_load(run.stdout)
    (found,) = page["models"]
    assert found["name"] == "one"
    assert kind in run.stdout and a.url in run.stdout and b.url in run.stdout
    assert not a.requests
    path = tmp_path / "printed.yaml"
    path.write_text(run.stdout)
    check = subprocess.run([BINARY, "check", str(path)], capture_output=True, text=True, timeout=30)
    assert check.returncode == 0, check.stderr + check.stdout
    weir = workshop.weir({k: v for k, v in page.items() if k not in ("listen", "admin", "access_log", "workers", "log")},
                         base={k: v for k, v in BASE.items() if k in ("workers", "log")})
    assert chat(weir.port, model="one").status == 200 and ids(weir) == {"one"}


def test_print_config_of_a_file_round_trips(workshop, tmp_path):
    site = workshop.site(count=2, policy="power-of-two", aliases=["x"], slo={"ttft": "250ms", "tpot": "20ms"},
                         settings={"limits": {"body": "3MiB"}, "timeouts": {"first_byte": "7s"}})

    def printed(path):
        run = subprocess.run([BINARY, "serve", "--print-config", "--config", str(path)], capture_output=True, text=True, timeout=60)
        assert run.returncode == 0, run.stderr
        return run.stdout
    once = printed(site.weir.config_file)
    path = tmp_path / "again.yaml"
    path.write_text(once)
    assert yaml.safe_load(printed(path)) == yaml.safe_load(once)
    page = yaml.safe_load(once)
    assert page["limits"]["body"] == "3MiB" and page["timeouts"]["first_byte"] == "7s"
    assert page["models"][0]["aliases"] == ["x"]


def test_print_config_does_not_show_secrets(workshop, tmp_path):
    up = workshop.upstream()
    key = tmp_path / "key"
    key.write_text("top-secret-key")
    file = tmp_path / "weir.yaml"
    file.write_text(yaml.safe_dump({"models": [{"name": "m", "pools": [
        {"name": "p", "engine": "vllm", "replicas": [up.url], "api_key_file": str(key)}]}]}))
    run = subprocess.run([BINARY, "serve", "--print-config", "--config", str(file)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0 and "top-secret-key" not in run.stdout + run.stderr and str(key) in run.stdout


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1", "http://", "http://127.0.0.1:99999", "http://a b", "", ","])
def test_bad_backends_are_refused_in_words(url):
    run = subprocess.run([BINARY, "serve", "--backends", url], capture_output=True, text=True, timeout=30)
    assert run.returncode in (1, 2) and run.stderr


def test_engine_that_answers_garbage_is_said_and_does_no_harm(workshop):
    good, bad = workshop.upstream(models=["one"]), workshop.upstream(models=["two"])
    bad._probe = lambda seen: b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{{{{{{{{{"
    weir = serve(workshop, good, bad, extra=["--wait", "1"])
    assert ids(weir) == {"one"} and chat(weir.port, model="one").status == 200


def test_config_with_auto_engine_asks_the_engine(workshop):
    from harness.weir import model, pool
    up = workshop.upstream(kind="llamacpp")
    weir = workshop.weir({"models": [model(pools=[pool(up, engine="auto", engine_model="engine-side")])]})
    assert chat(weir.port).status == 200
    eventually(lambda: any(p.path == "/props" or p.path == "/slots" for p in up.probes), "asked in llama.cpp's own way")
