# The front door. Meson and Ninja do the work; see CONTRIBUTING.md.

MAKEFLAGS += --no-print-directory
TOOLS     := tools

.PHONY: all
all: build/meson/build.ninja
	@$(TOOLS)/list_sources.py build/sources.txt
	@ninja -C build/meson weir
	@ln -sf meson/weir build/weir

# A fresh machine to tokens on the screen; leaves weir running in the foreground until Ctrl-C.
.PHONY: quickstart
quickstart:
	@$(TOOLS)/quickstart.sh

# One configured folder per variant; all compile the same list of sources.
SETUP     := meson setup
SANITIZED := -Doptimization=1 -Ddebug=true -Db_lundef=false

build/meson/build.ninja:
	@$(TOOLS)/deps.sh build
	@$(SETUP) build/meson

build/asan/build.ninja:
	@$(TOOLS)/deps.sh build test
	@CC=clang $(SETUP) build/asan $(SANITIZED) -Db_sanitize=address,undefined

build/tsan/build.ninja:
	@$(TOOLS)/deps.sh build test
	@CC=clang $(SETUP) build/tsan $(SANITIZED) -Db_sanitize=thread

build/fuzz/build.ninja:
	@$(TOOLS)/deps.sh build test
	@CC=clang $(SETUP) build/fuzz $(SANITIZED) -Db_sanitize=address,undefined -Dfuzzing=true

# Sanitizer variants: build/asan/weir (clang, ASan + UBSan), build/tsan/weir.
.PHONY: asan tsan
asan: build/asan/build.ninja
tsan: build/tsan/build.ninja
asan tsan:
	@$(TOOLS)/list_sources.py build/sources.txt
	@ninja -C build/$@ weir

# Each target on libFuzzer for FUZZ_SECONDS; ends with a figure, and build/fuzz.json.
FUZZ_SECONDS ?= 60
.PHONY: fuzz
fuzz: build/fuzz/build.ninja
	@$(TOOLS)/list_sources.py build/sources.txt
	@ninja -C build/fuzz
	@FUZZ_SECONDS=$(FUZZ_SECONDS) $(TOOLS)/fuzz.py

# Beside nginx and HAProxy; ends with a table, and build/bench.json.
.PHONY: bench
bench:
	@$(TOOLS)/deps.sh build bench
	@$(MAKE) all
	@bench/run.py

# The reference of all options and a commented configuration: build/docs.
.PHONY: docs
docs: all
	@$(TOOLS)/gen_docs.py build/weir build/docs

# Everything that must be green; ends with one line "N passed, N failed".
.PHONY: test
test:
	@$(TOOLS)/test.py

# Opt-in: weir before a real vLLM on CPU, which is 1 GB to download. Writes build/test-vllm.json.
.PHONY: test-vllm
test-vllm:
	@$(TOOLS)/vllm/run_tests.py

.PHONY: clean
clean:
	rm -rf build/meson build/asan build/tsan build/fuzz build/weir build/sources.txt
