"""One measurement of one target: runs bench/load against it and returns what was seen."""

import json
import os
import re
import resource
import shutil
import signal
import statistics
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field

from processes import family
from targets import find_target, free_port

CORES = sorted(os.sched_getaffinity(0))
PROXY_CORE, LOAD_CORE = CORES[0], CORES[min(1, len(CORES) - 1)]
READY_S = 20
START_ATTEMPTS = 3
TTFT_BLOCKS = 10
MEMORY_STREAMS = (2000, 10000)


class Failed(Exception):
    """The target cannot be measured; the text says why."""


@dataclass
class Bench:
    """What all measurements of one run share."""

    children: object
    folder: object
    load: object  # path of the client
    upstreams: list  # ports
    running: dict = field(default_factory=dict)  # target name -> (process, port)
    failures: int = 0

    def start_target(self, name):
        """(process, port). Another program may take a free port first: then others are tried."""
        for attempt in range(START_ATTEMPTS):
            try:
                return self._start_target(name)
            except Failed:
                if attempt + 1 == START_ATTEMPTS:
                    raise

    def _start_target(self, name):
        port = free_port()
        folder = self.folder / name.replace("/", "_")
        folder.mkdir(exist_ok=True)
        argv = find_target(name)(folder, port, self.upstreams)
        process = self.children.start(name.replace("/", "_"), argv, PROXY_CORE)
        try:
            _wait_until_ready(name, process, port)
        except Failed:
            self.children.stop(process)
            raise
        return process, port

    def last_words(self):
        """What the targets' logs end with, for the message when one of them failed."""
        tails = {log.stem: log.read_text(errors="replace").strip()[-600:]
                 for log in self.folder.glob("*.log")}
        return "".join(f"\n--- {name}:\n{tail}" for name, tail in tails.items() if tail)

    def port_of(self, target):
        if target == "direct":
            return self.upstreams[0]
        process, port = self.running[target]
        if process.poll() is not None:
            raise Failed(f"{target} ended with status {process.returncode}")
        return port

    def pids_of(self, target):
        return [] if target == "direct" else family(self.running[target][0].pid)

    def run_load(self, scenario, port, pids=(), extra=(), duration_ms=None):
        """Runs the client once; its JSON, with the number of errors beside it."""
        argv = [self.load, "--port", port, "--warmup-ms", scenario.warmup_ms, "--duration-ms",
                duration_ms or scenario.duration_ms, *scenario.load, *extra]
        if pids:
            argv += ["--pids", ",".join(map(str, pids))]
        limit_s = 60 + (scenario.warmup_ms + scenario.duration_ms) / 1000
        done = self.children.run(argv, LOAD_CORE, limit_s)
        if done.returncode != 0:
            raise Failed(f"bench/load failed: {done.stderr.strip()}")
        seen = json.loads(done.stdout)
        seen["error_count"] = sum(seen["errors"].values())
        return seen


def _wait_until_ready(name, process, port):
    body = json.dumps({"model": "bench", "messages": [{"role": "user", "content": "ready?"}]})
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", data=body.encode(),
        headers={"Content-Type": "application/json"})
    deadline = time.monotonic() + READY_S
    problem = "no answer"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Failed(f"{name} ended with status {process.returncode} instead of serving")
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError) as error:
            problem = str(error)
        time.sleep(0.1)
    raise Failed(f"{name} did not serve within {READY_S} s: {problem}")


def measure_load(bench, scenario, target):
    """A closed or open loop for one window."""
    seen = bench.run_load(scenario, bench.port_of(target), bench.pids_of(target))
    units = seen["events"] if scenario.unit == "event" else seen["requests"]
    result = {
        "per_second": units / seen["seconds"],
        "p50_us": seen["ttft_p50_us"], "p99_us": seen["ttft_p99_us"],
        "errors": seen["error_count"],
    }
    if scenario.streams:
        result |= {"gap_p50_us": seen["gap_p50_us"], "gap_p99_us": seen["gap_p99_us"]}
    if target != "direct" and units:
        cpu_us = seen["cpu_ns"] / 1000 / units
        result |= {"cpu_us_per_unit": cpu_us, "user_us_per_unit": cpu_us * seen["user_share"]}
    return result


