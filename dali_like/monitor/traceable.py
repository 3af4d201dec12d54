"""The methods by which pipelines and loaders are watched. What they need is imported when they are called."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dali_like.errors import PipelineStateError

if TYPE_CHECKING:
    from dali_like.monitor.live import Publication
    from dali_like.monitor.trace import LoaderTrace, PipelineTrace
    from dali_like.monitor.trace_records import Records


class Traceable:
    """What pipelines and loaders have in common."""

    _last_records: Records | None = None
    _publication: Publication | None = None

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw what was traced last: the timeline, what the program waited for, and how full the ring was.

        Args:
            path: the picture, of any format that Matplotlib writes, by its suffix.

        Raises:
            PipelineStateError: nothing has been traced.
            MissingExtraError: Matplotlib is not installed.
        """
        if self._last_records is None:
            raise PipelineStateError("there is no trace to plot: run some batches within `with ....trace():` first")
        from dali_like.monitor.picture import draw  # noqa: PLC0415

        draw(self._last_records, path)

    def publish(self, name: str = "") -> None:
        """Let ``dali-like top`` and ``dali-like view`` show what it does, for as long as it is there and not closed.

        Only programs of the same user, or of root, can see it. Statistics are written into an anonymous file four times a
        second, when a batch is handed over; no thread is started. The environment variable ``DALI_LIKE_PUBLISH=1`` does the
        same for each pipeline and loader of a program, when it begins. See docs/tracing.md.

        Args:
            name: what it is shown as. Default: as the first, second, ... of its program.
        """
        from dali_like.monitor.live import Publication  # noqa: PLC0415

        if self._publication is None:
            shown: Any = self
            self._publication = Publication(shown, name)
            shown._loop_meter.hooks.append(self._publication)

    def _publish_if_told(self) -> None:
        if os.environ.get("DALI_LIKE_PUBLISH", "0") not in ("", "0"):
            self.publish()

    def _unpublish(self) -> None:
        publication, self._publication = self._publication, None
        if publication is not None:
            publication.close()


class TraceablePipeline(Traceable):
    """The same of a pipeline."""

    def trace(self, path: str | os.PathLike[str] | None = None, *, nvtx: bool = False) -> PipelineTrace:
        """Record when each worker, the main thread and the GPU do what, for as long as a context lasts.

        >>> with pipe.trace("run.json"):  # doctest: +SKIP
        ...     for images, labels in pipe:
        ...         train(images, labels)

        The file is of the Trace Event Format: https://ui.perfetto.dev opens it, and so does ``dali-like view run.json``. See
        docs/tracing.md. Entering the context builds the pipeline.

        Args:
            path: the file; it is overwritten when the context is left. None: none, but `plot` can draw what was recorded.
            nvtx: whether what the main process does is shown as NVTX ranges, too, for Nsight Systems.

        Raises:
            PipelineStateError: the pipeline is being traced already. This, and what `build` raises, on entering.
            MissingExtraError: NVTX ranges are wanted, and the package is not installed.
        """
        from dali_like.monitor.trace import PipelineTrace  # noqa: PLC0415

        pipe: Any = self
        return PipelineTrace(pipe, path, nvtx=nvtx)


class TraceableLoader(Traceable):
    """The same of a loader."""

    _trace: LoaderTrace | None = None

    def trace(self, path: str | os.PathLike[str] | None = None, *, nvtx: bool = False) -> LoaderTrace:
        """Record when each worker and the main thread do what, for as long as a context lasts.

        Passes that are under way when it begins are recorded from then on, and those that begin later as a whole. For the
        rest see `dali_like.Pipeline.trace`.

        Raises:
            PipelineStateError: the loader is being traced already; on entering.
            MissingExtraError: NVTX ranges are wanted, and the package is not installed.
        """
        from dali_like.monitor.trace import LoaderTrace  # noqa: PLC0415

        loader: Any = self
        return LoaderTrace(loader, path, nvtx=nvtx)
