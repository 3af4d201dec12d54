"""Passes that are begun before they are asked for: whether one that is begun now would be the same."""

from __future__ import annotations

from typing import Any, NamedTuple

from dali_like.data.iterator_state import Plan
from dali_like.data.loader_iterator import LoaderIterator

_PLAIN = (int, float, str, bytes, type(None))


class PreparedIterator(NamedTuple):
    """A pass that has been begun before it was asked for, and what it went by.

    Attributes:
        samplers: what could be set in them.
        generator_before: the state of the loader's generator before it had drawn anything.
        generator_after: and after that.
    """

    made: LoaderIterator
    plan: Plan
    samplers: Any
    generator_before: dict[str, Any] | None
    generator_after: dict[str, Any] | None

    def fits(self, plan: Plan) -> bool:
        """Whether a pass that is begun now would be like it."""
        pairs = zip(self.plan, plan, strict=True)
        same = all(before is now or (isinstance(now, _PLAIN) and before == now) for before, now in pairs)
        return same and self.samplers == state_of_samplers(plan)


def state_of_samplers(plan: Plan) -> list[dict[str, Any]]:
    """What can be set in a sampler, such as its epoch, and in the one that it takes its indices from."""
    sampler: Any = plan.index_sampler
    states = []
    while sampler is not None and hasattr(sampler, "__dict__"):
        states.append({name: value for name, value in vars(sampler).items() if isinstance(value, _PLAIN)})
        sampler = getattr(sampler, "sampler", None)
    return states
