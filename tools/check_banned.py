#!/usr/bin/env python3
"""Check for functions that have a better one here, for foreign headers outside their one file, and
for files that have grown beyond one subject.

Each foreign library has one file, so that it can be replaced in an afternoon; time and memory have
one place each, so that decisions can be replayed and leaks be found.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINES_MAX = 1000

# What may not be called -> (where it may, what to write instead). Paths are relative to the root.
BANNED = {
    "strcpy strcat strncpy strncat sprintf vsprintf": ((), "snprintf, buf_printf or arena_printf"),
    "atoi atol atoll atof": ((), "slice_to_u64, which sees rubbish"),
    "strtok": ((), "a slice scan"),
    "gets": ((), "a bounded read"),
    "malloc calloc realloc free strdup strndup asprintf vasprintf reallocarray": (
        ("src/base/heap.c", "tests/"), "base/heap.h, an arena or a slab"),
    "time clock_gettime gettimeofday": (("src/base/clock.c",), "clock_now_ns, or now_ns handed in"),
    "alloca": ((), "a bounded array or an arena"),
    "rand srand random srandom": ((), "base/rng.h, which is seeded"),
}

# Header -> the one file that may include it.
FOREIGN = {
    r"curl/.*": "src/net/fetch.c",
    r"ares.*\.h": "src/net/resolve.c",
    r"openssl/.*": "src/net/tls.c",
    r"llhttp.*": "src/http/http1.c",
    r"libfyaml\.h": "src/config/yaml.c",
    r"yyjson\.h": "src/base/json.c",
}
UNWANTED = r"cjson/.*|cJSON\.h|jansson\.h"

LITERAL = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
INCLUDE = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.M)
CALL = {re.compile(rf"(?<![\w.>])(?:{'|'.join(names.split())})\s*\("): rule
        for names, rule in BANNED.items()}


def blank(match):
    """Comments and strings, emptied but for their line breaks."""
    return re.sub(r"[^\n]", " ", match.group(0))


def mistakes(path):
    name = str(path.relative_to(ROOT))
    text = path.read_text()
    code = LITERAL.sub(blank, text)

    def at(position):
        return f"{name}:{code.count(chr(10), 0, position) + 1}"

    for call, (places, instead) in CALL.items():
        if name.startswith(places):
            continue
        for match in call.finditer(code):
            yield f"{at(match.start())}: {match.group(0).rstrip('( ')}() is banned: use {instead}"
    for match in INCLUDE.finditer(code):
        header = match.group(1)
        if re.fullmatch(UNWANTED, header):
            yield f"{at(match.start())}: <{header}>: base/json.h reads JSON here"
        for pattern, home in FOREIGN.items():
            if re.fullmatch(pattern, header) and name != home:
                yield f"{at(match.start())}: <{header}> belongs to {home} alone"
    lines = text.count("\n")
    if lines > LINES_MAX:
        yield f"{name}: {lines} lines; beyond {LINES_MAX} a file has two subjects"


def main():
    found = []
    for top in ("src", "tests", "bench"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in (".c", ".h", ".def"):
                found += mistakes(path)
    for message in found:
        print(message, file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
