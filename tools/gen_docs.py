#!/usr/bin/env python3
"""Write the reference pages that are generated, never committed, into a folder.

    tools/gen_docs.py BINARY FOLDER

Each page is printed by weir itself, from the table that it runs on, so a page cannot say anything
that the program does not do. A page is touched only when it changed.
"""
import pathlib
import subprocess
import sys

PAGES = {
    "configuration.md": ["check", "--reference"],
    "metrics.md": ["check", "--list", "metrics"],
    "weir.yaml": ["check", "--defaults"],
}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    binary, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for name, arguments in PAGES.items():
        text = subprocess.run([binary, *arguments], check=True, capture_output=True, text=True).stdout
        page = folder / name
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


if __name__ == "__main__":
    main()
