"""weir as a process: configuration, start, logs, metrics, and what must hold at the end of every test."""
import copy
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile

import yaml
from prometheus_client.parser import text_string_to_metric_families

from . import client
from .ports import free_port
from .wait import eventually

REPO = pathlib.Path(__file__).resolve().parents[3]
BINARY = os.environ.get("WEIR_BINARY", str(REPO / "build" / "weir"))

# Sanitizers keep freed memory and shadow it: sizes say nothing there.
IS_SANITIZED = os.path.exists(BINARY) and re.search(rb"__(a|t)san_init", pathlib.Path(BINARY).read_bytes()) is not None

SANITIZER = re.compile(r"ERROR: (Address|Leak|Memory)Sanitizer|WARNING: ThreadSanitizer|runtime error:|"
                       r"Sanitizer:DEADLYSIGNAL|SUMMARY: \w+Sanitizer")

# Everything fast, and nothing that one test does to a replica lasting into the next: ejection, retry budget
# and timeouts are turned on by the tests that are about them.
BASE = {
    "workers": 1,
    "drain_timeout": "5s",
    "drain_delay": "0s",
    "log": {"level": "debug"},
    "health": {"interval": "100ms", "timeout": "2s", "down_after": 2, "up_after": 1, "ramp": "0s", "busy": "0s",
               "eject": {"after": 1000}},
    "retry": {"attempts": 3, "budget_ratio": 1.0, "budget_min_per_s": 1000},
}


def merge(base, extra):
    """`extra` over `base`, sections merged."""
    out = copy.deepcopy(base)
    for key, value in (extra or {}).items():
        out[key] = merge(out[key], value) if isinstance(value, dict) and isinstance(out.get(key), dict) else value
    return out


def pool(*upstreams, name="p", engine="vllm", **members):
    urls = [u if isinstance(u, str) else u.url for u in upstreams]
    return {"name": name, "engine": engine, **({"replicas": urls} if urls else {}), **members}


def model(*upstreams, name="m", engine="vllm", policy=None, pools=None, engine_model="engine-side", **members):
    """One model; the upstreams become its one pool unless `pools` says otherwise."""
    if pools is None:
        pools = [pool(*upstreams, engine=engine, **({"engine_model": engine_model} if engine_model else {}))]
    out = {"name": name, **members, "pools": pools}
    if policy:
        out["routing"] = {"policy": policy}
    return out


