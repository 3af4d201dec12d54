"""The class that programs get in the place of ``torch.utils.data.DataLoader``."""

from __future__ import annotations

import fnmatch
import inspect
import random
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, TypeVar

import numpy as np

from dali_like.common.extras import optional
from dali_like.engine.pool.backend_traits import backend_named
from dali_like.running import recording
from dali_like.running.run_settings import settings

optional("torch", "dali_like.running", "pytorch")

import torch  # noqa: E402

from dali_like.plugin.pytorch import torch_loader  # noqa: E402

__all__ = ["DataLoader", "places_of"]

T_co = TypeVar("T_co", covariant=True)


if settings().seeds:  # the program, which has just imported PyTorch's loader, may set others
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


class DataLoader(torch_loader.DataLoader[T_co]):
    """This library's loader with PyTorch's random numbers, to the bit, unless ``--fast`` is given."""

    _dali_like_is_library = True
    _dali_like_is_unknown = True
    worker_seeding = "tasks" if settings().fast else "torch"
    _dali_like_excluded: str | None = None
    _dali_like_place = ""

    def __init__(self, *args: Any, **options: Any) -> None:
        places = list(places_of(self, sys._getframe(1)))
        self._dali_like_place = places[-1][0]
        self._dali_like_excluded = _reason_against(places)
        context = options.get("multiprocessing_context")
        backend = backend_named(context) if isinstance(context, str) else None
        if backend is None or not backend.are_threads:
            options.setdefault("worker_seeding", type(self).worker_seeding)
        super().__init__(*args, **options)
        if settings().fast and self.num_workers and "num_workers" not in self._dali_like_auto:
            self._dali_like_auto = {**self._dali_like_auto, "num_workers": self.num_workers}

    def __iter__(self) -> Any:
        recording.note(self)
        return recording.watched(super().__iter__())

    def _get_iterator(self) -> Any:
        recording.note(self)
        return super()._get_iterator()


def _signature() -> inspect.Signature:
    """Return the signature of the constructor, which libraries read to make copies of a loader."""
    found = inspect.signature(torch_loader.DataLoader.__init__)
    seeding = found.parameters["worker_seeding"].replace(default=DataLoader.worker_seeding)
    return found.replace(parameters=[seeding if each.name == seeding.name else each for each in found.parameters.values()])


vars(DataLoader.__init__)["__signature__"] = _signature()


def places_of(loader: Any, frame: FrameType | None) -> Iterator[tuple[str, str, str]]:
    """Yield where a loader is made, as place, file and module: constructors of subclasses first, their caller last."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name.partition(".")[0] != "dali_like":
            yield f"{recording.shortened(frame.f_code.co_filename)}:{frame.f_lineno}", frame.f_code.co_filename, name
            names = frame.f_code.co_varnames
            if frame.f_code.co_name != "__init__" or not names or frame.f_locals.get(names[0]) is not loader:
                return
        frame = frame.f_back


def _reason_against(places: list[tuple[str, str, str]]) -> str | None:
    """Return why a loader stays PyTorch's; None if it does not."""
    run = settings()
    if run.skip and any(map(_matches, places, [run.skip] * len(places))):
        return f"--skip {' '.join(run.skip)} asks for it"
    if run.only and not any(map(_matches, places, [run.only] * len(places))):
        return f"--only {' '.join(run.only)} asks for it"
    return None


def _matches(place: tuple[str, str, str], patterns: tuple[str, ...]) -> bool:
    _, file, module = place
    return any(
        fnmatch.fnmatch(module, pattern) or fnmatch.fnmatch(file, pattern) or fnmatch.fnmatch(file, f"*/{pattern}")
        for pattern in patterns
    )
