#!/bin/bash
# Checks that clang-format would change nothing. To let it: tools/check_format.sh --fix
set -euo pipefail
cd "$(dirname "$0")/.."

mode=(--dry-run -Werror)
[ "${1:-}" != --fix ] || mode=(-i)
find src tests bench -name '*.[ch]' -print0 | sort -z | xargs -0 clang-format "${mode[@]}"
