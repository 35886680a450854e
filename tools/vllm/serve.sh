#!/bin/bash
# Starts the vLLM that setup.sh made; it runs in the foreground until SIGTERM.
#
#   tools/vllm/serve.sh DIR PORT [ARGUMENT]...
#
# Further arguments go to `vllm serve`; a repeated option overrides. MODEL_NAME (smollm2) and HOST
# (127.0.0.1) are read from the environment. Ready when GET /health answers 200: after 30 s on a
# quiet machine, after minutes on a loaded one. Takes 2.5 GB of memory.
set -euo pipefail

usage() { sed -n '2,/^set -/p' "$0" | sed '$d; s/^# \{0,1\}//'; }

case ${1:-} in
-h | --help) usage; exit 0 ;;
esac
[ $# -ge 2 ] || { usage >&2; exit 2; }
dir=$1 port=$2
shift 2
[ -f "$dir/env.sh" ] || { echo "vllm serve: no $dir/env.sh; run tools/vllm/setup.sh $dir" >&2; exit 1; }
. "$dir/env.sh"

# Blocks of 32 tokens: by default they have 128 on CPU, and shorter prompts would never hit the
# prefix cache. 36 of them: a small cache, so that a test can fill it. Blocks times block size must
# be at least --max-model-len, or vLLM does not start: change the three together.
exec vllm serve "$VLLM_DIR/model" \
    --served-model-name "${MODEL_NAME:-smollm2}" --host "${HOST:-127.0.0.1}" --port "$port" \
    --dtype bfloat16 --enforce-eager \
    --max-model-len 1024 --max-num-batched-tokens 1024 --max-num-seqs 8 \
    --block-size 32 --num-gpu-blocks-override 36 \
    --enable-prompt-tokens-details --enable-server-load-tracking \
    --enable-auto-tool-choice --tool-call-parser hermes \
    "$@"
