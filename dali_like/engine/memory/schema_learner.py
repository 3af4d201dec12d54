"""Learn the schema of the next samples from the batches so far.

Samples of an expected schema go to rows, which a batch has from the start. Each change of the expectation costs new slots or
new buffers, and samples that are written twice. So an expectation may outlive some batches that differ, and it returns when
enough batches in a row agree. The numbers are arguments, because the costs differ: see
`ArrayAssembler` and `RequestAssembler` in `dali_like.engine.pool.assembler`, and for operators
`dali_like.graph.execution.buffers`.

The learner only decides. The loops that write rows are in `dali_like.engine.worker.task`, `dali_like.data.sample_schema` and
`dali_like.graph.execution.buffers`: they are the hot paths, each with the steps that its samples need.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class SchemaLearner(Generic[T]):
    """The expected schema of the samples of one output, or of one dataset.

    Args:
        trust: after a difference, the number of batches of one schema in a row until it is expected.
        cost: of a batch that differs; a batch that fits takes one off.
        most_costs: with these costs, no schema is expected any more.

    Attributes:
        expected: the schema of the next samples; None: unknown, or they differ.
    """

    __slots__ = ("_cost", "_costs", "_last", "_most_costs", "_times", "_trust", "expected", "is_new")

    def __init__(self, *, trust: int = 1, cost: int = 1, most_costs: int = 1) -> None:
        self._trust = trust
        self._cost = cost
        self._most_costs = most_costs
        self._costs = 0
        self.begin(None)

    def begin(self, expected: T | None) -> None:
        """Start over with a known schema; None: the next batch shows it."""
        self.expected = expected
        self.is_new = expected is None
        self._last: T | None = None
        self._times = 0

    def note(self, seen: T | None) -> T | None:
        """Take note of the schema of a batch, and return the one to expect.

        Args:
            seen: None if the samples of the batch differ from each other.
        """
        if self.is_new:
            self.is_new = False
            self.expected = seen
        elif self.expected is not None and seen == self.expected:
            self._last, self._times = None, 0
            self.note_fit()
        else:
            self._times = self._times + 1 if seen is not None and seen == self._last else int(seen is not None)
            self._last = seen
            if self.expected is None or self.note_different():
                self.expected = seen if self._times >= self._trust else None
        return self.expected

    def note_fit(self) -> None:
        """Take note of a batch whose samples had the expected schema."""
        self._costs = max(0, self._costs - 1)

    def note_different(self) -> bool:
        """Take note of a batch whose samples had another schema. Return whether none is expected any more."""
        self._costs += self._cost
        if self._costs < self._most_costs:
            return False
        self.drop()
        return True

    def drop(self) -> None:
        """Expect no schema until `trust` batches agree."""
        self._costs = 0
        self.expected = None
