# Two commands do all their own set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := pyproject.toml hatch_build.py $(wildcard src/dropmargin/*/_*.[ch] src/dropmargin/*/*/_*.[ch])
INSTALL := $(RUN)/python -m pip install --quiet --disable-pip-version-check -e

.PHONY: demo test test-all test-lowest coverage lint docs bench reproduce clean help

help:
	@echo "make demo      the main job from end to end on sensors that die; writes dropmargin-demo/report.html"
	@echo "make test      style, types and tests"
	@echo "make test-all  those, and the tests that take minutes"
	@echo "make test-lowest  the tests with the lowest versions of all dependencies; needs Python 3.11 or 3.12"
	@echo "make coverage  the tests, and which lines of the library they run"
	@echo "make docs      the documentation as a site, docs/_build/html/index.html; fails on a broken link or example"
	@echo "make bench     the benchmarks (hours; needs the data, see benchmarks/README.md)"
	@echo "make reproduce the paper's experiments (hours; downloads the data, see docs/reproduction.md)"
	@echo "make clean     remove the virtual environment and caches"

demo: $(VENV)/.demo
	@$(RUN)/dropmargin demo --force

test: $(STAMP) lint
	@$(RUN)/python -m pytest -q -n auto -m "not slow"

test-all: $(STAMP) lint
	@$(RUN)/python -m pytest -q -n auto

# The one place that says what "lowest" means: what pyproject.toml names. In an environment of its own.
test-lowest:
	@$(PYTHON) -m venv $(VENV)-lowest
	@$(VENV)-lowest/bin/python -m pip install --quiet --disable-pip-version-check uv
	@$(VENV)-lowest/bin/uv pip install --quiet --python $(VENV)-lowest/bin/python --resolution lowest-direct -e '.[test]'
	@$(VENV)-lowest/bin/python -m pytest -q -n auto -m "not slow"

# In one process, because those of pytest-xdist are not measured.
coverage: $(STAMP)
	@$(RUN)/python -m pip install --quiet --disable-pip-version-check coverage
	@$(RUN)/python -m coverage run --branch --source src/dropmargin -m pytest -q -m "not slow"
	@$(RUN)/python -m coverage report --skip-covered

lint: $(STAMP)
	@$(RUN)/ruff check --quiet .
	@$(RUN)/ruff format --check --quiet .
	@$(RUN)/mypy --no-error-summary

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("dropmargin needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@echo "Setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)

# What the demo needs, without the tools of the tests.
$(VENV)/.demo: $(SOURCES) | $(VENV)/bin/python
	@$(INSTALL) '.[cli]'
	@touch $@

$(STAMP): $(SOURCES) | $(VENV)/bin/python
	@$(INSTALL) '.[test]'
	@touch $@

docs: $(STAMP)
	@$(INSTALL) '.[docs]'
	@$(RUN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

bench: $(STAMP)
	@$(INSTALL) '.[bench]'
	@$(RUN)/python -m benchmarks

reproduce: $(STAMP)
	@$(INSTALL) '.[reproduction]'
	@$(RUN)/python -m reproduction all

clean:
	@rm -rf $(VENV) $(VENV)-lowest docs/_build docs/api docs/gallery .pytest_cache .mypy_cache .ruff_cache .hypothesis
