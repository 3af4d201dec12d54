"""The memory that decoding one file may take, because a small file can declare, and contain, any size."""

from __future__ import annotations

from typing import NamedTuple

from dali_like.engine.memory.limits import LEAST_IMAGE_LIMIT_BYTES
from dali_like.errors import DecodeError

__all__ = ["READER_LIMIT_BYTES", "DecodingLimit"]

#: Default of the readers' ``max_sample_bytes``.
READER_LIMIT_BYTES = 1 << 30


class DecodingLimit(NamedTuple):
    """The largest result of decoding one file.

    Attributes:
        nbytes: the limit.
        remedy: the end of the error message: the argument that raises the limit.
    """

    nbytes: int
    remedy: str

    @classmethod
    def of_pipeline(cls, nbytes: int) -> DecodingLimit:
        """Return the limit of operators."""
        return cls(
            nbytes,
            "In a pipeline the limit is max_held_bytes / (py_num_workers + num_threads), but at least "
            f"{LEAST_IMAGE_LIMIT_BYTES >> 20} MiB. If the file is really so large, raise max_held_bytes",
        )

    @classmethod
    def of_reader(cls, nbytes: int) -> DecodingLimit:
        """Return the limit of a reader."""
        return cls(nbytes, f"If the file is not an attack, pass a larger max_sample_bytes than {nbytes}")

    def check(self, nbytes: int, what: str) -> None:
        """Refuse a result that is too large, before memory is allocated for it.

        Raises:
            DecodeError: it exceeds the limit.
        """
        if nbytes > self.nbytes:
            raise DecodeError(f"{what} take {_size(nbytes)}; the limit is {_size(self.nbytes)}. {self.remedy}")


def _size(nbytes: int) -> str:
    return f"{nbytes >> 20} MiB" if nbytes >= 1 << 20 else f"{nbytes} bytes"
