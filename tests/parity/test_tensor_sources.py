"""Sources that return tensors and capsules, such as results of another pipeline: the batch has their layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.parity.conftest import OURS, Library, copied, error_of

pytestmark = pytest.mark.peers

PLANES = np.arange(2 * 3 * 5, dtype=np.uint8).reshape(2, 3, 5)
#: Results of a source as a batch of two, given the classes of tensors, and the arguments that fit them.
BATCHES: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "tensors": (lambda tensors: [tensors.TensorCPU(PLANES, "CHW")] * 2, {}),
    "a list of tensors": (lambda tensors: tensors.TensorListCPU(np.stack([PLANES] * 2), "CHW"), {}),
    "one with a layout": (lambda tensors: [tensors.TensorCPU(PLANES, "CHW"), PLANES], {}),
    "a layout that was declared": (lambda tensors: [tensors.TensorCPU(PLANES, "HWC")] * 2, {"layout": "CHW"}),
    "two outputs": (
        lambda tensors: ([tensors.TensorCPU(PLANES, "CHW")] * 2, [tensors.TensorCPU(PLANES[0], "QR")] * 2),
        {"num_outputs": 2},
    ),
}


def run(library: Library, make: Callable[[Any], Any], options: dict[str, Any]) -> list[Any]:
    """Two batches of the source's results, and of the same turned round."""

    def define() -> Any:
        node = library.fn.external_source(lambda: make(library.tensors), **options)
        nodes = node if isinstance(node, list) else [node]
        return (*nodes, library.fn.flip(nodes[0], horizontal=1))

    with library.pipeline(define, batch_size=2) as pipe:
        return [[copied(batch) for batch in pipe.run()] for _ in range(2)]


@pytest.mark.parametrize("name", BATCHES)
def test_layouts_of_tensors_go_along(dali: Library, name: str) -> None:
    assert run(OURS, *BATCHES[name]) == run(dali, *BATCHES[name])


def test_single_samples_have_layouts_too(dali: Library) -> None:
    def layouts(library: Library) -> list[str]:
        def define() -> Any:
            return library.fn.external_source(lambda info: library.tensors.TensorCPU(PLANES, "CHW"), batch=False)

        with library.pipeline(define, batch_size=2) as pipe:
            return [pipe.run()[0].layout() for _ in range(2)]

    assert layouts(OURS) == layouts(dali) == ["CHW", "CHW"]


def test_a_pipeline_goes_on_with_the_batches_of_another(dali: Library) -> None:
    def batches(library: Library) -> list[Any]:
        def images() -> Any:
            return library.fn.external_source(lambda: [PLANES] * 2, layout="CHW")

        def mirrored() -> Any:
            return library.fn.flip(library.fn.external_source(lambda: first.run()[0]), horizontal=1)

        with library.pipeline(images, batch_size=2) as first, library.pipeline(mirrored, batch_size=2) as second:
            return [copied(batch) for batch in second.run()]

    assert batches(OURS) == batches(dali)


@pytest.mark.parametrize("layouts", [("CHW", "HWC"), ("CHW", "CHW", "HWC", "HWC")], ids=["in a batch", "in an epoch"])
def test_changing_layouts_raise_as_in_dali(dali: Library, layouts: tuple[str, ...]) -> None:
    def program(library: Library) -> None:
        left = iter(layouts)

        def define() -> Any:
            return library.fn.external_source(lambda: [library.tensors.TensorCPU(PLANES, next(left)) for _ in range(2)])

        with library.pipeline(define, batch_size=2, prefetch_queue_depth=1) as pipe:
            for _ in range(2):
                pipe.run()

    theirs, ours = (error_of(program, library) for library in (dali, OURS))
    assert isinstance(ours, type(theirs))


@pytest.mark.parametrize("make", [lambda wrap: wrap(), lambda wrap: [wrap(), wrap()]], ids=["a batch", "samples"])
def test_capsules_are_arrays(dali: Library, make: Callable[[Any], Any]) -> None:
    def batches(library: Library) -> list[Any]:
        def wrapped() -> Any:
            return make(PLANES.__dlpack__)

        with library.pipeline(lambda: library.fn.external_source(wrapped), batch_size=2) as pipe:
            made = copied(pipe.run()[0])
        with library.pipeline(lambda: library.fn.external_source(name="x"), batch_size=2) as pipe:
            pipe.feed_input("x", wrapped())
            pipe.feed_input("x", wrapped())
            return [made, copied(pipe.run()[0])]

    assert batches(OURS) == batches(dali)
