"""The pool of a loader without workers: it computes a batch in the thread that takes it.

It has the methods of `dali_like.data.loader_workers.LoaderWorkers` that iterators call. Requests and batches are the objects
themselves: nothing is pickled or copied.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from dali_like.common.foreign_errors import add_note, with_traceback
from dali_like.data.counters import LoaderCounters
from dali_like.data.fetcher import Fetcher, LocalRequest
from dali_like.data.messages import BatchAnswer, SamplesRequest
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.batch import Batch
from dali_like.engine.worker.meters import Interval

if TYPE_CHECKING:
    from dali_like.data.plans import IteratorState

#: Outcome of a batch of an iterable dataset whose computation was interrupted.
LOST = object()


class LocalResponse:
    """A batch made in this process, in place of a `dali_like.engine.pool.batch.Response`."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def messages(self) -> dict[int, Any]:
        """Return the only answer."""
        return {0: self._answer}


class _LocalBatch(Batch):
    """A batch without tasks and slot."""

    def __init__(self, key: BatchKey) -> None:
        self.key = key
        self.outcome = None


class LocalWorkers:
    """Computes the batches of one iterator in the main process.

    Args:
        fetcher: computes them.
        state: of the iterator.
        counters: of the loader.
        is_iterable: whether the dataset is an iterable one. Then its iterator begins now.
    """

    is_bound = False
    capacity = 0
    #: Batches are computed when the program takes them.
    num_ahead = 0
    tuner = None
    failure: BaseException | None = None
    handles: Sequence[Any] = ()
    #: Batches have no order of need: there is one at a time.
    turns = itertools.repeat(0)

    def __init__(self, fetcher: Fetcher, state: IteratorState, counters: LoaderCounters, *, is_iterable: bool) -> None:
        self.fetcher = fetcher
        self.counters = counters
        self._number = state.number
        self._walk = fetcher.open_walk(0, state.shared_seed, state.walk_of(0)) if is_iterable else None
        self._local = LocalRequest()
        #: Excludes other threads.
        self.guard = threading.RLock()

    @property
    def pool(self) -> Self:
        """The pool: this object."""
        return self

    def begin_use(self) -> int:
        """Serve the iterator. Return its number."""
        return self._number

    def end_use(self, number: int, pending: Iterable[Batch]) -> None:
        """End the service."""
        self._local.close()

    def close(self) -> None:
        """End the threads for reads, if there are any."""
        self._local.close()

    def report(self) -> dict[str, Any] | None:
        """Return the state of an iterable dataset behind the last batch."""
        return None if self._walk is None else self._walk.report(self.fetcher.dataset)

    def submit(self, key: BatchKey) -> Batch:
        """Begin a batch. `wait_for` computes it."""
        return _LocalBatch(key)

    def cancel(self, batch: Batch) -> None:
        """Give a batch up."""

    def wait_for(self, batches: Sequence[Batch], timeout_s: float) -> Batch:
        """Compute the first of some batches, unless that was done.

        An interrupt leaves the batch without an outcome, so that the next call computes it again. The items of an iterable
        are gone: then the outcome is `LOST`.
        """
        batch = batches[0]
        if batch.outcome is not None:
            return batch
        fetcher, walk, local = self.fetcher, self._walk, self._local
        request: Any = batch.key.request
        local.cell[0] = local.cell[1] = 0
        meter = self.counters.meter
        local.watch = watch = meter.begin()
        try:
            if type(request) is SamplesRequest:
                answer: Any = BatchAnswer(fetcher.fetch_here(request, local))
            else:
                answer = fetcher.answer_locally(request, local, walk)
        except StopIteration:  # also one that a map-style dataset raises: it ends the loop, as in PyTorch
            batch.outcome = StopIteration()
        except Exception as error:
            item = f"batch {batch.key.iteration}"
            where = item if walk is not None else fetcher.describe_request(request, local.cell[0])
            add_note(error, f"raised by {fetcher.name} for {where}")
            # Without this frame, which would refer to the error through the batch.
            traceback = sys.exc_info()[2]  # the class of the error may define attributes of its own
            batch.outcome = with_traceback(error, traceback and traceback.tb_next)
            del traceback
        except BaseException:
            if walk is not None:
                batch.outcome = LOST
            raise
        else:
            if type(answer) is BatchAnswer:
                self.counters.batches += 1
                batch.outcome = answer
            else:
                batch.outcome = LocalResponse(answer)
        finally:
            if meter.end(watch, Interval(self._number, batch.key.iteration, -1, 1)):
                meter.note()
            self.counters.replaced += local.cell[1]
        return batch

    def note_fit(self) -> None:
        """Batches have no rows."""

    def note_different(self, schema: Any, messages: Mapping[int, Any]) -> None:
        """Batches have no rows."""

    def describe_workers_on(self, batch: Batch) -> list[str]:
        """Return an empty list: there are no workers."""
        return []

    def warn_about_restarts(self) -> None:
        """There are no workers to restart."""
