"""Pickling by value, by cloudpickle: functions and classes without an importable name travel with their code.

From version 3.1.3 on, cloudpickle replaces file names of code: tracebacks from other processes would show neither file
nor source lines. Here, code keeps its file name with each version of cloudpickle.

Import this module where it is used: most programs need no cloudpickle.
"""

from __future__ import annotations

import io
import pickle
import types
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle


class ByValuePickler(cloudpickle.Pickler):
    """Pickler of objects whose functions and classes may have no importable name.

    Args:
        file: receives the pickle.
        buffer_callback: as for ``pickle.Pickler``.
        reducers: how to pickle objects of some types, as in `copyreg.dispatch_table`.
    """

    def __init__(
        self,
        file: Any,
        buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None,
        reducers: Mapping[type, Callable[[Any], Any]] = types.MappingProxyType({}),
    ) -> None:
        # The pickler reads the table while it is initialized, and ignores later changes of the attribute.
        self.dispatch_table = cloudpickle.Pickler.dispatch_table.new_child({types.CodeType: _reduce_code, **reducers})
        super().__init__(file, buffer_callback=buffer_callback)


def dumps_by_value(
    value: Any,
    buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None,
    reducers: Mapping[type, Callable[[Any], Any]] = types.MappingProxyType({}),
) -> bytes:
    """Return the pickle of an object by `ByValuePickler`, with the same arguments."""
    with io.BytesIO() as file:
        ByValuePickler(file, buffer_callback, reducers).dump(value)
        return file.getvalue()


def _reduce_code(code: types.CodeType) -> tuple[Any, ...]:
    make, args = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    file_name = "".join(code.co_filename)  # a copy: a pickle must not depend on which code objects share the string
    return _make_code, (make, args, file_name)


def _make_code(make: Callable[..., types.CodeType], args: tuple[Any, ...], file_name: str) -> types.CodeType:
    return make(*args).replace(co_filename=file_name)
