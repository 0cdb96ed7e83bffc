# Every target does its own set-up; `make help` lists them. ARGS= passes options on, for example
#   make test ARGS="tests/engine -k cover"
SHELL := /bin/bash
.DEFAULT_GOAL := help
.ONESHELL:
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
JOBS ?= 2
ARGS ?=
export PYTHON

NODES ?= 16
GPUS ?= 8
SEEDS ?= 1000

.PHONY: help venv venv-run run check format test kube-assets prometheus-assets kube-up kube-down plugin dist release generate bench proof sim pins clean

help: ## list the targets
	@echo "Tenure. Each target sets up what it needs by itself; ARGS=\"...\" passes options on."
	awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' Makefile

venv: ## build or refresh .venv with everything pinned in requirements/dev.txt
	@requirements/install dev

venv-run: ## the same with only what running needs (requirements/run.txt)
	@requirements/install run

run: venv-run ## the five-minute tour: an embedded fleet, budgets, runs that really run
	@$(BIN)/python -m tenure.cli.tour $(ARGS)

check: venv ## lint, formatting, types and layers (ruff, mypy --strict, import-linter)
	@failed=
	try() { printf '==> %s\n' "$$*"; "$(BIN)/$$@" || failed="$${failed:+$$failed, }$$1 $${2:-}"; }
	try ruff check --quiet
	try ruff format --check --quiet
	try mypy --no-error-summary
	try lint-imports --no-logo
	if [ -n "$$failed" ]; then
	    echo "check failed: $$failed. \`make format\` repairs what can be repaired by itself." >&2
	    exit 1
	fi

format: venv ## rewrite the code as ruff wants it (safe fixes and formatting)
	@$(BIN)/ruff check --quiet --fix-only
	$(BIN)/ruff format

test: check ## everything: check, then all tests (ARGS="path -k name" for some)
	@left_out=
	wants() { # a folder: whether the tests that ARGS names may be in it
	    case " $(ARGS) " in
	        *" tests "* | *"$$1"*) ;;
	        *tests/* | *src/*) return 1 ;;
	    esac
	}
	obtain() { # a script of tools/ with its options, and which tests cannot run without what it obtains
	    code=0
	    $(BIN)/python $$1 >/dev/null || code=$$?
	    if [ "$$code" = 3 ] && [ "$${CI:-}" != true ]; then
	        echo "==> LEFT OUT: $$2. Why is said above; with CI=true it is a failure." >&2
	        left_out="$${left_out}==> LEFT OUT: $$2. They are named in the summary."$$'\n'
	    elif [ "$$code" != 0 ]; then
	        exit "$$code"
	    fi
	}
	if wants tests/kube || wants tests/packaging; then
	    obtain tools/kube_assets.py "the tests of tests/kube that need a real control plane: none can be had here"
	fi
	if wants tests/packaging; then
	    obtain "tools/plugin.py --fetch" "the tests of the plugin for kubectl: its packages cannot be had here"
	fi
	if wants tests/kube || wants tests/observe; then
	    obtain tools/prometheus_assets.py "the tests that need a real Prometheus: none can be had here"
	fi
	echo "==> pytest -n $(JOBS) $(ARGS)"
	code=0
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -q $(ARGS) || code=$$?
	printf '%s' "$$left_out" >&2
	exit "$$code"

kube-assets: venv ## find or build (once, minutes) etcd, kube-apiserver, kubectl, KWOK and helm for tests
	@$(BIN)/python tools/kube_assets.py $(ARGS)

prometheus-assets: venv ## find or fetch (once) prometheus and promtool for tests
	@$(BIN)/python tools/prometheus_assets.py $(ARGS)

kube-up: venv ## a cluster to try things on: NODES=16 GPUS=8; prints its kubeconfig
	@$(BIN)/python -m tools.kube_up up --nodes $(NODES) --gpus $(GPUS)

kube-down: venv ## stop it, and remove what it kept
	@$(BIN)/python -m tools.kube_up down

plugin: venv ## kubectl-runs as one file that needs only Python, in dist/, with its krew manifest
	@$(BIN)/python tools/plugin.py $(ARGS)

dist: venv ## everything that a release has, in dist/: packages, plugin, chart, SBOM, checksums
	@$(BIN)/python tools/kube_assets.py >/dev/null
	$(BIN)/python -m tools.release build $(ARGS)

release: venv ## begin a release: VERSION=X.Y.Z in all files, and CHANGELOG.md from changes/
	@$(BIN)/python -m tools.release cut "$(VERSION)" $(ARGS)

generate: venv ## rewrite the generated files (CRDs, chart, dashboards, rules, reference docs)
	@$(BIN)/python tools/generate.py $(ARGS)

bench: venv ## measure what must hold, as ratios within one run
	@$(BIN)/python -m bench $(ARGS)

proof: venv ## evidence on demand: ARGS="NAME [options]"; without, the kinds there are
	@$(BIN)/python -m proof $(ARGS)

sim: venv ## whole systems with faults in virtual time: SEEDS=1000 of them, JOBS=2
	@$(BIN)/python -m proof sim $(if $(or $(findstring --replay,$(ARGS)),$(findstring --events,$(ARGS))),,--seeds $(SEEDS) --jobs $(JOBS)) $(ARGS)

pins: ## resolve the pins in requirements/ anew (needs uv)
	@command -v uv >/dev/null || { echo "make pins needs uv on the PATH: pip install uv" >&2; exit 1; }
	compile() {
	    uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	        --no-header --no-emit-index-url --no-emit-find-links "$$@"
	}
	compile requirements/docs.in -o requirements/docs.txt
	compile --extra nvml pyproject.toml requirements/build.in -o requirements/run.txt
	compile --extra nvml --extra kube --extra metrics --extra otel --extra dev -c requirements/run.txt pyproject.toml requirements/build.in -o requirements/dev.txt
	compile --extra nvml --extra kube --extra metrics --extra otel -c requirements/dev.txt pyproject.toml requirements/build.in -o requirements/kube.txt

clean: ## remove .venv, caches and build leftovers (nothing under version control)
	@rm -rf .venv .venv-docs .venv.lock .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests bench proof tools \( -name __pycache__ -o -name .ruff_cache \) -type d -prune -exec rm -rf {} + 2>/dev/null || true
	rm -rf src/*.egg-info

.PHONY: shells docs

shells: ## find or install zsh and fish, whose completions are tested (Debian, as root)
	@missing=
	for shell in zsh fish; do command -v "$$shell" >/dev/null || missing="$$missing $$shell"; done
	[ -n "$$missing" ] || exit 0
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	    echo "LEFT OUT: completions in$$missing: not installed, and only root can install them here" >&2
	    exit 0
	fi
	export DEBIAN_FRONTEND=noninteractive
	apt-get install -qq -y --no-install-recommends $$missing >/dev/null ||
	    { apt-get update -qq && apt-get install -qq -y --no-install-recommends $$missing >/dev/null; }

docs: venv ## build the documentation's site into build/site; a broken link fails
	@requirements/install docs
	$(BIN)/python -m tools.docs $(ARGS)
