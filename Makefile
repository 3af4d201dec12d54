# Each target makes the virtual environment that it needs under .venv/.
#
#   make demo [DATA=folder]   the main job on real photographs, or on the images in your folder
#   make test                 linters, types and tests, $(JOBS) at a time, then a summary; ARGS=tests/engine/memory/test_ring.py
#                             selects tests
#   make test PEERS=1         make test, and the comparisons with the real DALI and PyTorch
#   make smoke                one test of each kind, in less than a minute; see tests/smoke.txt
#   make newest               tests with the newest version of each dependency of the package and its extras, without bounds
#   make oldest               the same with the oldest allowed versions, on Python 3.11
#   make types                check annotated programs that use the package, with mypy and pyright
#   make dist [PYTHONS=...]   build the package, and try it in empty environments with each interpreter and each extra
#   make kernels              build the wheel of dali-like-kernels in dist/, and test it; needs a C compiler
#   make free_threaded        tests of threads with Python without a lock: FREE_THREADED=python3.14t (a name or a path), or one that
#                             is built from Debian's source package
#   make ray                  tests of workers on a cluster of Ray, two minutes; see docs/ray-cluster.md
#   make s3                   tests of sources that read from an object store, half a minute; see docs/remote-data.md
#   make browser              tests of `dali-like view` and of the site in Chromium (Debian: chromium); SCREENSHOTS=1 draws pictures
#   make parity-full          thousands of programs in DALI and here, for hours, and batches of all workers of PyTorch; 20,000
#                             random composed datasets on changing ranks and workers; 10,000 damaged texts, states and indexes
#   make dali2                the schemas of DALI 2.4.0, and the results of what DALI 1.53 does not have; see
#                             docs/migrating-from-dali.md
#   make suites SOURCES=folder [ARGS=names]   tests of other projects, whose sources are in a folder, with this library's loader in the
#                             place of PyTorch's; see docs/developers/suites.md
#   make cookbook             run all recipes of docs/cookbook, those of HDF5, Zarr, PostgreSQL, S3, DICOM and geodata, too
#   make docs                 build the documentation site in build/docs
#   make described            write the stubs, pages and pictures of operators from their descriptions; diagrams and plots
#   make bench [ARGS=...]     benchmarks against DALI and PyTorch; LOADER_ARGS=... for the DataLoader, TRAINING_ARGS=... for
#                             training pipelines; see docs/benchmarks.md
#   make soak [ARGS=...]      ten minutes of killed and stopped processes; see docs/reliability.md
#   make storm [ARGS=...]     killed processes in DALI, PyTorch and dali_like
#   make gpu [ARGS=...]       checks and measurements on a GPU, with CuPy of $(PYTHON); see docs/gpu.md
#   make dockerfiles          check the Dockerfiles
#   make containers           execute the Dockerfiles without a container engine; needs root and debootstrap, see docs/containers.md
#   make sbom                 write bills of materials of the containers to build/sbom, as CycloneDX
#   make clean                remove everything that the other targets have made

PYTHON ?= python3
PYTHONS ?= $(PYTHON)
PIP := -m pip install --quiet --disable-pip-version-check
# Simultaneous tests: more than a small machine has cores, because half of them wait for other processes.
JOBS ?= 4
# Rewriting the assertions of all tests takes ten seconds in each process, unless Python may keep the result.
export PYTHONDONTWRITEBYTECODE :=
TEST_ENV := .venv/$(if $(PEERS),peers,test)

# Tests run in parts, one after the other. Forking a test process takes longer the more memory it has: 3 ms for the tests of one
# folder, 15 ms once it has imported all, 100 ms once it has imported PyTorch, DALI and JAX. So tests with workers run apart from
# those that import many libraries.
PARTS := faults engine pipeline sources data others $(if $(PEERS),parity)
SMOKE = -n 2 -m smoke $(shell cut -d: -f1 tests/smoke.txt | sort -u)
ALL_PARTS := lint $(addprefix test-,$(PARTS))
tests_pipeline := $(addprefix tests/,pipeline graph plugin monitor messages serving cli)
tests_sources := tests/sources --ignore=tests/sources/composed --ignore=tests/sources/readers
tests_others := tests --ignore-glob='tests/sources/test_*' \
    $(addprefix --ignore=,$(tests_pipeline) tests/faults tests/engine tests/data tests/parity tests/browser)

