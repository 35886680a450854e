"""`weir serve --backends` before a vLLM: what it finds out, and what it then knows all the time."""
import subprocess

import pytest
import yaml

from harness.client import Connection, chat, chat_body, get, request_bytes
from harness.ports import free_port
from harness.wait import eventually
from harness.weir import BINARY
from vllm_engine import CONTEXT, MODEL, VERSION


@pytest.fixture(scope="module")
def weir(workshop, plain):
    port, admin = free_port(), free_port()
    weir = workshop.weir(arguments=["serve", "--backends", plain.url, "--listen", f"127.0.0.1:{port}",
                                    "--admin-listen", f"127.0.0.1:{admin}"], wait=False)
    weir.port, weir.admin = port, admin
    weir.wait_until_ready()
    return weir


def status_of(weir):
    """The one replica on the status page."""
    (model,) = get(weir.admin, "/status.json").json["models"]
    (pool,) = model["pools"]
    (replica,) = pool["replicas"]
    return replica


def figure(weir, name):
    return weir.metrics().value(f"weir_replica_{name}", model=MODEL)


def test_engine_model_and_context_are_found(weir, plain):
    assert [m["id"] for m in get(weir.port, "/v1/models").json["data"]] == [MODEL]
    replica = status_of(weir)
    assert (replica["engine"], replica["state"], replica["ejected"]) == ("vllm", "ready", False)
    eventually(lambda: status_of(weir)["max_context_tokens"] == CONTEXT, "the context is known")
    assert plain.url.removeprefix("http://") in replica["name"]
    assert chat(weir.port, model=MODEL, max_tokens=2, timeout=120).status == 200


def test_version_is_found_and_said(weir):
    eventually(lambda: f"vllm {VERSION}, models: {MODEL}; context {CONTEXT} tokens" in weir.stderr,
               lambda: f"the version in:\n{weir.stderr}")


def test_printed_configuration_is_valid_and_names_the_engine(plain, tmp_path):
    run = subprocess.run([BINARY, "serve", "--backends", plain.url, "--print-config"], capture_output=True, text=True,
                         timeout=120)
    assert run.returncode == 0, run.stderr
    (model,) = yaml.safe_load(run.stdout)["models"]
    assert model["name"] == MODEL and "vllm" in run.stdout and plain.url in run.stdout
    path = tmp_path / "weir.yaml"
    path.write_text(run.stdout)
    check = subprocess.run([BINARY, "check", str(path)], capture_output=True, text=True, timeout=30)
    assert check.returncode == 0, check.stdout + check.stderr


def test_cache_size_is_what_the_engine_says(weir, plain):
    size = plain.kv_tokens()
    assert size > 0
    eventually(lambda: figure(weir, "kv_size_tokens") == size, "the size in the metrics")
    assert status_of(weir)["kv_tokens"] == size


def test_running_waiting_and_cache_use_follow_the_load(weir, plain):
    """Twelve long answers before an engine that computes eight at once."""
    body = chat_body(model=MODEL, stream=True, max_tokens=400, ignore_eos=True)
    connections = [Connection(weir.port, timeout=120) for _ in range(12)]
    for c in connections:
        c.send(request_bytes("/v1/chat/completions", body))
    seen = {}

    def all_seen():
        replica = status_of(weir)
        page = weir.metrics()
        for name, metric in (("running", "reported_running"), ("waiting", "reported_waiting"), ("kv_used", "kv_used_ratio")):
            on_page = page.value(f"weir_replica_{metric}", model=MODEL)
            seen[name] = max(seen.get(name, 0), min(replica[name] or 0, on_page))
        return seen["running"] >= 1 and seen["waiting"] >= 1 and 0 < seen["kv_used"] <= 1
    try:
        eventually(all_seen, lambda: f"load on both pages; seen {seen}", timeout=120, every=0.1)
    finally:
        for c in connections:
            c.close()
    eventually(lambda: plain.running() == 0, "the engine is idle", timeout=60, every=0.2)
    eventually(lambda: figure(weir, "reported_running") + figure(weir, "reported_waiting") == 0, "weir says so")


def test_prefix_hits_are_counted(weir, plain):
    text = "The sea is wide and the ships are small. " * 10
    answers = [chat(weir.port, model=MODEL, text=text, max_tokens=2, timeout=120).json for _ in range(2)]
    cached = answers[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached > 0
    for name, engines_name in (("prefix_hits_tokens_total", "prefix_cache_hits_total"),
                               ("prefix_queries_tokens_total", "prefix_cache_queries_total")):
        eventually(lambda: figure(weir, name) == plain.figure(engines_name) >= cached, f"{name} as the engine says")
    assert 0 < status_of(weir)["prefix_hit_ratio"] < 1
    tokens = weir.metrics().value("weir_tokens_total", model=MODEL, direction="cached")
    assert tokens >= cached
