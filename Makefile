# `make help` lists what there is. Everything is installed into $(VENV); nothing else on the machine is touched.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# Tests start Python some hundred times: what is compiled once is kept.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest -n auto
# Neighbours share fixtures: each worker begins with a stretch of tests of its own, and takes others when it is done.
NEIGHBOURS := --dist worksteal

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1#\2/p' $(MAKEFILE_LIST) | column -t -s '#' 2>/dev/null \
	  || sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV)/.installed ## compile, run and check the model that comes with cvm
	@$(BIN)/cvm demo

.PHONY: test
test: $(VENV)/.installed-test ## the tests (arguments for pytest: ARGS=...)
	@$(PYTEST) $(NEIGHBOURS) $(ARGS)

.PHONY: test-fast
test-fast: $(VENV)/.installed-test ## a minute of tests that touch every package
	@$(PYTEST) $(NEIGHBOURS) --fast $(ARGS)

.PHONY: test-long-part
test-long-part: $(VENV)/.installed-test ## the tenth of the long suites that is due today, five minutes at most
	@$(PYTEST) -m "long or property" --long-day $$(($$(date -u +%s) / 86400)) --seconds 300 $(ARGS)

.PHONY: test-long
test-long: $(VENV)/.installed-test ## the suites that take minutes
	@$(PYTEST) -m "long or property" $(ARGS)

.PHONY: test-numpy-versions
test-numpy-versions: $(VENV)/.installed ## the oldest and the newest NumPy give the same bytes (installs both)
	@$(BIN)/python tools/check_numpy_versions.py

.PHONY: mutate
mutate: $(VENV)/.installed-dev ## do the tests notice changes of one token? (arguments: ARGS="cvm/ops --sample 20")
	@$(BIN)/python tools/mutate.py $(ARGS)

.PHONY: bench
bench: $(VENV)/.installed-bench ## the native executor against other engines (installs them; arguments: ARGS=...)
	@$(BIN)/python tools/bench/compare.py -o bench-results $(ARGS)

.PHONY: bench-language-models
bench-language-models: $(VENV)/.installed-bench-language-models ## decoding and prefill against llama.cpp and others
	@$(BIN)/python -m tools.bench.language_models -o bench-results $(ARGS)

.PHONY: lint
lint: $(VENV)/.installed-dev ## format, style, types, the project's own lints, stale pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/lint_formal.py
	$(BIN)/python tools/lint_imports.py
	$(BIN)/python tools/lint_arithmetic.py
	$(BIN)/python tools/lint_functions.py
	$(BIN)/python tools/count_trusted.py --check
	$(BIN)/python tools/generate_pages.py --check

.PHONY: docs
docs: $(VENV)/.installed ## write the generated pages, and what README.md prints
	$(BIN)/python tools/generate_pages.py
	test ! -d ../shared/models || $(BIN)/python tools/compare_models.py --write
	$(BIN)/python tools/run_pages.py --write

.PHONY: site
site: $(VENV)/.installed-docs ## the pages as a site, in build/site, with links checked
	cd tools/site && NO_MKDOCS_2_WARNING=1 $(abspath $(BIN))/mkdocs build

.PHONY: vectors
vectors: $(VENV)/.installed ## write the test vectors
	$(BIN)/python tools/make_vectors.py

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "cvm needs Python 3.11 or later: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/pip pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-test: $(VENV)/bin/pip pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: $(VENV)/bin/pip pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-bench: $(VENV)/bin/pip pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-bench-language-models: $(VENV)/bin/pip pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench-language-models]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-dev: $(VENV)/bin/pip pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-test
