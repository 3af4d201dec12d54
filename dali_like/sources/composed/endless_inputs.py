"""Epochs of endless inputs in logical shards.

A stage with an unknown yield may end, such as ``mix(..., stop="never").filter(f).take(1000)``, and its input with random
access does not. Where an epoch has ended in that input, no process knows. So each epoch has a part of the input of its own,
as if the input ended after so many positions that nobody reaches the end.
"""

from __future__ import annotations

import operator
from dataclasses import replace

from dali_like.sources.composed.mixing import Mix
from dali_like.sources.composed.selection import Repeat
from dali_like.sources.composed.stage import Stage, with_inputs

__all__ = ["with_epochs"]

#: Positions of an endless input in an epoch: far more than an epoch has, and millions of epochs fit into 64 bits.
_POSITIONS = 1 << 40


def with_epochs(stage: Stage, has_epochs: bool = False) -> Stage:
    """Return the stage, with endless inputs that have epochs; in the first epoch, elements are the same.

    A stream without an end is in its first epoch for ever: it stays as it is.

    Args:
        stage: in logical shards, or with random access and a length.
        has_epochs: whether a stage behind it ends, or begins it again.
    """
    has_epochs = has_epochs or not stage.is_endless
    if stage.is_sharded:
        inputs = [with_epochs(each, has_epochs) for each in stage.inputs]
    elif has_epochs and stage.length is None:
        if isinstance(stage, Mix):
            return replace(stage, most=_POSITIONS)
        if isinstance(stage, Repeat) and (length := stage.input.length):
            return replace(stage, times=-(-_POSITIONS // length))
        inputs = [each if each.length is not None else with_epochs(each, has_epochs) for each in stage.inputs]
    else:
        return stage
    return stage if all(map(operator.is_, inputs, stage.inputs)) else with_inputs(stage, inputs)
