# On a machine that has only Python: `make demo` and `make test` set up all they need in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
OLDEST := $(VENV)-oldest
PEERS := $(VENV)-peers
OLDEST_PYTHON ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.10.*/bin/python) $(PYTHON))

# Where Python may not keep what it compiled, each command that a test starts compiles all of it again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo paper test check oldest peers faults docs lint format dist bench mutants clean

help: ## Lists what there is to make; ARGS=... goes to the program that a target starts.
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(VENV)/.demo ## A fleet of crawlers on a site of its own, and what tbloom saves them.
	$(BIN)/tbloom demo $(ARGS)

paper: $(VENV)/.bench ## What the sources measured, measured again, into docs/paper.md; ten minutes. ARGS=--quick: in two; --full: the 600 million, in hours.
	$(BIN)/python -m bench.paper $(ARGS)

# Four processes, because tests often wait, each with a Redis of its own.
test: $(VENV)/.test ## Every promise once; three to six minutes on two cores. ARGS=-n0: in one process.
	$(BIN)/python -m pytest -n 4 --dist worksteal -m "not check" $(ARGS)

check: $(VENV)/.test oldest ## The rest: all kinds of servers, asyncio's twins, long crawls and faults, many examples, the site, packages, browsers.
	$(BIN)/python -m pytest -n 4 --dist worksteal -m "check or hypothesis" --hypothesis-profile many $(ARGS)
	TBLOOM_FAULTS=full $(BIN)/python -m pytest -n 4 --dist worksteal tests/contract -k the_accounts $(ARGS)

oldest: $(OLDEST)/.test ## What talks to Redis and Scrapy, with the oldest Python (if pyenv has it) and libraries that setup.cfg allows.
	$(OLDEST)/bin/python -m pytest -n 4 --dist worksteal -m "not check" tests/engine tests/contract \
	    $(patsubst %,tests/bloom/test_%.py,filter claims sessions) \
	    $(patsubst %,tests/scrapy/test_%.py,setups marking losses) $(ARGS)

peers: $(PEERS)/.peers ## Scrapy's and scrapy-redis' own tests with our dupefilter, beside the same with theirs; half an hour. ARGS=tests/test_crawl.py: some.
	$(PEERS)/bin/python -m tests.peers.run $(ARGS)

faults: $(VENV)/.test ## All of the contract, long; a quarter of an hour. ARGS="-k the_accounts": its three minutes of chaos.
	TBLOOM_FAULTS=full $(BIN)/python -m pytest tests/contract $(ARGS)

docs: $(VENV)/.docs ## The site, for build/docs/index.html in a browser; a warning is an error.
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build $(ARGS)

lint: $(VENV)/.lint ## What CI refuses: ruff and mypy.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.lint ## Formats the code.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

dist: | $(BIN)/uv ## The sdist and the wheel of a release, in dist/.
	rm -rf dist
	$(BIN)/uv build --quiet

bench: $(VENV)/.bench ## Compares with what users pick today; in full it fills docs/benchmarks.json and the documents. ARGS=--quick: in a few minutes.
	$(BIN)/python -m bench $(ARGS)

# uv installs in seconds what takes pip a minute.
$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv

# One stamp for each dependency group: demo, docs, test, lint, bench.
$(VENV)/.%: setup.cfg pyproject.toml | $(BIN)/uv
	$(BIN)/uv pip install --quiet --python $(VENV) --editable . --group $*
	touch $@

$(OLDEST)/.test: setup.cfg pyproject.toml | $(BIN)/uv
	$(BIN)/uv venv --quiet --clear --python $(OLDEST_PYTHON) $(OLDEST)
	$(BIN)/uv pip compile --quiet --python $(OLDEST) --resolution lowest-direct --output-file $(OLDEST)/pins.txt \
	    $(patsubst %,--extra %,scrapy cli metrics pages distinct) setup.cfg
	$(BIN)/uv pip install --quiet --python $(OLDEST) --constraint $(OLDEST)/pins.txt --editable . --group test
	touch $@

$(PEERS)/.peers: setup.cfg pyproject.toml | $(BIN)/uv
	$(BIN)/uv venv --quiet --clear --seed --python $(PYTHON) $(PEERS)
	$(BIN)/uv pip install --quiet --python $(PEERS) --editable . --group peers
	touch $@

clean: ## Removes what the other targets made.
	rm -rf $(VENV) $(OLDEST) $(PEERS) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

mutants: $(VENV)/.test ## Prints the mutants that the fast tests miss; a quarter of an hour. ARGS="commit prolong": of some.
	$(BIN)/python tests/mutants/run.py $(ARGS)
