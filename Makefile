# The commands of the project. Each sets up .venv first; a finished set-up costs a fraction of a second.
#   make demo      generate -> train -> evaluate -> report on the embedded defaults
#   make test      all tests: the fast ones, then those that start processes, then those with the real models
#   make lint      ruff, mypy and the import rules; make format mends what ruff can mend
#   make ui        the MLflow UI on this machine
#   make setup     only the set-up; PYTHON=python3.12 names another interpreter

PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2

.PHONY: setup demo test lint format ui

setup:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "setup: Python 3.11 or newer is needed, $(PYTHON) is not; try: make setup PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) scripts/setup.py

demo: setup
	@$(BIN)/toolformer assets
	@$(BIN)/toolformer demo

test: setup
	$(BIN)/python -m pytest -m "not real and not slow" -n $(WORKERS) --dist worksteal
	$(BIN)/python -m pytest -m "slow and not real" -n $(WORKERS) --dist worksteal --durations 20 --durations-min 20
	$(BIN)/python -m pytest -m real

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

ui: setup
	@$(BIN)/toolformer ui
