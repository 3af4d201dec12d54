"""The package as users import it: its names, the cost of its import, and the truth of its version and metadata."""

from __future__ import annotations

import doctest
import functools
import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

import dali_like
from dali_like import data, errors, fn, ops, pickling, pipeline, plugin, tensors, types
from dali_like.fn import decoders
from dali_like.operators.machinery.description import descriptions
from dali_like.operators.machinery.reader_functions import own_reader_descriptions
from dali_like.pipeline import definition
from tests.custom_operators import removed_at_the_end

PACKAGE = Path(str(dali_like.__file__)).parent
FILES = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in PACKAGE.rglob("*.py")}
#: JAX warns of every fork as soon as it is imported; tests/parity/test_jax.py looks at these.
FOR_JAX = "dali_like.plugin.jax"
#: The second one changes the process that imports it.
APART = {"dali_like", "dali_like.autoload"}
MODULES = sorted({name.removesuffix(".__init__") for name in FILES if not name.startswith(FOR_JAX)} - APART)
#: These cannot be imported without PyTorch.
FOR_PYTORCH = (
    "dali_like.plugin.pytorch",
    "dali_like.engine.backends.inherited_tensors",
    "dali_like.running.baseline_loader",
    "dali_like.running.run_loader",
)
if importlib.util.find_spec("torch") is None:
    MODULES = [name for name in MODULES if not name.startswith(FOR_PYTORCH)]
if importlib.util.find_spec("torchdata") is None:
    MODULES = [name for name in MODULES if not name.startswith("dali_like.experimental.dynamic.pytorch")]


def parts_of_fn(name: str, module: str = "") -> set[str]:
    """The operators and readers that stand in a module of ``fn`` or ``ops``, and the modules in it."""
    described = (*descriptions().values(), *own_reader_descriptions().values())
    paths = [getattr(description, name) for description in described]
    return {path.removeprefix(module).split(".")[0] for path in paths if path.startswith(module)}


BACKEND = {
    *("TensorCPU", "TensorGPU", "TensorListCPU", "TensorListGPU"),
    *("GetSchema", "OpSchema", "TryGetSchema", "RegisteredCPUOps", "RegisteredGPUOps", "RegisteredMixedOps"),
    *("GetCUDADeviceCount", "LoadDefaultPlugins", "LoadDirectory", "LoadLibrary", "check_cuda_runtime"),
    *("PreallocateDeviceMemory", "PreallocatePinnedMemory", "ReleaseUnusedMemory", "RestrictPinnedMemUsage"),
    *("CheckDLPackCapsule", "__cuda_version__", "types"),
    *("SetBufferGrowthFactor", "SetDeviceBufferGrowthFactor", "SetHostBufferGrowthFactor", "SetHostBufferShrinkThreshold"),
}

