# make demo   discover ten skills in the tree maze and show them
# make test   run the tests
# make test-python  what needs no torch, in the newest other Python at hand
# make check  format, lint, types, layers and tests
# make test-faults  kill -9, damage, links, fuzz and more, at full length
# make bench  the speed of everything hot, as ratios
# make viewer the page of `comsd explore`; make explore-demo: with a trained run, to look at
# make wheel  dist/comsd-*.whl, installed in a clean environment and tried
# make lock   requirements.lock and THIRD_PARTY.md anew, after a change of dependencies
# Everything runs in .venv, which `make install` prepares from requirements.lock.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --quiet --disable-pip-version-check
DEMO := runs/demo
PAGE := src/comsd/explorer/page.html

.PHONY: install lock demo wheel test test-slow test-python test-ray test-faults test-viewer viewer explore-demo check format lint types layers bench clean

install: .venv/installed

# All packages are checked against the hashes of the lock. The exception is torch: pip takes the build
# for this machine, be it from PyPI or from a local file of the CPU build (pip's find-links).
.venv/installed: pyproject.toml requirements.lock
	$(PYTHON) -m venv .venv
	$(PIP) install --require-hashes --no-deps -r requirements.lock
	$(PIP) install torch==2.13.0
	$(PIP) install --no-deps --no-build-isolation -e .
	$(BIN)/pip check
	@touch $@

# A new dependency: its range in pyproject.toml, its version in constraints.txt, then this.
lock:
	$(PIP) install uv==0.13.8
	$(BIN)/uv pip compile --quiet pyproject.toml -c constraints.txt -o requirements.lock
	$(BIN)/python scripts/third_party.py

# Interrupted or not: run it again and it goes on where it stopped.
demo: install
	@if [ -f $(DEMO)/config.json ]; then $(BIN)/comsd resume $(DEMO); else \
	  $(BIN)/comsd pretrain comsd --env maze-tree --skills 10 --preset lite --seed 0 --run $(DEMO); fi
	@$(BIN)/comsd evaluate $(DEMO)

# Built, installed with its dependencies in new environments, also of other Pythons that are at hand.
wheel: install $(PAGE)
	rm -rf dist
	$(BIN)/hatchling build -t wheel
	$(BIN)/python -m pytest -m slow tests/slow/test_clean_installation.py

# The newest other Python at hand, in an environment of its own, without torch.
test-python: install
	$(BIN)/python -m pytest -m slow tests/slow/test_clean_installation.py -k newest

test: install
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

test-slow: install
	$(BIN)/python -m pytest -m slow

# The attacks of docs/reliability.md, each as often as it says there.
test-faults: install
	COMSD_FAULTS=long $(BIN)/python -m pytest tests/faults

# The page that `comsd explore` fills, built with the Node.js that pip installs.
viewer: $(PAGE)

$(PAGE): .venv/installed viewer/package-lock.json viewer/build.mjs scripts/build_viewer.py $(wildcard viewer/src/*)
	$(BIN)/python scripts/build_viewer.py

# In Chromium (Debian's package `chromium`), without a network.
test-viewer: $(PAGE)
	$(BIN)/python -m pytest -m viewer tests/test_viewer.py

explore-demo: $(PAGE)
	$(BIN)/comsd explore results/walker/comsd-1 --out runs/explore.html

# With the extra: two Ray nodes on loopback, killed with -9.
test-ray: install
	$(PIP) install -c constraints.txt 'ray>=2.60,<2.61' 'optuna>=5.0,<5.1'
	$(BIN)/python -m pytest -m slow -rP tests/slow/test_ray.py

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
	$(BIN)/python benchmarks/scheduler.py
	$(BIN)/python benchmarks/pixels.py
	$(BIN)/python benchmarks/foreign.py

clean:
	rm -rf .venv viewer/node_modules $(PAGE)
