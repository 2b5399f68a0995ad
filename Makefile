# On a machine that has only Python: `make demo` and `make test` set up all they need in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
OLDEST := $(VENV)-oldest
OLDEST_PYTHON ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.10.*/bin/python) $(PYTHON))

# Where Python may not keep what it compiled, each command that a test starts compiles all of it again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo paper test check oldest faults docs lint format dist bench clean

demo: $(VENV)/.demo
	$(BIN)/tbloom demo $(ARGS)

# Measures again what the sources measured, and puts it into docs/paper.md; ten minutes. ARGS=--quick: in two.
paper: $(VENV)/.bench
	$(BIN)/python -m bench.paper $(ARGS)

# Every promise once, in three to six minutes on two cores: four processes, because tests often wait, each with a Redis of its own. ARGS=-n0: in one.
test: $(VENV)/.test
	$(BIN)/python -m pytest -n 4 --dist worksteal -m "not check" $(ARGS)

# The rest: all kinds of servers, asyncio's twins, long crawls and faults, many examples, the site, packages, browsers.
check: $(VENV)/.test oldest
	$(BIN)/python -m pytest -n 4 --dist worksteal -m "check or hypothesis" --hypothesis-profile many $(ARGS)
	TBLOOM_FAULTS=full $(BIN)/python -m pytest -n 4 --dist worksteal tests/contract -k the_account_of_many_threads $(ARGS)

# What talks to Redis, with the oldest Python (if pyenv has it) and libraries that setup.cfg allows.
oldest: $(OLDEST)/.test
	$(OLDEST)/bin/python -m pytest -n 4 --dist worksteal -m "not check" tests/engine tests/contract \
	    $(patsubst %,tests/bloom/test_%.py,filter hasher claims sessions pending) $(ARGS)

# The long form of `make check`: all of the contract, three quarters of an hour. ARGS="-k the_accounts": its ten minutes of chaos.
faults: $(VENV)/.test
	TBLOOM_FAULTS=full $(BIN)/python -m pytest tests/contract $(ARGS)

# The site, for build/docs/index.html in a browser; a warning is an error.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build $(ARGS)

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The sdist and the wheel of a release, in dist/.
dist: | $(BIN)/uv
	rm -rf dist
	$(BIN)/uv build --quiet

# Compares with what users pick today; in full it puts the tables into docs/benchmarks.md. ARGS=--quick: in a few minutes.
bench: $(VENV)/.bench
	$(BIN)/python -m bench $(ARGS)

# uv installs in seconds what takes pip a minute.
$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv

# One stamp for each dependency group: demo, docs, test, lint, bench.
$(VENV)/.%: setup.cfg pyproject.toml | $(BIN)/uv
	$(BIN)/uv pip install --quiet --python $(VENV) --editable . --group $*
	touch $@

$(OLDEST)/.test: setup.cfg pyproject.toml tests/project/oldest.py | $(BIN)/uv
	$(BIN)/uv venv --quiet --clear --python $(OLDEST_PYTHON) $(OLDEST)
	$(OLDEST)/bin/python tests/project/oldest.py > $(OLDEST)/pins.txt
	$(BIN)/uv pip install --quiet --python $(OLDEST) --constraint $(OLDEST)/pins.txt --editable . --group test
	touch $@

clean:
	rm -rf $(VENV) $(OLDEST) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Prints the mutants of the code that the fast tests miss; ARGS="commit prolong": of some only. A quarter of an hour.
.PHONY: mutants
mutants: $(VENV)/.test
	$(BIN)/python tests/mutants/run.py $(ARGS)
