"""The way of a batch to an actor of Ray and back, in one process; for the rest see tests/on_ray."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from dali_like.engine.backends.ray.ray_slots import Slots
from dali_like.engine.backends.ray.ray_worker import RayWorker, TaskResult
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.protocol import Status, control_bytes
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.assembler import StreamAssembler
from dali_like.engine.pool.batch import Batch
from dali_like.engine.worker.runner import TaskRunner
from dali_like.engine.worker.source import Source, SourceType
from dali_like.engine.worker.streams import Stream, request_text


class Numbers:
    """Batches of one number each. Its state is the next number."""

    number = 0

    def __iter__(self) -> Iterator[Any]:
        while True:
            self.number += 1
            yield [np.float32(self.number - 1)]

    def state_dict(self) -> dict[str, int]:
        return {"number": self.number}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.number = state["number"]


def test_an_actor_resumes_from_the_state_in_a_request() -> None:
    numbers = Numbers()
    stream = Stream(numbers.__iter__, owner=numbers)
    source = Source("source", stream, batch=True, type=SourceType.STREAM, in_order=True, takes_state=True)
    space = SharedSpace.create()
    space.allocate(control_bytes(1, 1))
    assembler = StreamAssembler(space, source, 1, declared=[OutputSchema(-1, -1)], num_workers=1)
    state = {"epoch": 0, "position": 5, "end": None, "of_iterator": False, "state": {"number": 100}}
    request = request_text(1, json.dumps(state).encode(), reports=True)
    slot = assembler.begin(Batch(BatchKey(0, 0, 7, 7, 1, request=request)), 1)
    actor = RayWorker()
    # Private: sets the actor up without Ray
    actor._sources = [source]
    # Private: sets the actor up without Ray
    actor._runner = TaskRunner(actor._space, actor._sources, actor._cell)
    slots = Slots(space, 1)

    ((status, *parts),) = actor.compute([(slots.words_of(slot.page), [0])])

    assert slots.store(slot.page, 0, TaskResult(status, *parts))[0] == Status.DESCRIBED
    assert numbers.number == 103  # from 100, two items are skipped
    assembler.ring.close()
