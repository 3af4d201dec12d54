"""``py_start_method="thread_copies"``: each thread has copies of the sources, as worker processes have.

What threads have in common with other workers, and with threads that share the sources, is tested where "thread" is.
"""

from __future__ import annotations

import io
import itertools
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, get_worker_info
from dali_like.data import DataLoader, SharedList
from dali_like.errors import PicklingError, WorkerStartError
from dali_like.types import SampleInfo
from tests.callbacks import number
from tests.data.loader_cases import MANY_WORKERS

MakePipeline = Callable[..., Pipeline]

WAY = "thread_copies"


def load(dataset: Any, method: str = WAY, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, **{"batch_size": 4, "num_workers": 2, **options}, multiprocessing_context=method)


class LinesOfFile:
    """Opens its file at the first access, as datasets for worker processes do."""

    def __init__(self, path: Path, length: int) -> None:
        self.path = path
        self.length = length
        self.file: io.FileIO | None = None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if self.file is None:
            self.file = io.FileIO(self.path)
        self.file.seek(8 * index)
        return int(self.file.read(8))

    def __del__(self) -> None:
        if self.file is not None:
            self.file.close()


class Counting:
    """Counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[int, int, int]:
        self.calls += 1
        info = get_worker_info()
        assert info is not None
        assert info.dataset is self
        return index, info.id, self.calls


class Drawing:
    """Has a random generator, and arrays of it."""

    def __init__(self) -> None:
        self.generator = random.Random(3)
        self.numbers = np.random.default_rng(5).integers(0, 99, 1 << 15)  # so large that it travels out of band

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> Any:
        self.numbers[index] += 1  # in place: each worker has its own
        return self.numbers[index : index + 3].copy()


class Kind:
    """A class of the program."""


def same_kind(info: SampleInfo) -> Any:
    return np.bool_(type(_kept).__name__ == "Kind" and isinstance(_kept, Kind))


_kept = Kind()


@pytest.mark.filterwarnings(MANY_WORKERS)
class TestCopies:
    def test_a_file_that_a_dataset_opens_at_the_first_access_is_one_of_each_thread(self, tmp_path: Path) -> None:
        path = tmp_path / "lines"
        path.write_bytes(b"".join(b"%07d\n" % line for line in range(2048)))
        dataset = LinesOfFile(path, 2048)

        batches = [batch.tolist() for batch in load(dataset, batch_size=64, num_workers=4)]

        assert list(itertools.chain.from_iterable(batches)) == list(range(2048))
        assert dataset.file is None

    def test_each_thread_has_a_copy_and_the_program_keeps_its_own(self) -> None:
        dataset = Counting()

        samples = [sample for batch in load(dataset) for sample in zip(*map(np.ndarray.tolist, batch), strict=True)]

        assert [index for index, _, _ in samples] == list(range(64))
        for worker in range(2):
            calls = sorted(calls for _, of, calls in samples if of == worker)
            assert calls == list(range(1, len(calls) + 1))
        assert dataset.calls == 0

    @pytest.mark.parametrize("other", ["fork", "spawn"])
    def test_batches_are_those_of_processes(self, other: str) -> None:
        dataset = Drawing()
        before = dataset.numbers.copy()

        with pytest.warns(RuntimeWarning, match="is a random generator. Each worker starts with a copy"):
            ours = list(load(dataset))
        with pytest.warns(RuntimeWarning, match="is a random generator. Each worker starts with a copy"):
            theirs = list(load(dataset, other))

        # Neighbors of a worker's last sample may have been changed by the same worker only.
        assert [batch[:, 0].tolist() for batch in ours] == [batch[:, 0].tolist() for batch in theirs]
        assert (dataset.numbers == before).all()

    def test_functions_and_classes_are_those_of_the_program(self, make_pipeline: MakePipeline) -> None:
        kept = Kind()
        seen = np.zeros(2, bool)

        def source(info: SampleInfo) -> Any:
            return np.array([isinstance(kept, Kind), kept is _kept, seen.any()])

        pipe = make_pipeline(source, WAY)

        assert pipe.run()[0].as_array().tolist() == [[True, False, False]] * 4

    def test_functions_of_a_module_use_its_variables(self, make_pipeline: MakePipeline) -> None:
        assert make_pipeline(same_kind, WAY).run()[0].as_array().all()

    def test_shared_lists_stay_shared(self) -> None:
        items = SharedList(f"{index}" for index in range(12))

        assert [text for batch in load(items) for text in batch] == [f"{index}" for index in range(12)]

    def test_worker_setup_and_worker_teardown_belong_to_the_copy(self, make_pipeline: MakePipeline) -> None:
        class Opened:
            def __init__(self) -> None:
                self.thread = 0

            def __call__(self, info: SampleInfo) -> Any:
                return np.bool_(self.thread == threading.get_ident())

            def begin(self) -> None:
                self.thread = threading.get_ident()

        opened = Opened()

        pipe = make_pipeline(opened, WAY, source_options={"worker_setup": opened.begin})

        assert pipe.run()[0].as_array().all()
        assert opened.thread == 0

    def test_a_dataset_of_the_next_epoch_is_the_one_of_then(self) -> None:
        dataset = Counting()
        loader = load(dataset, num_workers=1, batch_size=1, sampler=range(1))

        first = [batch[2].tolist() for batch in loader]
        dataset.calls = 10
        second = [batch[2].tolist() for batch in loader]

        assert (first, second) == ([[1]], [[11]])


class Holder(dict[int, int]):
    part: Any = None


class TestObjectsWithoutACopy:
    def test_a_lock_is_an_error_that_names_it(self) -> None:
        holder = Holder({0: 0, 1: 1})
        holder.part = threading.Lock()

        with pytest.raises(
            PicklingError, match=r"cannot be pickled for worker threads with copies: dataset\.part, a \S*lock"
        ):
            list(load(holder))

    def test_an_open_file_is_an_error_that_names_it(self, tmp_path: Path) -> None:
        holder = Holder({0: 0, 1: 1})
        (tmp_path / "file").touch()
        with (
            (tmp_path / "file").open("rb") as holder.part,
            pytest.raises(PicklingError, match=r"dataset\.part, a \S*BufferedReader"),
        ):
            list(load(holder))

    def test_the_error_of_a_pipeline_has_the_alternative(self, make_pipeline: MakePipeline) -> None:
        lock = threading.Lock()

        def source(info: SampleInfo) -> Any:
            with lock:
                return number(info)

        with pytest.raises(PicklingError, match="or use py_start_method='thread', whose threads share one object"):
            make_pipeline(source, WAY).build()

    def test_the_error_of_a_loader_has_the_alternative(self) -> None:
        with pytest.raises(PicklingError, match='or use multiprocessing_context="thread", whose threads share one dataset'):
            list(load({"lock": threading.Lock()}))


def leaving(info: SampleInfo) -> Any:
    if info.idx_in_epoch % 37 == 36 and info.idx_in_batch not in _left:
        _left.add(info.idx_in_batch)
        sys.exit(3)
    return number(info)


_left: set[int] = set()


class TestFaults:
    def test_a_storm_of_threads_that_end_loses_and_doubles_nothing(self, make_pipeline: MakePipeline) -> None:
        _left.clear()
        pipe = make_pipeline(leaving, WAY, batch_size=16, workers=4, py_worker_restarts=None)

        numbers = [value for _ in range(40) for value in pipe.run()[0].as_array().tolist()]

        assert numbers == list(range(640))
        assert len(_left) > 4  # each has ended a thread

    def test_an_exception_has_a_note_on_its_sample(self) -> None:
        with pytest.raises(KeyError) as caught:
            list(load({0: 1, 2: 3}, sampler=[0, 1, 2]))

        assert "index 1 (sample 1 of batch 0), in worker" in caught.value.__notes__[0]

    def test_an_exception_of_the_copy_ends_the_start(self, make_pipeline: MakePipeline) -> None:
        class Refusing:
            def __call__(self, info: SampleInfo) -> Any:
                return number(info)

            def __setstate__(self, state: Any) -> None:
                raise ZeroDivisionError("no copy")

            def __getstate__(self) -> dict[str, int]:
                return {"some": 1}

        pipe = make_pipeline(Refusing(), WAY)

        with pytest.raises(WorkerStartError, match=r"could not start: ZeroDivisionError\('no copy'\)"):
            pipe.run()
