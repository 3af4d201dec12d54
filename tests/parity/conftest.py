"""The real DALI and dali_like side by side.

A `Library` is one of the two behind the names that they share; a test runs the same program with both and compares. What a
program delivers is turned into plain values at once, since DALI 1.53 may overwrite a batch at the next `run()`.
"""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import dali_like
import dali_like.tensors
import dali_like.types
from tests.conftest import time_limit

#: These tests have a process of their own; see test_jax.py.
collect_ignore = ["with_jax"]

#: In the log of `play`: the epoch has ended.
END = "end"
#: Among the steps of `play`: call reset().
RESET = "reset"


class DALIHasCrashed(BaseException):
    """There is nothing to compare with. No `Exception`, which tests would take for the error of a program."""


@dataclass(frozen=True)
class Library:
    """The imports of programs for DALI, from one of the two libraries."""

    fn: Any
    types: ModuleType
    tensors: ModuleType
    pipeline_def: Callable[..., Any]

    @contextlib.contextmanager
    def pipeline(
        self, define: Callable[[], Any], way: str = "serial", *, batch_size: Any = 4, workers: Any = 2, **options: Any
    ) -> Iterator[Any]:
        """A pipeline of the outputs that a function returns, with workers unless all is serial; closed in the end."""
        if way != "serial":
            options.update(py_start_method=way, py_num_workers=workers)
        options = {"num_threads": 2, "device_id": None, **options}
        with self._quiet(), time_limit():  # DALI waits forever for a worker that has died
            pipe = self.pipeline_def(batch_size=batch_size, **options)(define)()
            try:
                yield pipe
            finally:
                _close(pipe)

    @contextlib.contextmanager
    def source_pipeline(
        self,
        source: Any,
        way: str = "serial",
        *,
        num_outputs: Any = None,
        source_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> Iterator[Any]:
        """A pipeline of one source that makes single samples."""

        def define() -> Any:
            nodes = self.fn.external_source(
                source=source, num_outputs=num_outputs, batch=False, parallel=way != "serial", **(source_options or {})
            )
            return nodes if num_outputs is None else tuple(nodes)

        with self.pipeline(define, way, **options) as pipe:
            yield pipe

    def _quiet(self) -> contextlib.AbstractContextManager[Any]:
        """DALI warns of sockets that it does not close and of forks; nothing of that is ours to mend."""
        if self.fn is dali_like.fn:
            return contextlib.nullcontext()
        return warnings.catch_warnings(action="ignore")


def _close(pipe: Any) -> None:
    if isinstance(pipe, dali_like.Pipeline):
        pipe.close()
        return
    # DALI has no public way to close a pipeline before its collection.
    killed_by = []
    if pipe._py_pool is not None:
        # Private: DALI's attribute
        killed_by = [-process.exitcode for process in pipe._py_pool.pool._processes if (process.exitcode or 0) < 0]
        pipe._py_pool.close()
    multiprocessing.active_children()  # forgets the workers that have died by themselves
    if killed_by:
        raise DALIHasCrashed(f"workers of the real DALI have been killed by the signals {killed_by}")


OURS = Library(dali_like.fn, dali_like.types, dali_like.tensors, dali_like.pipeline_def)


@pytest.fixture(scope="session")
def dali() -> Library:
    """The real one."""
    module = pytest.importorskip("nvidia.dali")
    return Library(module.fn, module.types, pytest.importorskip("nvidia.dali.tensors"), module.pipeline_def)


@pytest.fixture(scope="session", autouse=True)
def _standing_things() -> None:
    """Processes that stay: the helper process of Python's spawn."""
    resource_tracker.ensure_running()


class Sample(NamedTuple):
    """One sample: comparable and short."""

    dtype: str
    shape: tuple[int, ...]
    content: str


class Batch(NamedTuple):
    """One output of one run, as plain values."""

    dtype: str
    layout: str
    samples: tuple[Sample, ...]


def copied(batch: Any) -> Batch:
    """All that a batch holds, bit for bit."""
    return Batch(str(batch.dtype), batch.layout(), tuple(_sample(batch.at(i)) for i in range(len(batch))))


def _sample(array: Any) -> Sample:
    content = np.ascontiguousarray(array).tobytes()
    text = content.hex() if len(content) <= 64 else hashlib.sha256(content).hexdigest()
    return Sample(str(array.dtype), array.shape, text)


def values(batch: Any) -> list[Any]:
    """The samples of a batch as nested lists of numbers."""
    return [batch.at(i).tolist() for i in range(len(batch))]


def play(
    pipe: Any,
    steps: Sequence[int | str],
    read: Callable[[Any], Any] = copied,
    catch: tuple[type[Exception], ...] = (),
) -> list[Any]:
    """Operate a pipeline and log the result of each run().

    Args:
        steps: a number: run so many times; RESET: call reset().
        read: makes plain values of a batch.
        catch: exceptions that are logged by the names of their classes.

    Returns:
        For each run: a tuple of the results of `read` for its outputs, or END, or the name of an exception.
    """
    log: list[Any] = []
    for step in steps:
        if isinstance(step, str):
            pipe.reset()
            continue
        for _ in range(step):
            try:
                log.append(tuple(map(read, pipe.run())))
            except StopIteration:
                log.append(END)
            except catch as error:
                log.append(type(error).__name__)
    return log


def error_of(program: Callable[[Any], object], library: Any) -> Exception:
    """The exception of a program, without the `Exception` that DALI puts around exceptions of callbacks."""
    try:
        program(library)
    except Exception as error:
        wrapped = type(error) is Exception and isinstance(error.__cause__, Exception)
        # Tracebacks keep pipelines.
        return (error.__cause__ if wrapped else error).with_traceback(None)  # type: ignore[union-attr]
    pytest.fail("nothing has been raised")


@pytest.fixture(scope="session")
def numbered_files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Paths of files for readers. Their only byte is their number."""
    folder = tmp_path_factory.mktemp("numbered_files")
    paths = [folder / f"{i:02}.bin" for i in range(12)]
    for i, path in enumerate(paths):
        path.write_bytes(bytes([i]))
    return [*map(str, paths)]
