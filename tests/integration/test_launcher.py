"""Engines that weir starts itself: started, watched, restarted, drained, ended; never an orphan."""
import os
import pathlib
import signal
import sys

import pytest

from harness.client import Connection, chat, chat_body, get, request_bytes
from harness.wait import eventually
from harness.weir import model, pool

FAKE = str(pathlib.Path(__file__).parent / "harness" / "fake_engine.py")


def launch(notes, *options, replicas=2, **members):
    return {"command": [sys.executable, FAKE, "{port}", f"notes={notes}", *options], "replicas": replicas,
            "ready_path": "/health", "stop_timeout": "1s", "drain_timeout": "5s", **members}


def launched(notes, *options, **members):
    return {"models": [model(pools=[pool(engine="vllm", launch=launch(notes, *options, **members))])]}


def engines(notes):
    """Pids of all starts, oldest first."""
    files = [f for f in pathlib.Path(notes).iterdir() if f.name.split(".")[0].isdigit()]
    return [int(f.name.split(".")[1]) for f in sorted(files, key=lambda f: f.stat().st_mtime_ns)]


def is_alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def alive(notes):
    return [p for p in engines(notes) if is_alive(p)]


def all_gone(pids, what="no orphan"):
    eventually(lambda: not any(map(is_alive, pids)), lambda: f"{what}: {[p for p in pids if is_alive(p)]}", timeout=20)


def served_by(weir, count=12):
    answers = [chat(weir.port) for _ in range(count)]
    assert all(a.status == 200 for a in answers), answers
    return {a.json["pid"] for a in answers}


def test_engines_are_started_and_serve(workshop, tmp_path):
    weir = workshop.weir(launched(tmp_path, "model={model}", "index={index}", environment={"FAKE_VALUE": "a b"}))
    eventually(lambda: len(served_by(weir)) == 2, "both serve")
    answers = [chat(weir.port).json for _ in range(12)]
    assert {a["port"] for a in answers} == {int(a["argv"][0]) for a in answers}
    assert {next(x for x in a["argv"] if x.startswith("index=")) for a in answers} == {"index=0", "index=1"}
    assert {next(x for x in a["argv"] if x.startswith("model=")) for a in answers} == {"model=m"}
    assert {a["environment"] for a in answers} == {"a b"}
    pids = engines(tmp_path)
    assert weir.stop() == 0
    all_gone(pids)


def test_ports_follow_the_first_one(workshop, tmp_path):
    from harness.ports import free_port
    first = free_port()
    weir = workshop.weir(launched(tmp_path, first_port=first, replicas=1))
    assert chat(weir.port).json["port"] == first


def test_output_of_engines_goes_to_the_log_folder(workshop, tmp_path):
    logs, notes = tmp_path / "logs", tmp_path / "notes"
    logs.mkdir(), notes.mkdir()
    workshop.weir(launched(notes, log_dir=str(logs)))
    eventually(lambda: sum("fake engine on" in f.read_text() for f in logs.iterdir()) == 2, "a log per engine")


def test_output_of_engines_goes_to_standard_error_else(workshop, tmp_path):
    weir = workshop.weir(launched(tmp_path))
    eventually(lambda: weir.stderr.count("fake engine on") == 2, "both lines")


def test_nothing_is_sent_before_an_engine_is_ready(workshop, tmp_path):
    weir = workshop.weir(launched(tmp_path, "ready_after=5"), expect_ready=False)
    assert chat(weir.port).status == 503
    assert get(weir.port, "/health/ready").status == 503
    weir.wait_until_ready()
    assert chat(weir.port).status == 200


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_an_engine_that_ends_is_started_again_and_the_other_serves_on(workshop, tmp_path, number):
    weir = workshop.weir(launched(tmp_path))
    eventually(lambda: len(served_by(weir)) == 2, "both serve")
    victim = engines(tmp_path)[0]
    os.kill(victim, number)
    for _ in range(20):
        assert chat(weir.port).status == 200
    eventually(lambda: len(engines(tmp_path)) == 3, "started again")
    eventually(lambda: len(served_by(weir)) == 2, "both serve again")
    assert victim not in served_by(weir)


def test_an_engine_that_always_ends_backs_off(workshop, tmp_path):
    weir = workshop.weir(launched(tmp_path, "die=3", replicas=1), expect_ready=False)
    eventually(lambda: len(engines(tmp_path)) >= 3, "tried again", timeout=30)
    assert len(engines(tmp_path)) < 12, "not in a tight loop"
    assert chat(weir.port).status == 503
    assert "3" in weir.stderr and "m" in weir.stderr


def test_a_command_that_does_not_exist_is_said_plainly(workshop, tmp_path):
    settings = {"models": [model(pools=[pool(engine="vllm", launch={"command": ["/nonexistent/engine", "{port}"]})])]}
    weir = workshop.weir(settings, expect_ready=False)
    eventually(lambda: "/nonexistent/engine" in weir.stderr and "No such file" in weir.stderr, "said")
    assert get(weir.port, "/health/live").status == 200 and chat(weir.port).status == 503


def test_an_engine_that_never_gets_ready_is_started_anew(workshop, tmp_path):
    workshop.weir(launched(tmp_path, "ready_after=1000000", replicas=1, ready_timeout="500ms"), expect_ready=False)
    eventually(lambda: len(engines(tmp_path)) >= 2, "started anew", timeout=30)
    eventually(lambda: len(alive(tmp_path)) <= 1, "the first one was ended")


