# Two commands need nothing but Python 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-all torture check format docs package clean

demo: $(VENV)/demo-installed
	$(BIN)/bayesattn demo

test: check
	$(BIN)/python -m pytest -n 2

test-all: check
	$(BIN)/python -m pytest -n 2 -m ""

torture: $(VENV)/test-installed
	$(BIN)/python tests/torture

check: $(VENV)/test-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-cache

format: $(VENV)/test-installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/docs-installed
	$(BIN)/python docs/make_site.py

# A wheel made from the source archive, installed with torch alone into an environment of its own, and used there.
package:
	rm -rf dist build/package
	$(PYTHON) -m venv build/package
	build/package/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt build
	build/package/bin/python -m build --outdir dist .
	build/package/bin/python -m pip uninstall --quiet --disable-pip-version-check --yes build pyproject_hooks packaging
	build/package/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	cd build/package && bin/python $(CURDIR)/tests/installed.py && bin/bayesattn --version

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis demo build dist

$(BIN)/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), f"bayesattn needs Python 3.11 or newer, this is {sys.version.split()[0]}: make PYTHON=python3.11"'
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo-installed: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing bayesattn and what the demo needs into $(VENV) (once, a few minutes) ..."
	$(PIP) -e '.[experiments]'
	@touch $@

$(VENV)/docs-installed: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing bayesattn and what the documentation needs into $(VENV) (once, a few minutes) ..."
	$(PIP) -e '.[experiments,hf,docs]'
	@touch $@

$(VENV)/test-installed: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing bayesattn and its test tools into $(VENV) (once, a few minutes) ..."
	$(PIP) -e '.[experiments,hf,graphs,ray,explore,docs,dev]'
	$(PIP) --no-deps timm # without torchvision, which has no CPU build there: see tests/helpers/torchvision_stand_in.py
	$(PIP) --no-deps laplace-torch asdfghjkl backpack-for-pytorch curvlinops-for-pytorch einconv einops linear_operator opt_einsum unfoldNd # an oracle of the tests, without torchvision
	$(PIP) --no-deps peft lightning # recipes of docs/tools.md; without the CUDA that their torch would be
	$(PIP) --no-deps triton # its interpreter runs the kernels of a GPU on the CPU
	@touch $@
