"""What runs out or stands in the way is said plainly, and what runs goes on."""
import os
import random
import socket
import subprocess
import sys
import threading
import time

import pytest

from harness import client, replies
from harness import upstream as u
from harness.client import Connection, chat, chat_body, get, request_bytes
from harness.replies import ROLE, chunk, stream_head, word
from harness.wait import eventually
from harness.weir import BINARY, model

SITE = {"settings": {"timeouts": {"client_head": "2s"}}}


# ---- descriptors ----

def test_no_descriptors_left_refuses_and_recovers(workshop):
    up = workshop.upstream()
    weir = workshop.weir({"models": [model(up)]}, descriptors=80)
    assert chat(weir.port).status == 200
    hoard = []
    for _ in range(120):
        try:
            c = socket.create_connection(("127.0.0.1", weir.port), timeout=2)
            c.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n")
            hoard.append(c)
        except OSError:
            break
    assert weir.is_alive
    for c in hoard:
        c.close()
    eventually(lambda: _is_served(weir), "it serves again")
    assert "descriptor" in weir.stderr.lower() or "too many open files" in weir.stderr.lower(), "said plainly"


def _is_served(weir):
    try:
        return chat(weir.port, timeout=5).status == 200
    except (OSError, AssertionError):
        return False


def test_no_descriptors_is_not_a_busy_loop(workshop):
    """The listener stays readable while accept() fails: CPU time must not run away."""
    up = workshop.upstream()
    weir = workshop.weir({"models": [model(up)]}, descriptors=64)
    hoard = []
    for _ in range(100):
        try:
            hoard.append(socket.create_connection(("127.0.0.1", weir.port), timeout=2))
        except OSError:
            break
    before, began = cpu_seconds(weir), time.monotonic()
    threading.Event().wait(1)
    share = (cpu_seconds(weir) - before) / (time.monotonic() - began)
    for c in hoard:
        c.close()
    assert share < 0.5, f"{share:.0%} of a core while standing still"
    eventually(lambda: _is_served(weir), "it serves again")


def cpu_seconds(weir):
    fields = open(f"/proc/{weir.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_descriptors_do_not_leak(site):
    for _ in range(5):
        chat(site.port)
    before = site.weir.descriptors()
    scripts = [u.ok, u.answer(500, {}), u.reset, u.close, u.stream(ROLE, word("a"), end=b"", then="rst"), u.silent]
    for i in range(120):
        script = scripts[i % len(scripts)]
        site.up.next(script)
        with Connection(site.port) as c:
            c.send(request_bytes("/v1/chat/completions", chat_body(stream=bool(i % 2))))
            if script is u.silent:
                site.up.wait_for_requests(1)
            else:
                c.read_response()
        site.up.clear()
    eventually(lambda: site.weir.descriptors() <= before + 8,
               lambda: f"descriptors as before: {before}, now {site.weir.descriptors()}")


def test_connection_limit(workshop):
    site = workshop.site(settings={"limits": {"connections": 10}})
    held = [Connection(site.port) for _ in range(10)]
    for c in held:
        c.send(request_bytes("/v1/models", method="GET"))
        assert c.read_response().status == 200
    refused = 0
    for _ in range(5):
        try:
            response = get(site.port, "/v1/models", timeout=5)
            refused += response.status == 503
        except (OSError, AssertionError):
            refused += 1
    assert refused == 5
    for c in held:
        c.close()
    eventually(lambda: _is_served(site.weir), "it serves again")
    assert site.weir.metrics().value("weir_connections_refused_total") >= 5


# ---- start ----

def refused_start(workshop, settings=None, text=None, arguments=None, **kwargs):
    weir = workshop.weir(settings or {"models": [model("http://127.0.0.1:1")]}, wait=False, arguments=arguments, **kwargs)
    status = weir.wait_for_end()
    return weir, status


@pytest.mark.parametrize("which", ["listen", "admin"])
def test_busy_port_is_said_and_refused(workshop, which):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        weir, status = refused_start(workshop, {"models": [model("http://127.0.0.1:1")], which: f"127.0.0.1:{port}"})
    assert status == 1
    assert str(port) in weir.stderr and "in use" in weir.stderr.lower()


def test_port_of_another_weir_is_busy(workshop):
    """SO_REUSEPORT must not let two gateways share a port unawares."""
    site = workshop.site()
    weir, status = refused_start(workshop, {"models": [model("http://127.0.0.1:1")], "listen": f"127.0.0.1:{site.port}"})
    assert status == 1 and "in use" in weir.stderr.lower()
    assert chat(site.port).status == 200


def test_unreadable_configuration(workshop, tmp_path):
    for path, words in ((tmp_path / "none.yaml", "No such file"), (tmp_path, "directory")):
        weir, status = refused_start(workshop, arguments=["serve", "--config", str(path)])
        assert status == 1 and str(path) in weir.stderr and words.lower() in weir.stderr.lower()


@pytest.mark.parametrize("key", ["api_key_file", "api_key_env"])
def test_missing_secret_is_refused_in_words(workshop, key):
    value = "/nonexistent/key" if key.endswith("file") else "WEIR_TEST_NO_SUCH_VARIABLE"
    weir, status = refused_start(workshop, {"models": [model(pools=[
        {"name": "p", "engine": "vllm", "replicas": ["http://127.0.0.1:1"], key: value}])]})
    assert status == 1 and value in weir.stderr


def test_address_that_is_not_ours(workshop):
    weir, status = refused_start(workshop, {"models": [model("http://127.0.0.1:1")], "listen": "192.0.2.1:8080"})
    assert status == 1 and "192.0.2.1:8080" in weir.stderr


def test_wrong_usage_is_status_2():
    for arguments in ([], ["nonsense"], ["serve", "--nonsense"], ["serve", "a", "b", "c"], ["check"], ["check", "--nonsense"]):
        run = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=30)
        assert run.returncode == 2, (arguments, run.stderr)
        assert run.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["help"], ["serve", "--help"], ["check", "--help"], ["--version"],
                                       ["version"]])
