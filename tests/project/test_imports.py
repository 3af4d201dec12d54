"""Which modules are imported, and when: unneeded ones cost nothing, in programs and in spawned workers alike."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

import pytest

import dali_like

#: Not imported by a program that only defines a pipeline.
NOT_FOR_DEFINING = (
    *(
        "cli",
        "data",
        "device",
        "images",
        "plugin",
        "testing",
        "engine.backends",
        "graph.execution.computation",
        "graph.execution.executor",
    ),
    *(
        "feed.lockstep",
        "graph.execution.placement",
        "graph.execution.program",
        "monitor.show.report",
        "monitor.measure.statistics",
        "monitor.trace.trace",
    ),
    *(
        "operators.machinery.description",
        "operators.machinery.functions",
        "pipeline.checkpoints",
        "pipeline.runtime",
        "pipeline.serialization",
    ),
    *("engine.pool.dispatch", "engine.pool.pool", "engine.pool.recovery", "engine.worker.runner", "engine.worker.worker"),
    *("sources.travel.by_value", "sources.travel.callback_pickler", "sources.remote_files", "tensors.gpu_tensor_lists"),
)

#: Imported by a spawned worker that calls a source: these packages and modules, and nothing else.
FOR_WORKING = (
    *("common", "engine.memory", "engine.worker", "errors", "types"),
    *(
        "engine",
        "engine.backends",
        "engine.backends.forkserver",
        "engine.backends.inherited",
        "engine.backends.main_import",
        "engine.backends.source_bundle",
    ),
)

#: The number of these modules.
MOST_FOR_WORKING = 46

#: Imported besides by a spawned worker of a loader.
FOR_FETCHING = (
    *FOR_WORKING,
    *("data", "data.array_backends", "data.fetcher", "data.iterable_walk", "data.lookups"),
    *("data.messages", "data.sample_schema", "feed", "feed.shards", "sources", "sources.collate"),
)

#: Not imported by a program that runs a pipeline of sources in forked workers.
NOT_FOR_RUNNING = (
    *("cli", "data", "images", "plugin", "testing", "device.copier", "device.cuda", "device.opening", "device.device_array"),
    *("engine.backends.threads", "engine.backends.ray.ray_workers", "graph.execution.gpu_sources"),
    *("engine.backends.source_bundle", "engine.pool.host_budget", "engine.pool.tuner", "engine.worker.parts"),
    "feed.first_batches",
    *(
        "graph.execution.inputs",
        "monitor.show.report",
        "monitor.measure.statistics",
        "monitor.trace.trace",
        "operators.machinery.functions",
    ),
    *("pipeline.checkpoints", "pipeline.serialization", "sources.travel.by_value", "sources.travel.callback_pickler"),
    *("sources.remote_files", "tensors.gpu_tensor_lists"),
)

#: Not imported by a program that iterates over a map-style dataset with forked workers.
NOT_FOR_LOADING = (
    *("cli", "fn", "graph", "images", "operators", "ops", "pipeline", "plugin", "testing", "tensors", "device.copier"),
    *("device.cuda", "device.opening", "engine.backends.threads", "engine.backends.ray.ray_workers"),
    *(
        "monitor.show.report",
        "monitor.measure.statistics",
        "monitor.trace.trace",
        "sources.travel.callback_pickler",
        "sources.remote_files",
    ),
)

#: Modules of the standard library, and NumPy's, that take long, and are there for few programs.
HEAVY = {
    *("asyncio", "concurrent.futures", "ctypes.util", "email", "http", "json", "multiprocessing", "numpy.testing"),
    *("pathlib", "selectors", "socket", "sqlite3", "ssl", "subprocess", "unittest", "xml"),
}

#: Needed for operators, objects, random numbers or messages, and not for batches of arrays from a source.
NOT_FOR_SOURCES = {"_hashlib", "cloudpickle", "logging", "numpy.random", "threadpoolctl", "uuid"}


def run_python(program: str) -> str:
    """The output of a program."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=Path(str(dali_like.__file__)).parents[1],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.stderr == ""
    return result.stdout


@functools.cache
def of_numpy() -> set[str]:
    """The modules that NumPy imports itself: NumPy 1 imports more."""
    return set(run_python("import sys, numpy; print(*sys.modules)").split())


def parts(modules: set[str]) -> set[str]:
    """Return the modules of this package that files define, without its name."""
    names = {name.removeprefix("dali_like.") for name in modules if name.startswith("dali_like.")}
    return names - {*dali_like.ALIASES}


