"""The place where the graph meets the debug mode: nodes are computed as soon as they are made.

A `Stepper` is active in the thread that runs a pipeline with ``debug=True``; see `dali_like.graph.stepwise.debug_run`.
Without one, nodes only define a graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from dali_like.graph.language.nodes import DataNode, OperatorNode, Producer, SourceNode
    from dali_like.sources.external_source import ExternalSource


class Stepper(Protocol):
    """Computes nodes when they are made."""

    @property
    def size(self) -> int:
        """The number of samples in this batch, as far as known."""

    def compute(self, node: OperatorNode) -> None:
        """Compute an operator, and record its outputs by `record`."""

    def take(self, external: ExternalSource) -> SourceNode:
        """Return a node with the next batch of a source."""

    def node_of(self, batch: Any) -> DataNode | None:
        """Return a node for a batch that the user passes to an operator; None if it is not a batch."""


class Computed(NamedTuple):
    """The outputs of a producer.

    Attributes:
        columns: the samples of each output, as one array or a sequence; None for a sample that does not take the branch of
            the producer.
        layouts: of each output.
    """

    columns: tuple[Any, ...]
    layouts: tuple[str, ...]


_stepper: ContextVar[Stepper | None] = ContextVar("stepper", default=None)
_computed: WeakKeyDictionary[Producer, Computed] = WeakKeyDictionary()


def current_stepper() -> Stepper | None:
    """Return the stepper of this thread; None outside of the debug mode."""
    return _stepper.get()


@contextlib.contextmanager
def stepping(stepper: Stepper | None) -> Iterator[None]:
    """Let a stepper compute new nodes; with None, nodes define a graph again, as in a callback."""
    token = _stepper.set(stepper)
    try:
        yield
    finally:
        _stepper.reset(token)


def record(producer: Producer, computed: Computed) -> None:
    """Remember the outputs of a producer as long as it exists."""
    _computed[producer] = computed


def computed_by(producer: Producer) -> Computed | None:
    """Return the outputs of a producer; None if it has not been computed."""
    return _computed.get(producer)
