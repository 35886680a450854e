"""No request and no event may come to cost more user-space instructions than budget.json allows.

Instructions are the same on each run and each machine, where times are not. Work is done N times and
then 2N times; the difference, divided by N, is free of what is spent once. To raise a budget
knowingly: WEIR_PERF_UPDATE=1, and a commit that says what the cost buys.
"""

import json
import os
import pathlib
import threading
import warnings

import pytest

from callgrind import Weir
from lockstep import Client, Engine, wait_until_served

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BINARY = pathlib.Path(os.environ.get("WEIR_BINARY", ROOT / "build" / "weir"))
BUDGET_FILE = HERE / "budget.json"
UPDATE = "WEIR_PERF_UPDATE=1 build/venv/bin/python -m pytest tests/perf/test_budget.py"
REQUESTS, EVENTS = 100, 300


@pytest.fixture(scope="module")
def turn():
    return threading.Semaphore(0)


@pytest.fixture(scope="module")
def engines(turn):
    engines = [Engine(turn), Engine(turn)]
    yield engines
    for engine in engines:
        engine.close()


@pytest.fixture(scope="module")
def weir(engines):
    weir = Weir(BINARY, [engine.port for engine in engines], ROOT / "build" / "perf")
    try:
        wait_until_served(weir.port, weir.is_alive)
        client = Client(weir.port)
        weir.find_worker(lambda: ask(client, 150, REQUESTS))
        client.close()
        yield weir
    finally:
        weir.close()


@pytest.fixture
def client(weir):
    client = Client(weir.port)
    yield client
    client.close()


def cost_of_one(weir, times, work):
    """Instructions of one of what work(n) does n times; and the profile of 2 * times of them."""
    work(times)  # connections are open, memory is there
    once, _ = weir.count(lambda: work(times))
    twice, profile = weir.count(lambda: work(2 * times))
    return round((twice - once) / times), profile


def check(name, measured, profile):
    budget = json.loads(BUDGET_FILE.read_text())
    if os.environ.get("WEIR_PERF_UPDATE"):
        budget["instructions"][name] = measured
        BUDGET_FILE.write_text(json.dumps(budget, indent=4) + "\n")
        return
    allowed = budget["instructions"][name]
    percent = 100 * (measured - allowed) / allowed
    if percent < -2 * budget["tolerance_percent"]:
        warnings.warn(f"{name} costs {-percent:.0f} % less than its budget; keep that: {UPDATE}")
    assert percent <= budget["tolerance_percent"], (
        f"{name} costs {measured} instructions in user space, {percent:.1f} % more than its budget "
        f"of {allowed}; {budget['tolerance_percent']} % are tolerated.\n"
        f"Where they go:  callgrind_annotate {profile}\n"
        f"When it is worth its price, raise the budget and say why in the commit:  {UPDATE}")


def ask(client, prompt_bytes, times):
    for _ in range(times):
        client.ask(prompt_bytes)


def test_a_small_request_costs_no_more_instructions_than_budgeted(weir, client):
    check("small_request", *cost_of_one(weir, REQUESTS, lambda n: ask(client, 150, n)))


def test_a_request_of_24_kb_costs_no_more_instructions_than_budgeted(weir, client):
    check("prompt_24k_request", *cost_of_one(weir, REQUESTS, lambda n: ask(client, 24000, n)))


def test_a_streamed_event_costs_no_more_instructions_than_budgeted(weir, client, turn):
    check("streamed_event", *cost_of_one(weir, EVENTS, lambda n: client.stream_events(n, turn)))