#: Public names, by module.
PUBLIC = {
    "dali_like": {
        *("OperatorConcurrency", "Pipeline", "StreamPolicy", "WorkerInfo", "__version__"),
        *(
            "backend",
            "backend_impl",
            "connect",
            "data_node",
            "errors",
            "fn",
            "get_worker_info",
            "math",
            "newaxis",
            "operator",
            "ops",
            "pickling",
            "pipeline_def",
            "progress",
            "show",
            "tensors",
            "tfrecord",
            "types",
            "use_cpu",
        ),
    },
    "dali_like.backend": BACKEND,
    "dali_like.backend_impl": BACKEND,
    "dali_like.data": {
        *("ArrayDataset", "ChainDataset", "ConcatDataset", "Dataset", "DatasetFolder", "ImageFolder", "IterableDataset"),
        "DataLoader",
        *("StackDataset", "Subset", "random_split"),
        *("BatchSampler", "DistributedSampler", "RandomSampler", "Sampler", "SamplerIterator", "SequentialSampler"),
        "ShardedBatchSampler",
        *("SubsetRandomSampler", "WeightedRandomSampler", "resumable", "BlockPermutation", "Permutation"),
        *("CachedDataset", "ComposedDataset", "ComposedIterator", "merge_states"),
        *("SharedDict", "SharedList"),
        *("default_collate", "default_collate_fn_map", "default_convert", "Jagged", "jagged_collate"),
        *("LengthBatchSampler", "Padded", "pad_collate"),
        *("CenterCrop", "Compose", "InterpolationMode", "Normalize", "RandomHorizontalFlip", "RandomResizedCrop"),
        *("Resize", "ToTensor"),
        *("WorkerInfo", "get_worker_info"),
    },
    "dali_like.data_node": {"DataNode"},
    "dali_like.fn": {"cache", "external_source", *parts_of_fn("path")},
    "dali_like.fn.decoders": parts_of_fn("path", "decoders."),
    "dali_like.fn.io": {"file"},
    "dali_like.fn.io.file": {"read"},
    "dali_like.ops": {"Compose", "ExternalSource", "cpu_ops", "gpu_ops", "mixed_ops", *parts_of_fn("class_path")},
    "dali_like.pickling": {"pickle_by_value"},
    "dali_like.plugin": {"BaseIterator", "DALIGenericIterator", "DALIRaggedIterator", "LastBatchPolicy"},
    "dali_like.readers": {
        *("BrokenFileError", "FileNames", "FileReadError", "MissingFileError", "Reader", "StoredFiles", "reader"),
    },
    "dali_like.tensors": {"TensorCPU", "TensorGPU", "TensorListCPU", "TensorListGPU"},
    "dali_like.types": {
        *("ANY_DATA", "BGR", "GRAY", "RGB", "YCbCr"),
        *("INTERP_CUBIC", "INTERP_GAUSSIAN", "INTERP_LANCZOS3", "INTERP_LINEAR", "INTERP_NN", "INTERP_TRIANGULAR"),
        *("STRING", "FEATURE", "IMAGE_TYPE", "DATA_TYPE", "INTERP_TYPE", "TENSOR_LAYOUT", "PYTHON_OBJECT"),
        *("CUDAStream", "TensorLayout"),
        *("BOOL", "FLOAT", "FLOAT16", "FLOAT64", "INT8", "INT16", "INT32", "INT64", "NO_TYPE", "OBJECT"),
        *("UINT8", "UINT16", "UINT32", "UINT64"),
        *("BatchInfo", "CPU_ONLY_DEVICE_ID", "Constant", "DALIDataType", "DALIImageType", "DALIInterpType"),
        *("NCHW", "NFCHW", "NFHWC", "NHWC", "SAME"),
        *("PipelineAPIType", "SampleInfo", "ScalarConstant"),
        *("to_dali_type", "to_numpy_type"),
    },
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names(module: str) -> None:
    exported = importlib.import_module(module).__all__

    assert set(exported) == PUBLIC[module]
    assert len(exported) == len(set(exported))


def test_all_names_are_there() -> None:
    modules = [importlib.import_module(name) for name in ("dali_like", *MODULES)]

    assert [
        (module.__name__, member)
        for module in modules
        for member in getattr(module, "__all__", [])
        if not hasattr(module, member)
    ] == []


def test_star_import_gives_the_public_names() -> None:
    namespace: dict[str, object] = {}

    exec("from dali_like import *", namespace)

    assert set(namespace) - {"__builtins__"} == PUBLIC["dali_like"]


@pytest.mark.parametrize("module", [fn, decoders, tensors, types])
def test_dir_shows_the_public_names(module: ModuleType) -> None:
    assert set(dir(module)) == PUBLIC[module.__name__]


def test_names_are_where_programs_for_dali_look_for_them() -> None:
    from dali_like.backend import TensorListCPU
    from dali_like.backend_impl import TensorCPU
    from dali_like.data_node import DataNode
    from dali_like.pipeline import Pipeline, do_not_convert, pipeline_def

    assert (Pipeline, pipeline_def) == (dali_like.Pipeline, dali_like.pipeline_def)
    assert DataNode is pipeline.DataNode
    assert (TensorListCPU, TensorCPU) == (tensors.TensorListCPU, tensors.TensorCPU)
    assert do_not_convert is definition.do_not_convert
    with pytest.raises(AttributeError, match="no attribute 'conditionals'"):
        _ = pipeline.conditionals


def test_public_functions_and_classes_are_documented() -> None:
    modules = [dali_like, data, errors, fn, decoders, ops, pickling, plugin, tensors, types]

    undocumented = [
        name
        for module in modules
        for name in module.__all__
        if callable(member := getattr(module, name)) and not inspect.getdoc(member)
    ]

    assert undocumented == []


def test_every_module_has_a_docstring() -> None:
    modules = map(importlib.import_module, MODULES)

    assert [
        module.__name__ for module in modules if not module.__doc__ and Path(str(module.__file__)).read_text() != ""
    ] == []


def test_version_is_that_of_the_distribution() -> None:
    try:
        version = metadata.version("dali-like")
    except metadata.PackageNotFoundError:
        pytest.skip("runs from a source tree that is not installed")

    assert version == dali_like.__version__


@pytest.mark.parametrize(
    "module", ["cv2", "torch", "jax", "simplejpeg", "multiprocessing", "threadpoolctl", "nvidia", "PIL"]
)
def test_import_is_light(module: str) -> None:
    assert module not in modules_after_import()


def test_import_without_optional_modules() -> None:
    """Nothing but the decoders needs the extra."""
    program = (
        "import sys; sys.modules['cv2'] = sys.modules['simplejpeg'] = sys.modules['torch'] = None\n"
        "import numpy as np; from dali_like import fn, pipeline_def\n"
        "@pipeline_def(batch_size=2, py_num_workers=1)\n"
        "def pipeline(): return fn.external_source(source=lambda info: np.array(7), batch=False, parallel=True)\n"
        "pipe = pipeline(); print(pipe.run()[0].as_array().tolist()); pipe.close()\n"
    )

    assert run_python(program) == "[7, 7]\n"


@pytest.mark.parametrize(("framework", "module", "minimum"), [("pytorch", "torch", "2.6"), ("jax", "jax", "0.5")])
def test_plugins_without_their_framework_name_the_package_to_install(framework: str, module: str, minimum: str) -> None:
    program = (
        f"import sys; sys.modules['{module}'] = None\n"
        f"try: import dali_like.plugin.{framework}\n"
        "except ImportError as error: print(error)\n"
    )

    expected = f"dali_like.plugin.{framework} needs {module}: pip install '{module}>={minimum}'\n"
    assert run_python(program) == expected


@functools.cache
def modules_after_import() -> set[str]:
    """The modules that pipelines and operators load."""
    return set(
        run_python("import sys, dali_like.pipeline.runtime; from dali_like import *; fn.resize; print(*sys.modules)").split()
    )


def run_python(program: str) -> str:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=Path(dali_like.__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.stderr == ""
    return result.stdout


# The exceptions


def exceptions() -> dict[str, type[BaseException]]:
    """All that the module defines, without warnings."""
    return {
        name: member
        for name, member in vars(errors).items()
        if inspect.isclass(member) and issubclass(member, BaseException) and not issubclass(member, Warning)
        if member.__module__ == errors.__name__
    }


def tree_of_docstring() -> dict[str, tuple[str | None, list[str]]]:
    """From the drawing in the module's docstring: the parent of each exception, and the builtins in brackets."""
    tree: dict[str, tuple[str | None, list[str]]] = {}
    path: list[str] = []
    for line in str(errors.__doc__).splitlines():
        match = re.match(r"    ((?:[| ]   )*(?:[|`]-- )?)(\w+)(?:\(([\w, ]+)\))?(?:\s|$)", line)
        if match:
            depth = len(match[1]) // 4
            del path[depth:]
            tree[match[2]] = (path[-1] if path else None, match[3].split(", ") if match[3] else [])
            path.append(match[2])
    return tree


def test_every_exception_is_exported() -> None:
    assert set(errors.__all__) == {*exceptions(), "UnstableWarning"}


def test_every_exception_is_in_the_tree() -> None:
    assert set(tree_of_docstring()) == set(exceptions())


@pytest.mark.parametrize("name", exceptions())
def test_tree_shows_the_bases(name: str) -> None:
    parent, builtins = tree_of_docstring()[name]

    bases = [base.__name__ for base in exceptions()[name].__bases__]

    assert bases == [parent or "Exception", *builtins]


def test_exceptions_share_a_base_class() -> None:
    assert all(issubclass(exception, errors.DaliLikeError) for exception in exceptions().values())


# Examples


def source_of(name: str) -> str:
    """Return the source of a module of the package."""
    path = PACKAGE.parent.joinpath(*name.split("."))
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8")


@pytest.mark.parametrize("name", [name for name in ("dali_like", *MODULES) if ">>> " in source_of(name)])
def test_examples_in_docstrings(name: str) -> None:
    module: ModuleType = importlib.import_module(name)

    with removed_at_the_end():
        result = doctest.testmod(module)

    assert result.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)

    documented = {
        test.name
        for name in MODULES
        for test in finder.find(importlib.import_module(name))
        if test.examples and ".".join(test.name.split(".")[:-1]) == name
    }

    assert {name.rpartition(".")[2] for name in documented} >= {"pipeline_def", "TensorCPU", "TensorListCPU", "to_dali_type"}
