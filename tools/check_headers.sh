#!/bin/bash
# Checks that each header of src/ compiles alone: a file that includes only it, with our flags.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(-std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Werror -Wshadow -Wvla -Wstrict-prototypes
       -Wno-unused-parameter -fsyntax-only -Isrc)

status=0
while read -r header; do
    printf '#include "%s"\n#include "%s"\n' "${header#src/}" "${header#src/}" >"$work/alone.c"
    if ! "${CC:-cc}" "${flags[@]}" "$work/alone.c"; then
        echo "$header does not compile alone: include what it uses" >&2
        status=1
    fi
done < <(find src -name '*.h' | sort)
exit $status
