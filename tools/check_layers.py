#!/usr/bin/env python3
"""Check that each folder of src/ includes only what lies below it.

The table is the rule; ARCHITECTURE.md says why. A folder may always include itself. Includes in
quotes are written from src/, so the folder can be read off the line.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLAIN = ("base", "model")

MAY_INCLUDE = {
    "base": (),
    "net": ("base",),
    "http": ("base", "net"),
    "model": ("base",),
    # The tables are read for their words only, so that a mistyped policy has a line and a caret.
    "config": ("base", "net", "http", "model", "routing/policies.def", "engines/engines.def"),
    # Decisions: pure, so that what was simulated is what runs.
    "routing": PLAIN,
    "health": PLAIN,
    # Bytes in, meaning out: no connections here.
    "dialects": PLAIN + ("http/sse.h", "http/message.h"),
    "engines": PLAIN + ("net", "http", "config"),
    "observe": PLAIN + ("net", "http", "config"),
    "launch": PLAIN + ("net", "http", "config"),
    "gateway": PLAIN + ("net", "http", "config", "routing", "health", "dialects", "engines",
                        "observe", "launch"),
}
EVERYTHING = ("cmd", "main.c")  # the top: nobody includes it, it may include all
GENERATED = ("version.h",)      # made by the build; for those at the top

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')


def allowed(folder, target):
    if target in GENERATED:
        return folder in EVERYTHING + ("gateway",)
    into = target.split("/")[0]
    if into == folder or folder in EVERYTHING:
        return into not in EVERYTHING or folder in EVERYTHING
    return into in MAY_INCLUDE[folder] or target in MAY_INCLUDE[folder]


def mistakes(path):
    name = path.relative_to(ROOT / "src")
    folder = name.parts[0]
    if folder not in MAY_INCLUDE and folder not in EVERYTHING:
        yield f"src/{folder}: no layer; give the folder a row in tools/check_layers.py"
        return
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target = match.group(1)
        if target not in GENERATED and "/" not in target:
            yield f'{path.relative_to(ROOT)}:{number}: write "{target}" from src/, with its folder'
        elif not allowed(folder, target):
            yield f"{path.relative_to(ROOT)}:{number}: {folder}/ may not include {target}"


def main():
    found = []
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix in (".c", ".h", ".def"):
            found += mistakes(path)
    print("\n".join(dict.fromkeys(found)), file=sys.stderr, end="\n" if found else "")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
