"""Map-style datasets in memory. Getting a sample costs almost nothing, except in one dataset, so loaders dominate the time.

A sample holds its index, or values that depend on it, so `check_batch` can verify the samples. All datasets except two use
plain NumPy, so every DataLoader gets the same objects.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.workloads import SLEEP_S, Array, WrongBatchError

__all__ = [
    "ENDLESS",
    "Augmented",
    "Dataset",
    "Images",
    "Large",
    "OneSlow",
    "Records",
    "Slow",
    "TensorImages",
    "TensorRecords",
    "check_batch",
    "leaves",
    "stack_arrays",
]

#: Length of a dataset whose epoch outlasts the measurement.
ENDLESS = 1 << 40
CLASSES = 10
_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
_STD = np.array([0.229, 0.224, 0.225], np.float32)
RECORD_SIZES = tuple(int(size) for size in np.linspace(64, 256, 20))


class Dataset(Protocol):
    """Dataset for a DataLoader, with access to the samples for comparison."""

    def __getitem__(self, index: int) -> Any: ...

    def __len__(self) -> int: ...

    def sample(self, index: int) -> Any:
        """Return the sample of an index, without delay."""
        ...


class Images:
    """Images of one color, one array for each class, and the index as the label, an int.

    Args:
        shape: shape of an image.
    """

    def __init__(self, *shape: int, length: int = ENDLESS) -> None:
        self._images = [np.full(shape, number, np.uint8) for number in range(CLASSES)]
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[Array, int]:
        return self._images[index % CLASSES], index

    sample = __getitem__


class Records:
    """Twenty arrays of float32 by name, of 64 to 256 elements."""

    def __init__(self) -> None:
        self._records = [
            {
                f"feature_{place:02}": np.full(size, 100 * place + number, np.float32)
                for place, size in enumerate(RECORD_SIZES)
            }
            for number in range(CLASSES)
        ]

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> dict[str, Array]:
        return dict(self._records[index % CLASSES])

    sample = __getitem__


def _as_tensor(array: Array) -> Any:
    import torch  # who measures other datasets may not have it

    return torch.from_numpy(array)


class TensorImages(Images):
    """The same images as PyTorch tensors."""

    def __init__(self, *shape: int) -> None:
        super().__init__(*shape)
        self._images = list(map(_as_tensor, self._images))


class TensorRecords(Records):
    """Twenty PyTorch tensors by name."""

    def __init__(self) -> None:
        super().__init__()
        self._records = [{name: _as_tensor(array) for name, array in record.items()} for record in self._records]


class Augmented:
    """Images that NumPy crops, mirrors and normalizes to float32, in typical user code, and the index as the label.

    Args:
        height, width: size of the images.
        crop: height and width after cropping.
    """

    def __init__(self, height: int, width: int, crop: tuple[int, int]) -> None:
        generator = np.random.default_rng(0)
        self._images = [generator.integers(0, 256, (height, width, 3), np.uint8) for _ in range(CLASSES)]
        self._crop = crop

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> tuple[Array, int]:
        image = self._images[index % CLASSES]
        height, width = self._crop
        top, left = index % (image.shape[0] - height), index % (image.shape[1] - width)
        part = image[top : top + height, left : left + width]
        if index % 2:
            part = part[:, ::-1]
        scaled = part.astype(np.float32) / 255
        normalized = (scaled - _MEAN) / _STD
        return np.ascontiguousarray(normalized.transpose(2, 0, 1)), index

    sample = __getitem__


class Slow:
    """Tiny images, each after a sleep."""

    def __init__(self, length: int = ENDLESS, sample_s: float = SLEEP_S) -> None:
        self._images = Images(28, 28)
        self._length = length
        self._sample_s = sample_s

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[Array, int]:
        time.sleep(self.sleep_s(index))
        return self.sample(index)

    def sample(self, index: int) -> tuple[Array, int]:
        return self._images[index]

    def sleep_s(self, index: int) -> float:
        """Return the sleep of a sample in seconds."""
        return self._sample_s


class OneSlow(Slow):
    """The same, with one sample that takes much longer.

    Attributes:
        slow_index: index of that sample.
    """

    def __init__(self, length: int, slow_index: int, slow_s: float, sample_s: float = SLEEP_S) -> None:
        super().__init__(length, sample_s)
        self.slow_index = slow_index
        self._slow_s = slow_s

    def sleep_s(self, index: int) -> float:
        return self._slow_s if index == self.slow_index else super().sleep_s(index)


class Large:
    """One array with all samples as rows, and the index as the label."""

    def __init__(self, rows: int, row_bytes: int) -> None:
        self._rows = np.empty((rows, row_bytes), np.uint8)
        self._rows[...] = (np.arange(rows) % 251).astype(np.uint8)[:, np.newaxis]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[Array, int]:
        return self._rows[index], index

    sample = __getitem__


def stack_arrays(samples: Sequence[tuple[Array, int]]) -> dict[str, NDArray[Any]]:
    """Stack a batch like a typical ``collate_fn`` for NumPy arrays."""
    return {
        "image": np.stack([image for image, _ in samples]),
        "label": np.array([label for _, label in samples]),
    }


def leaves(tree: Any) -> Iterator[Array]:
    """Yield the arrays of a sample or batch in a fixed order, with tensors and numbers as arrays."""
    if isinstance(tree, Mapping):
        for name in sorted(tree):
            yield from leaves(tree[name])
    elif isinstance(tree, list | tuple):
        for part in tree:
            yield from leaves(part)
    else:
        yield np.asarray(tree)


def check_batch(dataset: Dataset, batch: Any, indices: Sequence[int]) -> None:
    """Compare every byte of a batch with the dataset; `WrongBatchError` names the difference."""
    samples = [leaves(dataset.sample(index)) for index in indices]
    expected = [np.stack(parts) for parts in zip(*samples, strict=True)]
    got = list(leaves(batch))
    kinds = [(array.shape, array.dtype) for array in got]
    expected_kinds = [(array.shape, array.dtype) for array in expected]
    if kinds != expected_kinds:
        raise WrongBatchError(f"samples {indices} have the types {kinds}, expected {expected_kinds}")
    for place, (array, right) in enumerate(zip(got, expected, strict=True)):
        if not np.array_equal(array, right):
            raise WrongBatchError(f"array {place} of samples {indices} differs from the dataset")
