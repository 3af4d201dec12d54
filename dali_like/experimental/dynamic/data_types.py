"""Data types of dynamic mode: ``ndd.float32`` and the others."""

from __future__ import annotations

import enum
from typing import Any

from dali_like import types
from dali_like.errors import ArgumentError
from dali_like.types import DALIDataType, to_dali_type

_by_name: dict[str, DType] = {}
_EXPONENT_BITS = {8: 4, 16: 5, 32: 8, 64: 11}
_PREFIXES = {"signed": "i", "unsigned": "u", "float": "f"}


class DType:
    """A data type. Calling it makes a tensor of this type: ``ndd.uint8([1, 2])``.

    Args:
        kind: signed, unsigned, float, bool or enum.
        bits: of an element.
        exponent_bits, significand_bits: of floating-point numbers.
        bytes: of an element.
        type_id: the type in `dali_like.types`, or None.
        name: such as "f32".
    """

    class Kind(enum.Enum):
        """The kind of numbers."""

        signed = enum.auto()
        unsigned = enum.auto()
        float = enum.auto()
        bool = enum.auto()
        enum = enum.auto()

    def __init__(
        self,
        kind: Kind,
        bits: int,
        exponent_bits: int | None = None,
        significand_bits: int | None = None,
        bytes: int | None = None,
        type_id: DALIDataType | None = None,
        name: str | None = None,
    ) -> None:
        self.kind = kind
        self.bits = bits
        self.bytes = bytes or (bits + 7) // 8
        self.type_id = type_id
        self.exponent_bits = self.significand_bits = None
        if kind is DType.Kind.float:
            self.exponent_bits = exponent_bits or _EXPONENT_BITS[bits]
            self.significand_bits = significand_bits or bits - self.exponent_bits - 1
        self.name = name or (kind.name if kind is DType.Kind.bool else f"{_PREFIXES[kind.name]}{bits}")

    def _key(self) -> tuple[Any, ...]:
        return self.kind, self.bits, self.exponent_bits, self.significand_bits, self.name if self.bits == 0 else None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DALIDataType):
            return self.type_id is other
        if not isinstance(other, DType):
            return NotImplemented
        if self.kind is DType.Kind.enum and self.type_id is not other.type_id:
            return False
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return (
            f"Type(kind={self.kind}, bits={self.bits}, exponent_bits={self.exponent_bits}, "
            f"significand_bits={self.significand_bits})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (DType.parse, (self.name,))

    @staticmethod
    def parse(name: str) -> DType:
        """Return the type of a name, such as "f32" or "u8".

        Raises:
            ArgumentError: there is no such type.
        """
        if name not in _by_name:
            raise ArgumentError(f"Unsupported type name: {name}. The types are {', '.join(_by_name)}")
        return _by_name[name]

    @staticmethod
    def from_type_id(type_id: DALIDataType) -> DType:
        """Return the type of a member of `dali_like.types.DALIDataType`."""
        return _by_id[type_id]

    @staticmethod
    def from_fw_type(numpy_type: Any) -> DType:
        """Return the type of a dtype of NumPy, or of another library that NumPy knows."""
        return dtype(numpy_type)

    def __call__(self, data: Any, **options: Any) -> Any:
        """Make a tensor of this type; see `tensor`."""
        from dali_like.experimental.dynamic.values import tensor  # it imports this module

        return tensor(data, dtype=self, **options)


def _number(kind: DType.Kind, bits: int, type_id: DALIDataType) -> DType:
    made = DType(kind, bits, type_id=type_id)
    _by_name[made.name] = made
    return made


def _enumeration(name: str, type_id: DALIDataType) -> DType:
    made = _by_name[name] = DType(DType.Kind.enum, 32, type_id=type_id, name=name)
    return made


int8, int16, int32, int64 = (_number(DType.Kind.signed, bits, getattr(types, f"INT{bits}")) for bits in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (
    _number(DType.Kind.unsigned, bits, getattr(types, f"UINT{bits}")) for bits in (8, 16, 32, 64)
)
float16 = _number(DType.Kind.float, 16, types.FLOAT16)
float32 = _number(DType.Kind.float, 32, types.FLOAT)
float64 = _number(DType.Kind.float, 64, types.FLOAT64)
bool_ = _number(DType.Kind.bool, 8, types.BOOL)
bfloat16 = _by_name["bfloat16"] = DType(DType.Kind.float, 16, 8, 7, name="bfloat16")
DataType = _enumeration("DataType", types.DATA_TYPE)
ImageType = _enumeration("ImageType", types.IMAGE_TYPE)
InterpType = _enumeration("InterpType", types.INTERP_TYPE)
_by_id = {made.type_id: made for made in _by_name.values()}


def dtype(*args: Any) -> DType:
    """Return the `DType` of a type: one of `dali_like.types`, of NumPy, or a name such as "f32"."""
    if len(args) != 1:
        return DType(*args)
    if isinstance(args[0], DType):
        return args[0]
    if isinstance(args[0], str) and args[0] in _by_name:
        return _by_name[args[0]]
    return DType.from_type_id(to_dali_type(args[0]))


def type_id(dtype: DType | DALIDataType) -> DALIDataType:
    """Return the type in `dali_like.types`.

    Raises:
        ArgumentError: no such type exists: operators do not support bfloat16.
    """
    found = dtype.type_id if isinstance(dtype, DType) else dtype
    if not isinstance(found, DALIDataType):
        raise ArgumentError(f"Invalid dtype: {dtype}. Operators take the types of dali_like.types, not this one")
    return found
