"""The sources of the examples, with endless epochs."""

from __future__ import annotations

import sys

from examples.demo_data import LabeledFiles
from examples.photograph_source import DetectionSource, PhotographSource

__all__ = ["EndlessDetections", "EndlessPhotographs"]


class EndlessPhotographs(PhotographSource):
    """Files and labels, repeated in the same order."""

    def __init__(self, photographs: LabeledFiles) -> None:
        super().__init__(photographs, batch_size=1)
        self._count = self.batches
        self.batches = sys.maxsize

    def _index(self, epoch: int, position: int) -> int:
        return super()._index(epoch, position % self._count)


class EndlessDetections(DetectionSource, EndlessPhotographs):
    """The same, with windows and boxes."""
