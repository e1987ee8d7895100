# Everything runs in .venv, installed once with the pinned constraints. `make demo` and `make test` are all a new user needs.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-fast check docs wheel lock bench hostile clean help

help:
	@echo "make demo   install, then synthetic notes from text to report (about 3 minutes)"
	@echo "make test   install, then all tests"
	@echo "make check  ruff format, ruff, pyright"
	@echo "make docs   the site, into site/"
	@echo "make wheel  source archive and wheel, into dist/"
	@echo "make bench  the benchmarks whose numbers are in docs/benchmarks.md"
	@echo "make hostile  kills, full disks, damaged input: hours; the figures of docs/reliability.md (as root, for the disks)"

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "tacit needs $(PYTHON); set PYTHON=... to another one from 3.11 to 3.13"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,docs]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/tacit demo

# Three workers for two cores: tests wait for processes that they have started, and for the clock. Both cores are busy throughout, and four
# workers take longer.
# Bytecode is kept, also where an image says that none should be: without it each run compiles the tests, and each process tacit.
test: $(STAMP)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist worksteal

test-fast: $(STAMP)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist worksteal -m "not slow"

check: $(STAMP)
	$(BIN)/ruff format --check src tests benchmarks hostile examples
	$(BIN)/ruff check src tests benchmarks hostile examples
	$(BIN)/pyright

docs: $(STAMP)
	$(BIN)/python -m mkdocs build --strict --quiet

# What `pip install --require-hashes -r requirements.lock` installs: the versions of constraints.txt, each file with its digest. Needs uv.
lock:
	uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes -c constraints.txt --no-annotate --no-emit-index-url \
	  --custom-compile-command "make lock" --quiet -o requirements.lock

wheel: $(STAMP)
	$(BIN)/python -m tests.packaging.building dist

bench: $(STAMP)
	$(BIN)/python benchmarks/wordpiece.py
	$(BIN)/python benchmarks/engine.py

# Goes on where it stopped; never in CI.
hostile: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m hostile --page docs/reliability.md

clean:
	rm -rf $(VENV) runs site dist .pytest_cache .ruff_cache .hypothesis
