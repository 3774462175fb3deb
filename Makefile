PYTHON ?= python3
BIN := .venv/bin
# compiled modules are kept: many tests start processes, and each would compile the library again
unexport PYTHONDONTWRITEBYTECODE
.PHONY: demo test test-all test-papers pictures lint bench docs docs-outputs audits coverage defaults papers install

install: .venv/.installed

.venv/.installed: pyproject.toml papers/pyproject.toml constraints.txt
	@echo 'installing into .venv, about a minute'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' -e papers
	@touch $@

demo: .venv/.installed
	@$(BIN)/python examples/actg175.py
	@$(BIN)/python examples/rand_hie.py

test: .venv/.installed
	$(BIN)/python -m pytest -n 2 --dist worksteal

# shapes in signatures are checked on the way
test-all: .venv/.installed
	PYTHONPATH=tests $(BIN)/python -m pytest -n 2 --dist worksteal -m '' --jaxtyping-packages=dprl,shapes.checked

test-papers: .venv/.installed
	$(BIN)/python -m pytest -n 2 --dist worksteal -m '' papers

# the reports' screenshots in docs/images; needs a Chromium of the system
pictures: .venv/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser]'
	DPRL_PICTURES=docs/images $(BIN)/python -m pytest -m '' tests/report/test_in_a_browser.py

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: .venv/.installed
	$(BIN)/python -m benchmarks

.venv/.docs: .venv/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

# tables from the entries of the algorithms, then the site; no network, and a warning is an error
docs: .venv/.docs
	$(BIN)/python -m benchmarks.documents
	$(BIN)/python -m sphinx --fail-on-warning --quiet --builder html docs docs/_build/html
	@echo 'site: docs/_build/html/index.html'

# what the commands of the pages print, by running them again; minutes
docs-outputs: .venv/.installed
	$(BIN)/python -m benchmarks.console

audits: .venv/.installed
	$(BIN)/dprl audit --all --out docs/audits.md
	$(BIN)/dprl audit --neighbours --out docs/audits.md

coverage: .venv/.installed
	$(BIN)/python -m benchmarks.coverage

# about five hours; what was computed is kept, and the same command goes on where it was
defaults: .venv/.installed
	$(BIN)/python -m benchmarks.default_table
	$(BIN)/python -m benchmarks.default_values

# two figures of 000 play Pong
.venv/.papers: .venv/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[atari]'
	@touch $@

# hours; what was computed is kept, and the same command goes on where it was; what is finished goes on record, in
# papers/results, and into the tables of docs/papers
papers: .venv/.papers
	for paper in 000 001 002 003 004 beyond; do \
		$(BIN)/dprl reproduce $$paper --out .papers/$$paper || exit; \
		$(BIN)/dprl reproduce $$paper --out .papers/$$paper --pages || exit; \
	done
