# Every target does its own set-up: a virtual environment with the versions of constraints.txt.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check test-wheel format clean

demo: $(READY)  ## compare the paper's seven methods on digits
	$(BIN)/fedtaco compare --dataset digits --local-steps 30 --rounds 20 --local-lr 0.1 --out runs/demo --overwrite

test: $(READY)  ## all tests
	$(BIN)/pytest

check: $(READY)  ## style, types and the rules of which room may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test-wheel: $(READY)  ## the built wheel installs and runs in an empty environment
	scripts/test-wheel $(BIN)/python

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) dist runs .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) with the versions of constraints.txt: a minute or two ..."
	@python3 -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --constraint constraints.txt pip
	@$(BIN)/python -m pip install -qq --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)
