# ruff: noqa: SIM108, SIM201, RET503, RET505, PLW0108  # statements are the subject
"""Conditional execution by the real DALI and by dali_like: programs with the same results, and with the same errors."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

import nvidia.dali
import nvidia.dali.ops

import dali_like
import dali_like.ops

pytestmark = pytest.mark.peers

BATCH_SIZE = 6
IMAGES = [np.random.default_rng(i).integers(0, 255, (5 + i, 7, 3), np.uint8) for i in range(BATCH_SIZE)]


def source(lib: Any, make: Callable[[int], Any], **options: Any) -> Any:
    """A source of one value for each sample."""
    return lib.fn.external_source(source=lambda info: make(info.idx_in_epoch % BATCH_SIZE), batch=False, **options)


def numbers(lib: Any, dtype: Any = np.int32) -> Any:
    return source(lib, lambda i: np.array(i, dtype))


def outputs(library: Any, program: Callable[[Any], Any]) -> list[tuple[str, str, list[Any]]]:
    """The dtype, layout and samples of each output."""
    options = {"batch_size": BATCH_SIZE, "num_threads": 1, "device_id": None, "seed": 1}
    with warnings.catch_warnings(action="ignore"):
        pipe = library.pipeline_def(enable_conditionals=True, **options)(program)(library)
        with contextlib.ExitStack() as stack:
            if library is dali_like:
                stack.enter_context(contextlib.closing(pipe))
            pipe.build()
            return [describe(batch) for batch in pipe.run()]


def describe(batch: Any) -> tuple[str, str, list[Any]]:
    samples = [np.array(batch.at(i)) for i in range(len(batch))]
    return str(samples[0].dtype), batch.layout(), [sample.tolist() for sample in samples]


def assert_same(program: Callable[[Any], Any]) -> None:
    assert outputs(dali_like, program) == outputs(nvidia.dali, program)


# The examples of the documentation of DALI, with conditions that both libraries know


def random_rotate(lib: ModuleType) -> Any:
    images = source(lib, IMAGES.__getitem__, layout="HWC")
    do_rotate = source(lib, lambda i: np.bool_(i % 3 == 0))
    if do_rotate:
        result = lib.fn.rotate(images, angle=lib.fn.random.uniform(range=(90, 90.0001)), fill_value=0)
    else:
        result = images
    return result


def non_zero_mean(lib: ModuleType) -> Any:
    images = source(lib, IMAGES.__getitem__, layout="HWC")
    if lib.fn.reductions.mean(images) > 126:
        result = images - 10
    else:
        result = images + 10
    return result


def image_or_zeros(lib: ModuleType) -> Any:
    valid = numbers(lib) > 2
    if valid:
        image = source(lib, lambda i: np.full((2, 2, 3), i, np.uint8))
    else:
        image = lib.types.Constant(np.zeros((2, 2, 3), np.uint8), device="cpu")
    return image


def flip(lib: Any, image: Any) -> Any:
    return lib.fn.flip(image)


def brighten(lib: Any, image: Any) -> Any:
    return lib.fn.brightness(image, brightness=2.0)


def select(lib: Any, image: Any, number: Any) -> Any:
    if number == 0:
        return flip(lib, image)
    elif number == 1:
        return brighten(lib, image)
    else:
        return image


def selected_augmentation(lib: ModuleType) -> Any:
    images = source(lib, IMAGES.__getitem__, layout="HWC")
    return select(lib, images, source(lib, lambda i: np.int32(i % 3)))


@pytest.mark.parametrize(
    "program", [random_rotate, non_zero_mean, image_or_zeros, selected_augmentation], ids=lambda f: f.__name__
)
def test_examples_of_the_documentation(program: Callable[[Any], Any]) -> None:
    assert_same(program)


# Statements. Each function gets numbers from 0 to 5


def nested(x: Any) -> Any:
    if x > 0:
        if x > 1:
            if x > 2:
                y = 3
            else:
                y = 2
        else:
            y = 1
    else:
        y = 0
    return y


def elif_chain(x: Any) -> Any:
    if x == 0:
        y = x + 10
    elif x == 1:
        y = x + 20
    elif x < 4:
        y = x + 30
    else:
        y = x
    return y


def without_else(x: Any) -> Any:
    if x > 2:
        x += 10
    return x


def local_variable(x: Any) -> Any:
    if x > 2:
        t = x + 1
        x = t * 2
    return x


def early_return(x: Any) -> Any:
    if x > 2:
        return x + 10
    return x


def returns(x: Any) -> Any:
    if x > 3:
        return x + 10
    elif x > 1:
        y = x + 20
        return y * 2
    else:
        return x


def structures(x: Any) -> Any:
    if x > 2:
        y = [x, (x + 1, {"a": 5})]
    else:
        y = [1, (2, {"a": x})]
    return y[0] + 2 * y[1][0] + 3 * y[1][1]["a"]


def subscript(x: Any) -> Any:
    z = {"k": x}
    if x > 2:
        z["k"] = x + 1
    return z["k"]


class Holder:
    def __init__(self, value: Any) -> None:
        self.value = value

    def add(self, x: Any) -> Any:
        if x > 2:
            self.value = self.value + x
        return self.value

    __call__ = add

    @staticmethod
    def static(x: Any) -> Any:
        if x > 2:
            y = 1
        else:
            y = 0
        return y

    @classmethod
    def of(cls, x: Any) -> Any:
        return cls(x).add(x)


def attribute(x: Any) -> Any:
    holder = Holder(x)
    if x < 4:
        holder.value = x * 3
    return holder.value


def loop(x: Any) -> Any:
    for i in range(3):
        if x > i:
            x = x + 10
    return x


def loop_with_continue(x: Any) -> Any:
    for _ in range(3):
        if x > 3:
            continue
        x = x + 1
    return x


def plain_python(x: Any) -> Any:
    y = 0
    for i in range(5):
        if i == 1:
            continue
        if (i > 3 and not i == 5) or False:
            break
        y += i if i != 2 else 7
    while y > 8:
        y -= 1
    return x + y


def with_and_try(x: Any) -> Any:
    try:
        with warnings.catch_warnings():
            if x > 2:
                y = x
            else:
                y = 0
    finally:
        x = 1
    return y


def closure(x: Any) -> Any:
    limit = 2

    def inner(a: Any) -> Any:
        nonlocal limit
        limit += 1
        return a > limit and a < 5

    if inner(x):
        y = limit
    else:
        y = -limit
    return y


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return call


@logged
def decorated(x: Any, *more: Any, last: int = 4) -> Any:
    if x > last:
        return x
    return x - 10


STATEMENTS = (
    nested,
    elif_chain,
    without_else,
    local_variable,
    early_return,
    returns,
    structures,
    subscript,
    attribute,
    loop,
    loop_with_continue,
    plain_python,
    with_and_try,
    closure,
    decorated,
    lambda x: Holder(3)(x),
    lambda x: Holder(3).add(x),
    Holder.static,
    Holder.of,
    functools.partial(early_return),
)


def test_statements() -> None:
    def program(lib: Any) -> Any:
        x = numbers(lib)
        return tuple([function(x) for function in STATEMENTS])

    assert_same(program)


# Expressions


EXPRESSIONS = (
    lambda x: not x > 2,
    lambda x: not x,
    lambda x: x > 2 and x < 4,
    lambda x: x < 2 or x > 4,
    lambda x: (not (x > 2) and x > 0) or x == 5,
    lambda x: 1 < x < 4,
    lambda x: True and x > 2,
    lambda x: False or x > 2,
    lambda x: x > 2 and True,
    lambda x: x > 2 or False,
    lambda x: (x > 1 and x < 3) + 1,
    lambda x: 3 and 5,
)


def test_logical_expressions() -> None:
    def program(lib: Any) -> Any:
        x = numbers(lib)
        return tuple([expression(x) for expression in EXPRESSIONS])

    assert_same(program)


@pytest.mark.parametrize("dtype", ["?", "u1", "u8", "i1", "i8", "f2", "f4", "f8"])
def test_conditions_of_all_dtypes(dtype: str) -> None:
    def program(lib: Any) -> Any:
        x = source(lib, lambda i: np.array([0, 1, 2, 0, 3, 1], dtype)[i, ...])
        if x:
            y = 1
        else:
            y = 2
        return y, not x

    assert_same(program)


def test_constants_become_nodes_as_in_dali() -> None:
    def program(lib: Any) -> Any:
        x = numbers(lib)
        if x > 2:
            a, b, c, d, e, f = 1, 2.5, True, np.uint8(3), np.array([1.0, 2.0]), lib.types.Constant([1, 2])
        else:
            a, b, c, d, e, f = 2, 3.5, False, np.uint8(4), np.array([3.0]), lib.types.Constant([3])
        return a, b, c, d, e, f

    assert_same(program)


def test_operators_in_branches() -> None:
    def program(lib: Any) -> Any:
        x = numbers(lib)
        images = source(lib, IMAGES.__getitem__, layout="HWC")
        scale = lib.fn.cast(x, dtype=lib.types.FLOAT)
        cast = lib.ops.Cast(dtype=lib.types.INT64)
        if x > 2:
            a, b = lib.fn.flip([images, images], vertical=x - 3)
            c = images[:2, :, x - 3]
            d = cast(x)
            e = lib.fn.reductions.sum(images) + lib.fn.cast(lib.fn.random.uniform(range=[0, 0.25]), dtype=lib.types.UINT64)
            f = lib.fn.crop(images, crop_w=3, crop_h=2, crop_pos_x=scale / 10)
            g = images.shape()
        else:
            a, b = images, lib.fn.brightness(images, brightness=scale)
            c = images[:2, :, 0]
            d = lib.fn.cast(x * 2, dtype=lib.types.INT64)
            e = lib.fn.cast(x, dtype=lib.types.UINT64)
            f = lib.fn.resize(images, size=[2, 3], interp_type=lib.types.INTERP_NN)
            g = lib.types.Constant(np.array([1, 2, 3], np.int64), dtype=lib.types.INT64, device="cpu")
        return a, b, c, d, e, f, g

    assert_same(program)


def test_functions_of_batches_get_the_samples_of_their_branch() -> None:
    def sizes(batch: list[np.ndarray]) -> list[np.ndarray]:
        return [np.array([sample, len(batch)], np.int32) for sample in batch]

    def program(lib: Any) -> Any:
        x = numbers(lib)
        if x > 1:
            if x > 3:
                y = lib.fn.python_function(x, function=sizes, batch_processing=True)
            else:
                y = lib.fn.python_function(x * 10, function=sizes, batch_processing=True)
        else:
            y = lib.fn.stack(x, x)
        return y

    assert_same(program)


# Errors


def undefined_in_one_branch(lib: Any, x: Any) -> Any:
    if x > 2:
        y = x
    return y


def no_return_in_one_branch(lib: Any, x: Any) -> Any:
    if x > 2:
        return x


def return_in_a_loop(lib: Any, x: Any) -> Any:
    for _ in range(2):
        if x > 2:
            return x
    return x + 1


def none_in_a_branch(lib: Any, x: Any) -> Any:
    if x > 2:
        y = None
    else:
        y = x
    return y


def text_in_a_branch(lib: Any, x: Any) -> Any:
    if x > 2:
        y = "a"
    else:
        y = "b"
    return y


def list_or_node(lib: Any, x: Any) -> Any:
    if x > 2:
        y = [x, x]
    else:
        y = x
    return y[0]


def lists_of_two_lengths(lib: Any, x: Any) -> Any:
    if x > 2:
        y = [x, x]
    else:
        y = [x]
    return y[0]


def list_or_tuple(lib: Any, x: Any) -> Any:
    if x > 2:
        y = [x, x]
    else:
        y = (x, x)
    return y[0]


def other_keys(lib: Any, x: Any) -> Any:
    if x > 2:
        y = {"a": x}
    else:
        y = {"b": x}
    return y


def while_loop(lib: Any, x: Any) -> Any:
    while x > 2:
        x = x - 1
    return x


def break_in_a_branch(lib: Any, x: Any) -> Any:
    for _ in range(2):
        if x > 2:
            break
        x = x + 1
    return x


def containment(lib: Any, x: Any) -> Any:
    if x in [1, 2]:
        x = x + 1
    return x


def other_devices(lib: Any, x: Any) -> Any:
    if x > 2:
        y = x.gpu()
    else:
        y = x
    return y


def vector_as_condition(lib: Any, x: Any) -> Any:
    if lib.fn.stack(x, x):
        x = x + 1
    return x


def not_of_a_vector(lib: Any, x: Any) -> Any:
    return not lib.fn.stack(x, x)


def integer_left(lib: Any, x: Any) -> Any:
    return x and x > 1


def integer_right(lib: Any, x: Any) -> Any:
    return x > 1 or x


def other_dtypes(lib: Any, x: Any) -> Any:
    if x > 2:
        y = 2.5
    else:
        y = x
    return y


def other_dimensions(lib: Any, x: Any) -> Any:
    if x > 2:
        y = lib.fn.stack(x, x)
    else:
        y = x
    return y


def other_layouts(lib: Any, x: Any) -> Any:
    if x > 2:
        y = lib.fn.reshape(x, shape=[1, 1], layout="HW")
    else:
        y = lib.fn.reshape(x, shape=[1, 1], layout="WH")
    return y


def result_of_an_ended_branch(lib: Any, x: Any) -> Any:
    found = []
    if x > 2:
        found.append(x + 1)
    return found[0] * 2


@pytest.mark.parametrize(
    "program",
    [
        undefined_in_one_branch,
        no_return_in_one_branch,
        return_in_a_loop,
        none_in_a_branch,
        text_in_a_branch,
        list_or_node,
        lists_of_two_lengths,
        list_or_tuple,
        other_keys,
        while_loop,
        break_in_a_branch,
        containment,
        other_devices,
        vector_as_condition,
        not_of_a_vector,
        integer_left,
        integer_right,
        other_dtypes,
        other_dimensions,
        other_layouts,
        result_of_an_ended_branch,
    ],
    ids=lambda program: program.__name__,
)
def test_wrong_programs_are_refused(program: Callable[..., Any]) -> None:
    def define(lib: Any) -> Any:
        return program(lib, numbers(lib))

    with pytest.raises(Exception) as theirs:  # noqa: PT011
        outputs(nvidia.dali, define)
    with pytest.raises(type(theirs.value)):
        outputs(dali_like, define)


def test_dtypes_need_not_agree_while_all_samples_take_one_branch() -> None:
    def program(lib: Any) -> Any:
        x = numbers(lib)
        if x > 100:
            y = 2.5
        else:
            y = x
        return y

    assert_same(program)


# Where dali_like differs


def only_ours(program: Callable[[Any], Any]) -> list[list[Any]]:
    with pytest.raises(TypeError):
        outputs(nvidia.dali, program)
    return [samples for _, _, samples in outputs(dali_like, program)]


def test_dali_like_also_has_conditional_expressions() -> None:
    def program(lib: Any) -> Any:
        x = numbers(lib)
        return -1 if x > 2 else x

    assert only_ours(program) == [[0, 1, 2, -1, -1, -1]]


def test_dali_like_also_converts_functions_given_to_map() -> None:
    def program(lib: Any) -> Any:
        return tuple(map(early_return, [numbers(lib)]))

    assert only_ours(program) == [[0, 1, 2, 13, 14, 15]]
