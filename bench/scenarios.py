"""What is measured. A row is one workload; `kind` says which function of run.py does it."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Scenario:
    name: str
    what: str
    unit: str  # what CPU time is divided by: "request" or "event"
    load: tuple = ()  # options of bench/load
    kind: str = "load"
    streams: bool = False
    warmup_ms: int = 200
    duration_ms: int = 600
    budget: float | None = None  # CPU time, as a ratio to nginx's
    quick: bool = True

    def shortened(self, duration_ms):
        return replace(self, duration_ms=duration_ms)


def _stream(tokens, pace_ms=0):
    return ("--stream", "--max-tokens", tokens, "--pace-us", int(pace_ms * 1000))


SCENARIOS = [
    Scenario("small", "not streamed, 300 B body, 32 connections", "request",
             ("--connections", 32), budget=1.2),
    Scenario("prompt24k", "not streamed, 24 kB body, 32 connections", "request",
             ("--connections", 32, "--body-bytes", 24000), budget=1.25),
    Scenario("open_loop", "not streamed, 300 B body, 4,000 requests/s offered", "request",
             ("--connections", 256, "--rate", 4000), quick=False),
    Scenario("sse_unpaced", "32 streams of 100 events, as fast as they go", "event",
             ("--connections", 32, *_stream(100)), streams=True, budget=1.0),
    Scenario("sse_500", "500 streams, 20 ms between events", "event",
             ("--connections", 500, "--ramp-ms", 1000, *_stream(50, 20)),
             streams=True, warmup_ms=1200),
    Scenario("sse_2000", "2,000 streams, 40 ms between events", "event",
             ("--connections", 2000, "--ramp-ms", 2000, *_stream(50, 40)),
             streams=True, warmup_ms=2200, budget=1.0, quick=False),
    Scenario("ttft", "one stream at a time: what the proxy adds to TTFT when nothing else runs",
             "request", ("--connections", 1, *_stream(4)), kind="ttft", streams=True,
             warmup_ms=20, duration_ms=1000),
    Scenario("memory", "resident memory per stream that waits for its next event", "stream",
             ("--timeout-s", 600, *_stream(4, 600_000)), kind="memory", streams=True, quick=False),
    Scenario("syscalls_small", "system calls, one connection, 300 B body", "request",
             ("--connections", 1, "--requests", 500), kind="syscalls", warmup_ms=0,
             quick=False),
    Scenario("syscalls_sse", "system calls, one stream, each event alone", "event",
             ("--connections", 1, "--requests", 1, *_stream(500, 4)),
             kind="syscalls", streams=True, warmup_ms=0, quick=False),
]
