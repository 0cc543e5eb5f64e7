# SHM Tensor Pool. `make` alone lists the targets.
#
# `make demo` and `make test` set up everything they need on a fresh Debian or Ubuntu machine with
# Python 3.11+ and Rust 1.85+. Each set-up step leaves a stamp in .build/, so later runs skip it.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV   := $(CURDIR)/.venv
BIN    := $(VENV)/bin
STAMPS := .build
CONFORMANCE := docs/reference/conformance.md
RUST_SOURCES := $(shell find crates -name '*.rs' -not -path '*/fuzz/*') $(wildcard crates/*/Cargo.toml crates/*/cmake/*) Cargo.toml Cargo.lock .cargo/config.toml

export VIRTUAL_ENV := $(VENV)
export PATH := $(BIN):$(PATH)
# pyo3 rebuilds when the interpreter it was built for changes: name one for maturin and cargo alike.
export PYO3_PYTHON := $(BIN)/python
# Containers often forbid bytecode. Tests start hundreds of interpreters; each would compile every import anew.
unexport PYTHONDONTWRITEBYTECODE

##@ Everyday

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## A camera, a viewer, a recording, and what Spark finds in it; needs nothing but this command.
	@$(BIN)/tpool demo --pipeline demo-results

.PHONY: test
test: build lint types layers deps trace test-rust test-python ## Every check and every test that CI runs.

.PHONY: build
build: $(STAMPS)/native ## Set up the machine and build the native module in release mode.

##@ Checks (all part of `make test`)

.PHONY: lint
lint: $(STAMPS)/native ## Formatting and lint of Python and Rust, spelling.
	@tools/say "checking style (ruff, codespell, rustfmt, clippy)"
	@ruff format --check --quiet . && ruff check --quiet . && codespell
	@cargo fmt --all --check && cargo clippy --release --quiet --workspace --all-targets --features tp-core/capi -- -D warnings

.PHONY: types
types: $(STAMPS)/native ## mypy in strict mode, and the native module against its stub.
	@tools/say "checking types (mypy, stubtest)"
	@mypy --no-error-summary && MYPYPATH=python stubtest tensor_pool._native --allowlist tools/stubtest-allowlist.txt --ignore-unused-allowlist

.PHONY: layers
layers: $(STAMPS)/native ## Imports go downwards only.
	@tools/say "checking layers (import-linter)"
	@lint-imports --no-cache > $(STAMPS)/layers.log || { cat $(STAMPS)/layers.log; exit 1; }

.PHONY: deps
deps: $(STAMPS)/native ## No unused and no missing dependency.
	@tools/say "checking dependencies (deptry)"
	@deptry python 2> $(STAMPS)/deps.log || { cat $(STAMPS)/deps.log; exit 1; }

.PHONY: trace
trace: $(STAMPS)/native ## Each MUST that is declared done has a test or a reasoned exception.
	@tools/say "checking traceability of requirements"
	@python tools/trace.py

.PHONY: test-rust
test-rust: $(STAMPS)/native ## Tests of the Rust crates, fuzz corpora and the loom model included.
	@tools/say "running the Rust tests"
	@cargo test --release --quiet -p tp-core -p tp-aeron --features tp-core/capi

LIGHT_TESTS := tests/unit tests/property tests/conformance
# Whole files, in the order of tests/conftest.py: the longest begin first.
BY_FILE := --dist loadfile --no-loadscope-reorder

.PHONY: test-python
test-python: $(STAMPS)/native ## Unit, property, conformance and integration tests.
	@tools/say "running the Python tests of single modules, side by side"
	@pytest --numprocesses auto --maxprocesses 4 $(BY_FILE) -m "not slow and not quiet" $(LIGHT_TESTS)
	@tools/say "running the Python tests with real processes, two at a time: most of them wait"
	@pytest --numprocesses 2 $(BY_FILE) -m "not slow and not quiet" $(addprefix --ignore=,$(LIGHT_TESTS) tests/spark)
	@tools/say "running the Python tests with Spark, in two sessions"
	@pytest --numprocesses 2 $(BY_FILE) -m "not slow and not quiet" tests/spark
	@tools/say "running the Python tests that measure time, one after the other"
	@pytest -m "quiet and not slow"

##@ Measuring

BENCH ?=

.PHONY: bench-spark
bench-spark: $(STAMPS)/native ## The Spark pipeline beside memcpy, plain loops and plain files.
	@tools/say "measuring the pipeline (about seven minutes; close other programs)"
	@tools/bench spark_pipeline spark_dataset spark_live record_steady

.PHONY: bench-bridge
bench-bridge: $(STAMPS)/native ## The bridge beside a bare Aeron stream over the same channel, and over lossy links.
	@cargo build --release --quiet -p tp-aeron --example bare_stream
	@tools/say "measuring the bridge (about eight minutes; close other programs)"
	@tools/bench bridge bridge_loss

.PHONY: bench-discovery
bench-discovery: $(STAMPS)/native ## Queries to a registry that knows a thousand streams.
	@tools/say "measuring discovery (about a minute; close other programs)"
	@tools/bench discovery

.PHONY: bench
bench: $(STAMPS)/native ## Costs beside their goals and beside iceoryx2 and ZeroMQ; BENCH="pool_growth ..." for some.
	@tools/setup-bench-peers $(STAMPS)/bench-peers
	@tools/say "measuring (about ten minutes in all; close other programs)"
	@tools/bench $(BENCH)

##@ Slow suites and the C library

FUZZ_SECONDS ?= 60

.PHONY: fuzz
fuzz: ## Fuzz every decoder and the assembly of bridged frames for FUZZ_SECONDS (60) each; needs a nightly compiler, installs cargo-fuzz.
	@tools/say "fuzzing each of seven targets for $(FUZZ_SECONDS) s"
	@tools/fuzz "$(FUZZ_SECONDS)"

.PHONY: torn-frames
torn-frames: ## Ten million frames under readers that must not see a torn one.
	@tools/say "hunting for torn frames (about a minute)"
	@cargo test --release --quiet -p tp-core --test torn_frames -- --ignored --nocapture ten_million

.PHONY: faults
faults: $(STAMPS)/native ## Driver restarts, stuck processes with strict times, killed queries, a Spark cluster.
	@tools/say "killing, stopping and restarting (about ten minutes; close other programs)"
	@pytest tests/faults tests/integration tests/spark -m slow -p no:randomly

SOAK_SECONDS ?= 600

.PHONY: soak
soak: $(STAMPS)/native ## A camera with two viewers, then one over a bridge, for SOAK_SECONDS (600) each: nothing grows.
	@tools/say "a camera with two viewers, then one over a bridge, for $(SOAK_SECONDS) s each"
	@SOAK_SECONDS="$(SOAK_SECONDS)" pytest tests/soak -m slow -p no:randomly -s

.PHONY: tsan
tsan: ## The ring under ThreadSanitizer; needs rustup's rust-src.
	@tools/say "looking for data races (the first time builds Rust's standard library)"
	@tools/tsan

.PHONY: capi
capi: ## The C library and its header, in .build/capi/.
	@tools/say "building the C library"
	@cargo rustc --release --quiet -p tp-core --lib --features capi --crate-type staticlib
	@mkdir -p $(STAMPS)/capi
	@install -m 644 target/release/libtp_core.a $(STAMPS)/capi/libtensor_pool.a
	@install -m 644 crates/tp-core/include/tensor_pool.h $(STAMPS)/capi/

##@ Documentation

.PHONY: docs
docs: $(STAMPS)/docs ## The documentation as a web site in site/; every warning is an error.
	@tools/say "building the documentation into site/"
	@python tools/doc_tables.py
	@rm -f $(CONFORMANCE); python tools/trace.py --write $(CONFORMANCE) > $(STAMPS)/docs.log || true # gaps are for make trace
	@NO_MKDOCS_2_WARNING=1 mkdocs build --strict > $(STAMPS)/docs.log 2>&1 || { cat $(STAMPS)/docs.log; exit 1; } # --quiet would also hush --strict

##@ Release

DIST ?= dist

.PHONY: wheel
wheel: $(STAMPS)/venv ## One wheel for Python 3.11 and later in DIST (dist), installed and tried in a bare environment.
	@tools/say "building the wheel"
	@mkdir -p "$(DIST)" && rm -f "$(DIST)"/shm_tensor_pool-*.whl && maturin build --release --quiet --out "$(DIST)"
	@tools/check-wheel "$(DIST)"/shm_tensor_pool-*.whl

.PHONY: clean
clean: ## Remove everything that was built here.
	rm -rf .venv .build target dist site $(CONFORMANCE) bench-results crates/tp-core/fuzz/target .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find python -name '*.so' -delete

# --- set-up steps -------------------------------------------------------------------------------

$(STAMPS)/system: tools/setup-system
	@mkdir -p $(STAMPS)
	@tools/setup-system "$(PYTHON)"
	@touch $@

$(STAMPS)/venv: $(STAMPS)/system pyproject.toml tools/setup-venv
	@tools/setup-venv "$(PYTHON)" "$(VENV)"
	@touch $@

$(STAMPS)/native: $(STAMPS)/venv $(RUST_SOURCES)
	@tools/say "building the native module (the first time takes about two minutes)"
	@maturin develop --release --uv --extras cli > $(STAMPS)/native.log 2>&1 || { cat $(STAMPS)/native.log; exit 1; }
	@touch $@

$(STAMPS)/docs: $(STAMPS)/native
	@tools/say "installing the tools of the documentation"
	@uv pip install --quiet --group docs
	@touch $@
