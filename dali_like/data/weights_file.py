"""Weights of mixtures in a file that an operator edits while a job runs: ``DataLoader(weights_file=...)``.

The first rank looks at the file, and the others get its content, before the same batch. Runs in the main process.
"""

from __future__ import annotations

import json
import os
import stat
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dali_like.common.notices import warn
from dali_like.data.weight_changes import checked_weights, mixture_of
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError
from dali_like.sources.composed.mixing import quotas

if TYPE_CHECKING:
    from dali_like.data.base_loader import BaseDataLoader
    from dali_like.data.position_sampler import PositionSampler
    from dali_like.sources.composed.dataset import ComposedDataset
    from dali_like.sources.composed.draws import DrawnMixture

__all__ = ["WeightsFile", "WeightsWatcher", "check_weights_file"]

#: Several ranks look at the file before one of so many batches: the others wait for the first rank. One rank always looks.
_BATCHES_PER_LOOK = 16

_STAYS = "and the weights stay as they are until it changes"

#: Changes with the content of a file: its time, its size, and its number.
_Mark = tuple[int, int, int]


def _mark_of(about: os.stat_result) -> _Mark:
    return about.st_mtime_ns, about.st_size, about.st_ino


class WeightsFile:
    """A JSON file with weights.

    It has a mapping from the names of datasets to weights; or, for several mixtures, from their names to such mappings.

    Args:
        path: of the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._latest: _Mark | None = None

    def changed(self) -> list[Any] | None:
        """Return the content, alone in a list, if the file is new, or has changed since the last call; else None.

        A file that is missing is left for the next call. This never blocks, which reading a named pipe would.
        """
        try:
            if _mark_of(os.stat(self.path)) == self._latest:
                return None
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._note_unreadable((0, 0, 0), f"cannot be read, {_STAYS}: {error.strerror}")
            return None
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                self._note_unreadable(_mark_of(about), f"is not a regular file, {_STAYS}")
                return None
            self._latest = _mark_of(about)
            with open(descriptor, "rb", closefd=False) as file:
                return [json.loads(file.read())]
        except (OSError, ValueError, RecursionError) as error:
            self.warn(f"is not JSON, {_STAYS}: {error}")
            return None
        finally:
            os.close(descriptor)

    def _note_unreadable(self, mark: _Mark, problem: str) -> None:
        """Warn, once, that there is no content."""
        if mark != self._latest:
            self._latest = mark
            self.warn(problem)

    def warn(self, problem: str) -> None:
        """Warn about the content: a mistake of an operator should not end the job."""
        warn(f"weights_file {self.path} {problem}", UserWarning)


class WeightsWatcher:
    """Changes the weights of a loader when its file changes. It is called before each batch.

    Args:
        loader: composed; it is not kept.
        path: of the file.
    """

    def __init__(self, loader: BaseDataLoader[Any], path: str | os.PathLike[str]) -> None:
        self._loader = weakref.ref(loader)
        self._file = WeightsFile(path)
        self._count = 0

    def begin(self) -> None:
        """Note that a loop begins: it looks at the file before its first batch."""
        self._count = 0

    def __call__(self) -> None:
        loader = self._loader()
        if loader is None:
            return
        positions: Any = loader._dali_like_positions
        agreement = loader._dali_like_factory.agreement_of(positions)
        is_due = not agreement.has_job or self._count % _BATCHES_PER_LOOK == 0
        self._count += 1
        if not is_due:
            return
        changed = self._file.changed() if agreement.is_first else None
        if agreement.has_job:
            changed = agreement.from_first(changed, "weights_file")
        for content in changed or ():
            self._apply(loader, positions, content)

    def _apply(self, loader: BaseDataLoader[Any], positions: PositionSampler, content: Any) -> None:
        try:
            for mixture, weights in _wanted(positions.dataset, content):
                if quotas(weights, mixture.stage.block, mixture.stage.names) != _latest_quotas(positions, mixture):
                    loader._dali_like_change(positions, mixture, weights)
        except (ArgumentError, ArgumentTypeError) as error:
            self._file.warn(f"does not fit, {_STAYS}: {error}")


def _wanted(dataset: ComposedDataset, content: Any) -> list[tuple[DrawnMixture, tuple[float, ...]]]:
    """Return the mixtures in the content of a file, with their weights.

    Raises:
        ArgumentError, ArgumentTypeError: it does not fit the dataset.
    """
    if not isinstance(content, Mapping) or not content:
        raise ArgumentTypeError(f'it should have a mapping, such as {{"web": 2, "code": 1}}, not {content!r:.200}')
    has_names = all(isinstance(part, Mapping) for part in content.values())
    found = []
    for name, weights in content.items() if has_names else [(None, content)]:
        mixture = mixture_of(dataset, weights, name)
        found.append((mixture, checked_weights(mixture, weights)))
    return found


def _latest_quotas(positions: PositionSampler, mixture: DrawnMixture) -> tuple[int, ...]:
    """Return the latest quotas of a mixture, which may begin later."""
    stage = mixture.stage
    own = [change.weights for change in positions.changes.items if change.path == mixture.path]
    return quotas(own[-1] if own else stage.weights[-1][1], stage.block, stage.names)


def check_weights_file(path: Any, dataset: ComposedDataset, num_ranks: int, rest: str) -> None:
    """Check that a loader can read weights from a file.

    Raises:
        ArgumentTypeError: this is not a path.
        ArgumentError: this is a folder, a pipe or the like.
        ArgumentClashError: no mixture can change, or ranks may have different numbers of batches.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentTypeError(f"weights_file should be a path, not {path!r:.200}")
    if os.path.exists(path) and not os.path.isfile(path):
        raise ArgumentError(
            f"weights_file should be a regular file, and {os.fspath(path)} is not: a pipe would stop the loop"
        )
    if all(mixture.why_fixed is not None for mixture in dataset.mixtures):
        reasons = "; ".join(f"{mixture.stage.name}: {mixture.why_fixed}" for mixture in dataset.mixtures)
        raise ArgumentClashError(
            f"weights_file needs a mixture whose weights can change. {reasons or 'This dataset has no mixture'}"
        )
    if num_ranks > 1 and rest == "uneven" and not dataset.is_endless:
        raise ArgumentClashError(
            'weights_file needs equally many batches on all ranks, which read it together: leave shard_rest="uneven" out, '
            "or describe an endless stream with repeat()"
        )