.NOTPARALLEL:
.PHONY: demo test notice all-parts parts extras-apart smoke newest oldest types dist kernels free_threaded ray s3 browser docs described parity-full dali2 bench soak storm suites cookbook gpu dockerfiles containers sbom lint clean

demo: .venv/demo/.ready
	.venv/demo/bin/python -m examples.demo $(if $(DATA),--data "$(DATA)")

ifdef ARGS
test: lint
	$(TEST_ENV)/bin/python -m pytest --ignore=tests/browser $(if $(PEERS),,--ignore=tests/parity) $(ARGS)
else
test: all-parts
endif

# Said before the first part: sizes of environments in GB, and times on two idle cores.
WILL_INSTALL = Installs $(if $(findstring peers,$(TEST_ENV)),4,1.5) GB into $(TEST_ENV), once.
WILL_TAKE = Takes $(if $(findstring peers,$(TEST_ENV)),less than an hour,12 minutes) on two idle cores, up to three times as long on busy ones; \
    make smoke takes one.

notice:
	@echo "$(if $(wildcard $(TEST_ENV)/.ready),,$(WILL_INSTALL) )$(WILL_TAKE)"

# All parts are made although some fail. Then a summary follows. mypy uses one core, so tests run beside `make lint`, once both
# have their environment.
all-parts: notice $(TEST_ENV)/.ready
	@$(PYTHON) -m tools.make_all $(if $(filter lint,$(ALL_PARTS)),--beside lint) $(filter-out lint,$(ALL_PARTS))

parts:
	@echo $(ALL_PARTS)

# Starting the threads of OpenBLAS is a third of the time of importing NumPy, in each program that a test starts.
test-%: export OPENBLAS_NUM_THREADS := 1
test-%: $(TEST_ENV)/.ready
	$(TEST_ENV)/bin/python -m pytest -n $(JOBS) --dist worksteal $(or $(tests_$*),tests/$*)

# Extras that are installed alone, see tools/dependency_versions.py: one program for each.
extras-apart: $(TEST_ENV)/.ready
	$(TEST_ENV)/bin/python -m tests.project.try_release . --versions $(notdir $(TEST_ENV))

smoke: .venv/test/.ready
	.venv/test/bin/python -m pytest -q $(SMOKE)

# The index may have newer versions than when the environment was made.
newest: UPGRADE := $(if $(wildcard .venv/newest/.ready),.venv/newest/bin/python $(PIP) --upgrade --upgrade-strategy eager -r .venv/newest/requirements.txt)
ifdef ARGS
newest oldest: %: .venv/%/.ready
	$(UPGRADE)
	.venv/$*/bin/python -m pytest --ignore=tests/browser --ignore=tests/parity $(ARGS)
else
newest oldest: %: .venv/%/.ready
	$(UPGRADE)
	@$(MAKE) all-parts TEST_ENV=.venv/$* ALL_PARTS="$(filter-out lint test-parity,$(ALL_PARTS)) extras-apart"
endif

types: .venv/types/.ready
	.venv/types/bin/python -m pytest tests/typing $(ARGS)

