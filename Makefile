# On a machine that has only Python and make: `make demo` and `make test` set up all they need in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
OLDEST := $(VENV)-oldest
PEERS := $(VENV)-peers
SUPPORTED := $(shell sed -n 's/.* Python :: \(3\.[0-9]*\)/\1/p' setup.cfg)
# The interpreter of a version that uv finds: its own, pyenv's, or one on PATH. pyenv's programs precede its shims, which may fail.
interpreter = $(shell PATH="$$(printf %s: "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/*/bin)$$PATH" \
    $(BIN)/uv python find --system --no-python-downloads $1 2>/dev/null)
OLDEST_PYTHON ?= $(or $(call interpreter,$(firstword $(SUPPORTED))),$(PYTHON))
VERSION = $(shell $(BIN)/python -c 'import sys; print("{}.{}".format(*sys.version_info))')
NEWEST = $(filter-out $(VERSION),$(lastword $(foreach version,$(SUPPORTED),$(if $(call interpreter,$(version)),$(version)))))

# Where Python may not keep what it compiled, each command that a test starts compiles all of it again.
export PYTHONDONTWRITEBYTECODE :=

# Processes, each with a Redis of its own: as many as cores, and at least six, because tests often wait.
FORKS := --forks auto

# The tests that `make accounts` runs, and `make others` doesn't.
ACCOUNTS := tests/contract/test_races.py::test_the_accounts_are_exact_whatever_happens_at_once tests/scrapy/test_soak.py

.PHONY: help demo test check accounts others oldest newest $(SUPPORTED:%=python-%) peers docs lint format dist bench clean

help: ## Lists what there is to make; ARGS=... goes to the program that a target starts.
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(VENV)/.demo ## A fleet of crawlers on a site of its own, and what tbloom saves them.
	$(BIN)/tbloom demo $(ARGS)

test: $(VENV)/.test ## Every promise once; one to three minutes on two cores. ARGS=--forks=0: in one process.
	$(BIN)/python -m pytest $(FORKS) -m "not check" $(ARGS)

check: $(VENV)/.test $(VENV)/.check ## The rest: all kinds of servers, asyncio's twins, long crawls and faults, many examples, the site, packages, browsers.
	$(MAKE) --no-print-directory -j2 --output-sync accounts others

accounts: $(VENV)/.test ## Ten minutes in which crawlers and servers are killed; in `make check`, beside its other tests. MINUTES=60: longer.
	TBLOOM_FAULTS=$(or $(MINUTES),10) $(BIN)/python -m pytest --forks 2 -m check $(ACCOUNTS) $(ARGS)

others: $(VENV)/.check
	$(MAKE) --no-print-directory oldest
	$(MAKE) --no-print-directory newest
	$(BIN)/python -m pytest $(FORKS) -m check --hypothesis-profile many $(ACCOUNTS:%=--deselect %) $(ARGS)

oldest: $(OLDEST)/.test ## The command line and what talks to Redis and Scrapy, with the oldest Python (if it is found) and libraries that setup.cfg allows.
	$(OLDEST)/bin/python -m pytest $(FORKS) -m "not check" tests/engine tests/contract tests/cli/test_recorded.py \
	    $(patsubst %,tests/bloom/test_%.py,filter hostile) \
	    $(patsubst %,tests/claims/test_%.py,claims sessions) \
	    $(patsubst %,tests/scrapy/test_%.py,setups marking losses) $(ARGS)

newest: | $(BIN)/uv ## All fast tests, of many examples, with the newest supported Python that uv finds; python-3.12: with that one.
	TBLOOM_SIMULATION_SCHEDULES=200 \
	    $(MAKE) --no-print-directory $(if $(NEWEST),python-$(NEWEST),test) ARGS="--hypothesis-profile many $(ARGS)"

$(SUPPORTED:%=python-%): python-%: $(VENV)-%/.test
	$(VENV)-$*/bin/python -m pytest $(FORKS) -m "not check" $(ARGS)

peers: $(PEERS)/.peers ## Scrapy's and scrapy-redis' own tests with our dupefilter, beside the same with theirs; half an hour. ARGS=tests/test_crawl.py: some.
	$(PEERS)/bin/python -m tests.peers.run $(ARGS)

docs: $(VENV)/.docs ## The site, for build/docs/index.html in a browser; a warning is an error.
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build $(ARGS)

lint: $(VENV)/.lint ## What CI refuses: ruff, mypy and pyright.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typing
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m tests.typing.score

format: $(VENV)/.lint ## Formats the code.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

dist: | $(BIN)/uv ## The sdist and the wheel of a release, in dist/.
	rm -rf dist
	$(BIN)/uv build --quiet

bench: $(VENV)/.bench ## Measures all figures of the documents in one go, beside what users pick today. ARGS=--quick: small amounts, only printed.
	$(BIN)/python -m bench $(ARGS)

# pip, because this machine's proxy, mirror and certificate stand in pip's configuration, which uv does not read. (uv would be
# no faster for `make demo`, and half a minute for `make test`.) "--group" needs pip 25.1.
$(VENV)/.pip:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --upgrade pip
	touch $@

# One stamp for each dependency group: demo, docs, test, lint, bench.
$(VENV)/.%: setup.cfg pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install -qq --editable . --group $*
	touch $@

# What makes environments of other Pythons, and finds the oldest libraries.
$(BIN)/uv: | $(VENV)/.pip
	$(BIN)/python -m pip install -qq uv

$(OLDEST)/.test: setup.cfg pyproject.toml | $(BIN)/uv
	$(BIN)/uv venv --quiet --clear --python $(OLDEST_PYTHON) $(OLDEST)
	$(BIN)/uv pip compile --quiet --python $(OLDEST) --resolution lowest-direct --output-file $(OLDEST)/pins.txt \
	    $(patsubst %,--extra %,scrapy cli metrics pages distinct) setup.cfg
	$(BIN)/uv pip install --quiet --python $(OLDEST) --constraint $(OLDEST)/pins.txt --editable . --group test
	touch $@

$(SUPPORTED:%=$(VENV)-%/.test): $(VENV)-%/.test: setup.cfg pyproject.toml | $(BIN)/uv
	$(BIN)/uv venv --quiet --clear --python $(call interpreter,$*) $(VENV)-$*
	$(BIN)/uv pip install --quiet --python $(VENV)-$* --editable . --group test
	touch $@

$(PEERS)/.peers: setup.cfg pyproject.toml | $(BIN)/uv
	$(BIN)/uv venv --quiet --clear --seed --python $(PYTHON) $(PEERS)
	$(BIN)/uv pip install --quiet --python $(PEERS) --editable . --group peers
	touch $@

clean: ## Removes what the other targets made.
	rm -rf $(VENV) $(OLDEST) $(SUPPORTED:%=$(VENV)-%) $(PEERS) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
