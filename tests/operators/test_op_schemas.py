"""Schemas of operators, and other names of DALI's backend; tests/parity/test_backend_names.py compares them with DALI's."""

from __future__ import annotations

from typing import Any

import pytest

from dali_like import backend, backend_impl, fn, ops, plugin_manager, types
from dali_like.errors import PluginError


def test_schema_of_an_operator() -> None:
    schema = backend.GetSchema("Resize")

    assert (schema.Name(), schema.OperatorName(), schema.ModulePath()) == ("Resize", "Resize", [])
    assert (schema.MinNumInput(), schema.MaxNumInput()) == (1, 1)
    assert schema.GetSupportedBackends() == ["cpu"]
    assert "HWC" in schema.GetSupportedLayouts(0)
    assert schema.Dox() == fn.resize.__doc__.partition("\n\nArgs:")[0]
    assert not schema.IsDeprecated()
    assert not schema.HasRandomSeedArg()


def test_arguments_of_an_operator() -> None:
    schema = backend.GetSchema("Resize")

    assert {"size", "mode", "bytes_per_sample_hint"} < set(schema.GetArgumentNames())
    assert schema.GetArgumentType("interp_type") is types.INTERP_TYPE
    assert schema.GetArgumentType("mode") is types.STRING
    assert schema.GetArgumentDox("size").startswith("size of the result")
    assert schema.IsArgumentOptional("size")
    assert schema.IsTensorArgument("size")
    assert schema.GetArgumentDefaultValueString("mode") == "'default'"
    assert not backend.GetSchema("Cast").IsArgumentOptional("dtype")
    assert backend.GetSchema("random__Uniform").HasRandomSeedArg()
    assert backend.GetSchema("Cat").MaxNumInput() == 999
    assert backend.GetSchema("Cat").GetInputName(7) == "inputs"
    assert backend.GetSchema("Crop").DeprecatedArgInfo("output_dtype")["renamed_to"] == "dtype"


def test_deprecated_names_have_schemas() -> None:
    schema = backend.GetSchema("ImageDecoder")

    assert schema.IsDeprecated()
    assert schema.DeprecatedInFavorOf() == "decoders__Image"


@pytest.mark.parametrize("ask", ["GetArgumentType", "GetArgumentDox", "GetArgumentDefaultValueString"])
def test_arguments_that_there_are_not(ask: str) -> None:
    with pytest.raises(KeyError, match=r"Argument \"foo\" is not defined for operator \"Resize\""):
        getattr(backend.GetSchema("Resize"), ask)("foo")


def test_operators_that_there_are_not() -> None:
    assert backend.TryGetSchema("Foo") is None
    with pytest.raises(KeyError, match="Schema for operator 'Foo' not registered"):
        backend_impl.GetSchema("Foo")


def test_names_of_operators() -> None:
    assert {"Resize", "decoders__Image", "random__Uniform"} < ops.cpu_ops()
    assert "decoders__Image" in ops.mixed_ops()
    assert ops.cpu_ops() == set(backend.RegisteredCPUOps())
    assert ops.gpu_ops() == set(backend.RegisteredGPUOps())


@pytest.mark.parametrize("load", [plugin_manager.load_library, plugin_manager.load_directory, backend.LoadLibrary])
def test_libraries_of_operators_are_refused(load: Any) -> None:
    with pytest.raises(PluginError, match=r"libmine.so cannot be loaded: .* dali_like\.operator"):
        load("libmine.so")


def test_settings_of_memory_pools_have_no_effect() -> None:
    backend.SetHostBufferShrinkThreshold(0.5)
    backend.PreallocateDeviceMemory(1 << 20, 0)
    backend.ReleaseUnusedMemory()
    assert backend.RestrictPinnedMemUsage() is False