class Weir:
    """A running `weir serve`. `settings` is the configuration as Python data, without listen addresses."""

    def __init__(self, settings=None, arguments=None, wait=True, environment=None, before=None, base=BASE,
                 stdout=None, descriptors=None, expect_ready=True, wrap=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-test-"))
        self.port, self.admin = free_port(), free_port()
        self.config_file, self.access_file = self.folder / "weir.yaml", self.folder / "access.log"
        self.stderr_file, self.stdout_file = self.folder / "stderr", self.folder / "stdout"
        self.base, self.ended_on_purpose = base, False
        self.settings = settings
        if arguments is None:
            self.write_config(settings)
            arguments = ["serve", "--config", str(self.config_file)]
        command = [BINARY, *arguments]
        if descriptors:
            command = ["/bin/sh", "-c", f'ulimit -n {descriptors}; exec "$0" "$@"', *command]
        if wrap:  # a command around it that ends in an exec of it
            command = wrap(command)
        self._stderr = open(self.stderr_file, "wb")
        self._stdout = stdout or open(self.stdout_file, "wb")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._stdout, stderr=self._stderr,
                                        cwd=self.folder, env={**os.environ, **(environment or {})},
                                        preexec_fn=before)
        if wait:
            try:
                self.wait_until_ready() if expect_ready else self.wait_until_live()
            except BaseException:
                self.kill()
                raise

    # -- configuration --

    def full(self, settings):
        """Settings with the base and this process's own addresses and files."""
        own = {"listen": f"127.0.0.1:{self.port}", "admin": f"127.0.0.1:{self.admin}",
               "access_log": {"path": str(self.access_file), "format": "json"}}
        return merge(merge(self.base, own), settings)

    def write_config(self, settings):
        self.settings = settings
        self.write_text(yaml.safe_dump(self.full(settings), sort_keys=False, allow_unicode=True))

    def write_text(self, text):
        """Replaced at once, as an editor or a config map does."""
        new = self.config_file.with_suffix(".new")
        new.write_text(text)
        new.rename(self.config_file)

    # -- life --

    @property
    def pid(self):
        return self.process.pid

    @property
    def is_alive(self):
        return self.process.poll() is None

    def wait_until_live(self):
        self._wait_for("/health/live")

    def wait_until_ready(self):
        self._wait_for("/health/ready")

    def wait_for_replicas(self, upstreams):
        """weir is ready with its first replica; a test of several wants all that are up."""
        def all_are():
            ready = {s.labels["replica"] for s in self.metrics().find("weir_replica_state", state="ready") if s.value}
            return {u.url for u in upstreams} <= ready
        eventually(all_are, lambda: f"every replica is ready; stderr:\n{self.stderr[-3000:]}", timeout=30)

    def _wait_for(self, path):
        def answered():
            assert self.is_alive, f"weir ended with {self.process.returncode}:\n{self.stderr[-4000:]}"
            try:
                return client.get(self.port, path, timeout=5).status == 200
            except (OSError, AssertionError):
                return False
        eventually(answered, lambda: f"200 at {path}; stderr:\n{self.stderr[-3000:]}", timeout=30)

    @property
    def is_ready(self):
        return client.get(self.port, "/health/ready").status == 200

    def signal(self, number):
        self.process.send_signal(number)

    def wait_for_end(self, timeout=30):
        self.ended_on_purpose = True
        return self.process.wait(timeout)

    def stop(self):
        """Ends in order and returns the status; kills what does not end."""
        self.ended_on_purpose = True
        if self.is_alive:
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.signal(signal.SIGTERM)
        try:
            status = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"weir did not end after two SIGTERM:\n{self.stderr[-3000:]}") from None
        self._stderr.close()
        return status

    def kill(self):
        self.ended_on_purpose = True
        if self.is_alive:
            self.process.kill()
            self.process.wait()

    def hangup(self):
        self.signal(signal.SIGHUP)

    # -- what it says --

    @property
    def stderr(self):
        return self.stderr_file.read_text(errors="replace")

    @property
    def stdout(self):
        return self.stdout_file.read_text(errors="replace")

    @property
    def access_lines(self):
        """Whole lines: the last one may be on its way."""
        text = self.access_file.read_text() if self.access_file.exists() else ""
        return [line for line in text.split("\n")[:-1] if line]

    @property
    def access(self):
        """The access log, parsed; every line must be JSON. Without the health checks of this harness."""
        lines = [json.loads(line) for line in self.access_lines]
        return [line for line in lines if line["surface"] not in ("live", "ready")]

    def access_of(self, request_id):
        """The one line of a request, once it is written."""
        def found():
            return [r for r in self.access if r["id"] == request_id]
        eventually(found, lambda: f"access log line of {request_id}; there are {self.access_lines[-5:]}")
        lines = found()
        assert len(lines) == 1, f"logged more than once: {lines}"
        return lines[0]

    def metrics_text(self):
        response = client.get(self.admin, "/metrics")
        assert response.status == 200, response
        return response.body.decode()

    def metrics(self):
        return Metrics(self.metrics_text())

    def rss(self):
        """Resident bytes now."""
        for line in open(f"/proc/{self.pid}/status"):
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def assert_grew_less(self, since, limit):
        """Resident memory against an earlier rss(); says nothing under sanitizers."""
        grown = self.rss() - since
        assert IS_SANITIZED or grown < limit, f"{grown} bytes more than before, allowed are {limit}"

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def processes(self):
        """Pids of all descendants."""
        out, level = [], [self.pid]
        while level:
            found = []
            for pid in level:
                try:
                    for task in os.listdir(f"/proc/{pid}/task"):
                        found += [int(p) for p in open(f"/proc/{pid}/task/{task}/children").read().split()]
                except OSError:
                    continue
            out += found
            level = found
        return out

    # -- what must hold after every test --

    def assert_sound(self):
        """Alive, nothing reported by a sanitizer, nothing left in flight."""
        self.assert_no_reports()
        if self.ended_on_purpose:
            return
        assert self.is_alive, f"weir ended with {self.process.returncode}:\n{self.stderr[-4000:]}"
        self.assert_idle()

    def assert_no_reports(self):
        found = SANITIZER.search(self.stderr)
        assert not found, f"sanitizer report:\n{self.stderr[max(0, found.start() - 500):][:6000]}"

    def assert_idle(self):
        """Gauges of what is in flight go back to exactly zero."""
        eventually(lambda: not self.metrics().in_flight(),
                   lambda: f"in-flight gauges at zero; there are {self.metrics().in_flight()}")


class Metrics:
    """A metrics page. `page.value("weir_requests_total", model="m")` adds up the samples that fit."""

    def __init__(self, text):
        self.families = list(text_string_to_metric_families(text))
        self.samples = [s for family in self.families for s in family.samples]

    def names(self):
        return {s.name for s in self.samples}

    def find(self, name, **labels):
        return [s for s in self.samples if s.name == name and all(s.labels.get(k) == v for k, v in labels.items())]

    def value(self, name, **labels):
        return sum(s.value for s in self.find(name, **labels))

    def in_flight(self):
        """Gauges that count what is going on now, and are not zero."""
        return {(s.name, tuple(sorted(s.labels.items()))): s.value for s in self.samples
                if s.value and re.search(r"in_flight|body_memory_bytes", s.name)}
