# make demo   discover ten skills in the tree maze and show them
# make test   run the tests
# make check  format, lint, types, layers and tests
# make bench  the speed of everything hot, as ratios
# Everything runs in .venv, which `make install` prepares from constraints.txt.

PYTHON ?= python3
BIN := .venv/bin
DEMO := runs/demo

.PHONY: install demo test test-slow test-kill check format lint types layers bench clean

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# Interrupted or not: run it again and it goes on where it stopped.
demo: install
	@if [ -f $(DEMO)/config.json ]; then $(BIN)/comsd resume $(DEMO); else \
	  $(BIN)/comsd pretrain comsd --env maze-tree --skills 10 --preset lite --seed 0 --run $(DEMO); fi
	@$(BIN)/comsd evaluate $(DEMO)

test: install
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

test-slow: install
	$(BIN)/python -m pytest -m slow

test-kill: install
	$(BIN)/python -m pytest -m slow tests/slow/test_kill.py

check: install format lint types layers test

format: install
	$(BIN)/ruff format --check .

lint: install
	$(BIN)/ruff check .

types: install
	$(BIN)/basedpyright

# No import goes upwards: the layers are in pyproject.toml.
layers: install
	$(BIN)/lint-imports

bench: install
	$(BIN)/python benchmarks/maze_cycle.py
	$(BIN)/python benchmarks/robots.py
	$(BIN)/python benchmarks/update.py
	$(BIN)/python benchmarks/methods.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/adaptation.py

clean:
	rm -rf .venv
