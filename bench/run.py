#!/usr/bin/env python3
"""Measures weir beside nginx and HAProxy, in turn, on one core, before an upstream faster than all.

CPU time per request and per event is the figure; docs/performance.md says how it is taken. Prints a
table per scenario and writes build/bench.json. Only ratios within one run mean anything: the machine
is shared and its speed changes from minute to minute.
"""

import argparse
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import KINDS, LOAD_CORE, Bench, Failed
from processes import Children
from report import make_rows, print_table, update_docs
from scenarios import SCENARIOS
from targets import ROOT, TARGETS, find_target, missing_programs

HERE = Path(__file__).resolve().parent
BUILD = ROOT / "build" / "bench"
BASE = [ROOT / "src" / "base" / f"{name}.c" for name in ("buf", "clock", "error", "heap", "slice")]
PROGRAMS = {
    "upstream": ["upstream.c"],
    "load": ["load.c", "process.c", "response.c", "samples.c"],
}
UPSTREAM_PORTS = 4
ROUNDS = 12
TARGET_NAMES = ["direct", "nginx", "nginx_log", "haproxy", "weir"]
RR_SLICE = Path("/proc/sys/kernel/sched_rr_timeslice_ms")


def build():
    """Compiles the client and the upstream when a source is newer."""
    BUILD.mkdir(parents=True, exist_ok=True)
    headers = [*HERE.glob("*.h"), *(ROOT / "src" / "base").glob("*.h")]
    for name, files in PROGRAMS.items():
        sources = [HERE / file for file in files] + BASE
        program = BUILD / name
        newest = max(path.stat().st_mtime for path in sources + headers)
        if program.exists() and program.stat().st_mtime > newest:
            continue
        subprocess.run(
            [os.environ.get("CC", "cc"), "-std=gnu17", "-O2", "-D_GNU_SOURCE", "-Wall", "-Wextra",
             "-Wno-unused-parameter", f"-I{ROOT / 'src'}", "-o", program, *sources], check=True)


def read_arguments():
    names = [scenario.name for scenario in SCENARIOS]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", help=f"of {', '.join(TARGET_NAMES)}, weir@PATH (another build); "
                        "default: all")
    parser.add_argument("--scenarios", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--rounds", type=int, help=f"of each scenario, in turn; default {ROUNDS}")
    parser.add_argument("--duration", type=float, metavar="SECONDS",
                        help="of each measured window; default: the scenario's own")
    parser.add_argument("--quick", action="store_true",
                        help="a look in less than a minute: one short round of the main scenarios")
    parser.add_argument("--realtime", action="store_true",
                        help="SCHED_RR for all parts, against other work on the machine; needs root")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench.json")
    parser.add_argument("--update-docs", action="store_true",
                        help="put the figures into docs/performance.md")
    arguments = parser.parse_args()

    targets = TARGET_NAMES if not arguments.quick else ["direct", "nginx", "haproxy", "weir"]
    arguments.targets = arguments.targets.split(",") if arguments.targets else targets
    for name in arguments.targets:
        if name != "direct" and not find_target(name):
            parser.error(f"no target '{name}'; there are {', '.join(TARGET_NAMES)} and weir@PATH")
    wanted = arguments.scenarios.split(",") if arguments.scenarios else None
    for name in wanted or []:
        if name not in names:
            parser.error(f"no scenario '{name}'; there are {', '.join(names)}")
    arguments.scenarios = [
        scenario for scenario in SCENARIOS
        if (scenario.name in wanted if wanted else scenario.quick or not arguments.quick)]
    if arguments.rounds is None:
        arguments.rounds = 1 if arguments.quick else ROUNDS
    if arguments.duration is None and arguments.quick:
        arguments.duration = 0.7
    if arguments.rounds < 1 or (arguments.duration is not None and arguments.duration <= 0):
        parser.error("--rounds and --duration must be positive")
    return arguments


def start_upstream(children):
    process = children.start("upstream", [BUILD / "upstream", UPSTREAM_PORTS], LOAD_CORE,
                             stdout=subprocess.PIPE)
    return [int(port) for port in process.stdout.readline().split()]


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def measure_scenario(bench, scenario, targets, rounds):
    """All targets in turn, round after round. A target that fails is left out from then on.

    Many short rounds beat few long ones: what disturbs a machine comes and goes within seconds.
    """
    measure = KINDS[scenario.kind]
    if scenario.kind in ("memory", "syscalls"):  # counts, not times: one round says it
        targets, rounds = [target for target in targets if target != "direct"], 1
    results = {target: [] for target in targets}
    for number in range(rounds):
        turn = number % len(targets)
        for target in targets[turn:] + targets[:turn]:  # nobody always follows the same one
            if target not in results:
                continue
            progress(f"{scenario.name}: round {number + 1} of {rounds}, {target}")
            try:
                results[target].append(measure(bench, scenario, target))
            except Failed as failure:
                progress("")
                print(f"{scenario.name}: {failure}", file=sys.stderr)
                bench.failures += 1
                del results[target]
    progress("")
    return results


def run(arguments, bench):
    for target in arguments.targets:
        if target != "direct":
            bench.running[target] = bench.start_target(target)
    rows = []
    for scenario in arguments.scenarios:
        if arguments.duration and scenario.kind in ("load", "ttft"):
            scenario = scenario.shortened(int(arguments.duration * 1000))
        results = measure_scenario(bench, scenario, arguments.targets, arguments.rounds)
        new = make_rows(scenario, results)
        if new:
            print_table(scenario, new)
        rows += new
    return rows


@contextlib.contextmanager
def short_slices(realtime):
    """Round-robin slices of 2 ms instead of 100, so that client and upstream take turns."""
    if not realtime:
        yield
        return
    before = RR_SLICE.read_text()
    RR_SLICE.write_text("2")
    try:
        yield
    finally:
        RR_SLICE.write_text(before)


@contextlib.contextmanager
def alone():
    """Two runs at once would measure each other."""
    with open(BUILD / "lock", "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit("bench: another run is under way in this tree; wait for it")
        yield


def measure_all(arguments):
    with (tempfile.TemporaryDirectory(prefix="weir-bench-") as folder,
          short_slices(arguments.realtime),
          Children(Path(folder), arguments.realtime) as children):
        os.chmod(folder, 0o755)  # nginx's worker is another user when root starts it
        bench = Bench(children, Path(folder), BUILD / "load", start_upstream(children))
        try:
            rows = run(arguments, bench)
        except Failed as failure:
            sys.exit(f"bench: {failure}{bench.last_words()}")
        return rows, bench.failures


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: ended by SIGTERM"))
    arguments = read_arguments()
    missing = missing_programs(arguments.targets)
    if missing:
        sys.exit("bench: " + "\nbench: ".join(missing))
    build()
    with alone():
        try:
            rows, failures = measure_all(arguments)
        except KeyboardInterrupt:
            sys.exit("\nbench: interrupted; nothing written")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(rows, indent=1) + "\n")
    if arguments.update_docs:
        update_docs(ROOT / "docs" / "performance.md", rows)
    errors = sum(row.get("errors") or 0 for row in rows)
    print(f"\nbench: {len(rows)} rows in {os.path.relpath(arguments.output)}, "
          f"{errors} failed requests, {failures} failed measurements")
    sys.exit(1 if errors or failures else 0)


if __name__ == "__main__":
    main()
