#!/usr/bin/env python3
"""Run weir before a real vLLM on CPU; the last line is "N passed, N failed".

    tools/vllm/run_tests.py [PYTEST ARGUMENT]...

Sets up what is missing (build/vllm: 1 GB to download), builds weir, runs tests/vllm, and writes
build/test-vllm.json: the counts, and for each test its outcome, seconds and what it measured.
`make test-vllm` calls this.
"""
import argparse
import json
import pathlib
import sys
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import test as suite  # noqa: E402  (tools/test.py)

REPORT = suite.BUILD / "pytest-vllm.xml"  # as suite.pytest() names it
FIGURES = suite.BUILD / "test-vllm.json"

suite.PYTEST_LIMIT_S = 5400  # four starts of vLLM, each of minutes on a loaded machine


def number(text):
    try:
        return float(text)
    except ValueError:
        return text


def row(case):
    """One test of a JUnit report."""
    outcomes = [tag for tag in ("failure", "error", "skipped") if case.find(tag) is not None]
    measured = {p.get("name"): number(p.get("value")) for p in case.iter("property")}
    return {"name": f"{case.get('classname')}::{case.get('name')}",
            "outcome": {"skipped": "skipped"}.get(outcomes[0], "failed") if outcomes else "passed",
            "seconds": round(float(case.get("time")), 2), **measured}


def figures(tally):
    cases = xml.etree.ElementTree.parse(REPORT).iter("testcase") if REPORT.exists() else ()
    tests = [row(case) for case in cases]
    return {"passed": tally.passed, "failed": tally.failed, "skipped": tally.skipped,
            "seconds": round(sum(test["seconds"] for test in tests), 1), "tests": tests}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    _, pytest_arguments = parser.parse_known_args()
    tally = suite.Tally()
    REPORT.unlink(missing_ok=True)
    for command in (["tools/deps.sh", "build", "test"], ["tools/vllm/setup.sh", "build/vllm"]):
        if suite.run(command).returncode != 0:
            tally.fail(command[0])
            break
    else:
        if suite.build(tally, "all"):
            suite.pytest(tally, "vllm", "tests/vllm", suite.BUILD / "weir", pytest_arguments)
    FIGURES.write_text(json.dumps(figures(tally), indent=1) + "\n")

    suite.heading("result")
    for name in tally.failures:
        print(f"failed: {name}")
    print(f"{tally.passed} passed, {tally.failed} failed")
    sys.exit(1 if tally.failed or not tally.passed else 0)


if __name__ == "__main__":
    main()