def within(modules: set[str], places: tuple[str, ...]) -> set[str]:
    """Return the modules that are one of these places, or inside one."""
    leaves = ("engine", "engine.backends", "data")  # the package, and not its modules
    return {
        name
        for name in parts(modules)
        if name in places or any(name.startswith(f"{place}.") for place in places if place not in leaves)
    }


def test_the_package_alone_imports_next_to_nothing() -> None:
    modules = set(run_python("import sys, dali_like; print(*sys.modules)").split())

    assert parts(modules) == {"common", "common.lazy_names"}
    assert "numpy" not in modules


@pytest.fixture(scope="module")
def for_defining() -> set[str]:
    """The modules of a program that defines a pipeline."""
    program = """if True:
        import sys
        from dali_like import fn, pipeline_def, types

        @pipeline_def(batch_size=4, py_num_workers=2)
        def pipeline():
            return fn.external_source(source=lambda info: 1, batch=False, parallel=True, dtype=types.INT64)

        pipe = pipeline()
        print(*sys.modules)
    """
    return set(run_python(program).split())


def test_defining_a_pipeline_imports_neither_workers_nor_operators(for_defining: set[str]) -> None:
    assert within(for_defining, NOT_FOR_DEFINING) == set()


def test_defining_a_pipeline_imports_nothing_heavy(for_defining: set[str]) -> None:
    assert for_defining & (HEAVY | {"numpy.random"}) - of_numpy() == set()


@pytest.fixture(scope="module")
def for_working() -> set[str]:
    """The modules of a spawned worker."""
    program = """if True:
        import sys
        from dali_like import fn, pipeline_def, types

        def modules(info):
            return " ".join(sys.modules)

        @pipeline_def(batch_size=1, py_start_method="spawn")
        def pipeline():
            return fn.external_source(source=modules, batch=False, parallel=True, dtype=types.OBJECT)

        pipe = pipeline()
        print(pipe.run()[0][0])
        pipe.close()
    """
    return set(run_python(program).split())


def test_a_spawned_worker_imports_the_engine_and_nothing_above(for_working: set[str]) -> None:
    assert parts(for_working) - within(for_working, FOR_WORKING) == set()


def test_a_spawned_worker_imports_few_modules(for_working: set[str]) -> None:
    """Each takes a fifth of a millisecond or more, before the first sample."""
    assert len(parts(for_working)) <= MOST_FOR_WORKING


def test_a_spawned_worker_imports_nothing_heavy(for_working: set[str]) -> None:
    assert for_working & HEAVY - of_numpy() == set()


@pytest.fixture(scope="module")
def for_running() -> set[str]:
    """The modules of a program that has got a batch from forked workers."""
    program = """if True:
        import sys
        from dali_like import fn, pipeline_def, types

        @pipeline_def(batch_size=1)
        def pipeline():
            return fn.external_source(source=lambda info: 1, batch=False, parallel=True, dtype=types.INT64)

        pipe = pipeline()
        pipe.run()
        print(*sys.modules)
        pipe.close()
    """
    return set(run_python(program).split())


def test_running_a_pipeline_imports_nothing_for_gpus_pickling_states_and_statistics(
    for_running: set[str],
) -> None:
    assert within(for_running, NOT_FOR_RUNNING) == set()


def test_running_a_pipeline_imports_nothing_heavy(for_running: set[str]) -> None:
    assert for_running & (HEAVY | NOT_FOR_SOURCES) - of_numpy() == set()


@pytest.fixture(scope="module")
def for_loading() -> set[str]:
    """The modules of a program that has got a batch from the forked workers of a loader."""
    program = """if True:
        import sys
        from dali_like.data import DataLoader

        for batch in DataLoader([1], num_workers=1, multiprocessing_context="fork"):
            pass
        print(*sys.modules)
    """
    return set(run_python(program).split())


def test_a_loader_imports_neither_pipelines_nor_transforms(for_loading: set[str]) -> None:
    assert within(for_loading, NOT_FOR_LOADING) == set()


def test_a_loader_imports_nothing_heavy_but_contexts_of_multiprocessing_and_random_numbers(for_loading: set[str]) -> None:
    of_contexts = {"multiprocessing", "selectors", "socket"}
    assert for_loading & (HEAVY | NOT_FOR_SOURCES) - of_numpy() <= {*of_contexts, "numpy.random", "_hashlib"}


