"""Data loaders of the real PyTorch and of dali_like side by side: the same batches, bit for bit, and the same errors.

A test gives the same arguments to both classes, with no workers and with some, and compares whole epochs: every batch, and
the exception that ends them. The numbers that the two draw from PyTorch's global generator are compared, too.
"""

from __future__ import annotations

import collections
import decimal
import enum
import fractions
import gc
import itertools
import operator
import os
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import resource_sharer
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import (  # noqa: E402
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    RandomSampler,
    StackDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    get_worker_info,
    random_split,
)
from torch.utils.data._utils.collate import default_collate_fn_map  # noqa: E402

from dali_like.plugin.pytorch import DataLoader  # noqa: E402
from tests.parity.same import assert_same  # noqa: E402

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # that there are more workers than cores
    pytest.mark.filterwarnings("ignore:The given NumPy array is not writable"),
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled"),
]

LOADERS = (torch.utils.data.DataLoader, DataLoader)
#: Enough for batches of 3 to end with a short one, and for each of two workers to make several.
LENGTH = 10
#: Batches of our workers are compared with batches of PyTorch's loader without workers: its workers give the same, and
#: start slowly. With ``PARITY=full`` they are compared with batches of PyTorch's workers.
THEIR_WORKERS = None if os.environ.get("PARITY") == "full" else 0


# Epochs


def epoch(loader: Any) -> list[Any]:
    """All that one epoch gives, in its order: batches, and the exception that ends them, if one does."""
    events: list[Any] = []
    try:
        events.extend(iter(loader))
    except Exception as error:
        events.append(error.with_traceback(None))
    return events


def epoch_with_errors(loader: Any) -> list[Any]:
    """All results of one epoch for a caller that goes on after exceptions."""
    events: list[Any] = []
    batches = iter(loader)
    while len(events) < 1000:
        try:
            events.append(next(batches))
        except StopIteration:
            return events
        except Exception as error:
            events.append(error.with_traceback(None))
    pytest.fail("the epoch does not end")


def played(
    make: Callable[..., Any], dataset: Any, run: Callable[[Any], list[Any]], epochs: int, options: dict[str, Any]
) -> tuple[list[Any], Any]:
    """The results of some epochs, and the next number of PyTorch's global generator after them."""
    torch.manual_seed(7)
    events: list[Any] = []
    try:
        loader = make(dataset, **fresh(options))
    except Exception as error:
        return [error.with_traceback(None)], torch.rand(1)
    for _ in range(epochs):
        events.append(run(loader))
        gc.collect()  # exceptions make cycles; a loader that is in one would be collected in a worker
    resource_sharer.stop()  # the thread that PyTorch starts to send tensors to workers
    return events, torch.rand(1)


def fresh(options: dict[str, Any]) -> dict[str, Any]:
    """The options, with new objects for all that have a state."""
    return {name: value.make() if isinstance(value, Made) else value for name, value in options.items()}


@dataclass(frozen=True)
class Made:
    """An argument that has a state, and so is made for each of the two loaders."""

    make: Callable[[], Any]


def compare(
    dataset: Any,
    *,
    run: Callable[[Any], list[Any]] = epoch,
    epochs: int = 1,
    their_workers: int | None = None,
    **options: Any,
) -> list[Any]:
    """Run both loaders with the same arguments, and return the results of PyTorch's.

    Args:
        run: runs through one epoch.
        epochs: how many.
        their_workers: the number of workers of PyTorch's loader. Default: as many as ours.
        options: further arguments of both.
    """
    their_options = options if their_workers is None else {**options, "num_workers": their_workers}
    theirs, their_random = played(torch.utils.data.DataLoader, dataset, run, epochs, their_options)
    ours, our_random = played(DataLoader, dataset, run, epochs, options)
    assert_same(theirs, ours, f"epochs with {options}")
    assert_same(their_random, our_random, f"the next random number after epochs with {options}")
    return theirs


def compare_zoo(dataset: Any, num_workers: int) -> None:
    """Compare epochs with batches of several sizes; with workers, whose start takes time, of one size."""
    if num_workers:
        compare(dataset, batch_size=3, num_workers=num_workers, their_workers=THEIR_WORKERS)
        return
    for batch_size, drop_last in [(1, False), (3, False), (3, True), (8, False), (20, True)]:
        compare(dataset, batch_size=batch_size, drop_last=drop_last)


@pytest.fixture(params=[0, 2], ids=["no workers", "2 workers"])
def num_workers(request: pytest.FixtureRequest) -> int:
    """How many workers there are."""
    return int(request.param)


class Samples(Dataset[Any]):
    """A function of the index as a dataset."""

    def __init__(self, make: Callable[[Any], Any], length: int = LENGTH) -> None:
        self.make = make
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        return self.make(index)


