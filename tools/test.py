#!/usr/bin/env python3
"""Run everything that must be green; the last line is "N passed, N failed".

    tools/test.py [--only STAGE[,STAGE]...]

Stages: checks, unit (release build), asan, tsan (unit tests and corpus under sanitizers),
integration (the real binary and real engines), perf (budgets), sanitized (integration again on the
sanitizer builds, without the tests that need real engines). `make test` calls this.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PYTEST_LIMIT_S = 1500  # a suite that hangs is a failure, not a wait

CHECKS = (
    ("layers", ["tools/check_layers.py"]),
    ("banned", ["tools/check_banned.py"]),
    ("headers", ["tools/check_headers.sh"]),
    ("format", ["tools/check_format.sh"]),
)


@dataclasses.dataclass
class Tally:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list = dataclasses.field(default_factory=list)

    def ok(self, count=1):
        self.passed += count

    def fail(self, name, count=1):
        self.failed += count
        self.failures.append(name)


def heading(text):
    print(f"\n-- {text}", flush=True)


def run(command, **kwargs):
    return subprocess.run(command, cwd=ROOT, **kwargs)


# -- stages --

def checks(tally):
    heading("checks")
    for name, command in CHECKS:
        if run(command).returncode == 0:
            print(f"{name}: ok", flush=True)
            tally.ok()
        else:
            tally.fail(f"check {name}")


def build(tally, target):
    """Builds one variant; False, and a failure, when it does not."""
    if run(["make", target]).returncode == 0:
        return True
    tally.fail(f"make {target}")
    return False


TAP_LINE = re.compile(r"^(not )?ok\b(.*)$", re.M)


def count_tap(tally, name, result, output):
    """One Meson test whose output is TAP: each line is a test of its own."""
    failed_before = tally.failed
    for negative, rest in TAP_LINE.findall(output):
        title = rest.split(" - ", 1)[-1].strip()
        if "# SKIP" in rest:
            tally.skipped += 1
        elif negative:
            tally.fail(f"{name}: {title}")
        else:
            tally.ok()
    if result not in ("OK", "SKIP") and tally.failed == failed_before:
        tally.fail(f"{name}: {result.lower()}")  # crashed, timed out, or a sanitizer spoke


def meson_tests(tally, variant):
    heading(f"unit tests and corpus: build/{variant}")
    folder = BUILD / variant
    log = folder / "meson-logs/testlog.json"
    log.unlink(missing_ok=True)
    if run(["ninja", "-C", str(folder), "--quiet"]).returncode != 0:
        tally.fail(f"{variant}: the tests do not compile")
        return
    status = run(["meson", "test", "--no-rebuild", "-C", str(folder), "--quiet", "--print-errorlogs"]).returncode
    failed_before = tally.failed
    for line in log.read_text().splitlines() if log.exists() else ():
        test = json.loads(line)
        name = f"{variant} {test['name']}"
        output = test.get("stdout", "")
        if TAP_LINE.search(output):
            count_tap(tally, name, test["result"], output)
        elif test["result"] == "OK":
            tally.ok()
        elif test["result"] == "SKIP":
            tally.skipped += 1
        else:
            tally.fail(f"{name}: {test['result'].lower()}")
    if status != 0 and tally.failed == failed_before:
        tally.fail(f"{variant}: meson test ended with {status}")


def count_junit(tally, name, path):
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        title = f"{name} {case.get('classname', '')}::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            tally.fail(title)
        elif case.find("skipped") is not None:
            tally.skipped += 1
        else:
            tally.ok()


def pytest(tally, name, folder, binary, arguments=()):
    """One pytest run against `binary`. A run that collects nothing is a failure."""
    heading(f"{name}: {folder} against {binary.relative_to(ROOT)}")
    report = BUILD / f"pytest-{name.replace(' ', '-')}.xml"
    report.unlink(missing_ok=True)
    command = [str(BUILD / "venv/bin/python"), "-m", "pytest", "-q", f"--junitxml={report}",
               *arguments, folder]
    try:
        status = run(command, env={**os.environ, "WEIR_BINARY": str(binary)},
                     timeout=PYTEST_LIMIT_S).returncode
    except subprocess.TimeoutExpired:
        status = f"no end after {PYTEST_LIMIT_S} s"
    failed_before = tally.failed
    if report.exists():
        count_junit(tally, name, report)
    if status != 0 and tally.failed == failed_before:
        tally.fail(f"{name}: pytest ended with {status}")


def unit(tally):
    meson_tests(tally, "meson")


def asan(tally):
    if build(tally, "asan"):
        meson_tests(tally, "asan")


def tsan(tally):
    if build(tally, "tsan"):
        meson_tests(tally, "tsan")


PARALLEL = ("-n", "4", "--dist", "loadfile")  # they wait more than they compute


def integration(tally):
    pytest(tally, "integration", "tests/integration", BUILD / "weir", PARALLEL)


def perf(tally):
    if any((ROOT / "tests/perf").glob("test_*.py")):
        pytest(tally, "perf", "tests/perf", BUILD / "weir")


def sanitized(tally):
    for variant in ("asan", "tsan"):
        pytest(tally, f"integration {variant}", "tests/integration", BUILD / variant / "weir",
               (*PARALLEL, "-m", "not engine"))


STAGES = (checks, unit, asan, tsan, integration, perf, sanitized)


def main():
    names = [stage.__name__ for stage in STAGES]
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="STAGES", default=",".join(names),
                        help="stages to run, with commas between")
    only = parser.parse_args().only.split(",")
    for word in only:
        if word not in names:
            parser.error(f"no stage '{word}'; there are {', '.join(names)}")

    tally = Tally()
    if run(["tools/deps.sh", "build", "test", "engines"]).returncode != 0:
        tally.fail("tools/deps.sh")
    elif build(tally, "all"):
        for stage in STAGES:
            if stage.__name__ in only:
                begin = time.monotonic()
                stage(tally)
                print(f"({stage.__name__}: {time.monotonic() - begin:.0f} s)", flush=True)

    heading("result")
    for name in tally.failures:
        print(f"failed: {name}")
    if tally.skipped:
        print(f"skipped: {tally.skipped}")
    print(f"{tally.passed} passed, {tally.failed} failed")
    sys.exit(1 if tally.failed or not tally.passed else 0)


if __name__ == "__main__":
    main()
