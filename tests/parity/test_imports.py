"""Which modules are imported by programs with PyTorch's names; see tests/project/test_imports.py."""

from __future__ import annotations

import pytest

from tests.project.test_imports import FOR_LOADING, FOR_MAKING_SAMPLES, parts, run_python

pytest.importorskip("torch")

#: Samples and batches as tensors.
FOR_TENSORS = {
    *("by_value", "plugin", "plugin._datapipes", "plugin._torch_flavour", "plugin._torch_leaves", "plugin._torch_tensors"),
}

#: The loader itself.
FOR_LOADING_TENSORS = FOR_TENSORS | {"extras", "plugin._torch_functions", "plugin._torch_samplers", "plugin.pytorch"}


def test_a_loader_of_tensors_imports_neither_pipelines_nor_operators() -> None:
    program = """if True:
        import sys
        from dali_like.plugin.pytorch import DataLoader

        for batch in DataLoader([1], num_workers=1, multiprocessing_context="fork"):
            pass
        print(*sys.modules)
    """

    assert parts(set(run_python(program).split())) <= (FOR_LOADING - {"data.loader"}) | FOR_LOADING_TENSORS


def test_a_spawned_worker_of_a_loader_of_tensors_imports_what_makes_samples() -> None:
    program = """if True:
        from dali_like.plugin.pytorch import DataLoader

        class Modules:
            def __len__(self):
                return 1

            def __getitem__(self, index):
                import sys
                return " ".join(sys.modules)

        for modules in DataLoader(Modules(), num_workers=1, multiprocessing_context="spawn"):
            print(*modules)
    """

    assert parts(set(run_python(program).split())) <= FOR_MAKING_SAMPLES | FOR_TENSORS


def test_what_is_for_pipelines_is_there_when_it_is_asked_for() -> None:
    program = """if True:
        from dali_like.plugin.pytorch import DALIGenericIterator, LastBatchPolicy, TorchPythonFunction, feed_ndarray, fn

        fn.torch_python_function
    """

    assert run_python(program) == ""