# Samples of every kind

TENSOR_DTYPES = [
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex32 complex64 complex128",
    "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu",
]
ARRAY_DTYPES = "?bBhHiIlLqefdFD"
UNFIT_ARRAY_DTYPES = ["Q", "g", "G", "M8[s]", "m8[s]", "U2", "S2", "O", "V2", "i4,f4", ">f4", ">i2"]
UNFIT_SCALAR_DTYPES = ["Q", "g", "G", "M8[s]", "U2", "V2", ">f4"]


class Point(NamedTuple):
    x: Any
    y: Any


class Labelled(list[Any]):
    label = "a class's"

    def __init__(self, items: Sequence[Any] = (), label: str = "its own") -> None:
        super().__init__(items)
        self.label = label


class Row(dict[str, Any]):
    pass


class Fixed(Sequence[Any]):
    def __init__(self, items: Sequence[Any]) -> None:
        self.items = list(items)

    def __getitem__(self, index: Any) -> Any:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value


class Tagged(torch.Tensor):
    pass


@dataclass
class Record:
    image: Any
    label: int


@dataclass(frozen=True)
class Batch:
    """A class of a user for batches, as collate functions make them."""

    images: Any
    names: list[str] = field(default_factory=list)

    def pin_memory(self) -> Batch:
        return self


def tensor_of(name: str, i: int) -> torch.Tensor:
    return torch.tensor([[0, 1, i], [2, 3, 1]]).to(getattr(torch, name))


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


