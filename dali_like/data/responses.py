"""Batches of what workers have made sample by sample, or as wholes: in the main process, when a pass delivers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dali_like.data.messages import MadeSamples, Whole
from dali_like.engine.pool.request_assembler import Response
from dali_like.engine.worker.out_of_band import LEAST_BUFFER_BYTES

if TYPE_CHECKING:
    from dali_like.data.iterator_state import IteratorState
    from dali_like.data.loader_workers import LoaderWorkers


def batch_of_response(response: Response, workers: LoaderWorkers, progress: IteratorState) -> Any:
    """The batch that a response makes. What its samples are like is noted for those to come; and a state, if it has one."""
    messages = response.messages()
    whole = messages.get(0)
    if isinstance(whole, Whole):
        progress.tell(whole.told)
        return whole.batch
    schema: Any = response.schema
    if any(message.others for message in messages.values()):
        workers.note_schema(True, messages)
        return workers.fetcher.collate(_samples(messages, response, schema))
    workers.note_schema(False, messages)
    rows = [row if row.nbytes >= LEAST_BUFFER_BYTES else row.copy() for row in response.rows]
    return schema.root.batch(rows, _joined_texts(messages, schema), False)


def _joined_texts(messages: dict[int, MadeSamples], schema: Any) -> list[list[Any]]:
    """The texts of all samples, where all have the form."""
    columns: list[list[Any]] = [[] for _ in range(schema.num_texts)]
    for _, message in sorted(messages.items()):
        for column, texts in zip(columns, message.texts, strict=True):
            column.extend(texts)
    return columns


def _samples(messages: dict[int, MadeSamples], response: Response, schema: Any) -> list[Any]:
    """All samples of a batch, as the dataset gave them."""
    samples: list[Any] = []
    for task, begin in enumerate(range(0, response.size, response.task_size)):
        end = min(begin + response.task_size, response.size)
        message = messages.get(task, MadeSamples([], []))
        in_rows = range(begin, end - len(message.others))
        if in_rows:
            texts = [[None] * begin + column for column in message.texts]
            samples += [schema.root.sample(response.rows, texts, i) for i in in_rows]
        samples += message.others
    return samples
