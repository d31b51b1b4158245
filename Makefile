# `make demo` and `make test` work on a fresh clone: both set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
export OMP_WAIT_POLICY := PASSIVE
unexport PYTHONDONTWRITEBYTECODE

# Folders and files under tests/: the equations, what must never change, and whole runs of two methods.
QUICK := architecture config data data_augment equations evaluation invariants scenario training conformance/test_experiment_runs.py

.PHONY: setup demo test quick lint docs browser clean

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gcab needs Python 3.11 or newer; set PYTHON=/path/to/python3")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: setup
	$(BIN)/gcab demo

# Everything. A third process works while others wait. Python measures itself from 3.12 on.
test: CORE = $(shell $(BIN)/python -c 'import sys; print("ctrace" if sys.version_info < (3, 12) else "sysmon")')
test: lint
	$(BIN)/coverage erase
	OMP_NUM_THREADS=1 COVERAGE_CORE=$(CORE) $(BIN)/coverage run -m pytest --processes=3
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --fail-under=95 --skip-covered

# For the inner loop: what a change breaks first, in less than a minute.
quick: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --processes=2 $(addprefix tests/,$(QUICK))

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: setup # a site in build/site, readable offline; warnings are errors
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	$(BIN)/python docs/make_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Chromium for the tests of the page, where apt is; without it they are skipped.
browser:
	@.ci/browser

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .coverage* build *.egg-info
