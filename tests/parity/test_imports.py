"""Which modules are imported by programs with PyTorch's names; see tests/project/test_imports.py."""

from __future__ import annotations

import pytest

from tests.project.test_imports import FOR_FETCHING, NOT_FOR_LOADING, parts, run_python, within

pytest.importorskip("torch")

#: Imported besides by a spawned worker of a loader of tensors.
FOR_TENSORS = (
    *("plugin", "plugin.pytorch", "plugin.pytorch.datapipes", "plugin.pytorch.leaves", "plugin.pytorch.tensor_backend"),
    *("plugin.pytorch.tensor_pickling", "sources", "sources.travel.by_value"),
)


def test_a_loader_of_tensors_imports_neither_pipelines_nor_operators() -> None:
    program = """if True:
        import sys
        from dali_like.plugin.pytorch import DataLoader

        for batch in DataLoader([1], num_workers=1, multiprocessing_context="fork"):
            pass
        print(*sys.modules)
    """

    modules = set(run_python(program).split())

    unwanted = {*NOT_FOR_LOADING, "plugin.pytorch.iterators", "plugin.pytorch.pinning"} - {"plugin"}
    assert within(modules, tuple(unwanted)) == set()


def test_spawned_worker_of_a_tensor_loader_imports_only_the_code_for_samples() -> None:
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

    modules = set(run_python(program).split())

    assert parts(modules) - within(modules, FOR_FETCHING) - set(FOR_TENSORS) == set()


def test_names_for_pipelines_are_imported_on_first_use() -> None:
    program = """if True:
        from dali_like.plugin.pytorch import DALIGenericIterator, LastBatchPolicy, TorchPythonFunction, feed_ndarray, fn

        fn.torch_python_function
    """

    assert run_python(program) == ""
