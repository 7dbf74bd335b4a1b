# What a fresh machine with python3, pip and make needs to know:
#   make demo    set up, make a corpus, train a tiny model, speak     make check   formatting, lint, types, architecture
#                (make demo STEPS=2000 goes on from there)
#   make test    set up and run every test                            make bench   measure speed, write benchmarks/results
#   make docs    write the documentation as a site into build/site    make card    compile for the preset GPUs, without a GPU
#   make soak    long campaigns: hundreds of kills, thousands of flips (half an hour)
#   make doors MODEL=runs/x   other programs speak the exported voice, a recogniser counts word errors (half an hour;
#                             SENTENCES=40 takes less)
#   make lock    write constraints.txt anew from the newest versions  make clean   remove what make built

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
DEMO   ?= demo
# One worker per core the scheduler allows, so that tests never fight for the machine.
JOBS   ?= $(shell $(PYTHON) -c "import os; print(len(os.sched_getaffinity(0)))")

.PHONY: setup demo test check format bench card doors docs soak lock clean
.DEFAULT_GOAL := setup

setup: $(VENV)/.ready

# Debian ships python3 without the module that puts pip into a virtual environment; virtualenv brings its own.
$(VENV)/.ready: pyproject.toml constraints.txt
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { \
	  $(PYTHON) -m pip install --quiet --target .venv-bootstrap virtualenv && \
	  PYTHONPATH=.venv-bootstrap $(PYTHON) -m virtualenv --quiet $(VENV); }
	@echo "Installing MyXTTS and its tools into $(VENV) (one to five minutes) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --editable '.[train,speak,espeak,dev]'
	@touch $@

demo: setup
	@$(BIN)/myxtts demo --out $(DEMO) $(if $(STEPS),--steps $(STEPS))

# Neighbouring tests share fixtures (TensorFlow loaded, a corpus made): each worker takes a contiguous part of them.
test: setup
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

check: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest tests/test_architecture.py

format: setup
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup
	@$(BIN)/python -m benchmarks

# Hours for all graphs on two cores; what is finished is kept in build/card, so that it can be stopped and goes on.
# make card ONLY="small RTX" compiles the graphs whose names contain these words.
card: setup
	@$(BIN)/python -m benchmarks.card $(ONLY)

# piper-tts, wyoming-piper, sherpa-onnx and a recogniser, in an environment of their own.
DOORS := build/doors/venv
$(DOORS)/.ready:
	@$(PYTHON) -m venv $(DOORS) || $(BIN)/python -m venv $(DOORS)
	@$(DOORS)/bin/pip install --quiet --disable-pip-version-check \
	  piper-tts==1.8.0 wyoming-piper==2.5.2 sherpa-onnx==2.0.1 moonshine-voice==0.0.73
	@touch $@

doors: setup $(DOORS)/.ready
	@npm install --silent --no-audit --no-fund --prefix build/node openai@7.55.0 onnxruntime-web@1.30.0
	@$(BIN)/python -m pytest tests/serve/test_npm_client.py tests/export/test_web.py
	@$(BIN)/python -m benchmarks.doors_outside $(if $(MODEL),--model $(MODEL)) $(if $(SENTENCES),--sentences $(SENTENCES))

docs: setup
	@$(BIN)/python -m documentation

soak: setup
	@$(BIN)/python -m pytest -m soak --timeout 0 tests

lock:
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[train,speak,espeak,dev]'
	@$(BIN)/pip freeze --exclude-editable > constraints.txt

clean:
	@rm -rf $(VENV) .venv-bootstrap .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
