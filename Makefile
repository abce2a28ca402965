# Every target does its own set-up: a virtual environment with the versions of constraints.txt.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo flower-demo test test-browser test-flower check test-wheel bench bench-flower bench-peers format clean

demo: $(READY)  ## compare the paper's seven methods on digits, and a report
	$(BIN)/fedtaco compare --dataset digits --out runs/demo --overwrite
	$(BIN)/fedtaco report runs/demo

flower-demo: $(READY)  ## TACO across three Flower nodes on this machine, with TLS, and a report
	$(BIN)/python scripts/flower-demo

test: $(READY)  ## all tests
	$(BIN)/pytest --numprocesses auto --dist worksteal

test-browser: $(READY)  ## the report in a real browser; needs chromium and chromium-driver
	$(BIN)/pytest -m browser tests/report

test-flower: $(READY)  ## Flower's deployment engine on loopback: TLS, keys, and nodes and servers that are killed
	$(BIN)/pytest -m deployment tests/flower

check: $(READY)  ## style, types and the rules of which room may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test-wheel: $(READY)  ## the built wheel installs and runs in an empty environment
	scripts/test-wheel $(BIN)/python

bench: $(READY)  ## engines, methods and the server's step as ratios; a quarter of an hour, on an idle machine
	$(BIN)/python benchmarks/run.py

bench-flower: $(READY)  ## the server's step on Flower with 100 nodes and 11 million parameters; 5 GB of disk
	$(BIN)/python benchmarks/flower_server.py

PEERS := .venv-peers
bench-peers: $(READY) $(PEERS)/.ready  ## the same engines against pfl-research, which gets an environment of its own
	$(BIN)/python benchmarks/run.py --only engines --peer $(PEERS)/bin/python

$(PEERS)/.ready:
	@echo "Setting up $(PEERS) with pfl 0.6.0 ..."
	@python3 -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip install -qq torch==2.13.0 pfl==0.6.0
	@touch $@

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .venv-peers dist runs .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) with the versions of constraints.txt: a minute or two ..."
	@python3 -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --constraint constraints.txt pip
	@$(BIN)/python -m pip install -qq --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)
