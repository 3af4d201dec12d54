"""Which modules are imported, and when: what is not needed costs nothing, in programs and in spawned workers alike."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import dali_like

#: What a program needs that defines pipelines of sources.
FOR_DEFINING = {
    *("arguments", "calls", "capsules", "checks", "constants", "cpu_tensor_lists", "cpu_tensors", "defining", "definition"),
    *("errors", "expressions", "external_source", "feeding", "fn", "fn._external_source", "fn.decoders", "fn.random"),
    *("fn.reductions", "graph", "graph.expectations", "graph.nodes", "graph.operators", "graph.randomness"),
    *("graph.scratch", "interrupts", "monitor", "monitor.loops", "monitor.monitored", "notices", "pipeline"),
    *("publishing", "ranks", "reporting", "resuming", "saving", "scheduling", "sharding", "source_checks", "sources"),
    *("tensor_arguments", "tensors", "tracing", "types", "workers", "workers.batch", "workers.descriptors"),
    *("workers.geometry", "workers.limits", "workers.memory", "workers.meters", "workers.protocol", "workers.ring"),
    *("workers.samples", "workers.settings", "workers.states", "workers.streams", "workers.transport"),
}

#: What a spawned worker needs that calls a source, and makes arrays of what it returns.
FOR_WORKING = {
    *("capsules", "errors", "inheritance", "interrupts", "types", "workers", "workers.allocator", "workers.batch"),
    "workers.descriptors",
    *("workers.event_loop", "workers.geometry", "workers.info", "workers.limits", "workers.memory", "workers.meters"),
    "workers.output",
    *("workers.parcels", "workers.protocol", "workers.replacing", "workers.requests", "workers.ring", "workers.runner"),
    *("workers.samples", "workers.slot_view"),
    *("workers.shipment", "workers.stages", "workers.states", "workers.streams", "workers.task", "workers.task_log"),
    *("workers.template", "workers.transport", "workers.worker"),
}

#: What a spawned worker of a loader needs besides, which makes samples of a dataset.
FOR_MAKING_SAMPLES = FOR_WORKING | {
    *("data", "data.collate", "data.flavours", "data.forms", "data.making", "data.messages", "data.walks", "on_demand"),
}

#: What the main process needs besides, to start workers and wait for them.
FOR_STARTING = {
    *("workers.cells", "workers.inline_runner", "workers.patience"),
    *("hazards", "introspection", "workers.base", "workers.crew", "workers.dispatch", "workers.hangs", "workers.pipes"),
    *("workers.pool", "workers.recovery", "workers.reports", "workers.scaling", "workers.starting", "workers.tuner"),
    "workers.work",
}

#: What a program needs that runs a pipeline of sources in forked workers.
FOR_RUNNING = {
    *FOR_DEFINING,
    *FOR_WORKING,
    *FOR_STARTING,
    *("device", "device.accelerator", "device.driver", "device.nvml", "engine", "extras", "graph.buffers"),
    *("graph.computation", "graph.executor", "graph.lockstep", "graph.placement", "graph.program", "graph.shards"),
    *("graph.steps", "preflight", "source_states"),
}

#: What a program needs that goes through a map-style dataset with forked workers.
FOR_LOADING = {
    *FOR_MAKING_SAMPLES,
    *FOR_STARTING,
    *("data.index_iterators", "data.serial_pass", "data.worker_pass"),
    *("by_value", "checks", "data.ahead", "data.crew", "data.datasets", "data.deliveries", "data.fingerprints"),
    *("data.iteration", "data.loader", "data.loading", "data.options", "data.own_options", "data.passes", "data.progress"),
    *("data.randomness", "data.samplers", "data.staffing", "data.starts", "data.tallies", "data.worker_handles"),
    *("device", "device.accelerator", "device.driver"),
    *("monitor", "monitor.loops", "monitor.monitored", "notices", "tracing", "workers.settings"),
}

#: Modules of the standard library, and NumPy's, that take long, and are there for few programs.
HEAVY = {
    *("asyncio", "concurrent.futures", "ctypes.util", "email", "http", "json", "multiprocessing", "numpy.testing"),
    *("pathlib", "sqlite3", "ssl", "subprocess", "unittest", "xml"),
}


def run_python(program: str) -> str:
    """What a program writes."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=Path(str(dali_like.__file__)).parents[1],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.stderr == ""
    return result.stdout


def parts(modules: set[str]) -> set[str]:
    """Of modules, those of this package, without its name."""
    return {name.removeprefix("dali_like.") for name in modules if name.startswith("dali_like.")}


def test_the_package_alone_imports_nothing() -> None:
    modules = set(run_python("import sys, dali_like; print(*sys.modules)").split())

    assert parts(modules) == set()
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
    assert parts(for_defining) <= FOR_DEFINING


def test_defining_a_pipeline_imports_nothing_heavy(for_defining: set[str]) -> None:
    assert for_defining & (HEAVY | {"numpy.random"}) == set()


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
    assert parts(for_working) <= FOR_WORKING


def test_a_spawned_worker_imports_nothing_heavy(for_working: set[str]) -> None:
    assert for_working & HEAVY == set()


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
    assert parts(for_running) <= FOR_RUNNING


def test_running_a_pipeline_imports_nothing_heavy_but_futures(for_running: set[str]) -> None:
    assert for_running & HEAVY <= {"concurrent.futures", "ctypes.util"}


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
    assert parts(for_loading) <= FOR_LOADING


def test_a_loader_imports_nothing_heavy_but_the_contexts_of_multiprocessing(for_loading: set[str]) -> None:
    assert for_loading & HEAVY <= {"ctypes.util", "multiprocessing"}


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
    for_making_samples = set(run_python(program).split())

    assert parts(for_making_samples) <= FOR_MAKING_SAMPLES
    assert for_making_samples & HEAVY == set()


@pytest.mark.parametrize(
    "use",
    [
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
    ],
)
def test_operators_are_there_when_they_are_asked_for(use: str) -> None:
    assert run_python(use) == ""


def test_help_shows_operators() -> None:
    text = run_python("import pydoc; from dali_like import fn; print(pydoc.render_doc(fn, renderer=pydoc.plaintext))")

    assert "resize(" in text


@pytest.mark.parametrize(
    "module",
    ["dali_like", "dali_like.fn", "dali_like.ops.random", "dali_like.backend", "dali_like.backend_impl", "dali_like.data"],
)
def test_what_is_not_there_is_an_attribute_error_that_says_so(module: str) -> None:
    program = f"""if True:
        import {module}
        try:
            {module}.nothing
        except AttributeError as error:
            print(error)
    """

    assert run_python(program) == f"module '{module}' has no attribute 'nothing'\n"


def test_special_names_are_looked_for_without_importing_operators() -> None:
    """As many tools do, with every module."""
    program = "import sys; from dali_like import fn; hasattr(fn, '__wrapped__'); print('dali_like.operators' in sys.modules)"

    assert run_python(program) == "False\n"


def test_operators_are_made_once_whatever_threads_ask_for_them() -> None:
    program = """if True:
        import threading, time
        from dali_like import fn
        from dali_like.operators import functions

        made, asking = [], []
        publish = functions.publish

        def publish_slowly(name):
            made.append(name)
            while len(asking) < 8:
                time.sleep(0)
            for _ in range(1000):
                time.sleep(0)  # the others have their turn
            return publish(name)

        def ask():
            asking.append(1)
            fn.resize

        functions.publish = publish_slowly
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(made)
    """

    assert run_python(program) == "['dali_like.fn']\n"