def test_help_and_version(arguments):
    run = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=30)
    assert run.returncode == 0 and run.stdout and not run.stderr


def test_listening_on_a_unix_socket_and_ipv6(workshop, tmp_path):
    path = tmp_path / "weir.sock"
    up = workshop.upstream()
    weir = workshop.weir({"models": [model(up)]}, wait=False)
    weir.kill()
    settings = {"models": [model(up)], "listen": [f"127.0.0.1:{weir.port}", f"[::1]:{weir.port}", f"unix:{path}"]}
    weir = workshop.weir(settings, wait=False)
    weir.port = int(settings["listen"][0].rsplit(":", 1)[1])
    weir.wait_until_ready()
    assert client.ask(weir.port, "/v1/chat/completions", chat_body(), host="::1").status == 200
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10)
        s.connect(str(path))
        s.sendall(request_bytes("/v1/models", method="GET", headers=[("Connection", "close")]))
        data = b""
        while piece := s.recv(65536):
            data += piece
    assert data.startswith(b"HTTP/1.1 200 ")
    weir.stop()
    assert not path.exists(), "the socket file is removed"


# ---- output that nobody takes ----

def test_closed_pipe_for_the_access_log_loses_lines_and_nothing_else(workshop):
    read_end, write_end = os.pipe()
    up = workshop.upstream()
    weir = workshop.weir({"models": [model(up)], "access_log": {"path": "-"}}, stdout=write_end)
    os.close(write_end)
    assert chat(weir.port).status == 200
    os.close(read_end)
    for _ in range(20):
        assert chat(weir.port).status == 200
    eventually(lambda: weir.metrics().value("weir_access_log_lost_lines_total") > 0, "lost lines are counted")
    assert chat(weir.port).status == 200


def test_full_pipe_for_the_access_log_stops_nobody(workshop):
    """A reader that sleeps: the pipe is full for good."""
    read_end, write_end = os.pipe()
    up = workshop.upstream()
    weir = workshop.weir({"models": [model(up)], "access_log": {"path": "-"}}, stdout=write_end)
    os.close(write_end)
    with Connection(weir.port) as c:
        for i in range(600):
            c.send(request_bytes("/v1/models", method="GET", headers=[("x-request-id", "i" * 60)]))
            assert c.read_response().status == 200
    assert chat(weir.port).status == 200
    weir.stop()
    os.close(read_end)