def test_a_spawned_worker_of_a_loader_imports_nothing_of_the_main_process() -> None:
    program = """if True:
        from dali_like.data import DataLoader

        class Modules:
            def __len__(self):
                return 1

            def __getitem__(self, index):
                import sys
                return " ".join(sys.modules)

        for modules in DataLoader(Modules(), num_workers=1, multiprocessing_context="spawn"):
            print(*modules)
    """
    for_fetching = set(run_python(program).split())

    assert parts(for_fetching) - within(for_fetching, FOR_FETCHING) == set()
    assert for_fetching & HEAVY - of_numpy() == set()


#: Programs in which each name must be there, after any other imports.
USES = [
    "import dali_like; dali_like.fn.resize",
    "import dali_like; dali_like.fn.decoders.image",
    "from dali_like import fn; fn.random.uniform",
    "import dali_like.fn as fn; fn.resize",
    "from dali_like.fn import resize",
    "from dali_like.fn.decoders import image",
    "from dali_like.fn import *; resize",
    "from dali_like import *; ops.Resize",
    "from dali_like.ops import *; Resize; random.Uniform",
    "import dali_like.ops.reductions; dali_like.ops.reductions.Mean",
    "import pickle; from dali_like import fn; assert pickle.loads(pickle.dumps(fn.resize)) is fn.resize",
    "from dali_like import fn; assert 'resize' in dir(fn)",
    "from dali_like import fn; assert 'resize' in fn.__all__",
    "import dali_like; assert 'Pipeline' in dir(dali_like)",
    "import dali_like.backend; dali_like.backend.TensorListGPU",
    "import dali_like; dali_like.backend_impl.TensorListGPU",
    "from dali_like import data; data.ImageFolder; data.transforms.Resize",
    "import dali_like.data; dali_like.data.samplers.RandomSampler",
    "from dali_like.data import *; DataLoader; get_worker_info",
    "from dali_like import plugin; plugin.LastBatchPolicy; plugin.base_iterator.BaseIterator",
    "import dali_like.data; assert 'DataLoader' in dir(dali_like.data)",
    "import dali_like as dali; dali.pipeline.Pipeline; dali.pipeline.pipeline_def",
    "import dali_like as dali; dali.backend.TensorCPU; dali.data_node.DataNode; dali.external_source.external_source",
    "import dali_like as dali; dali.math.sqrt; dali.pickling.pickle_by_value; dali.types.FLOAT",
    "import dali_like as dali; dali.tensors.TensorListCPU; dali.plugin.base_iterator; dali.remote.RemoteFiles",
    "import dali_like as dali; dali.ops.ExternalSource; dali.fn.external_source; dali.errors.DaliLikeError",
]
#: Executes programs, each in a fork of an interpreter that has imported NumPy and nothing of this library.
EXECUTING = """
import os
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # Python 3.12 warns of forks of processes with several threads
import numpy
for use in {uses!r}:
    if (pid := os.fork()) == 0:
        try:
            exec(use, {{"__name__": "__main__"}})
        except BaseException as error:
            print(f"{{use}}: {{error!r}}", flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
"""


def test_operators_are_there_when_they_are_asked_for() -> None:
    assert run_python(EXECUTING.format(uses=USES)) == ""


def test_help_shows_operators() -> None:
    text = run_python("import pydoc; from dali_like import fn; print(pydoc.render_doc(fn, renderer=pydoc.plaintext))")

    assert "resize(" in text


@pytest.mark.parametrize(
    "module",
    ["dali_like", "dali_like.fn", "dali_like.ops.random", "dali_like.backend", "dali_like.backend_impl", "dali_like.data"],
)
def test_a_missing_name_is_an_attribute_error_that_names_it(module: str) -> None:
    program = f"""if True:
        import {module}
        try:
            {module}.nothing
        except AttributeError as error:
            print(error)
    """

    assert run_python(program).startswith(f"module '{module}' has no attribute 'nothing'")


def test_special_names_are_looked_for_without_importing_operators() -> None:
    """As many tools do, with every module."""
    program = "import sys; from dali_like import fn; hasattr(fn, '__wrapped__'); print('dali_like.operators' in sys.modules)"

    assert run_python(program) == "False\n"


def test_operators_are_made_once_when_several_threads_ask_for_them() -> None:
    program = """if True:
        import threading, time
        from dali_like import fn
        from dali_like.operators.machinery import functions

        made, asking = [], []
        populate = functions.populate

        def populate_slowly(name):
            made.append(name)
            while len(asking) < 8:
                time.sleep(0)
            for _ in range(1000):
                time.sleep(0)  # the others have their turn
            return populate(name)

        def ask():
            asking.append(1)
            fn.resize

        functions.populate = populate_slowly
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(made)
    """

    assert run_python(program) == "['dali_like.fn']\n"
