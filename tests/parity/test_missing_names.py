"""Every operator of DALI exists here, or its absence is an error that names the alternative."""

from __future__ import annotations

import operator
import types
from collections.abc import Iterator

import pytest

pytest.importorskip("nvidia.dali")

import nvidia.dali.backend
import nvidia.dali.fn
import nvidia.dali.ops

from dali_like import fn, ops
from dali_like.compat.missing_names import Missing, dali_functions

pytestmark = pytest.mark.peers

#: Functions and classes of DALI's modules that are not operators.
NO_OPERATORS = {
    *("Reload", "count", "python_op_factory", "register_cpu_op", "register_gpu_op", "nvidia", "tree", "sys", "threading"),
    *("warnings", "weakref"),
}


def names(module: types.ModuleType) -> Iterator[str]:
    for name in sorted({name for name in dir(module) if not name.startswith("_")} - NO_OPERATORS):
        member = getattr(module, name)
        if isinstance(member, types.ModuleType) and member.__name__.startswith(module.__name__):
            yield from (f"{name}.{inner}" for inner in names(member))
        elif callable(member):
            yield name


def exists(module: object, path: str) -> bool:
    for part in path.split("."):
        module = getattr(module, part, None)
    return module is not None


@pytest.mark.parametrize(
    ("ours", "path"),
    [(ours, path) for ours, theirs in ((fn, nvidia.dali.fn), (ops, nvidia.dali.ops)) for path in names(theirs)],
    ids=lambda value: value if isinstance(value, str) else value.__name__.rpartition(".")[2],
)
def test_operator_exists_or_has_an_alternative(ours: types.ModuleType, path: str) -> None:
    def access() -> None:
        found = ours
        for part in path.split("."):
            found = getattr(found, part)

    if not exists(ours, path):
        with pytest.raises(AttributeError, match="DALI has"):
            access()


def test_the_table_lists_all_functions() -> None:
    assert [*dali_functions()] == sorted(names(nvidia.dali.fn))


@pytest.mark.parametrize(("path", "missing"), dali_functions().items())
def test_reasons_of_the_table(path: str, missing: Missing | None) -> None:
    """If this fails for a function that exists, remove the reason behind its name in dali_functions.txt."""
    assert exists(fn, path) == (missing is None)
    if missing is None:
        return
    function = operator.attrgetter(path)(nvidia.dali.fn)
    schema = nvidia.dali.backend.GetSchema(function._schema_name)
    on_cpu = function._schema_name in nvidia.dali.backend.RegisteredCPUOps()
    reasons = {
        "internal": schema.IsDocHidden() and not schema.IsDeprecated(),
        "deprecated alias": schema.IsDeprecated(),
        "GPU only": not on_cpu,
    }
    assert reasons[missing.reason]