@pytest.mark.parametrize("options", [(), ("child=1",), ("deaf=1",), ("deaf=1", "child=1")], ids=["plain", "child", "deaf", "both"])
@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL", "SIGTERM twice"])
def test_no_orphan_however_weir_ends(workshop, tmp_path, options, end):
    weir = workshop.weir(launched(tmp_path, *options))
    eventually(lambda: len(alive(tmp_path)) == 2, "both run")
    pids = engines(tmp_path) + [int(f.name.split(".")[1]) for f in tmp_path.glob("child.*")] + weir.processes()
    assert len(pids) >= 3
    if end == "SIGKILL":
        weir.kill()
    else:
        weir.signal(signal.SIGTERM)
        if end == "SIGTERM twice":
            weir.signal(signal.SIGTERM)
        weir.wait_for_end()
    all_gone(pids)


def test_no_orphan_when_weir_is_killed_while_engines_start(workshop, tmp_path):
    weir = workshop.weir(launched(tmp_path, "child=1", replicas=4), wait=False)
    eventually(lambda: engines(tmp_path), "the first one starts")
    weir.kill()
    pids = lambda: engines(tmp_path) + [int(f.name.split(".")[1]) for f in tmp_path.glob("child.*")]  # noqa: E731
    eventually(lambda: not any(map(is_alive, pids())), "no orphan", timeout=20)


def test_engines_end_with_their_guard(workshop, tmp_path):
    """The guard is killed: engines must not outlive it, and weir says so and lives."""
    weir = workshop.weir(launched(tmp_path))
    eventually(lambda: len(alive(tmp_path)) == 2, "both run")
    first = engines(tmp_path)
    parents = {int(open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()[1]) for p in first}
    assert len(parents) == 1 and weir.pid not in parents
    os.kill(parents.pop(), signal.SIGKILL)
    all_gone(first)
    assert get(weir.port, "/health/live").status == 200


def test_weir_dies_with_its_engines_while_a_request_runs(workshop, tmp_path):
    weir = workshop.weir(launched(tmp_path, "hold=1", replicas=1))
    with Connection(weir.port) as c:
        c.send(request_bytes("/v1/chat/completions", chat_body(stream=True)))
        c.read_until(b"begun ")
        pids = engines(tmp_path)
        weir.kill()
    all_gone(pids)


def test_streams_finish_before_engines_are_ended_on_sigterm(workshop, tmp_path):
    weir = workshop.weir(launched(tmp_path, "hold=1", replicas=1))
    with Connection(weir.port) as c:
        c.send(request_bytes("/v1/chat/completions", chat_body(stream=True)))
        c.read_until(b"begun ")
        weir.signal(signal.SIGTERM)
        eventually(lambda: "drain" in weir.stderr.lower(), "it drains")
        (tmp_path / "go").write_text("")
        response = c.read_response()
    assert response.is_complete and b"ended" in response.body
    assert weir.wait_for_end() == 0
    all_gone(engines(tmp_path))


def test_reload_adds_and_removes_engines(workshop, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir(), two.mkdir()
    weir = workshop.weir(launched(one, replicas=1))
    (first,) = engines(one)
    weir.write_config({"models": [model(pools=[pool(engine="vllm", launch=launch(one, replicas=1))]),
                                  model(name="second", pools=[pool(engine="vllm", launch=launch(two, replicas=1))])]})
    weir.hangup()
    eventually(lambda: chat(weir.port, model="second").status == 200, "the new one serves")
    assert is_alive(first) and engines(one) == [first], "what did not change was left alone"
    weir.write_config({"models": [model(pools=[pool(engine="vllm", launch=launch(one, replicas=1))])]})
    weir.hangup()
    all_gone(engines(two), "the removed one is ended")
    assert chat(weir.port).json["pid"] == first


def test_reload_drains_a_removed_engine(workshop, tmp_path):
    up = workshop.upstream()
    weir = workshop.weir(launched(tmp_path, "hold=1", replicas=1))
    with Connection(weir.port) as c:
        c.send(request_bytes("/v1/chat/completions", chat_body(stream=True)))
        c.read_until(b"begun ")
        weir.write_config({"models": [model(up)]})
        weir.hangup()
        eventually(lambda: chat(weir.port).status == 200 and up.requests, "the other serves")
        assert alive(tmp_path), "the old one has a request left"
        (tmp_path / "go").write_text("")
        response = c.read_response()
    assert response.is_complete and b"ended" in response.body
    all_gone(engines(tmp_path))


def test_reload_with_a_changed_command_replaces_the_engine(workshop, tmp_path):
    weir = workshop.weir(launched(tmp_path, "version=1", replicas=1))
    old = engines(tmp_path)
    weir.write_config(launched(tmp_path, "version=2", replicas=1))
    weir.hangup()

    def is_new():
        response = chat(weir.port)
        return response.status == 200 and "version=2" in response.json["argv"]
    eventually(is_new, "the new command runs")
    all_gone(old)


def test_stuck_engine_is_not_left_behind_by_a_reload(workshop, tmp_path):
    up = workshop.upstream()
    weir = workshop.weir(launched(tmp_path, "deaf=1", "child=1", replicas=1, drain_timeout="100ms", stop_timeout="300ms"))
    pids = engines(tmp_path) + [int(f.name.split(".")[1]) for f in tmp_path.glob("child.*")]
    weir.write_config({"models": [model(up)]})
    weir.hangup()
    all_gone(pids)
    eventually(lambda: chat(weir.port).status == 200, "served by the other")


def test_weirs_own_descriptors_are_not_inherited(workshop, tmp_path):
    weir = workshop.weir(launched(tmp_path, replicas=1))
    (pid,) = engines(tmp_path)
    own = {os.readlink(f"/proc/{weir.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{weir.pid}/fd")}
    sockets = {link for link in own if link.startswith("socket:") or "eventpoll" in link}
    inherited = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            inherited.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            continue
    assert not {link for link in inherited & sockets if link.startswith("socket:")}
