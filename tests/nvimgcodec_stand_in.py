"""The part of nvImageCodec that this library uses, with the names and arguments of version 0.9. It decodes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class ColorSpec(Enum):
    SRGB = 1
    GRAY = 2


@dataclass
class DecodeParams:
    apply_exif_orientation: bool = True
    color_spec: ColorSpec = ColorSpec.SRGB


class Decoder:
    """Records the requests that it receives."""

    made: list[Decoder]

    def __init__(self, device_id: int = -1, *, options: str = "") -> None:
        self.device_id, self.options = device_id, options
        self.asked: list[tuple[list[bytes], DecodeParams, int]] = []
        self.made.append(self)

    def decode(self, srcs: list[bytes], *, params: DecodeParams, cuda_stream: int = 0) -> list[Any]:
        self.asked.append((srcs, params, cuda_stream))
        return [None for _ in srcs]