def measure_ttft(bench, scenario, target):
    """Short blocks that alternate with the same against the upstream itself."""
    block_ms = max(scenario.duration_ms // (2 * TTFT_BLOCKS), 50)
    blocks = {"direct": [], target: []}
    for _ in range(TTFT_BLOCKS):
        for name, seen in blocks.items():
            seen.append(bench.run_load(scenario, bench.port_of(name), bench.pids_of(name),
                                       duration_ms=block_ms))
    middle = {name: {key: statistics.median(one["ttft_" + key] for one in seen)
                     for key in ("p50_us", "p99_us")}
              for name, seen in blocks.items()}
    result = dict(middle[target])
    result["errors"] = sum(one["error_count"] for one in blocks[target])
    result["per_second"] = (sum(one["requests"] for one in blocks[target]) /
                            sum(one["seconds"] for one in blocks[target]))
    if target != "direct":
        requests = sum(one["requests"] for one in blocks[target])
        result["cpu_us_per_unit"] = sum(one["cpu_ns"] for one in blocks[target]) / 1000 / requests
        result |= {"added_ttft_" + key: middle[target][key] - middle["direct"][key]
                   for key in ("p50_us", "p99_us")}
    return result


def rss_with_streams(bench, scenario, target, count):
    """(resident bytes, errors) of a fresh process that holds `count` streams open."""
    process, port = bench.start_target(target)
    try:
        ramp_ms = count // 4
        seen = bench.run_load(scenario, port, family(process.pid),
                              ("--connections", count, "--ramp-ms", ramp_ms),
                              duration_ms=ramp_ms + 1000)
    finally:
        bench.children.stop(process)
    if seen["open_streams"] != count:
        raise Failed(f"{target} held {seen['open_streams']} of {count} streams open")
    return seen["rss_bytes"], seen["error_count"]


def measure_memory(bench, scenario, target):
    """The slope of resident memory between few and many streams."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    few, many = MEMORY_STREAMS[0], min(MEMORY_STREAMS[1], (hard - 1000) // 2)  # two sockets each
    few_bytes, few_errors = rss_with_streams(bench, scenario, target, few)
    many_bytes, many_errors = rss_with_streams(bench, scenario, target, many)
    return {"rss_bytes_per_stream": (many_bytes - few_bytes) / (many - few),
            "rss_bytes": many_bytes, "streams": many, "errors": few_errors + many_errors}


def _read_strace_table(text):
    """{"read": 12, …} of what `strace -c` writes."""
    rows = re.findall(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", text, re.MULTILINE)
    return {call: int(count) for count, call in rows if call != "total"}


def measure_syscalls(bench, scenario, target):
    """System calls of all threads of the target, by strace; it is slowed down, so no times."""
    if not shutil.which("strace"):
        raise Failed("strace not found; install with: apt-get install strace")
    table = bench.folder / "strace.txt"
    pids = [arg for pid in bench.pids_of(target) for arg in ("-p", pid)]
    strace = bench.children.start("strace", ["strace", "-f", "-c", "-o", table, *pids], PROXY_CORE)
    try:
        _wait_until_traced(bench.pids_of(target))
        seen = bench.run_load(scenario, bench.port_of(target), duration_ms=20_000)
    finally:
        bench.children.stop(strace, signal.SIGINT)  # it detaches and writes its table
    units = seen["events"] if scenario.unit == "event" else seen["requests"]
    if not units:
        raise Failed(f"{target} answered nothing while traced")
    calls = {call: round(count / units, 3)
             for call, count in _read_strace_table(table.read_text()).items()
             if count / units >= 0.01}
    return {"syscalls_per_unit": sum(calls.values()), "syscalls": calls,
            "errors": seen["error_count"]}


def _wait_until_traced(pids):
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if all(_is_traced(pid) for pid in pids):
            return
        time.sleep(0.05)
    raise Failed("strace could not attach; is tracing allowed here?")


def _is_traced(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        return "TracerPid:\t0\n" not in status.read()


KINDS = {"load": measure_load, "ttft": measure_ttft, "memory": measure_memory,
         "syscalls": measure_syscalls}
