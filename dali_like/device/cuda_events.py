"""Fences and stamps made of CUDA events, see "Event Management" in the CUDA Driver API."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from dali_like.device.cuda_driver import FATAL, SUCCESS, Driver, Event, Relaxed, is_fatal
from dali_like.errors import DeviceError


class CudaFence:
    """Events on one or more streams; see `dali_like.device.interface.DeviceFence`.

    Args:
        events: the events; None: they could not be recorded, so only waiting for all work passes the fence.
        synchronize: waits for all work of the GPUs in use.
    """

    def __init__(self, driver: Driver, events: Sequence[Event] | None, synchronize: Callable[[], None]) -> None:
        self._driver = driver
        self._synchronize = synchronize
        self.events = events
        self.error: DeviceError | None = None

    @classmethod
    def behind_all(cls, driver: Driver, synchronize: Callable[[], None]) -> CudaFence:
        """Return a fence for events that could not be recorded, and try to wait for it."""
        fence = cls(driver, None, synchronize)
        fence.wait()
        return fence

    def passed(self) -> bool:
        """Whether all events have passed, or never will because the GPU has failed.

        Other errors say nothing about the work, for example errors of queries during the capture of a graph.
        """
        if self.events is None:
            return False
        with Relaxed(self._driver):
            for event in self.events:
                status = self._driver.query(event)
                if status in FATAL:
                    self.error = DeviceError(f"the GPU has failed before the end of a copy, with CUDA's error {status}")
                elif status != SUCCESS:
                    return False
        return True

    def wait(self) -> None:
        """Wait for all events, without the GIL."""
        try:
            with Relaxed(self._driver):
                if self.events is None:
                    self._synchronize()
                    self.events = ()
                for event in self.events:
                    self._driver.synchronize(event)
        except Exception as error:  # modules may be empty at interpreter exit
            if is_fatal(error):
                self.events = ()
            self.error = DeviceError(f"the GPU has failed before the end of a copy: {error}")


class CudaStamp:
    """An event that records the time; see `dali_like.device.interface.Stamp`.

    Args:
        origin: an earlier event, which has passed.
        origin_ns: the time of that event.
    """

    def __init__(self, driver: Driver, event: Event, origin: Event, origin_ns: int) -> None:
        self._driver = driver
        self._event = event
        self._origin = origin
        self._origin_ns = origin_ns

    def time_ns(self) -> int | None:
        """Return the time when the stream reached the event; the time of the origin if the GPU has failed."""
        with Relaxed(self._driver):
            status = self._driver.query(self._event)
            if status in FATAL:
                return self._origin_ns
            if status != SUCCESS:
                return None
            return self._origin_ns + round(self._driver.elapsed_ms(self._origin, self._event) * 1e6)

    def wait(self) -> None:
        """Wait until the stream has reached the event."""
        with contextlib.suppress(DeviceError), Relaxed(self._driver):
            self._driver.synchronize(self._event)
