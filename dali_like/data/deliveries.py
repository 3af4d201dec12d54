"""Batches of what workers have made sample by sample, or as wholes: in the main process, when a pass delivers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dali_like.data.messages import MadeSamples, Whole
from dali_like.workers.parcels import LEAST_BUFFER_BYTES
from dali_like.workers.requests import Delivery

if TYPE_CHECKING:
    from dali_like.data.crew import LoaderCrew
    from dali_like.data.progress import Progress


def batch_of_delivery(delivery: Delivery, crew: LoaderCrew, progress: Progress) -> Any:
    """The batch that a delivery makes. What its samples are like is noted for those to come; and a state, if it has one."""
    messages = delivery.messages()
    whole = messages.get(0)
    if isinstance(whole, Whole):
        progress.tell(whole.told)
        return whole.batch
    form: Any = delivery.form
    if any(message.others for message in messages.values()):
        crew.note_form(True, messages)
        return crew.maker.collate(_samples(messages, delivery, form))
    crew.note_form(False, messages)
    rows = [row if row.nbytes >= LEAST_BUFFER_BYTES else row.copy() for row in delivery.rows]
    return form.root.batch(rows, _joined_texts(messages, form), False)


def _joined_texts(messages: dict[int, MadeSamples], form: Any) -> list[list[Any]]:
    """The texts of all samples, where all have the form."""
    columns: list[list[Any]] = [[] for _ in range(form.num_texts)]
    for _, message in sorted(messages.items()):
        for column, texts in zip(columns, message.texts, strict=True):
            column.extend(texts)
    return columns


def _samples(messages: dict[int, MadeSamples], delivery: Delivery, form: Any) -> list[Any]:
    """All samples of a batch, as the dataset gave them."""
    samples: list[Any] = []
    for task, begin in enumerate(range(0, delivery.size, delivery.task_size)):
        end = min(begin + delivery.task_size, delivery.size)
        message = messages.get(task, MadeSamples([], []))
        in_rows = range(begin, end - len(message.others))
        if in_rows:
            texts = [[None] * begin + column for column in message.texts]
            samples += [form.root.sample(delivery.rows, texts, i) for i in in_rows]
        samples += message.others
    return samples
