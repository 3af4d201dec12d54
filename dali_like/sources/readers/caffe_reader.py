"""``fn.readers.caffe`` and ``fn.readers.caffe2``: images and labels in LMDB databases.

The messages in the databases, with the numbers of their fields::

    Datum {channels = 1, height = 2, width = 3, data = 4, label = 5, encoded = 7}
    TensorProtos {repeated TensorProto protos = 1}
    TensorProto {repeated dims = 1, data_type = 2, float_data = 3, int32_data = 4, byte_data = 5, string_data = 6,
                 int64_data = 10}
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.common.saved_arguments import SavedTexts
from dali_like.errors import ArgumentClashError, ArgumentError
from dali_like.sources.readers.lmdb_reader import LmdbReader
from dali_like.sources.readers.protobuf import ByteSpan, Field, bytes_of, fields, floats_of, integers_of
from dali_like.sources.readers.reader import reader
from dali_like.types import SampleInfo

_CHANNELS, _HEIGHT, _WIDTH, _DATA, _LABEL, _ENCODED = 1, 2, 3, 4, 5, 7
_DIMS, _DATA_TYPE, _FLOAT_DATA, _INT32_DATA, _BYTE_DATA, _STRING_DATA, _INT64_DATA = 1, 2, 3, 4, 5, 6, 10
#: Values of `data_type`.
_FLOAT, _INT32, _BYTE, _STRING, _INT64 = 1, 2, 3, 4, 10
#: Values of `label_type`.
_SINGLE, _SPARSE, _DENSE, _WEIGHTED, _NONE = range(5)


@reader(path="readers.caffe")
class CaffeReader(LmdbReader):
    """Reads images and labels from LMDB databases of Caffe.

    Args:
        path: folders of the databases. They must not change meanwhile.
        image_available: whether to return images.
        label_available: whether to return labels.

    Returns:
        The image: its encoded bytes, or an array of shape (height, width, channels) if the database has it like this; dtype
        UINT8. And the label, of shape (1,) and dtype INT32. What a record lacks is empty.
    """

    def __init__(self, *, path: SavedTexts, image_available: bool = True, label_available: bool = True) -> None:
        super().__init__(path=path)
        if not (image_available or label_available):
            raise ArgumentClashError("image_available and label_available are both False: there would be no outputs")
        self._has_image = image_available
        self._has_label = label_available
        if image_available and label_available:
            self.num_outputs = 2
            self.dtype = np.uint8, np.int32
        else:
            self.dtype = np.uint8 if image_available else np.int32

    def parse(self, record: NDArray[np.uint8], info: SampleInfo) -> Any:
        datum = {field[0]: field for field in fields(record.data, ByteSpan(0, len(record)))}  # the last one counts
        image, label = np.empty(0, np.uint8), np.empty(0, np.int32)
        if self._has_image and _DATA in datum:
            data = bytes_of(record, datum[_DATA])
            encoded = _ENCODED not in datum or _number(record, datum[_ENCODED])
            shape = [len(data)]
            if not encoded:
                shape = [_number(record, datum[each]) if each in datum else 0 for each in (_HEIGHT, _WIDTH, _CHANNELS)]
            image = _copied(data, shape, info)
        if self._has_label and _LABEL in datum:
            label = integers_of(record, datum[_LABEL])[-1:].astype(np.int32)
        return (image, label) if self._has_image and self._has_label else image if self._has_image else label


@reader(path="readers.caffe2")
class Caffe2Reader(LmdbReader):
    """Reads images, labels and further tensors from LMDB databases of Caffe2.

    DALI 1.53 refuses sparse labels, with and without weights, because of an error. This reader returns them.

    Args:
        path: folders of the databases. They must not change meanwhile.
        image_available: whether the first tensor of a record is an image.
        label_type: 0: one number. 1: the indices of active labels. 2: a vector. 3: the indices of active labels, and in the
            next tensor their weights. 4: there are no labels.
        num_labels: length of the returned vector with `label_type` 1 and 3.
        additional_inputs: number of further tensors.
        bbox: whether the last tensor is a bounding box.

    Returns:
        The image: its encoded bytes, or an array of shape (height, width, channels) if the database has it like this; dtype
        UINT8. The labels, of one dimension and dtype INT32 or FLOAT. The further tensors, flat, of dtype FLOAT, INT32 or
        INT64. The box, of shape (4,) and dtype INT32.
    """

    def __init__(
        self,
        *,
        path: SavedTexts,
        image_available: bool = True,
        label_type: int = 0,
        num_labels: int = 1,
        additional_inputs: int = 0,
        bbox: bool = False,
    ) -> None:
        super().__init__(path=path)
        if label_type not in range(5):
            raise ArgumentError(f"label_type must be from 0 to 4, not {label_type}")
        for name, value, least in (("num_labels", num_labels, 1), ("additional_inputs", additional_inputs, 0)):
            if value < least:
                raise ArgumentError(f"{name} must be at least {least}, not {value}")
        self._has_image = image_available
        self._label_type = label_type
        self._num_labels = num_labels
        self._others = additional_inputs
        self._has_box = bbox
        count = image_available + (label_type != _NONE) + additional_inputs + bbox
        if not count:
            raise ArgumentClashError("image_available=False and label_type=4: there would be no outputs")
        self.num_outputs = count if count > 1 else None

    def parse(self, record: NDArray[np.uint8], info: SampleInfo) -> Any:
        tensors = iter(
            [
                _TensorProto.parse(record, ByteSpan(begin, end))
                for number, _, begin, end in fields(record.data, ByteSpan(0, len(record)))
                if number == 1
            ]
        )
        outputs: list[NDArray[Any]] = []
        try:
            if self._has_image:
                outputs.append(next(tensors).image(info))
            if self._label_type != _NONE:
                values = next(tensors).numbers("the label", _FLOAT, _INT32)
                weights = next(tensors).numbers("the weights", _FLOAT) if self._label_type == _WEIGHTED else None
                outputs.append(self._labels(values, weights))
            outputs += [next(tensors).numbers("an additional tensor", _FLOAT, _INT32, _INT64) for _ in range(self._others)]
            if self._has_box:
                box = next(tensors).numbers("the bounding box", _INT32)
                if len(box) != 4:
                    raise ValueError(f"the bounding box has {len(box)} numbers instead of 4")
                outputs.append(box)
        except StopIteration:
            raise ValueError(
                "it has too few tensors for the arguments image_available, label_type, additional_inputs and bbox"
            ) from None
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    def _labels(self, values: NDArray[Any], weights: NDArray[Any] | None) -> NDArray[Any]:
        if self._label_type == _SINGLE and len(values) != 1:
            raise ValueError(f"it has {len(values)} labels instead of one: pass label_type=1, 2 or 3")
        if self._label_type in (_SINGLE, _DENSE):
            return values
        if weights is not None and len(weights) != len(values):
            raise ValueError(f"it has {len(weights)} weights for {len(values)} labels")
        indices = values.astype(np.int64)
        if len(indices) and not 0 <= indices.min() <= indices.max() < self._num_labels:
            raise ValueError(f"the labels {indices.tolist()} are not below num_labels={self._num_labels}: pass a larger one")
        labels = np.zeros(self._num_labels, values.dtype if weights is None else np.float32)
        labels[indices] = 1 if weights is None else weights
        return labels


class _TensorProto(NamedTuple):
    """A TensorProto.

    Attributes:
        record: the memory of its fields.
        data_type: of the values.
        fields: by their numbers; repeated ones in several parts.
    """

    record: NDArray[np.uint8]
    data_type: int
    fields: dict[int, list[Field]]

    @classmethod
    def parse(cls, record: NDArray[np.uint8], span: ByteSpan) -> _TensorProto:
        found: dict[int, list[Field]] = {}
        for field in fields(record.data, span):
            found.setdefault(field[0], []).append(field)
        return cls(record, _number(record, found[_DATA_TYPE][-1]) if _DATA_TYPE in found else _FLOAT, found)

    def image(self, info: SampleInfo) -> NDArray[np.uint8]:
        """Return the image in new memory."""
        if self.data_type == _STRING and _STRING_DATA in self.fields:
            data = bytes_of(self.record, self.fields[_STRING_DATA][0])
            return _copied(data, [len(data)], info)
        if self.data_type == _BYTE and _BYTE_DATA in self.fields:
            shape = [int(dim) for field in self.fields.get(_DIMS, ()) for dim in integers_of(self.record, field)]
            return _copied(
                bytes_of(self.record, self.fields[_BYTE_DATA][-1]), [*shape, 1] if len(shape) == 2 else shape, info
            )
        raise ValueError(f"its first tensor is not an image, but of data_type {self.data_type}: pass image_available=False")

    def numbers(self, what: str, *data_types: int) -> NDArray[Any]:
        """Return the numbers in new memory. The data type must be one of those given."""
        if self.data_type not in data_types:
            raise ValueError(f"{what} is of data_type {self.data_type}, not one of {', '.join(map(str, data_types))}")
        if self.data_type == _FLOAT:
            floats = [floats_of(self.record, field) for field in self.fields.get(_FLOAT_DATA, ())]
            return np.concatenate([np.empty(0, np.float32), *floats])
        number, dtype = (_INT32_DATA, np.int32) if self.data_type == _INT32 else (_INT64_DATA, np.int64)
        integers = [integers_of(self.record, field).astype(dtype) for field in self.fields.get(number, ())]
        return np.concatenate([np.empty(0, dtype), *integers])


def _number(record: NDArray[np.uint8], field: Field) -> int:
    return int(integers_of(record, field)[-1])


def _copied(data: NDArray[np.uint8], shape: list[int], info: SampleInfo) -> NDArray[np.uint8]:
    """Copy an image into the batch."""
    if len(shape) not in (1, 3) or math.prod(shape) != len(data) or min(shape) < 0:
        raise ValueError(f"the image has {len(data)} bytes, which does not fit its shape {tuple(shape)}")
    image: NDArray[np.uint8] = info.empty(shape)
    image[...] = data.reshape(shape)
    return image
