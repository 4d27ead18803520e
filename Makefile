# Two commands for a newcomer: `make train` and `make test`. Each makes the environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: test lint types format clean

test: lint types
	$(BIN)/pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The environment is made anew whenever what it is made from changes.
$(VENV)/.package: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

$(VENV)/.dev: $(VENV)/.package
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info
