#!/usr/bin/env python3
"""Write the list of C files that Meson builds, one "kind path" per line.

    tools/list_sources.py FILE

FILE is touched only when the list changed: meson.build reads it, so Ninja configures anew exactly
when a source file came or went, and adding one needs no edit of meson.build.
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

KINDS = (
    ("main", ("src/main.c", "src/cmd/*.c")),
    ("unit", ("tests/unit/**/test_*.c",)),
    ("fuzz", ("tests/fuzz/fuzz_*.c",)),
)


def listing():
    taken = set()
    for kind, patterns in KINDS:
        for pattern in patterns:
            for path in sorted(ROOT.glob(pattern)):
                taken.add(path)
                yield f"{kind} {path.relative_to(ROOT)}"
    for path in sorted(ROOT.glob("src/**/*.c")):
        if path not in taken:
            yield f"lib {path.relative_to(ROOT)}"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    text = "\n".join(listing()) + "\n"
    if not out.exists() or out.read_text() != text:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text)


if __name__ == "__main__":
    main()
