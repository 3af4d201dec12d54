"""Evaluates a part of a batch in logical shards, in a worker, or in the main process without workers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from dali_like.feed.shards import PositionsAnswer, PositionsPart, PositionsRequest

if TYPE_CHECKING:
    from dali_like.sources.composed.part_walk import PartWalk
    from dali_like.sources.composed.stream import Elements

#: Limit of other elements that may replace a failed one.
_MOST_OTHERS = 100


class Conduct(NamedTuple):
    """How to treat the elements of a part.

    Attributes:
        before: called before each element, with its index in the part, its place in the batch, and its position.
        timed: returns a function with a time measurement.
        replace: returns the replacement of a failed element, given its position, the error, and other elements: each is a
            name, and a function that computes it. None: errors are raised.
        put: writes elements into the rows at ascending places, up to the first that does not fit. Returns how many it has
            written. None: no element goes to a row.
        together: the number of elements to `put` at once; None: all.
    """

    before: Callable[[int, int, int], Any]
    timed: Callable[[Callable[[int], Any]], Callable[[int], Any]]
    replace: Callable[[int, Exception, Iterable[tuple[str, Callable[[], Any]]]], Any] | None = None
    put: Callable[[list[int], list[Any]], int] | None = None
    together: int | None = None


def take_part(
    elements: Elements, num_shards: int, wanted: PositionsRequest, part: PositionsPart, conduct: Conduct
) -> PositionsAnswer:
    """Return the elements of a part that are not in rows, and the states of its logical shards behind them."""
    from dali_like.sources.composed.part_walk import PartWalk  # few programs need it

    answer = PositionsAnswer([], [], [], {}, [])
    walk = PartWalk(elements, num_shards, wanted.epoch, part.states)
    found = _elements_of(walk, elements, wanted, part, conduct, answer)
    while some := list(itertools.islice(found, conduct.together)):
        if conduct.put is not None and not answer.others:
            some = some[conduct.put(answer.found[-len(some) :], some) :]
        answer.others.extend(some)
        del some  # the next elements reuse the memory, which is in the CPU cache
    return answer._replace(states=walk.states(), ended=walk.ended)


def _elements_of(
    walk: PartWalk,
    elements: Elements,
    wanted: PositionsRequest,
    part: PositionsPart,
    conduct: Conduct,
    answer: PositionsAnswer,
) -> Iterator[Any]:
    """Yield the elements of a part, and note in its answer which positions have one."""
    from dali_like.sources.composed.stream import ShardEndedError  # few programs need it

    before, replace, take = conduct.before, conduct.replace, conduct.timed(walk.at)
    for index, place in enumerate(part.places):
        position = wanted.positions[place]
        before(index, place, position)
        try:
            element = take(position)
        except ShardEndedError:
            continue
        except Exception as error:
            if replace is None:
                raise
            walk.keep_state(position)
            element = replace(position, error, elements.others(wanted.epoch, position, _MOST_OTHERS))
        answer.found.append(place)
        yield element