ONE_FOR_ALL = torch.arange(3)
COMPLEX = torch.complex(torch.zeros(2), torch.ones(2))
TENSORS: dict[str, Callable[[int], Any]] = {
    "every dtype": lambda i: {name: tensor_of(name, i) for names in TENSOR_DTYPES for name in names.split()},
    "no dimensions": torch.tensor,
    "no elements": lambda i: (torch.zeros(0), torch.zeros(0, 3), torch.zeros(3, 0, dtype=torch.int16)),
    "many dimensions": lambda i: torch.full((1,) * 12, i),
    "nan, inf and -0": lambda i: torch.tensor([float("nan"), float("inf"), -0.0, i]),
    "large": lambda i: torch.full((3, 200, 200), i, dtype=torch.float32),
    "transposed": lambda i: (torch.arange(6) + i).reshape(2, 3).T,
    "every other": lambda i: (torch.arange(12) + i).reshape(3, 4)[:, ::2],
    "expanded": lambda i: torch.tensor([i]).expand(2, 3),
    "part of a large one": lambda i: torch.arange(100_000)[i : i + 2],
    "channels last": lambda i: torch.full((2, 3, 4, 5), i).to(memory_format=torch.channels_last),
    "one for all": lambda i: ONE_FOR_ALL,
    "parameter without gradient": lambda i: torch.nn.Parameter(torch.full((2,), float(i)), requires_grad=False),
    "of a subclass": lambda i: torch.full((2,), i).as_subclass(Tagged),
    "requires_grad": lambda i: torch.full((2,), float(i), requires_grad=True),
    "sparse": lambda i: torch.full((2,), i).to_sparse(),
    "meta": lambda i: torch.zeros(2, device="meta"),
}
ARRAYS: dict[str, Callable[[int], Any]] = {
    "every dtype": lambda i: {code: np.array([[0, 1, i], [2, 3, 1]]).astype(code) for code in ARRAY_DTYPES},
    "no dimensions": lambda i: np.array(i, "i2"),
    "no elements": lambda i: (np.zeros(0), np.zeros((0, 3)), np.zeros((3, 0), "i2")),
    "large": lambda i: np.full((200, 200, 3), i, np.uint8),
    "columns first": lambda i: np.asfortranarray(np.arange(6).reshape(2, 3) + i),
    "every other": lambda i: (np.arange(12) + i).reshape(3, 4)[:, ::2],
    "backwards": lambda i: np.arange(3)[::-1],
    "broadcast": lambda i: np.broadcast_to(np.float32(i), (2, 3)),
    "read-only": lambda i: read_only(np.full(3, i)),
    "read-only and large": lambda i: read_only(np.full(100_000, i)),
    "unaligned": lambda i: np.frombuffer(bytes(9), np.int64, 1, 1) + i,
    "masked": lambda i: np.ma.array([i, 2], mask=[False, True]),
    "matrix": lambda i: np.full((2, 2), i).view(np.matrix),
    **{f"of {code}": lambda i, code=code: np.zeros((2, 3), code) for code in UNFIT_ARRAY_DTYPES},
}
NUMBERS: dict[str, Callable[[int], Any]] = {
    "int": lambda i: i - 3,
    "large int": lambda i: 2**62 + i,
    "too large int": lambda i: 2**63 - 4 + i,
    "huge int": lambda i: 2**70,
    "bool": lambda i: i % 2 == 0,
    "float": lambda i: i / 3,
    "special floats": lambda i: [float("nan"), float("-inf"), -0.0, 5e-324][i % 4],
    "bool, then int": lambda i: i if i else False,
    "int, then bool": lambda i: i if i == 0 else True,
    "int, then float": lambda i: i if i == 0 else i / 2,
    "float, then int": lambda i: i if i else 0.5,
    "complex": lambda i: 1j * i,
    "Decimal": decimal.Decimal,
    "Fraction": fractions.Fraction,
    "IntEnum": lambda i: Level.LOW if i % 2 else Level.HIGH,
    "scalar of every dtype": lambda i: {code: np.array([i]).astype(code)[0] for code in ARRAY_DTYPES},
    **{
        f"scalar of {code}": lambda i, code=code: np.zeros(1, code)[0]
        for code in ["Q", "g", "G", "M8[s]", "U2", "V2", ">f4"]
    },
    "float32, then float64": lambda i: np.float64(i) if i else np.float32(i),
}
CONTAINERS: dict[str, Callable[[int], Any]] = {
    "tuple": lambda i: (torch.full((2,), i), np.full(2, i), i, str(i)),
    "list": lambda i: [np.float32(i), b"%d" % i],
    "tuple of one": lambda i: (i,),
    "empty ones": lambda i: ((), [], {}, "", b""),
    "dict": lambda i: {"image": np.full((2, 2), i, np.uint8), "label": i, "name": f"file {i}"},
    "keys that are not text": lambda i: {0: i, (1, 2): i, None: i, 1.5: i},
    "other order of keys": lambda i: {"a": i, "b": 1} if i % 2 else {"b": 1, "a": i},
    "nested": lambda i: {"a": [(i, {"b": [np.full(2, i)]})], "c": Point(i, [str(i)]), "d": (((i,),),)},
    "named tuple": lambda i: Point(i, np.full(2, i)),
    "OrderedDict": lambda i: collections.OrderedDict(b=i, a=str(i)),
    "defaultdict": lambda i: collections.defaultdict(list, a=i),
    "Counter": lambda i: collections.Counter(a=i),
    "UserDict": lambda i: collections.UserDict(a=i),
    "mapping proxy": lambda i: types.MappingProxyType({"a": i}),
    "dict subclass": lambda i: Row(a=i),
    "list subclass": lambda i: Labelled([i, str(i)], "its own of " + "a" * i),
    "UserList": lambda i: collections.UserList([i, i]),
    "deque": lambda i: collections.deque([i, i]),
    "fixed sequence": lambda i: Fixed([i, i]),
    "range": lambda i: range(i, i + 3),
    "bytearray": lambda i: bytearray([i, 1]),
    "memoryview": lambda i: memoryview(bytes([i, 1])),
    "memoryview of floats": lambda i: memoryview(np.float32([i, 1])[::-1]),
    "dataclass": lambda i: Record(np.zeros(2), i),
    "object": Plain,
    "set": lambda i: {i},
    "str": lambda i: "ä" * i,
    "long str": lambda i: str(i) * 200_000,
    "bytes": lambda i: b"\0" * i,
    "None": lambda i: None,
    "None in a tuple": lambda i: (i, None),
    "None in a dict": lambda i: {"a": None},
    "a function": lambda i: len,
}
CHANGING: dict[str, Callable[[int], Any]] = {
    "dtype between batches": lambda i: np.zeros(2, "f4" if i < 6 else "f8"),
    "dtype within a batch": lambda i: np.zeros(2, "f4" if i % 2 else "f8"),
    "dtype of tensors within a batch": lambda i: torch.zeros(2, dtype=torch.int64 if i % 2 else torch.bool),
    "shape between batches": lambda i: np.full(2 + i // 3, i),
    "shape within a batch": lambda i: np.zeros(3 if i < 4 else 4),
    "shape of tensors between batches": lambda i: torch.full((2 + i // 3,), i),
    "shape of tensors within a batch": lambda i: torch.zeros(3 if i < 4 else 4),
    "tensor, then sparse": lambda i: torch.full((2,), i).to_sparse() if i > 3 else torch.full((2,), i),
    "tensor, then of a subclass": lambda i: torch.full((2,), i).as_subclass(Tagged if i > 3 else torch.Tensor),
    "tensor, then conjugated": lambda i: (
        torch.complex(torch.ones(2), torch.full((2,), i - 4.0)).conj() if i > 3 else COMPLEX
    ),
    "number of dimensions between batches": lambda i: torch.zeros((1,) * (1 + i // 3)),
    "number of dimensions within a batch": lambda i: torch.zeros((2,) * (1 + i % 2)),
    "more and more": lambda i: np.full((i // 3 + 1) * 20_000, i),
    "structure between batches": lambda i: [(i, "a"), {"a": i}, [np.zeros(2)], i / 2][i // 3],
    "structure within a batch": lambda i: (i, "a") if i % 2 else {"a": i},
    "length of lists": lambda i: [1] * (1 + i // 4),
    "length of tuples between batches": lambda i: (i,) * (1 + i // 3),
    "a key more": lambda i: {"a": i, "b": i} if i > 3 else {"a": i},
    "a key less": lambda i: {"a": i} if i > 3 else {"a": i, "b": i},
    "array, then tensor": lambda i: torch.full((2,), i) if i > 3 else np.full(2, i),
    "tensor, then array": lambda i: np.full(2, i) if i > 3 else torch.full((2,), i),
    "number, then text": lambda i: str(i) if i > 3 else i,
    "text, then number": lambda i: i if i > 3 else str(i),
    "array, then number": lambda i: i if i > 3 else np.array(i),
    "number, then None": lambda i: None if i > 3 else i,
    "None, then number": lambda i: i if i > 3 else None,
}
ZOO = {
    f"{group}: {name}": make
    for group, kinds in {
        "tensors": TENSORS,
        "arrays": ARRAYS,
        "numbers": NUMBERS,
        "containers": CONTAINERS,
        "changing": CHANGING,
    }.items()
    for name, make in kinds.items()
}


#: Ours take an unsigned long long as such, under any name, and arrays that run backwards. PyTorch's do not.
TAKEN_HERE = (ARRAYS["of Q"], NUMBERS["scalar of Q"], ARRAYS["backwards"])
#: Not compared where there are workers. PyTorch's give up silently if a sample cannot be pickled, and it waits for ever.
#: They refuse tensors that require gradients; with ours, these have no history in the main process.
NOT_WITH_WORKERS = (*TAKEN_HERE, CONTAINERS["mapping proxy"], TENSORS["requires_grad"])
#: PyTorch's workers stack tensors into memory of the first one's dtype, which not all go into, and so do otherwise than the
#: loader without workers. Ours do as that.
AS_WITHOUT_WORKERS = (
    CHANGING["dtype within a batch"],
    CHANGING["dtype of tensors within a batch"],
    CHANGING["tensor, then array"],
    CHANGING["tensor, then sparse"],
    CHANGING["tensor, then conjugated"],
)


@pytest.mark.parametrize("make", ZOO.values(), ids=ZOO.keys())
def test_batches(make: Callable[[int], Any], num_workers: int) -> None:
    if num_workers and make in AS_WITHOUT_WORKERS:
        compare(Samples(make), batch_size=3, num_workers=num_workers, their_workers=0)
    elif make not in (NOT_WITH_WORKERS if num_workers else TAKEN_HERE):
        compare_zoo(Samples(make), num_workers)


@pytest.mark.parametrize("make", TAKEN_HERE)
def test_batches_that_pytorch_does_not_make(make: Callable[[int], Any], num_workers: int) -> None:
    loader = DataLoader(Samples(make, 3), batch_size=3, num_workers=num_workers)

    (batch,) = loader

    expected = np.stack([make(i) for i in range(3)])
    assert batch.numpy().tolist() == expected.tolist()
    assert batch.numpy().dtype == expected.dtype


@pytest.mark.parametrize("make", [*TENSORS.values(), *CHANGING.values()], ids=[*TENSORS, *CHANGING])
def test_batches_of_workers_that_have_learned_the_schema_equal_pytorchs(make: Callable[[int], Any]) -> None:
    """As the first ones are, which all have been made before that is known."""
    samples = Samples(lambda i: make(max(0, i - 24)), 24 + LENGTH)
    if make in AS_WITHOUT_WORKERS:
        compare(samples, batch_size=3, num_workers=2, their_workers=0)
    elif make not in NOT_WITH_WORKERS:
        compare_zoo(samples, 2)


@pytest.mark.parametrize("make", ZOO.values(), ids=ZOO.keys())
def test_samples_that_are_not_batched(make: Callable[[int], Any]) -> None:
    compare(Samples(make, 4), batch_size=None)


def test_samples_of_workers_that_are_not_batched() -> None:
    """Each is for itself, so that one loader may have processes of all kinds."""
    kinds = [(name, make, i) for name, make in ZOO.items() if make not in NOT_WITH_WORKERS for i in range(4)]
    samples = Samples(lambda index: kinds[index][1](kinds[index][2]), len(kinds))

    (theirs,), (ours,) = (
        played(make, samples, epoch_with_errors, 1, {"batch_size": None, "num_workers": 2})[0] for make in LOADERS
    )

    for (name, _, i), their_sample, our_sample in zip(kinds, theirs, ours, strict=True):
        assert_same(their_sample, our_sample, f"{name}, sample {i}")


@pytest.mark.parametrize("make", AS_WITHOUT_WORKERS)
def test_whole_batches_of_workers_are_collated_as_without_workers(make: Callable[[int], Any]) -> None:
    options: dict[str, Any] = {"batch_sampler": [[0, 1, 2], [3, 4, 5]]}
    theirs, _ = played(torch.utils.data.DataLoader, Samples(make), epoch, 1, options)
    ours, _ = played(DataLoader, Samples(make), epoch, 1, {**options, "num_workers": 2})

    assert_same(theirs, ours)


@pytest.mark.parametrize(
    "array", [np.arange(6.0).reshape(2, 3), np.arange(5, dtype="i2")[::2], np.zeros(1 << 17, "u1")], ids=len
)
def test_views_of_memory_stay_views_of_the_same_shape_and_type(array: Any) -> None:
    """PyTorch's workers cannot send them."""
    ((alone, view),) = DataLoader(Samples(lambda i: memoryview(array), 2), batch_size=2, num_workers=1, collate_fn=list)

    for received in (alone, view):
        assert isinstance(received, memoryview)
        assert (received.format, received.shape) == (memoryview(array).format, array.shape)
        np.testing.assert_array_equal(received, array)


# Functions that the default collation has been given


def together(batch: Any, *, collate_fn_map: Any) -> str:
    return f"{len(batch)} together"


@pytest.mark.parametrize("kind", [torch.Tensor, np.ndarray, np.float32, bool, str, dict, tuple, Point, object])
def test_functions_for_types(kind: type, num_workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(default_collate_fn_map, kind, together)
    samples = Samples(lambda i: {"a": (torch.zeros(2), np.zeros(2), i > 3, str(i)), "b": Point(i, np.float32(i))})

    events = compare(samples, batch_size=5, num_workers=num_workers)

    assert "5 together" in str(events)


def test_functions_for_types_that_samples_do_not_have(num_workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As DALI's plugin adds one when it is imported. Strides show whether samples still go into rows of the batch."""
    monkeypatch.setitem(default_collate_fn_map, Plain, together)

    compare(Samples(TENSORS["channels last"]), batch_size=3, num_workers=num_workers)


# Exceptions of datasets


class Refused(Exception):
    """One of a user, which can be made of its text."""


ERRORS: dict[str, Callable[[], Exception]] = {
    "ValueError": lambda: ValueError("no such image"),
    "several lines": lambda: RuntimeError("first\nsecond"),
    "no text": AssertionError,
    "KeyError": lambda: KeyError("b"),
    "IndexError": lambda: IndexError("list index out of range"),
    "OSError": lambda: OSError("disk"),
    "of a user": lambda: Refused("it is refused"),
}


def failing(error: Callable[[], Exception], *places: int) -> Callable[[int], int]:
    def make(index: int) -> int:
        if index in places:
            raise error()
        return index

    return make


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS.keys())
def test_exceptions_end_an_epoch(error: Callable[[], Exception], num_workers: int) -> None:
    events = compare(Samples(failing(error, 4)), batch_size=2, num_workers=num_workers)

    assert isinstance(events[0][-1], Exception)


@pytest.mark.parametrize("places", [(0,), (4,), (4, 7), (9,), tuple(range(LENGTH))], ids=str)
def test_epochs_go_on_after_exceptions(places: tuple[int, ...], num_workers: int) -> None:
    samples = Samples(failing(ERRORS["ValueError"], *places))

    events = compare(samples, run=epoch_with_errors, epochs=2, batch_size=2, num_workers=num_workers)

    assert len(events[0]) == LENGTH // 2


def test_stop_iteration_of_a_map_style_dataset_ends_the_epoch(num_workers: int) -> None:
    """PyTorch's workers do the same, but it waits for each of them for seconds."""
    samples = Samples(failing(StopIteration, 4))

    assert_same(list(torch.utils.data.DataLoader(samples, 2)), list(DataLoader(samples, 2, num_workers=num_workers)))


# Collation by functions of users


def padded(samples: list[Any]) -> Any:
    return torch.nn.utils.rnn.pad_sequence([torch.arange(sample) for sample in samples], batch_first=True)


def packed(samples: list[Any]) -> Any:
    return torch.nn.utils.rnn.pack_sequence([torch.arange(LENGTH - sample) for sample in samples])


def refusing(samples: list[Any]) -> Any:
    raise Refused(f"{len(samples)} samples are refused")


COLLATIONS: dict[str, Callable[[list[Any]], Any]] = {
    "as they are": list,
    "tuple": tuple,
    "number": sum,
    "text": str,
    "None": lambda samples: None,
    "set": set,
    "array": np.array,
    "large array": lambda samples: np.full((300, 300), samples[0]),
    "arrays of many lengths": lambda samples: [np.arange(sample * 5_000) for sample in samples],
    "array of objects": lambda samples: np.array([str(samples), None], object),
    "array of text": lambda samples: np.array([str(sample) for sample in samples]),
    "array of dates": lambda samples: np.array(samples, "M8[D]"),
    "array of fields": lambda samples: np.array([(samples[0], 0.5)], "i4,f8"),
    "array of columns": lambda samples: np.asfortranarray(np.arange(600).reshape(20, 30)),
    "masked array": lambda samples: np.ma.array(samples, mask=[sample > 4 for sample in samples]),
    "scalar of NumPy": lambda samples: np.float32(samples[0]),
    "tensor": torch.tensor,
    "tensor without dimensions": lambda samples: torch.tensor(samples[0]),
    "tensor without elements": lambda samples: torch.zeros(0, len(samples)),
    "large tensor": lambda samples: torch.full((300, 300), samples[0]),
    "transposed tensor": lambda samples: torch.arange(12).reshape(3, 4).T,
    "expanded tensor": lambda samples: torch.tensor(samples[:1]).expand(3, 4),
    "part of a tensor": lambda samples: torch.arange(1_000_000)[samples[0] : samples[0] + 3],
    "padded tensor": padded,
    "packed sequence": lambda samples: torch.nn.utils.rnn.pack_sequence(
        [torch.arange(9 - sample // 3) for sample in samples]
    ),
    "sparse tensor": lambda samples: torch.eye(3).mul(samples[0]).to_sparse(),
    "tensor that requires gradients": lambda samples: torch.full((2,), float(samples[0]), requires_grad=True),
    "parameter": lambda samples: torch.nn.Parameter(torch.full((2,), float(samples[0]))),
    "tensor of a subclass": lambda samples: torch.tensor(samples).as_subclass(Tagged),
    "dict": lambda samples: {"n": len(samples), 3: torch.tensor(samples), "deep": [{"x": np.array(samples)}]},
    "tuple of all": lambda samples: (torch.tensor(samples), np.array(samples), samples, "a", None, 1.5, b"b"),
    "named tuple": lambda samples: Point(torch.tensor(samples), [str(sample) for sample in samples]),
    "class of a user": lambda samples: Batch(torch.tensor(samples), [str(sample) for sample in samples]),
    "class of a user with arrays": lambda samples: Plain({"a": np.array(samples), "b": (Plain(torch.tensor(samples)),)}),
    "dataclass": lambda samples: Record(np.full((200, 200), samples[0]), len(samples)),
    "another dtype each time": lambda samples: np.zeros(2, ARRAY_DTYPES[samples[0]]),
    "one that is larger each time": lambda samples: torch.arange(1 + samples[0] * 10_000),
    "default and more": lambda samples: (default_collate(samples), len(samples)),
    "exception": refusing,
}


@pytest.mark.parametrize("collate", COLLATIONS.values(), ids=COLLATIONS.keys())
def test_collation_by_a_function(collate: Callable[[list[Any]], Any], num_workers: int) -> None:
    their_workers = THEIR_WORKERS if num_workers else None
    compare(Samples(int), collate_fn=collate, batch_size=3, num_workers=num_workers, their_workers=their_workers)


def test_conversion_by_a_function(num_workers: int) -> None:
    compare(Samples(int), collate_fn=lambda sample: [sample, torch.tensor(sample)], batch_size=None, num_workers=num_workers)


# Which samples


class Many(Samples):
    """Makes the samples of a batch at once."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [(self.make(index), len(indices)) for index in indices]


class Short(Samples):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self.make(index) for index in indices[:-1]]


class NotMany(Samples):
    __getitems__ = None


class WithoutLength:
    def __getitem__(self, index: Any) -> Any:
        return index


LETTERS = {letter: number for number, letter in enumerate("abcdefghij")}
DATASETS: dict[str, Any] = {
    "list": list(range(LENGTH)),
    "range": range(LENGTH),
    "tensor": torch.arange(20).reshape(LENGTH, 2),
    "array": np.arange(20, dtype=np.float32).reshape(LENGTH, 2),
    "text": "abcdefghij",
    "empty list": [],
    "list of dicts": [{"a": number, "b": str(number)} for number in range(LENGTH)],
    "__getitems__": Many(int),
    "__getitems__ that gives too few": Short(int),
    "__getitems__ that is None": NotMany(int),
    "TensorDataset": TensorDataset(torch.arange(LENGTH), torch.rand(LENGTH, 3)),
    "ConcatDataset": ConcatDataset([Samples(int, 4), Samples(lambda i: i + 100, 6)]),
    "Subset": Subset(Samples(int, 100), [5, 3, 99, 3]),
    "Subset with __getitems__": Subset(Many(int, 100), list(range(20, 30))),
    "StackDataset": StackDataset(a=Samples(int), b=Many(int)),
    "random_split": random_split(range(30), [10, 20], torch.Generator().manual_seed(1))[0],
    "larger than it is": Samples(operator.itemgetter(0), 3),
}


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=DATASETS.keys())
def test_datasets(dataset: Any, num_workers: int) -> None:
    compare_zoo(dataset, num_workers)


#: Arguments that say which samples a batch has; the dataset gives back the key and its type.
CHOICES: dict[str, dict[str, Any]] = {
    "in order": {"batch_size": 3, "in_order": True},
    "batches of nothing": {"batch_size": 0},
    "shuffled": {"batch_size": 3, "shuffle": True},
    "shuffled by a generator": {
        "batch_size": 3,
        "shuffle": True,
        "generator": Made(lambda: torch.Generator().manual_seed(3)),
    },
    "shuffled one by one": {"batch_size": None, "shuffle": True},
    "list of indices": {"batch_size": 3, "sampler": [4, 2, 4, 9]},
    "tensor of indices": {"batch_size": 3, "sampler": Made(lambda: torch.tensor([4, 2, 4, 9]))},
    "array of indices": {"batch_size": 3, "sampler": np.array([4, 2, 4, 9], np.int16)},
    "texts": {"batch_size": 2, "sampler": list("fab")},
    "tuples": {"batch_size": 2, "sampler": [(1, "a"), (2, "b"), (3, "c")]},
    "text that is a sampler": {"batch_size": 2, "sampler": "fab"},
    "lists as keys": {"batch_size": None, "sampler": [[1, 2], [3], []]},
    "slices": {"batch_size": None, "sampler": [slice(0, 3), slice(3, 5)]},
    "None as key": {"batch_size": 2, "sampler": [None, None, None]},
    "no keys": {"batch_size": 2, "sampler": []},
    "sampler that ends for good": {"batch_size": 2, "sampler": Made(lambda: iter(range(7)))},
    "random with replacement": {
        "batch_size": 3,
        "sampler": RandomSampler(range(LENGTH), replacement=True, num_samples=8),
    },
    "weighted": {"batch_size": 3, "sampler": WeightedRandomSampler([0.1, 0.2, 0.7], 8)},
    "BatchSampler": {"batch_sampler": BatchSampler(range(7), 3, drop_last=True)},
    "BatchSampler as sampler": {"sampler": BatchSampler(range(7), 3, drop_last=False), "batch_size": None},
    "batches of many sizes": {"batch_sampler": [[1], [2, 3, 4], (5, 6), [7] * 40]},
    "rows of an array": {"batch_sampler": np.arange(10).reshape(5, 2)},
    "rows of a tensor": {"batch_sampler": Made(lambda: torch.arange(10).reshape(5, 2))},
    "batches that end for good": {"batch_sampler": Made(lambda: ([i, i + 1] for i in range(5)))},
    "an empty batch": {"batch_sampler": [[1], [], [2]]},
    "batches of texts": {"batch_sampler": [["a", "b"], ["c"]]},
}


def key_and_type(key: Any) -> Any:
    if isinstance(key, (list, slice, tuple)) or key is None:
        return repr(key)
    return key if isinstance(key, str) else (key + 0, type(key).__name__)


@pytest.mark.parametrize("options", CHOICES.values(), ids=CHOICES.keys())
def test_two_epochs_of_samples_that_are_chosen(options: dict[str, Any], num_workers: int) -> None:
    their_workers = THEIR_WORKERS if num_workers else None
    compare(Samples(key_and_type), epochs=2, num_workers=num_workers, their_workers=their_workers, **options)


def test_an_exception_of_the_sampler_comes_behind_the_batches_before_it(num_workers: int) -> None:
    """With workers, PyTorch raises it as soon as it comes up, and loses the batches of the indices before it."""
    options = {"batch_size": 2, "sampler": Made(lambda: (6 // (3 - i) for i in range(7)))}

    theirs, _ = played(torch.utils.data.DataLoader, Samples(int), epoch, 1, options)
    ours, _ = played(DataLoader, Samples(int), epoch, 1, {"num_workers": num_workers, **options})

    assert len(theirs[0]) == 2
    assert_same(theirs, ours)


def test_keys_of_a_dict(num_workers: int) -> None:
    compare(Samples(LETTERS.__getitem__), sampler=[*LETTERS, "no letter"], batch_size=4, num_workers=num_workers)


def test_a_dataset_without_length(num_workers: int) -> None:
    compare(WithoutLength(), sampler=range(7), batch_size=2, num_workers=num_workers)


@pytest.mark.parametrize("batch_size", [1, 3, LENGTH, 20, None])
@pytest.mark.parametrize("drop_last", [False, True])
def test_length(batch_size: int | None, drop_last: bool, num_workers: int) -> None:
    options = {"batch_size": batch_size, "drop_last": drop_last and batch_size is not None, "num_workers": num_workers}

    assert len(DataLoader(Samples(int), **options)) == len(torch.utils.data.DataLoader(Samples(int), **options))


@pytest.mark.parametrize("persistent_workers", [False, True])
def test_three_epochs(persistent_workers: bool) -> None:
    options = {"num_workers": 2, "persistent_workers": persistent_workers}

    compare(Samples(int), epochs=3, shuffle=True, batch_size=3, **options)


# Iterables


class Stream(IterableDataset[Any]):
    """Numbers. Each worker has as many as a list says; without workers, all of them."""

    def __init__(self, shares: Sequence[int], make: Callable[[int], Any] = int) -> None:
        self.shares = shares
        self.make = make

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        shares = range(len(self.shares)) if info is None else range(info.id, len(self.shares), info.num_workers)
        return (self.make(100 * share + i) for share in shares for i in range(self.shares[share]))


class Whole(IterableDataset[Any]):
    """All that it has, in every worker."""

    def __iter__(self) -> Iterator[Any]:
        return iter(range(5))


class Measured(Stream):
    def __len__(self) -> int:
        return sum(self.shares)


class WhoAsks(IterableDataset[Any]):
    """A worker's knowledge of itself."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        yield (-1, 0, "") if info is None else (info.id, info.num_workers, type(info.dataset).__name__)


STREAMS: dict[str, Any] = {
    "even": Stream([6, 6, 6, 6, 6, 6]),
    "uneven": Stream([10, 3, 0]),
    "the last one longest": Stream([1, 2, 12]),
    "all in one": Stream([0, 7]),
    "nothing": Stream([]),
    "not sharded": Whole(),
    "ChainDataset": ChainDataset([Stream([3, 4]), Stream([5, 1])]),
    "with length": Measured([4, 3, 5]),
    "who asks": WhoAsks(),
    "failing": Stream([5, 4, 5], failing(ERRORS["ValueError"], 102)),
    "arrays": Stream([5, 4, 5], lambda i: {"a": np.full(i, i), "b": [torch.tensor(i), str(i)]}),
    "arrays of one shape": Stream([5, 4, 5], lambda i: (np.full((100, 100), i), str(i))),
}


@pytest.mark.filterwarnings("ignore:.*have the same content:UserWarning")
@pytest.mark.parametrize(
    ("name", "workers"),
    [
        *itertools.product(STREAMS, [0, 2]),
        *itertools.product(["uneven", "the last one longest", "failing"], [1, 3]),
    ],
)
def test_iterables(name: str, workers: int) -> None:
    stream = STREAMS[name]
    compare(stream, epochs=2, num_workers=workers, batch_size=3)
    for options in [{"batch_size": None}, {"batch_size": 3, "drop_last": True}]:
        compare(stream, num_workers=workers, **options)


@pytest.mark.parametrize("workers", [0, 2, 3])
def test_iterables_go_on_after_exceptions(workers: int) -> None:
    compare(STREAMS["failing"], run=epoch_with_errors, epochs=2, batch_size=2, num_workers=workers)


def test_an_iterable_that_is_longer_than_it_says(num_workers: int) -> None:
    theirs, ours = (make(Measured([3, 3]), num_workers=num_workers) for make in LOADERS)
    for loader in (theirs, ours):
        assert len(loader) == 6
        loader.dataset.shares = [4, 4]

    for loader in (theirs, ours):
        with pytest.warns(UserWarning, match="Length of IterableDataset"):
            epoch(loader)


# Spawned workers


def everything(index: int) -> Any:
    return [{"image": torch.full((2, 2), index), "array": np.full(3, index, np.int8)}, Point(index, str(index))]


def test_spawned_workers() -> None:
    dataset = Samples(everything)

    compare(dataset, batch_size=4, num_workers=2, shuffle=True, multiprocessing_context="spawn")
