"""Engines that are named by host names: addresses that come and go (FR-39)."""
import subprocess

import pytest

from harness import dns
from harness.client import chat
from harness.upstream import Upstream
from harness.wait import eventually
from harness.weir import Weir, model


@pytest.fixture
def name_server(tmp_path):
    conf = tmp_path / "resolv.conf"
    conf.write_text("nameserver 127.53.0.1\noptions timeout:1 attempts:2\n")
    if subprocess.run(dns.with_resolver(["true"], conf), capture_output=True).returncode != 0:
        pytest.skip("needs the right to make a mount namespace (root)")
    try:
        server = dns.NameServer()
    except OSError as error:
        pytest.skip(f"needs port 53 of 127.53.0.1: {error}")
    server.conf = conf
    yield server
    server.close()


@pytest.fixture
def two_hosts():
    """Two engines on one port of two addresses, as two pods behind one name have."""
    first = Upstream(host="127.0.0.2")
    second = Upstream(host="127.0.0.3", port=first.port)
    yield first, second
    first.stop()
    second.stop()


def served(engine):
    return sum(r.path.endswith("/chat/completions") for r in engine.requests)


def test_fr39_requests_follow_a_name_to_its_new_address(name_server, two_hosts):
    first, second = two_hosts
    name_server.names["engine.test"] = ["127.0.0.2"]
    settings = {"models": [model(f"http://engine.test:{first.port}")]}
    weir = Weir(settings, wrap=lambda command: dns.with_resolver(command, name_server.conf))
    try:
        assert chat(weir.port).status == 200 and served(first) == 1
        name_server.names["engine.test"] = ["127.0.0.3"]

        def moved():
            return chat(weir.port).status == 200 and served(second) > 0
        eventually(moved, "requests reach the new address", timeout=20)
        before = served(first)
        for _ in range(5):
            assert chat(weir.port).status == 200
        assert served(first) == before, "nothing goes to the address that was removed"
    finally:
        weir.stop()


def test_fr39_a_name_that_does_not_resolve_yet_is_served_once_it_does(name_server, two_hosts):
    first, _ = two_hosts
    settings = {"models": [model(f"http://later.test:{first.port}")]}
    weir = Weir(settings, expect_ready=False,
                wrap=lambda command: dns.with_resolver(command, name_server.conf))
    try:
        answer = chat(weir.port)
        assert answer.status == 503 and answer.header("retry-after")
        name_server.names["later.test"] = ["127.0.0.2"]
        eventually(lambda: chat(weir.port).status == 200, "the name is asked again", timeout=30)
    finally:
        weir.stop()
