# `make demo` and `make test` work on a fresh clone: both set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
export OMP_WAIT_POLICY := PASSIVE
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test lint docs clean

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gcab needs Python 3.11 or newer; set PYTHON=/path/to/python3")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: setup
	$(BIN)/gcab demo

test: lint
	$(BIN)/coverage erase
	OMP_NUM_THREADS=1 $(BIN)/coverage run -m pytest -n 2
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --fail-under=90 --skip-covered

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: setup # a site in build/site, readable offline; warnings are errors
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	$(BIN)/python docs/make_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .coverage* build *.egg-info
