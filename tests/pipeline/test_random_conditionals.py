"""Random programs with conditionals, and the same Python code for each sample: in workers, threads, and both."""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from dali_like import fn, pipeline_def, types

SIZE = 5


def statements(draw: random.Random, depth: int, indent: str = "    ") -> Iterator[str]:
    """Lines that assign x, y and z, with nested conditionals."""
    for _ in range(draw.randint(1, 3)):
        a, b, target = draw.choices("xyz", k=3)
        kind = draw.random()
        if kind < 0.5 and depth:
            limit = draw.randint(-3, 9)
            conditions = (f"{a} > {limit}", f"{a} > {b} and {b} < {limit}", f"not {a} > 3 or {b} == {limit}")
            yield f"{indent}if {draw.choice(conditions)}:"
            yield from statements(draw, depth - 1, indent + "    ")
            if draw.random() < 0.5:
                yield f"{indent}elif {b} > {limit - 2}:"
                yield from statements(draw, depth - 1, indent + "    ")
            if draw.random() < 0.7:
                yield f"{indent}else:"
                yield from statements(draw, depth - 1, indent + "    ")
        elif kind < 0.65:
            yield f"{indent}{target} = of_batch({a})"
        elif kind < 0.75:
            yield f"{indent}{target} = of_sample({a})"
        else:
            yield f"{indent}{target} = {a} {draw.choice('+-')} {b} + {draw.randint(0, 3)}"


def make_program(seed: int) -> Callable[..., Any]:
    """Return a function of the two operators, x and z."""
    name = f"<conditionals {seed}>"
    lines = [
        "def program(of_batch, of_sample, x, z):",
        "    y = x",
        *statements(random.Random(seed), 3),
        "    return x, y, z",
    ]
    source = "\n".join(lines) + "\n"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": "random_conditionals"}
    exec(compile(source, name, "exec"), namespace)
    program: Callable[..., Any] = namespace["program"]
    return program


def of_batch(data: Any) -> Any:
    def function(batch: Any) -> Any:
        return [(2 * sample + 1).astype(np.int32) for sample in batch]  # NumPy 1 returns int64 for numbers

    return fn.python_function(data, function=function, batch_processing=True)


def of_sample(data: Any) -> Any:
    return fn.cast(7 - data, dtype=types.INT32)


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_give_the_results_of_python(seed: int) -> None:
    program = make_program(seed)
    expected = [program(lambda i: 2 * i + 1, lambda i: 7 - i, i, 5 * i % 7) for i in range(SIZE)]
    workers: dict[str, Any] = {"py_num_workers": 2, "py_start_method": "thread"} if seed % 4 else {}

    @pipeline_def(batch_size=SIZE, num_threads=2, enable_conditionals=True, **workers)
    def pipeline() -> Any:
        x = fn.external_source(lambda info: np.array(info.idx_in_batch, np.int32), batch=False, parallel=bool(workers))
        z = fn.external_source(
            lambda info: np.array(5 * info.idx_in_batch % 7, np.int32), batch=False, parallel=seed % 4 > 1
        )
        return program(of_batch, of_sample, x, z)

    with closing(pipeline()) as pipe:
        for _ in range(2):
            assert list(zip(*(output.as_array().tolist() for output in pipe.run()), strict=True)) == expected
    del linecache.cache[f"<conditionals {seed}>"]