dist: .venv/dist/.ready
	rm -rf dist
	.venv/dist/bin/python -m build
	$(PYTHON) -m tests.project.try_release dist/*.whl dist/*.tar.gz --python $(PYTHONS) $(ARGS)

kernels: .venv/dist/.ready $(TEST_ENV)/.ready
	.venv/dist/bin/python -m build --wheel --outdir dist kernels
	rm -rf build/kernels
	$(TEST_ENV)/bin/python $(PIP) --no-deps --no-index --target build/kernels dist/dali_like_kernels-*.whl
	DALI_LIKE_KERNELS=build/kernels/dali_like_kernels/libdali_like_kernels.so \
	    $(TEST_ENV)/bin/python -m pytest tests/operators/test_kernels.py $(ARGS)

free_threaded: .venv/free_threaded/.ready
	.venv/free_threaded/bin/python -m pytest -n $(JOBS) $(or $(ARGS),tests/engine/backends/test_threads.py \
	    tests/engine/backends/test_thread_copies.py tests/faults/test_threads.py)

ray: .venv/ray/.ready
	.venv/ray/bin/python -m pytest tests/on_ray $(ARGS)

dali2: .venv/dali2/.ready
	.venv/dali2/bin/python -m pytest tests/parity/test_dali_2.py $(ARGS)

suites:
	$(PYTHON) -m tests.suites "$(SOURCES)" $(ARGS)

s3: .venv/s3/.ready
	.venv/s3/bin/python -m pytest tests/on_s3 tests/sources/test_remote_files.py $(ARGS)

cookbook: .venv/cookbook/.ready
	.venv/cookbook/bin/python -m pytest -n $(JOBS) tests/programs/test_cookbook.py $(ARGS)

browser: $(TEST_ENV)/.ready docs
	$(if $(SCREENSHOTS),DALI_LIKE_SCREENSHOTS=1) $(TEST_ENV)/bin/python -m pytest tests/browser $(ARGS)

# Texts, states, indexes, databases and statistics of strangers: 10,000 damaged ones of each kind, 150 in `make test`.
MUTATED = tests/pipeline/test_untrusted_pipelines.py tests/faults/test_mutated_states.py tests/monitor/show/test_strangers.py \
    tests/sources/readers/test_lmdb_file.py tests/sources/readers/test_mutated_indexes.py
parity-full: .venv/peers/.ready
	PARITY=full .venv/peers/bin/python -m pytest -n $(JOBS) --dist worksteal tests/sources/composed/test_any_ranks.py \
	    $(MUTATED) $(ARGS)
	PARITY=full .venv/peers/bin/python -m pytest tests/parity/test_programs.py tests/parity/test_loader_batches.py $(ARGS)

lint: $(TEST_ENV)/.ready
	$(TEST_ENV)/bin/python -m tools.stubs
	$(TEST_ENV)/bin/ruff check .
	$(TEST_ENV)/bin/ruff format --check .
	$(TEST_ENV)/bin/mypy
	$(TEST_ENV)/bin/lint-imports --no-logo
	$(TEST_ENV)/bin/python -m tools.wordiness --check

docs: .venv/docs/.ready
	.venv/docs/bin/python -m sphinx -q -n -W --keep-going -b html docs build/docs

described: $(TEST_ENV)/.ready
	$(TEST_ENV)/bin/python -m tools.stubs
	$(TEST_ENV)/bin/python -m benchmarks.operators.report
	$(TEST_ENV)/bin/python -m tools.operator_pages
	$(TEST_ENV)/bin/python -m tools.reader_pages
	$(TEST_ENV)/bin/python -m tools.dali_functions
	$(TEST_ENV)/bin/python -m tools.operator_pictures
	$(TEST_ENV)/bin/python -m tools.diagrams
	$(TEST_ENV)/bin/python -m tools.program_pages
	$(TEST_ENV)/bin/python -m benchmarks.plot

bench: .venv/peers/.ready
	.venv/peers/bin/python -m benchmarks $(ARGS)
	.venv/peers/bin/python -m benchmarks.loader $(LOADER_ARGS)
	.venv/peers/bin/python -m benchmarks.training $(TRAINING_ARGS)

soak: .venv/test/.ready
	.venv/test/bin/python -m benchmarks.soak $(ARGS)

storm: .venv/peers/.ready
	.venv/peers/bin/python -m benchmarks.storm $(ARGS)

gpu:
	$(PYTHON) -m benchmarks.gpu $(ARGS)

dockerfiles: .venv/containers/.ready
	.venv/containers/bin/hadolint docker/Dockerfile docker/Dockerfile.cuda

# ARGS="--certificates /etc/ssl/certs/ca-certificates.crt" where the network has certificates of its own.
containers: dockerfiles build/containers/debian
	$(PYTHON) docker/in_chroot.py docker/Dockerfile --base build/containers/debian --out build/containers/cpu $(ARGS)
	$(PYTHON) docker/in_chroot.py docker/Dockerfile --base build/containers/debian --out build/containers/cpu --target demo $(ARGS)
	$(PYTHON) docker/in_chroot.py docker/Dockerfile.cuda --base build/containers/debian --out build/containers/cuda $(ARGS)
	$(MAKE) sbom BUILT=1

# With BUILT=1, the bills also list Debian's packages of the images that `make containers` has built.
sbom:
	$(PYTHON) docker/sbom.py docker/requirements.txt $(if $(BUILT),--root build/containers/cpu/runtime) --out build/sbom/cpu.cdx.json
	$(PYTHON) docker/sbom.py docker/requirements-demo.txt $(if $(BUILT),--root build/containers/cpu/demo) --out build/sbom/demo.cdx.json
	$(PYTHON) docker/sbom.py docker/requirements-cuda.txt $(if $(BUILT),--root build/containers/cuda/runtime) --out build/sbom/cuda.cdx.json

build/containers/debian:
	rm -rf $@.part
	mkdir -p $@.part
	debootstrap --variant=minbase trixie $@.part
	mv $@.part $@

.venv/demo/.ready: PARTS := --group demo
.venv/test/.ready: PARTS := --group test
.venv/docs/.ready: PARTS := --group docs
.venv/types/.ready: PARTS := --group types
.venv/dist/.ready: PARTS := --group dist
.venv/ray/.ready: PARTS := --group test --group ray
.venv/s3/.ready: PARTS := --group test --group s3
.venv/cookbook/.ready: PARTS := --group test --group s3 --group cookbook
.venv/peers/.ready: PARTS := --group test --group peers
.venv/peers/.ready: AFTER = .venv/peers/bin/python $(PIP) --no-deps --target .venv/peers/apart --group torchvision
.venv/dali2/.ready: PARTS := --group test --group dali2
.venv/containers/.ready: PARTS := --group containers

# Few of the other packages of the tests can do without the lock, and importing one turns it on again. The newest hypothesis may
# have no wheel for these versions, and its sources need a compiler: an older one will do.
FREE_THREADED ?= $(or $(shell command -v python3.14t || command -v python3.13t),build/free_threaded/bin/python3)
ifneq ($(shell cat .venv/free_threaded/.ready 2>/dev/null),$(FREE_THREADED))
.PHONY: .venv/free_threaded/.ready
endif
build/free_threaded/bin/python3:
	$(PYTHON) -m tools.free_threaded build/free_threaded
.venv/free_threaded/.ready: pyproject.toml $(filter build/%,$(FREE_THREADED))
	$(FREE_THREADED) -c "import sys; sys.exit(getattr(sys, '_is_gil_enabled', lambda: True)() and 'this Python has the lock')"
	$(FREE_THREADED) -m venv --clear .venv/free_threaded
	.venv/free_threaded/bin/python $(PIP) --prefer-binary -e . pytest pytest-xdist hypothesis psutil
	echo "$(FREE_THREADED)" > $@

.venv/oldest/.ready: PYTHON := python3.11
.venv/newest/.ready .venv/oldest/.ready: .venv/%/.ready: pyproject.toml tools/dependency_versions.py
	$(PYTHON) -m venv --clear .venv/$*
	.venv/$*/bin/python $(PIP) --upgrade "pip>=25.1"
	.venv/$*/bin/python -m tools.dependency_versions $* > .venv/$*/requirements.txt
	.venv/$*/bin/python $(PIP) -e . -r .venv/$*/requirements.txt
	touch $@

# `pip install --group` needs pip 25.1.
.venv/%/.ready: pyproject.toml
	$(PYTHON) -m venv --clear .venv/$*
	.venv/$*/bin/python $(PIP) --upgrade "pip>=25.1"
	.venv/$*/bin/python $(PIP) -e ".[images]" $(PARTS)
	$(AFTER)
	touch $@

clean:
	rm -rf .venv build .import_linter_cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
