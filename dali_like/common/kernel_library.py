"""Compiled loops of the optional package dali-like-kernels: found and loaded when an operator first asks for them.

Without the package, operators compute with NumPy and OpenCV. Results have the same bits. The environment variable
``DALI_LIKE_KERNELS`` is ``0`` to do without, or the path of the library to load.
"""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

VARIABLE = "DALI_LIKE_KERNELS"
#: Versions of the functions in the library, which must be the same.
INTERFACE = 5
#: Codes of element types, as in kernels/src/kernels.h.
ELEMENTS: Mapping[np.dtype[Any], int] = MappingProxyType(
    {np.dtype(name): code for code, name in enumerate(("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"))}
)

_P, _I, _F, _D = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_double
_FUNCTIONS: Mapping[str, tuple[Any, Sequence[Any]]] = MappingProxyType(
    {
        "crop_windows": (_I, (_I, _I, _P, _I, _P, _P, _I, _I, _I, _P, _P)),
        "slice_windows": (_I, (_I, _I, _P, _I, _I, _P, _I, _P, _I, _I, _P, _I, _I, _P, _P)),
        "padded": (None, (_I, _I, _P, _I, _I, _P, _P, _P, _P)),
        "paste_windows": (_I, (_I, _P, _I, _P, _P, _P, _P, _P, _P)),
        "cut": (None, (_I, _I, _I, _P, _P, _I, _P, _P, _I, _P, _P, _P, _I)),
        "window_jobs": (None, (_I, _I, _I, _P, _P, _I, _P, _P, _P, _P, _P, _P, _P, _P, _I, _I, _P)),
        "joined_shapes": (_I, (_I, _I, _I, _P, _P, _I, _I, _P)),
        "join": (None, (_I, _I, _I, _I, _P, _P, _P, _I, _I, _P, _P)),
        "transpose": (None, (_I, _I, _I, _P, _P, _I, _P, _P)),
        "lay_out": (_I, (_I, _I, _I, _I, _I, _P, _I, _P, _I)),
        "erase": (None, (_I, _I, _I, _P, _P, _I, _I, _P, _P, _P, _I, _I, _I, _P, _P)),
        "nearest": (_I, (_I, _I, _P, _P)),
        "look_up": (None, (_I, _I, _I, _P, _P, _I)),
        "one_hot": (None, (_I, _I, _I, _I, _P, _P, _P)),
        "normalize_pixels": (_I, (_I, _I, _P, _P, _P)),
        "look_up_pixels": (None, (_I, _I, _P, _P)),
        "grid_mask": (_I, (_I, _P, _P)),
        "reduce": (None, (_I, _I, _I, _P, _P, _P)),
        "reduce_axes": (_I, (_I, _I, _P)),
        "extremes": (None, (_I, _I, _P, _P)),
        "normalize": (_I, (_I, _I, _P, _P)),
        "preemphasis": (None, (_I, _P, _P, _I)),
        "nonsilent": (_I, (_I, _I, _P, _I, _I, _F, _F, _P, _P)),
        "frames": (None, (_I, _P, _P, _I, _I, _I, _I, _I)),
        "power": (None, (_I, _P, _I, _I)),
        "relative": (None, (_I, _P, _F, _F)),
        "units": (None, (_I, _P, _I, _P, _I, _P)),
        "integers": (None, (_I, _P, _I, _P, _I, _P, _P, _P)),
        "choose": (None, (_I, _P, _P, _I, _P, _I)),
        "salt_and_pepper": (None, (_I, _P, _P, _I, _P, _P, _P)),
        "windows": (None, (_I, _P, _I, _P, _P, _P, _I, _P)),
        "mask_pixels": (None, (_I, _I, _I, _P, _P, _I, _P, _P, _P, _P, _I, _P, _P)),
        "select_masks": (_I, (_I, _P, _P, _P)),
        "take_masks": (None, (_I, _P, _P, _P, _I, _I)),
        "take_rows": (None, (_I, _P, _P, _I)),
        "search_windows": (_I, (_I, _P, _P, _P, _P, _I, _P, _P, _P, _P)),
        "seen_boxes": (None, (_I, _P, _P, _P, _P, _I)),
        "draw_objects": (_I, (_I, _I, _I, _I, _P, _P, _I, _P, _I, _P, _D, _I, _I, _P, _P, _I, _I, _P)),
        "displace": (_I, (_I, _I, _I, _I, _P, _P)),
        "map_perspective": (_I, (_I, _I, _I, _I, _I, _P, _P, _P)),
        "encode_boxes": (_I, (_I, _P, _P, _P, _P, _I, _F)),
        "mix_colors": (None, (_I, _P, _P, _P, _P)),
        "resample": (_I, (_P,)),
        "resample_serves": (_I, (_I, _P, _P, _I)),
        "resample_batch": (_I, (_I, _P, _P, _I)),
        "bilinear": (_I, (_P, _I, _I, _I, _P, _I, _I)),
        "decode_window": (_I, (_P, _I, _P, _P)),
        "decode_windows": (_I, (_I, _P)),
    }
)
#: Functions that only libraries compiled with libjpeg-turbo have. Their attributes are None in others.
_OPTIONAL = frozenset({"decode_window", "decode_windows"})


