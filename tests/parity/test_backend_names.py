"""Names that programs and DALI's test helpers take from `backend`, `ops`, `plugin_manager` and `pipeline.experimental`."""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

import nvidia.dali.backend as theirs
import nvidia.dali.ops as their_ops
import nvidia.dali.pipeline.experimental as their_experimental
import nvidia.dali.plugin_manager as their_plugin_manager

from dali_like import backend, backend_impl, ops, plugin_manager
from dali_like.compat.op_schemas import schemas
from dali_like.pipeline import experimental
from tests.parity.test_operator_schemas import ADDED_OF_DALI_2, OF_DALI_2

pytestmark = pytest.mark.peers

#: Of the runtime, which is another one here.
OF_THE_RUNTIME = {
    *("DLDeviceType", "EagerOperatorCPU", "EagerOperatorGPU", "EagerOperatorMixed"),
    *("ExternalContextCheckpoint", "GetCUDACurrentDevice", "GetCudaVersion", "GetCufftVersion", "GetCxx11AbiFlag"),
    *("GetDeviceBufferGrowthFactor", "GetHostBufferGrowthFactor", "GetHostBufferShrinkThreshold", "GetNppVersion"),
    *("GetNvimgcodecVersion", "GetNvjpegVersion", "Init", "IsDriverInitialized", "OpSpec", "Pipeline", "PipelineDebug"),
    *("SetCUDACurrentDevice", "SharedMem", "Stream"),
}
#: Methods of schemas about DALI's own documentation and its OpSpec.
OF_THE_SPECS = {
    *("AllowsSequences", "AppendKwargsSection", "CalculateAdditionalOutputs", "CalculateOutputs", "CanUseAutoInputDox"),
    *("CheckArgs", "DeprecationMessage", "GetCallDox", "GetCallSignatureInputs", "GetInputDevice", "GetInputType"),
    *("HasCallDox", "HasOutputFn", "HasRandomStateArg", "IsSequenceOperator", "IsStateful", "SupportsInPlace"),
    "SupportsVolumetric",
}
#: Arguments of ours, and arguments with another type.
OTHERS = {
    "remote_options",
    "min_size",
    "bytes_per_sample_hint",
    "hybrid_huffman_threshold",
    "image_type",
}
_OF_REGIONS = ("in_ids", "in_anchors", "in_anchors_rel", "shapes", "shapes_rel", "out_anchors", "out_anchors_rel")
OTHER_TYPES = {
    *(("Normalize", "mean"), ("Normalize", "stddev"), ("Erase", "axis_names")),
    ("transforms__Rotation", "angle"),  # one for each frame
    *(("MultiPaste", name) for name in _OF_REGIONS),
    *(("AudioResample", "out_length"), ("experimental__AudioResample", "out_length")),  # INT64
}


def public(module: object) -> set[str]:
    return {name for name in dir(module) if name[0].isupper()}


def test_version_of_cuda_is_that_of_the_build() -> None:
    assert backend.__cuda_version__ == theirs.__cuda_version__
    assert backend.types.FLOAT is backend_impl.types.FLOAT


def capsules() -> dict[str, Callable[[], object]]:
    array = np.arange(3.0)

    return {
        "unread": array.__dlpack__,
        "array": lambda: array,
        "none": lambda: None,
        "number": lambda: 5,
    }


class _Once:
    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: object) -> object:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@pytest.mark.parametrize("kind", capsules())
def test_check_of_a_capsule(kind: str) -> None:
    make = capsules()[kind]

    assert backend.CheckDLPackCapsule(make()) == tuple(theirs.CheckDLPackCapsule(make()))


def test_capsule_that_has_been_read_and_other_capsules_are_errors() -> None:
    capsule = np.arange(3.0).__dlpack__()
    kept = np.from_dlpack(_Once(capsule))

    for wrong in (capsule, datetime.datetime_CAPI):  # type: ignore[attr-defined]
        for library in (backend, theirs):
            with pytest.raises(RuntimeError, match=r"only once|read once"):
                library.CheckDLPackCapsule(wrong)
    assert kept.size == 3


def test_capsule_can_be_read_after_its_check() -> None:
    capsule = np.arange(3.0).__dlpack__()

    backend.CheckDLPackCapsule(capsule)

    assert np.from_dlpack(_Once(capsule)).tolist() == [0.0, 1.0, 2.0]


def test_names_of_the_backend() -> None:
    assert public(theirs) - set(backend.__all__) == OF_THE_RUNTIME


def test_methods_of_schemas() -> None:
    assert public(theirs.OpSchema) - public(backend.OpSchema) == OF_THE_SPECS


@pytest.mark.parametrize("name", sorted(set(schemas()) & {*theirs.RegisteredCPUOps(), *theirs.RegisteredMixedOps()}))
def test_schemas_say_the_same(name: str) -> None:
    ours, schema = backend.GetSchema(name), theirs.GetSchema(name)

    for ask in ("Name", "OperatorName", "ModulePath", "HasRandomSeedArg"):
        assert getattr(ours, ask)() == getattr(schema, ask)(), ask
    assert not ours.IsDeprecated() or ours.DeprecatedInFavorOf() == schema.DeprecatedInFavorOf()
    assert set(ours.GetSupportedBackends()) <= set(schema.GetSupportedBackends())
    for argument in ours.GetArgumentNames():
        of_dali_2 = argument in {added for _, added in ADDED_OF_DALI_2} and not schema.HasArgument(argument)
        if argument in OTHERS or of_dali_2 or (name, argument) in OTHER_TYPES or schema.IsDeprecatedArg(argument):
            continue
        kind = schema.GetArgumentType(argument).name
        if "PYTHON_OBJECT" not in kind and "LAYOUT_VEC" not in kind:
            assert ours.GetArgumentType(argument).name == kind, argument
        assert ours.IsArgumentOptional(argument) == schema.IsArgumentOptional(argument), argument


def test_sets_of_operators() -> None:
    """Some operators need a GPU only in DALI."""
    everywhere = their_ops.cpu_ops() | their_ops.gpu_ops()
    in_their_plugins = {"TorchPythonFunction", "experimental__NumbaFunction"}
    assert ops.cpu_ops() - everywhere == in_their_plugins | {name.capitalize() for name in OF_DALI_2}
    assert ops.mixed_ops() <= their_ops.mixed_ops()


def test_signatures() -> None:
    for name in ("load_library", "load_directory"):
        assert [*inspect.signature(getattr(plugin_manager, name)).parameters] == [
            *inspect.signature(getattr(their_plugin_manager, name)).parameters
        ]
    assert callable(their_experimental.pipeline_def)
    assert callable(experimental.pipeline_def)


@pytest.mark.parametrize("name", ["Foo", "resize"])
def test_unknown_operators(name: str) -> None:
    for module in (backend, theirs):
        assert module.TryGetSchema(name) is None
        with pytest.raises(KeyError, match=f"Schema for operator '{name}' not registered"):
            module.GetSchema(name)
