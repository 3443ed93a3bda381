# make install | lab | test | book | lint | gpu-test | clean. Everything runs in .venv, which the first of them creates.

PYTHON ?= python3
ARGS ?=
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n < 8 ? n : 8)))
BIN := .venv/bin
NOTEBOOKS := $(sort $(wildcard notebooks/*.ipynb))
# The server refuses root without this; it listens on localhost and asks for its token all the same.
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

# Installed means: these dependencies, in this folder. Then pip is not called again, so that a later start works offline.
INSTALLED := .venv/installed-$(shell { cat pyproject.toml requirements.lock; pwd; } | sha256sum | cut -c 1-16)
# A .venv whose Python has gone is made again.
MISSING := $(if $(wildcard $(BIN)/python),,missing)

.PHONY: install lab test book lint gpu-test clean missing

install: $(INSTALLED)

lab: $(INSTALLED)
	@$(BIN)/python -m jupyterlab --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb \
		--LabApp.news_url=None --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate $(AS_ROOT) $(ARGS)

test: $(INSTALLED)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(ARGS); status=$$?; \
		echo "Not run here: tests/gpu, which needs an NVIDIA GPU (make gpu-test). Other skips are listed above, with reasons."; \
		exit $$status

gpu-test: $(INSTALLED)
	$(BIN)/python -m pytest --dist loadgroup tests/gpu $(ARGS)

book: $(INSTALLED)
	rm -rf build/book
	SKINNY_GEMM_EXPORTS="$$PWD/build/book/figures" $(BIN)/python -m nbconvert --to html --execute \
		--output-dir build/book $(NOTEBOOKS)
	@# Links between notebooks become links between pages.
	@sed -i 's|href="\([0-9a-z_]*\)\.ipynb"|href="\1.html"|g' build/book/*.html
	@echo "The book is in build/book, its figures in build/book/figures."

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python tests/notebooks/canonical.py

clean:
	rm -rf build .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis

$(INSTALLED): $(MISSING)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Python 3.11 or newer is needed, and $(PYTHON) is $$($(PYTHON) --version 2>&1 || echo missing): give another, as in make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments: install its venv module (Debian, Ubuntu: apt install python3-venv)"; exit 1; }
	@echo "Installing into .venv; this takes some minutes, once."
	@rm -f .venv/installed-*
	@test -x $(BIN)/python || $(PYTHON) -m venv --clear .venv
	@# Without an NVIDIA driver PyTorch's own index has a build with no CUDA in it, gigabytes smaller. Where that index is
	@# out of reach the next step takes what pip's default index has.
	@test -e /proc/driver/nvidia/version || command -v nvidia-smi >/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--retries 0 --timeout 10 --no-deps --index-url https://download.pytorch.org/whl/cpu \
		--constraint requirements.lock torch 2>/dev/null \
		|| echo "PyTorch's CPU index is out of reach: taking PyTorch from the default index"
	$(BIN)/python -m pip install --disable-pip-version-check --constraint requirements.lock --editable '.[test]'
	@# JupyterLab would open with a question about its news.
	@mkdir -p .venv/share/jupyter/lab/settings && \
		echo '{"@jupyterlab/apputils-extension:notification": {"fetchNews": "false"}}' > .venv/share/jupyter/lab/settings/overrides.json
	@touch $@