def test_closed_standard_error_stops_nobody(workshop):
    read_end, write_end = os.pipe()
    up = workshop.upstream()
    script = "import os,sys; os.dup2(int(sys.argv[1]), 2); os.execv(sys.argv[2], sys.argv[2:])"
    weir = workshop.weir({"models": [model(up)]})
    process = subprocess.Popen([sys.executable, "-c", script, str(write_end), BINARY, "check", str(weir.config_file)],
                               pass_fds=[write_end])
    os.close(write_end)
    os.close(read_end)
    assert process.wait(30) == 0
    assert chat(weir.port).status == 200


# ---- noise ----

def noise(rng):
    kind = rng.randrange(5)
    good = request_bytes("/v1/chat/completions", chat_body(stream=bool(rng.randrange(2))))
    if kind == 0:
        return rng.randbytes(rng.randrange(1, 3000))
    if kind == 1:  # a good request with some bytes changed
        data = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data)
    if kind == 2:  # cut
        return good[:rng.randrange(len(good))]
    if kind == 3:  # with pieces doubled
        at, length = rng.randrange(len(good)), rng.randrange(1, 80)
        return good[:at] + good[at:at + length] * rng.randrange(2, 50) + good[at:]
    return b"".join(rng.choice([b"GET ", b"POST ", b"/v1/", b" HTTP/1.1", b"\r\n", b"\n", b"\r", b": ", b"0", b"a" * 100,
                                b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5\r\n", b"Host: x\r\n", b"\x00", b"{",
                                b'"model":"m"', b"}", b"\r\n\r\n"]) for _ in range(rng.randrange(1, 60)))


@pytest.mark.parametrize("seed", range(8))
def test_noise_from_clients_does_no_harm(site, seed):
    rng = random.Random(seed)
    for _ in range(40):
        data = noise(rng)
        with Connection(site.port, timeout=5) as c:
            c.send(data) if rng.randrange(3) else c.send_bytewise(data[:400], rng.randrange(1, 40))
            if rng.randrange(2):
                c.half_close()
                c.read_to_end()
        assert site.weir.is_alive, f"seed {seed}: {data!r}"
    assert chat(site.port).status == 200


@pytest.mark.parametrize("seed", range(6))
def test_noise_from_engines_does_no_harm(workshop, seed):
    site = workshop.site(settings={"timeouts": {"first_byte": "150ms", "between_events": "150ms"}, "retry": {"attempts": 1}})
    rng = random.Random(1000 + seed)
    whole = stream_head() + b"".join(map(chunk, replies.chat_events())) + replies.LAST_CHUNK
    for _ in range(40):
        data = bytearray(rng.choice([whole, replies.reply(200, replies.chat_json()), rng.randbytes(500)]))
        for _ in range(rng.randrange(0, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        data = bytes(data[:rng.randrange(1, len(data) + 1)])
        site.up.next(u.raw(data, then=rng.choice(["fin", "keep"])))
        try:
            response = chat(site.port, stream=bool(rng.randrange(2)), timeout=10)
        except AssertionError as e:
            raise AssertionError(f"seed {seed}: {data!r}: {e}") from None
        for event in response.events if response.status == 200 and response.is_complete else ():
            if event.is_error:
                assert event.json["error"]["message"]
        assert site.weir.is_alive, f"seed {seed}: {data!r}"
        site.up.clear()
    eventually(lambda: chat(site.port).status == 200, "it serves on")


def test_noise_on_the_admin_listener_does_no_harm(site):
    rng = random.Random(7)
    for _ in range(60):
        with Connection(site.weir.admin, timeout=5) as c:
            c.send(noise(rng))
    assert get(site.weir.admin, "/metrics").status == 200


def test_memory_is_flat_over_rounds(site):
    def rounds(n):
        for i in range(n):
            chat(site.port, stream=True)
            chat(site.port, text="x" * 20_000)
            site.up.next(u.stream(ROLE, word("a"), end=b"", then="fin"))
            chat(site.port, stream=True)
            chat(site.port, model="nope")
    rounds(60)
    settled = site.weir.rss()
    rounds(200)
    site.weir.assert_grew_less(settled, 2 << 20)