class Kernels:
    """The functions of the library. Addresses are integers; see kernels/src for the arguments.

    Args:
        path: of the library.

    Attributes:
        sums_agree: whether sums have the same bits as with the installed NumPy.
        draws_agree: whether random numbers agree with the installed NumPy.
    """

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        self.interface: int = library.dlk_interface()
        self.sums_agree = self.draws_agree = False
        if self.interface != INTERFACE:
            return
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, f"dlk_{name}", None)
            if function is None and name in _OPTIONAL:
                setattr(self, name, None)
                continue
            if function is None:
                raise OSError(f"{path} lacks the function dlk_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        self.sums_agree = self._sums_agree()
        self.draws_agree = self._draws_agree()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def _sums_agree(self) -> bool:
        """Whether the order of additions is that of NumPy, which may change it."""
        numbers = np.random.default_rng(0).standard_normal(20_011).astype(np.float32)
        sizes = [5, 100, 1000, len(numbers)]
        jobs = np.array([(address_of(numbers), size) for size in sizes], np.int64)
        made = np.empty((2, len(sizes)))
        for reduction in (0, 1):
            self.reduce(
                len(sizes),
                ELEMENTS[numbers.dtype],
                reduction,
                address_of(jobs),
                None,
                address_of(made) + reduction * 8 * len(sizes),
            )
        expected = [[numbers[:size].sum(dtype=np.float64) for size in sizes]]
        expected += [[np.square(numbers[:size], dtype=np.float64).sum() for size in sizes]]
        return made.tolist() == expected

    def _draws_agree(self) -> bool:
        """Whether NumPy's generator still makes the same numbers."""
        key = np.array([3, 1 << 63], np.uint64)
        bounds = np.array([[0, 0, 0, 0, 0], [2, 1 << 31, 9, 0, 3 << 30]], np.int64)
        integers, units = np.empty(5, np.int64), np.empty(5)
        position = np.array([7], np.int64)
        places = address_of(key), 5, address_of(position)
        self.integers(1, *places, 5, address_of(bounds[0]), address_of(bounds[1]), address_of(integers))
        self.units(1, *places, 5, address_of(units))
        generators = [np.random.Generator(np.random.Philox(counter=[0, 0, 7, 5], key=key)) for _ in range(2)]
        expected = [int(generators[0].integers(0, most, endpoint=True)) for most in bounds[1].tolist()]
        return integers.tolist() == expected and units.tolist() == [generators[1].uniform(0.0, 1.0) for _ in range(5)]


@functools.cache
def kernels() -> Any:
    """Return the functions, or None without the library. `kernels.cache_clear` looks for it again, for tests.

    Raises:
        OSError: the path in ``DALI_LIKE_KERNELS`` cannot be loaded.
    """
    path = os.environ.get(VARIABLE, "")
    if path == "0":
        return None
    if not path:
        from dali_like.common.extras import installed  # spawned workers import this module, and rarely call the loops

        package = installed("dali_like_kernels")
        if package is None:
            return None
        path = package.LIBRARY
    found = Kernels(path)
    if found.interface == INTERFACE:
        return found
    warnings.warn(
        f"dali-like-kernels has version {found.interface} of its functions, but this package needs {INTERFACE}. Operators "
        "compute without it: install the version that belongs to this package",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def address_of(array: NDArray[Any]) -> int:
    """Return the address of the first element."""
    try:
        return ctypes.addressof(_FIRST_BYTE(array))  # a fifth of the time of the interface
    except (TypeError, ValueError):  # read-only, empty, or not in one piece
        address: int = array.__array_interface__["data"][0]
        return address


_FIRST_BYTE: Any = ctypes.c_char.from_buffer
