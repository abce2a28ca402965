# Every target first creates .venv, with the versions in constraints.txt, unless it is up to date.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo flower-demo test test-browser test-flower check soak soak-short test-wheel bench bench-flower bench-peers format clean

demo: $(READY)  ## Compare the paper's seven methods on digits and write a report
	$(BIN)/fedtaco compare --dataset digits --out runs/demo --overwrite
	$(BIN)/fedtaco report runs/demo

flower-demo: $(READY)  ## Run TACO on three Flower nodes on this machine, with TLS, and write a report
	$(BIN)/fedtaco flower run examples/flower-digits --nodes 3 --run-config num-server-rounds=3 --out runs/flower-demo --overwrite
	$(BIN)/fedtaco report runs/flower-demo

test: $(READY)  ## Run all tests except those of test-browser and test-flower
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --dist worksteal

test-browser: $(READY)  ## Test the report in a browser; needs chromium and chromium-driver
	$(BIN)/pytest -m browser tests/report

test-flower: $(READY)  ## Test real Flower deployments on this machine: TLS, keys, and processes that are killed; needs nginx
	$(BIN)/pytest -m deployment tests/flower

check: $(READY)  ## Check style, types, and which package may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

soak: $(READY)  ## Kill runs, damage folders, send hostile replies and random commands; takes hours and can be resumed
	$(BIN)/python scripts/soak

soak-short: $(READY)  ## The same for two minutes
	rm -rf runs/soak-short
	$(BIN)/python scripts/soak --minutes 2 --out runs/soak-short

test-wheel: $(READY)  ## Build the wheel and use it in a new virtual environment
	scripts/test-wheel $(BIN)/python

bench: $(READY)  ## Measure engines, methods and the server's step; takes 15 minutes on an idle machine
	$(BIN)/python benchmarks/run.py

bench-flower: $(READY)  ## Measure the server's step on Flower with 100 nodes and 11 million parameters; needs 5 GB of disk
	$(BIN)/python benchmarks/flower_server.py

PEERS := .venv-peers
bench-peers: $(READY) $(PEERS)/.ready  ## Measure the engines together with pfl-research, in an environment of its own
	$(BIN)/python benchmarks/run.py --only engines --peer $(PEERS)/bin/python

$(PEERS)/.ready:
	@echo "Setting up $(PEERS) with pfl 0.6.0 ..."
	@python3 -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip install -qq torch==2.13.0 pfl==0.6.0
	@touch $@

format: $(READY)  ## Format all Python files and apply automatic fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove environments, caches, runs and build results
	rm -rf $(VENV) $(PEERS) dist runs .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) with the versions in constraints.txt; this takes a minute or two ..."
	@python3 -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --constraint constraints.txt pip
	@$(BIN)/python -m pip install -qq --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)
