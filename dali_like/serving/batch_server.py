"""The server: draws the batches of a loader or pipeline, and lends them to consumers.

It runs in one thread, the one that calls `Server.run`; see `dali_like.serving.lender`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple, Self, get_args

from dali_like.common.arguments import checked
from dali_like.common.interrupts import interruptible
from dali_like.common.tracebacks import user_frames_first
from dali_like.engine.worker.out_of_band import Reducers
from dali_like.errors import ArgumentError, ForkedError
from dali_like.serving.lender import MOST_LEAD, Lender, Policy
from dali_like.serving.wire import Listener

__all__ = ["Policy", "Served", "Server"]


class Served(NamedTuple):
    """The loader or pipeline behind a server.

    Attributes:
        name: its class, for messages.
        begin: begins an epoch.
        state: returns the position behind the last batch; None if there are no states.
        length: returns the number of batches of an epoch; None if it is unknown.
        reducers: see `dali_like.engine.worker.out_of_band`.
    """

    name: str
    begin: Callable[[], Iterator[Any]]
    state: Callable[[], Mapping[str, Any] | None]
    length: Callable[[], int | None]
    reducers: Reducers


def _policy(name: str, value: Any) -> Any:
    if value not in get_args(Policy):
        raise ArgumentError(f'{name} must be "same" or "split", not {value!r}')
    return value


def _consumers(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ArgumentError(f"{name} must be a positive integer, not {value!r}: how many to wait for at first")
    return value


def _lead(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_LEAD:
        raise ArgumentError(f"{name} must be an integer from 1 to {MOST_LEAD}, not {value!r}")
    return value


def _timeout_s(name: str, value: Any) -> float | None:
    if value is not None and not value > 0:
        raise ArgumentError(f"{name} must be positive, or None for no limit, not {value!r}")
    limit: float | None = value
    return limit


class Server:
    """Lends the batches of a loader or pipeline to consumers. Made by ``serve`` of loaders and pipelines.

    `run` does the work, in the thread that calls it. Use the server as a context, or call `close`.
    """

    @checked
    def __init__(
        self,
        served: Served,
        path: str | os.PathLike[str],
        *,
        policy: Annotated[Policy, _policy],
        consumers: Annotated[int, _consumers],
        lead: Annotated[int, _lead],
        consumer_timeout_s: Annotated[float | None, _timeout_s],
    ) -> None:
        self._served = served
        self._num_first = consumers
        self._epoch = 0
        self._has_begun = False
        self._batches: Iterator[Any] | None = None  # of the epoch in progress
        self._iteration = 0
        self._lender = Lender(
            Listener(path), served.reducers, policy=policy, lead=lead, timeout_s=consumer_timeout_s, length_of=served.length
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        if error is None:
            self.close()
        else:
            self.close(f"the server's program has raised {type(error).__name__}: {error}")

    @property
    def path(self) -> str:
        """The path of the socket."""
        return self._lender.path

    @property
    def consumer_pids(self) -> list[int]:
        """Process ids of the consumers that get batches. They are up to date while `run` waits, and after it."""
        return self._lender.consumer_pids

    def state_dict(self) -> Mapping[str, Any] | None:
        """Return the state of the loader or pipeline behind the last batch that all consumers have taken.

        The loader or pipeline itself is ahead of it. None: no batch has been drawn yet, or the pipeline has no states.
        """
        return self._lender.taken_state

    @user_frames_first
    def run(self, epochs: int | None = 1) -> None:
        """Serve epochs, and return when all consumers have taken the last batch.

        Args:
            epochs: number of epochs; None: until `close`, in another thread, or an interrupt.

        Raises:
            Exception: an exception of the loader or pipeline. Another call continues behind it.
            ConsumerTimeoutError: ``consumer_timeout_s`` is over, and there are fewer consumers than needed.
            ClosedError, ForkedError: the server has been closed; it belongs to the parent of this process.
            ClosedError, ForkedError: the server has been closed; it belongs to the parent of this process.
        """
        lender = self._lender
        if lender.pid != os.getpid():
            raise ForkedError(
                f"this server belongs to process {lender.pid}, the parent of this fork; serve another path here"
            )
        with lender.lock:
            number = 0
            while epochs is None or number < epochs:
                self._run_epoch()
                number += 1
            lender.wait_until_taken()

    @user_frames_first
    def close(self, reason: str = "the server has been closed") -> None:
        """End the service. Consumers get the batches that they have not taken yet, then `dali_like.errors.ServerError`.

        Batches that they hold stay valid. May be called repeatedly, and while `run` is in progress in another thread.
        """
        self._lender.close(reason)

    def _run_epoch(self) -> None:
        """Serve one epoch, or the rest of an epoch that an error has interrupted."""
        lender = self._lender
        lender.wait_for_consumers(1 if self._has_begun else self._num_first)
        self._has_begun = True
        if lender.taken_state is None:
            lender.taken_state = self._served.state()
        if self._batches is None:
            with interruptible():
                self._batches = self._served.begin()
        while True:
            while not lender.wait_for_room():
                lender.wait_for_consumers(1)
            try:
                with interruptible():
                    batch = next(self._batches)
            except StopIteration:
                break
            iteration, self._iteration = self._iteration, self._iteration + 1
            lender.lend(batch, self._epoch, iteration, self._served.state())
            del batch
        lender.end_epoch(self._epoch, self._served.state())
        self._epoch += 1
        self._batches, self._iteration = None, 0
