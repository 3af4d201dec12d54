"""Iterators for JAX beside DALI's: the same programs, the same batches, the same ends, the same errors."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

from dali_like import plugin
from dali_like.errors import ArgumentClashError, ArgumentError, DefinitionError, IteratorArgumentError
from dali_like.plugin.jax import data_iterator

from ..conftest import OURS, Library
from ..iterators import PROGRAMS, copied, quiet, source

EITHER = (False, True)
POLICIES = ("FILL", "DROP")


@contextlib.contextmanager
def iterator_of(library: Library, module: Any, make: Callable[[Any], Any], **options: Any) -> Iterator[Any]:
    """An iterator of a plugin over one pipeline of a source of pictures and numbers."""
    if policy := options.pop("policy", None):
        options["last_batch_policy"] = policy_of(module, policy)
    with library.source_pipeline(make, num_outputs=2, batch_size=options.pop("batch_size", 4)) as pipe, quiet(library):
        yield module.DALIGenericIterator(pipe, ["picture", "number"], **options)


def policy_of(module: Any, name: str) -> Any:
    """One of the policies, of the library that a plugin belongs to."""
    if module is plugin.jax:
        return plugin.LastBatchPolicy[name]
    from nvidia.dali.plugin.base_iterator import LastBatchPolicy

    return LastBatchPolicy[name]


@pytest.fixture
def both(dali: Library, theirs: Any) -> list[tuple[Library, Any]]:
    """DALI and its plugin, this library and its."""
    return [(dali, theirs), (OURS, plugin.jax)]


def outcomes(both: Any, run: Callable[[Any], Any], make: Callable[[Any], Any], **options: Any) -> list[Any]:
    """The result of a program with an iterator of each library."""
    results = []
    for library, module in both:
        with iterator_of(library, module, make, **options) as iterator:
            results.append(run(iterator))
    return results


# The same programs


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("policy", POLICIES)
def test_epochs_of_a_size(name: str, policy: str, both: Any) -> None:
    for padded, auto in itertools.product(EITHER, EITHER):
        theirs, ours = outcomes(
            both,
            PROGRAMS[name],
            source(None),
            size=10 + 16 * (name == "broken_loops"),  # whose loops are to come to no end
            policy=policy,
            last_batch_padded=padded,
            auto_reset=auto,
        )
        assert ours == theirs, (padded, auto)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("policy", POLICIES)
def test_epochs_that_the_source_ends(name: str, policy: str, both: Any) -> None:
    for auto, prepare in itertools.product(("no", "yes"), EITHER):
        options = {"policy": policy, "auto_reset": auto, "prepare_first_batch": prepare}

        theirs, ours = outcomes(both, PROGRAMS[name], source(43), **options)

        assert ours == theirs, (auto, prepare)


def test_batches_are_dicts_of_arrays(both: Any) -> None:
    def kinds(iterator: Any) -> Any:
        return {name: (type(value), value.shape, value.committed) for name, value in next(iterator).items()}

    theirs, ours = outcomes(both, kinds, source(None))

    assert ours == theirs


def test_decorated_functions(both: Any) -> None:
    def epochs(library: Library, module: Any) -> Any:
        @module.data_iterator(output_map=["picture", "number"], size=10, last_batch_padded=True, auto_reset=True)
        def pictures(first: int, *, length: int | None = None) -> Any:
            outputs = library.fn.external_source(source=source(length, first), num_outputs=2, batch=False)
            return tuple(outputs)

        with quiet(library):
            iterator = pictures(100, batch_size=4, device_id=None)
            return [list(map(copied, iterator)) for _ in range(2)]

    theirs, ours = (epochs(library, module) for library, module in both)

    assert ours == theirs
    assert [len(epoch) for epoch in ours] == [3, 3]


# The same errors

WRONG: dict[str, dict[str, Any]] = {
    "names": {"output_map": ["x", "x"]},
    "partial": {"policy": "PARTIAL"},
    "sharding": {"sharding": "all of them"},
    "reader": {"reader_name": "reader"},
    "size": {"size": 0},
    "auto_reset": {"auto_reset": "maybe"},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_errors(wrong: str, both: Any) -> None:
    errors = []
    for library, module in both:
        options = {"output_map": ["picture", "number"], **WRONG[wrong]}
        if policy := options.pop("policy", None):
            options["last_batch_policy"] = policy_of(module, policy)
        with (
            library.source_pipeline(source(12), num_outputs=2) as pipe,
            quiet(library),
            pytest.raises(Exception) as caught,  # noqa: PT011
        ):
            module.DALIGenericIterator(pipe, **options)
        errors.append(caught.value)

    theirs, ours = errors
    assert isinstance(ours, ArgumentError)
    assert isinstance(ours, type(theirs))


def test_sharding_and_devices_exclude_each_other(both: Any) -> None:
    device = jax.devices()[0]
    sharding = jax.sharding.SingleDeviceSharding(device)
    for _, module in both:
        with pytest.raises(ValueError):  # noqa: PT011
            module.data_iterator(lambda: None, ["x"], sharding=sharding, devices=[device])

    with pytest.raises(ArgumentClashError, match="both"):
        plugin.jax.DALIGenericIterator([], ["x"], sharding=sharding, devices=[device])


def test_arguments_of_the_iterator_are_those_of_the_decorator() -> None:
    with pytest.raises(DefinitionError, match="unexpected arguments: size"):
        count(batch_size=4, size=12)


# Checkpoints


def counted(info: Any) -> Any:
    """Epochs of 20 numbers."""
    if info.idx_in_epoch >= 20:
        raise StopIteration
    return np.int32(100 * info.epoch_idx + info.idx_in_epoch)


@data_iterator(output_map=["number"])
def count() -> Any:
    """Numbers."""
    return OURS.fn.external_source(source=counted, batch=False)


@pytest.mark.parametrize("taken", [0, 1, 4, 6])
def test_iterators_go_on_from_checkpoints(taken: int) -> None:
    iterator = count(batch_size=4, enable_checkpointing=True)
    batches = itertools.chain.from_iterable(itertools.repeat(iterator))
    for _ in range(taken):
        next(batches)
    checkpoints = iterator.checkpoints()

    resumed = count(batch_size=4, enable_checkpointing=True, checkpoints=checkpoints)

    expected = [batch["number"].tolist() for batch in iterator]
    assert [batch["number"].tolist() for batch in resumed] == expected
    assert expected


@pytest.mark.parametrize("taken", [0, 1, 4, 6])
def test_iterators_go_on_from_states(taken: int) -> None:
    iterator = count(batch_size=4, seed=1, enable_checkpointing=True)
    batches = itertools.chain.from_iterable(itertools.repeat(iterator))
    for _ in range(taken):
        next(batches)
    state = json.loads(json.dumps(iterator.state_dict()))
    other = count(batch_size=4, seed=1, enable_checkpointing=True)
    next(other)

    other.load_state_dict(state)

    expected = [batch["number"].tolist() for batch in iterator]
    assert [batch["number"].tolist() for batch in other] == expected
    assert expected


def test_number_of_checkpoints() -> None:
    checkpoints = count(batch_size=4, enable_checkpointing=True).checkpoints()

    with pytest.raises(ArgumentClashError, match="one element for each of the 1 pipelines, not 2"):
        count(batch_size=4, checkpoints=checkpoints * 2)


def test_no_policy_changes_shapes() -> None:
    with pytest.raises(IteratorArgumentError, match="PARTIAL"):
        plugin.jax.DALIGenericIterator([], ["x"], last_batch_policy=plugin.LastBatchPolicy.PARTIAL)
