"""Marks in annotations: which arguments of operators and readers a serialized pipeline may hold.

A serialized pipeline may come from anybody. Numbers, flags, members of enumerations, choices and data types name nothing
outside of the pipeline, and need no mark. Every other argument, such as a text or a dict, is refused when a pipeline is
loaded, and left out when it is saved, unless its annotation has the mark `SAVED`. So a stranger cannot open a cache, write a
file or configure a library with a new argument because somebody forgot about it.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, TypeAlias


class Mark(Enum):
    """Whether a serialized pipeline may hold the argument whose annotation has the mark."""

    SAVED = True
    NOT_SAVED = False


SAVED = Mark.SAVED
#: For flags and numbers that have effects outside of the pipeline.
NOT_SAVED = Mark.NOT_SAVED

#: A text that a serialized pipeline may hold: a layout, or a file or folder that is only read.
SavedText: TypeAlias = Annotated[str, SAVED]
#: Texts that a serialized pipeline may hold: layouts, or files that are only read, or patterns of their names.
SavedTexts: TypeAlias = Annotated[str | tuple[str, ...], SAVED]
