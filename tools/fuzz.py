#!/usr/bin/env python3
"""Run every fuzz target for FUZZ_SECONDS (default 60) each; `make fuzz` calls this.

What the fuzzer finds interesting is kept below build/fuzz-corpus and is where the next run begins;
the seeds in tests/fuzz/corpus are only read. An input that breaks something is left in build/crashes:
fix the cause, and add the input to tests/fuzz/corpus/NAME. Writes build/fuzz.json.
"""
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"

# Targets whose library leaks: libFuzzer's own check does not heed the suppression that the target
# states. What we leak ourselves, the corpus run of `make test` finds.
LEAKY_LIBRARY = {"config"}


def figure(output, name):
    found = re.search(rf"stat::{name}:\s+(\d+)", output)
    return int(found.group(1)) if found else 0


def fuzz(program, seconds):
    """One target. Its log is build/fuzz-NAME.log."""
    name = program.name.removeprefix("fuzz_")
    grown, crashes = BUILD / "fuzz-corpus" / name, BUILD / "crashes"
    seeds = ROOT / "tests/fuzz/corpus" / name
    log = BUILD / f"fuzz-{name}.log"
    for folder in grown, crashes:
        folder.mkdir(parents=True, exist_ok=True)
    extra = ["-detect_leaks=0"] if name in LEAKY_LIBRARY else []
    command = [program, *extra, f"-max_total_time={seconds}", "-max_len=65536", "-timeout=10",
               "-rss_limit_mb=2048", "-print_final_stats=1", f"-artifact_prefix={crashes}/{name}-",
               grown, *([seeds] if seeds.is_dir() else [])]
    with open(log, "wb") as out:
        status = subprocess.run(command, cwd=ROOT, stdout=out, stderr=out).returncode
    output = log.read_text(errors="replace")
    coverage = re.findall(r"\bcov: (\d+)", output)
    return {"target": name, "ok": status == 0, "log": str(log.relative_to(ROOT)),
            "runs": figure(output, "number_of_executed_units"),
            "edges": int(coverage[-1]) if coverage else 0,
            "new_inputs": figure(output, "new_units_added")}


def main():
    seconds = int(os.environ.get("FUZZ_SECONDS", "60"))
    wanted = sys.argv[1:]
    programs = [p for p in sorted((BUILD / "fuzz").glob("fuzz_*")) if p.is_file() and
                (not wanted or p.name.removeprefix("fuzz_") in wanted)]
    if not programs:
        sys.exit(f"no such fuzz target in build/fuzz: {' '.join(wanted) or 'none is built'}")
    rows = []
    for program in programs:
        row = fuzz(program, seconds)
        rows.append(row)
        print(f"{row['target']:<16} {row['runs']:>10} runs {row['edges']:>6} edges "
              f"{row['new_inputs']:>5} new inputs  "
              f"{'ok' if row['ok'] else 'FAILED, see ' + row['log']}", flush=True)
    (BUILD / "fuzz.json").write_text(json.dumps(rows, indent=1) + "\n")
    failed = sum(not row["ok"] for row in rows)
    print(f"{len(rows)} targets, {sum(row['runs'] for row in rows)} runs, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
