#!/usr/bin/env python3
"""Write a file as a C array, for what the binary carries with it.

    tools/embed.py INPUT OUTPUT NAME

OUTPUT defines `const char NAME[]` and `const size_t NAME_len`.
"""
import pathlib
import sys

BYTES_PER_LINE = 20


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    source, out, name = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    data = source.read_bytes()
    lines = [f"/* {source.name}, by tools/embed.py */",
             "#include <stddef.h>",
             f"extern const char {name}[];",
             f"extern const size_t {name}_len;",
             f"const char {name}[] = {{"]
    for at in range(0, len(data), BYTES_PER_LINE):
        lines.append("".join(f"'\\x{byte:02x}'," for byte in data[at:at + BYTES_PER_LINE]))
    lines += ["};", f"const size_t {name}_len = sizeof {name};"]
    out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
