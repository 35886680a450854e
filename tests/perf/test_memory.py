"""A stream that waits for its next token holds next to no memory of weir's own.

What is measured is the slope of resident memory between few and many streams; what the kernel keeps
for their sockets is not in it.
"""

import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import measure  # noqa: E402
import processes  # noqa: E402
import run  # noqa: E402
import scenarios  # noqa: E402

BINARY = os.environ.get("WEIR_BINARY", ROOT / "build" / "weir")
BUDGET = json.loads((pathlib.Path(__file__).parent / "budget.json").read_text())
FEW, MANY = 500, 4000


def test_a_waiting_stream_holds_no_more_memory_than_budgeted(tmp_path):
    run.build()
    scenario = next(row for row in scenarios.SCENARIOS if row.kind == "memory")
    with processes.Children(tmp_path) as children:
        bench = measure.Bench(children, tmp_path, run.BUILD / "load", run.start_upstream(children))
        few, few_errors = measure.rss_with_streams(bench, scenario, f"weir@{BINARY}", FEW)
        many, many_errors = measure.rss_with_streams(bench, scenario, f"weir@{BINARY}", MANY)
    assert few_errors == many_errors == 0
    slope = (many - few) / (MANY - FEW)
    allowed = BUDGET["bytes_per_waiting_stream"]
    assert slope <= allowed, f"{slope:.0f} bytes per waiting stream, {allowed} are allowed"
