"""The benchmark's own parts tell the truth: what the client counts is what the upstream sent."""

import json
import pathlib
import socket
import subprocess
import sys
import threading

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import report  # noqa: E402
import run  # noqa: E402
import scenarios  # noqa: E402

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
ROLE = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
TEXT = b'data: {"choices":[{"delta":{"content":" a"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"lost"}}\n\n'


@pytest.fixture(scope="module", autouse=True)
def programs():
    run.build()


@pytest.fixture(scope="module")
def upstream():
    process = subprocess.Popen([run.BUILD / "upstream", "2"], stdout=subprocess.PIPE)
    yield int(process.stdout.readline().split()[0])
    process.terminate()
    process.wait()


def load(port, *options):
    done = subprocess.run(
        [run.BUILD / "load", "--port", str(port), "--duration-ms", "20000", *options],
        capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def errors(seen):
    return {name: count for name, count in seen["errors"].items() if count}


def chunks(*events):
    return b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events)


@pytest.fixture
def scripted():
    """Starts a server that answers one request with the given pieces, then closes."""
    listeners = []

    def start(*pieces):
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve():
            connection, _ = listener.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.recv(65536)
                for piece in pieces:
                    connection.sendall(piece)

        threading.Thread(target=serve, daemon=True).start()
        return listener.getsockname()[1]

    yield start
    for listener in listeners:
        listener.close()


def test_requests_are_counted_one_by_one(upstream):
    seen = load(upstream, "--connections", "7", "--requests", "200")
    assert seen["requests"] == 200 and errors(seen) == {}


def test_a_body_that_arrives_in_parts_is_answered_once(upstream):
    seen = load(upstream, "--connections", "3", "--requests", "30", "--body-bytes", "1000000")
    assert seen["requests"] == 30 and errors(seen) == {}


@pytest.mark.parametrize("pace_us", ["0", "1000"])
def test_events_of_streams_are_counted_one_by_one(upstream, pace_us):
    seen = load(upstream, "--connections", "5", "--requests", "20", "--stream", "--max-tokens",
                "33", "--pace-us", pace_us)
    assert (seen["requests"], seen["events"]) == (20, 660) and errors(seen) == {}


def test_open_loop_sends_all_that_is_due(upstream):
    seen = load(upstream, "--connections", "20", "--requests", "100", "--rate", "1000")
    assert seen["requests"] == 100 and errors(seen) == {}


def test_a_stream_reads_the_same_byte_by_byte(scripted):
    whole = HEAD + chunks(ROLE, TEXT, TEXT, DONE) + b"0\r\n\r\n"
    seen = load(scripted(*(bytes([byte]) for byte in whole)), "--stream", "--requests", "1")
    assert (seen["requests"], seen["events"]) == (1, 2) and errors(seen) == {}


def test_a_stream_without_done_is_an_error(scripted):
    seen = load(scripted(HEAD + chunks(TEXT) + b"0\r\n\r\n"), "--stream", "--requests", "1")
    assert seen["requests"] == 0 and errors(seen) == {"no_done": 1}


def test_an_error_event_is_an_error_also_when_done_follows(scripted):
    answer = HEAD + chunks(TEXT, ERROR, DONE) + b"0\r\n\r\n"
    seen = load(scripted(answer), "--stream", "--requests", "1")
    assert seen["requests"] == 0 and errors(seen) == {"error_event": 1}


def test_a_stream_cut_short_is_an_error(scripted):
    seen = load(scripted(HEAD + chunks(TEXT, DONE)), "--stream", "--requests", "1")
    assert seen["requests"] == 0 and errors(seen) == {"cut_short": 1}


def test_a_status_that_is_not_200_is_an_error(scripted):
    answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
    seen = load(scripted(answer), "--requests", "1")
    assert seen["last_bad_status"] == 503 and errors(seen) == {"status": 1}


def test_ratios_are_taken_from_the_least_disturbed_rounds():
    rounds = {"nginx": [{"cpu_us_per_unit": cost} for cost in (10.0, 35.0, 12.0, 36.0, 37.0, 38.0)],
              "weir": [{"cpu_us_per_unit": cost} for cost in (60.0, 5.0, 50.0, 6.0, 61.0, 62.0)]}
    rows = report.make_rows(scenarios.SCENARIOS[0], rounds)
    assert [row["ratio_to_nginx"] for row in rows] == [1.0, 0.5]
    assert set(rows[1]) >= {"scenario", "target", "cpu_us_per_unit", "ratio_to_nginx"}
