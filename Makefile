# The commands of the project. Each sets up .venv first; a finished set-up costs a fraction of a second.
#   make demo      generate -> train -> evaluate -> report in the default setting
#   make test      the tests: made-up models, real models, whole pipelines
#   make chaos     the tests that kill, crowd and starve: processes, disks, servers, clusters, browsers
#   make lint      ruff, mypy and the import rules; make format fixes what ruff can fix
#   make docs      the docs site, under build/site/; a warning is an error. make docs-serve shows it and follows changes
#   make ui        the MLflow UI on this machine
#   make setup     only the set-up; make setup EXTRA="mcp ray" with optional parts, make setup-dev with what the tests need;
#                  PYTHON=python3.12 names another interpreter

PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
# Python may keep what it compiles, also where the environment forbids it: importing torch and transformers takes a third of the time.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup setup-dev demo test chaos lint format docs docs-serve ui

setup:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "setup: Python 3.11 or newer is needed, $(PYTHON) is not; try: make setup PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) scripts/setup.py $(EXTRA)

setup-dev:
	@$(MAKE) --no-print-directory setup EXTRA=dev

demo: setup
	@$(BIN)/toolformer demo

test: setup-dev
	$(BIN)/python -m pytest -m "not chaos" -n $(WORKERS) --dist worksteal --durations 10

chaos: setup-dev
	$(BIN)/python -m pytest -m chaos -n $(WORKERS) --dist worksteal --durations 10

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: setup-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

ui: setup
	@$(BIN)/toolformer ui
