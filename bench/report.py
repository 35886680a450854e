"""Rounds to rows, rows to tables: on the screen, and in docs/performance.md."""

import statistics

COLUMNS = [  # heading, key of the row, format
    ("per second", "per_second", "{:,.0f}"),
    ("CPU us/unit", "cpu_us_per_unit", "{:.2f}"),
    ("user us", "user_us_per_unit", "{:.2f}"),
    ("x nginx", "ratio_to_nginx", "{:.2f}"),
    ("x nginx+log", "ratio_to_nginx_log", "{:.2f}"),
    ("p50 us", "p50_us", "{:,.0f}"),  # to the first content; of an answer not streamed, to its end
    ("p99 us", "p99_us", "{:,.0f}"),
    ("+TTFT p50", "added_ttft_p50_us", "{:,.0f}"),
    ("+TTFT p99", "added_ttft_p99_us", "{:,.0f}"),
    ("gap p99 us", "gap_p99_us", "{:,.0f}"),
    ("B/stream", "rss_bytes_per_stream", "{:,.0f}"),
    ("calls/unit", "syscalls_per_unit", "{:.2f}"),
    ("errors", "errors", "{}"),
]
SUMMED = {"errors"}
CPU = {"cpu_us_per_unit", "user_us_per_unit"}
REFERENCES = ("nginx", "nginx_log")


def _undisturbed(values):
    """Mean of the lowest third: a neighbour can only make work dearer, and often does by half."""
    lowest = sorted(values)[:max(1, len(values) // 3)]
    return statistics.mean(lowest)


def _figure(rounds, key):
    values = [one[key] for one in rounds if one.get(key) is not None]
    if not values:
        return None
    if key in SUMMED:
        return sum(values)
    return _undisturbed(values) if key in CPU else statistics.median(values)


def _ratio(rounds, reference):
    mine, theirs = (_figure(one, "cpu_us_per_unit") for one in (rounds, reference))
    return mine / theirs if mine and theirs else None


def make_rows(scenario, rounds):
    """`rounds`: target -> one result per round. One row per target."""
    rows = []
    for target, results in rounds.items():
        keys = {key: None for result in results for key in result}
        row = {"scenario": scenario.name, "target": target, "unit": scenario.unit,
               "cpu_us_per_unit": None, "ratio_to_nginx": None}
        row |= {key: _figure(results, key) for key in keys if key != "syscalls"}
        if "syscalls" in keys:
            row["syscalls"] = results[0]["syscalls"]
        for reference in REFERENCES:
            if rounds.get(reference):
                row[f"ratio_to_{reference}"] = _ratio(results, rounds[reference])
        if rounds.get("direct") and scenario.streams and target != "direct":
            for key in ("p50_us", "p99_us"):
                if row.get(key) is not None and "added_ttft_" + key not in row:
                    row["added_ttft_" + key] = row[key] - _figure(rounds["direct"], key)
        if scenario.budget is not None:
            row["budget_ratio"] = scenario.budget
        row["rounds"] = len(results)
        rows.append(row)
    return rows


def print_table(scenario, rows):
    shown = [column for column in COLUMNS if any(row.get(column[1]) is not None for row in rows)]
    width = max(len(row["target"]) for row in rows)
    print(f"\n{scenario.name}: {scenario.what}")
    print("  " + " " * width + "".join(f"{heading:>13}" for heading, _, _ in shown))
    for row in rows:
        cells = (pattern.format(row[key]) if row.get(key) is not None else "-"
                 for _, key, pattern in shown)
        print(f"  {row['target']:<{width}}" + "".join(f"{cell:>13}" for cell in cells))
    for row in rows:
        if "syscalls" in row:
            calls = sorted(row["syscalls"].items(), key=lambda item: -item[1])
            print(f"  {row['target']}: " + ", ".join(f"{call} {n:g}" for call, n in calls))
        ratio = row.get("ratio_to_nginx")
        if row["target"].startswith("weir") and scenario.budget is not None and ratio is not None:
            verdict = "within" if ratio <= scenario.budget else "OVER"
            print(f"  {row['target']} is {verdict} its budget: {ratio:.2f} x nginx, "
                  f"at most {scenario.budget:.2f}")


SINGLE_FIGURES = [  # what, scenario, key
    ("added TTFT p50, µs", "ttft", "added_ttft_p50_us"),
    ("added TTFT p99, µs", "ttft", "added_ttft_p99_us"),
    ("memory per waiting stream, bytes", "memory", "rss_bytes_per_stream"),
    ("system calls per small request", "syscalls_small", "syscalls_per_unit"),
    ("system calls per event", "syscalls_sse", "syscalls_per_unit"),
]
DOCS_BEGIN, DOCS_END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"


def _markdown_row(cells):
    return "| " + " | ".join(cells) + " |"


def _markdown_table(heading, rows):
    yield _markdown_row(heading)
    yield _markdown_row(["---"] + ["---:"] * (len(heading) - 1))
    yield from map(_markdown_row, rows)


def _cpu_rows(cells, targets):
    """A line per scenario that measures CPU time: nginx's, and the ratio of all others to it."""
    for scenario in dict.fromkeys(name for name, _ in cells):
        nginx = cells.get((scenario, "nginx"), {})
        if nginx.get("cpu_us_per_unit") is None:
            continue
        ratios = (cells.get((scenario, target), {}).get("ratio_to_nginx") for target in targets)
        budget = nginx.get("budget_ratio")
        yield [scenario, nginx["unit"], f"{nginx['cpu_us_per_unit']:.1f}",
               *(f"{ratio:.2f}" if ratio is not None else "-" for ratio in ratios),
               f"{budget:.2f}" if budget else "-"]


def _figure_rows(cells, targets):
    for what, scenario, key in SINGLE_FIGURES:
        values = [cells.get((scenario, target), {}).get(key) for target in targets]
        if any(value is not None for value in values):
            pattern = "{:,.1f}" if key == "syscalls_per_unit" else "{:,.0f}"
            yield [what, *(pattern.format(value) if value is not None else "-"
                           for value in values)]


def markdown(rows):
    cells = {(row["scenario"], row["target"]): row for row in rows}
    targets = [target for target in dict.fromkeys(row["target"] for row in rows)
               if target != "direct"]
    others = [target for target in targets if target != "nginx"]
    cpu = _markdown_table(["scenario", "unit", "nginx, µs", *others, "budget"],
                          _cpu_rows(cells, others))
    figures = _markdown_table(["figure", *targets], _figure_rows(cells, targets))
    return ("CPU time per unit: nginx's in µs, the others as a ratio to it.\n\n" +
            "\n".join(cpu) + "\n\n" + "\n".join(figures) + "\n")


def update_docs(path, rows):
    """Puts the figures of this run where the page has its own."""
    before, begin, rest = path.read_text().partition(DOCS_BEGIN)
    _, end, after = rest.partition(DOCS_END)
    if not begin or not end:
        raise ValueError(f"{path} has lost the marks between which its figures stand")
    path.write_text(before + begin + "\n" + markdown(rows) + "\n" + end + after)
