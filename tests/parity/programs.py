"""Programs as data: the kind of a source, its use, and the operation of its pipeline.

A `Program` runs with either library and gives a log, and logs can be compared. Where dali_like differs from DALI on purpose,
`reference` returns another program for DALI, and the reason: DALI does with it the same as dali_like with the first one.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tests.parity.conftest import END, RESET, Library
from tests.parity.covering import rows_with_few_of
from tests.parity.kinds import FAULTS, KINDS, Kind, Recipe, Samples

#: Of `cycle`: the argument is left out.
UNSAID = "unsaid"
#: The number of iterations of an epoch that does not end.
_ENDLESS = 1 << 30


@dataclass(frozen=True)
class Program:
    """One program.

    Attributes:
        name: the kind of the source: one of `KINDS`.
        way: where it is called: "serial", in workers by "fork", or by "spawn".
        depth: prefetch_queue_depth of the pipeline.
        source_depth: that of the source, which has one only in workers.
        batch_size: the largest.
        cycle: the argument, or `UNSAID`.
        num_outputs: the argument.
        epochs: how many are run.
        others: which sources there are besides: one of `OTHERS`.
        data, uneven, iterations: see `parity.kinds.Recipe`.
        workers: how many processes.
        resets: how often reset() is called at the end of an epoch.
        declared: the declaration of the outputs: "nothing", their "types" and numbers of dimensions, or a "layout".
        fault: the mistake in the second iteration: one of `FAULTS`.
    """

    name: str
    way: str = "serial"
    depth: int = 2
    source_depth: int | None = None
    batch_size: int = 2
    cycle: Any = UNSAID
    num_outputs: int | None = None
    epochs: int = 2
    others: str = "none"
    data: str = "list"
    uneven: bool = False
    iterations: int = 4
    workers: int = 2
    resets: int = 1
    declared: str = "nothing"
    fault: str = "none"

    def __str__(self) -> str:
        """The difference to the simplest program with this source."""
        texts = [f"{self.name}, {self.way}"]
        for field in dataclasses.fields(self)[2:]:
            value = getattr(self, field.name)
            if value is not field.default and value != field.default:
                texts.append(f"{field.name} {value}")
        return ", ".join(texts)

    @property
    def kind(self) -> Kind:
        return KINDS[self.name]

    @property
    def is_cycled(self) -> bool:
        """Whether an iterable begins anew at once, so that the epoch does not end by it."""
        return self.cycle in (True, "quiet")

    @property
    def has_log(self) -> bool:
        """Whether arguments and times of calls are defined: not if there are several sources, in workers, or for nothing."""
        return self.way == "serial" and self.others == "none" and not (self.is_cycled and self.iterations == 0)

    def recipe(self, tag: int, tensor_list: type) -> Recipe:
        """The results of the source, as one of several, if it gives batches of this class."""
        sizes = self.iterations, self.batch_size, self.num_outputs
        return Recipe(tag, *sizes, self.data, self.uneven, self.fault, tensor_list)


#: Sources besides the first: how many like it, and where one of endless single samples is called, if there is one.
OTHERS: dict[str, tuple[int, str | None]] = {
    "none": (0, None),
    "one alike": (1, None),
    "two alike": (2, None),
    "serial samples": (0, "serial"),
    "parallel samples": (0, "parallel"),
}


# Running


class Batch(NamedTuple):
    """One output of a run: of each sample the dtype, the shape and the bytes."""

    dtype: str
    layout: str
    samples: tuple[tuple[str, tuple[int, ...], bytes], ...]


class Run(NamedTuple):
    """The result of a call of run().

    Attributes:
        outcome: the outputs, or END, or the class of an exception.
        calls: the arguments of calls of the source meanwhile, if the program has such a log.
    """

    outcome: tuple[Batch, ...] | str | type[Exception]
    calls: tuple[Any, ...]


def steps(program: Program) -> list[int | str]:
    """How a program is operated: a number of runs, or RESET. Each epoch is run beyond its end, if it has one."""
    if program.is_cycled and program.iterations:
        return [program.epochs * program.iterations + 2]
    return [program.iterations + 2, *[RESET] * program.resets] * program.epochs


@functools.lru_cache(maxsize=64)
def run(library: Library, program: Program) -> tuple[Run, ...]:
    """The log of a program with a library; up to the first error, if the source has a fault."""
    calls: list[Any] = []
    needs_fork = program.way == "serial" and OTHERS[program.others][1] == "parallel"
    with library.pipeline(
        functools.partial(_define, library, program, calls),
        "fork" if needs_fork else program.way,
        batch_size=program.batch_size,
        workers=program.workers,
        prefetch_queue_depth=program.depth,
    ) as pipe:
        return tuple(_operate(pipe, program, calls))


def _define(library: Library, program: Program, calls: list[Any]) -> Any:
    num_alike, samples = OTHERS[program.others]
    options = _options(library, program)
    tensor_list = library.tensors.TensorListCPU
    outputs = []
    for tag in range(1 + num_alike):
        source = program.kind.make(program.recipe(tag, tensor_list), [] if tag else calls)
        node = library.fn.external_source(source, **options)
        outputs.extend(node if isinstance(node, list) else [node])
    if samples is not None:
        endless = Program("samples", batch_size=program.batch_size, iterations=_ENDLESS).recipe(100, tensor_list)
        parallel = samples == "parallel"
        outputs.append(library.fn.external_source(Samples(endless, []), batch=False, parallel=parallel))
    return tuple(outputs)


def _options(library: Library, program: Program) -> dict[str, Any]:
    """The arguments of external_source besides the source."""
    options = {
        "batch": program.kind.makes_batches,
        "parallel": program.way != "serial",
        "num_outputs": program.num_outputs,
        **program.kind.options,
    }
    if program.source_depth is not None:
        options["prefetch_queue_depth"] = program.source_depth
    if program.cycle != UNSAID:
        options["cycle"] = program.cycle
    said: dict[str, list[Any]] = {
        "nothing": {},
        "types": {"dtype": [library.types.INT64, library.types.FLOAT], "ndim": [1, 0]},
        "layout": {"layout": ["X", ""]},
    }[program.declared]
    count = program.num_outputs
    return options | {name: each[0] if count is None else each[:count] for name, each in said.items()}


def _operate(pipe: Any, program: Program, calls: list[Any]) -> Iterator[Run]:
    for step in steps(program):
        if isinstance(step, str):
            pipe.reset()
            continue
        for _ in range(step):
            outcome = _outcome(pipe, catch=program.fault != "none")
            yield Run(outcome, tuple(calls) if program.has_log else ())
            calls.clear()


def _outcome(pipe: Any, *, catch: bool) -> Any:
    try:
        return tuple(map(_copied, pipe.run()))
    except StopIteration:
        return END
    except Exception as error:
        if not catch:
            raise
        # DALI puts a plain `Exception` around exceptions of callbacks in workers.
        is_wrapper = type(error) is Exception and error.__cause__ is not None
        return type(error.__cause__ if is_wrapper else error)


def _copied(batch: Any) -> Batch:
    arrays = map(batch.at, range(len(batch)))
    samples = tuple((str(array.dtype), array.shape, array.tobytes()) for array in arrays)
    return Batch(str(batch.dtype), batch.layout(), samples)


# Comparing


def reference(program: Program) -> Program:
    """The program with which DALI does the same as dali_like with `program`: that one, but for differences on purpose."""
    if program.cycle in (UNSAID, None) and program.kind.begins_anew:
        # A source without cycle= has one epoch in DALI.
        program = dataclasses.replace(program, cycle="raise")
    if program.way != "serial" and program.name == "array":
        # DALI's workers die of batches that are arrays.
        return dataclasses.replace(program, way="serial", source_depth=None)
    if program.way != "serial" and program.data == ("array" if program.num_outputs is None else "TensorList"):
        # The same; and they do not take TensorLists where there are outputs.
        return dataclasses.replace(program, data="list")
    return program


def differences(ours: Sequence[Run], theirs: Sequence[Run], *, calls: bool) -> list[str]:
    """Where two logs differ, in words.

    Args:
        calls: whether the arguments of sources are compared, too.
    """
    found = []
    for i, (our_run, their_run) in enumerate(zip(ours, theirs, strict=True)):
        if our_run.outcome != their_run.outcome:
            found.append(f"run {i} gave {_text(our_run.outcome)}, with DALI {_text(their_run.outcome)}")
        if calls and our_run.calls != their_run.calls:
            found.append(f"in run {i} the source was told {our_run.calls}, by DALI {their_run.calls}")
    return found


def _text(outcome: tuple[Batch, ...] | str | type[Exception]) -> str:
    """An outcome in numbers, as far as they are few."""
    if not isinstance(outcome, tuple):
        return str(outcome)
    texts = []
    for batch in outcome:
        values = [np.frombuffer(content, dtype).reshape(shape).tolist() for dtype, shape, content in batch.samples[:2]]
        texts.append(f"{len(batch.samples)} samples of {batch.dtype}, {values} ...")
    return "; ".join(texts)


# Choosing

COLUMNS: dict[str, Sequence[Any]] = {
    "name": list(KINDS),
    "way": ["serial", "fork", "spawn"],  # from cheap to dear
    "depth": [1, 2, 3],
    "source_depth": [None, 1, 2, 3],
    "batch_size": [1, 2, 7, 32, 250],
    "cycle": [UNSAID, "no", "quiet", "raise", None, False, True],
    "num_outputs": [None, 1, 2],
    "epochs": [1, 2, 3],
    "others": list(OTHERS),
    "data": ["list", "tuple", "array", "TensorList", "ragged"],
    "uneven": [False, True],
    "iterations": [0, 1, 4],
    "workers": [1, 3],
    "resets": [1, 2],
    "declared": ["nothing", "types", "layout"],
}
#: Values of the full product. Other names of the same, and values much like others, are left out.
FULL_COLUMNS: dict[str, Sequence[Any]] = {
    "name": [
        "samples",
        "batches",
        "batches by BatchInfo",
        "batches, uninformed",
        "generator function",
        "list",
        "iterator",
        "array",
    ],
    "way": COLUMNS["way"],
    "depth": COLUMNS["depth"],
    "source_depth": [1, 2, 3],
    "batch_size": COLUMNS["batch_size"],
    "cycle": [UNSAID, "no", "quiet", "raise"],
    "num_outputs": COLUMNS["num_outputs"],
    "epochs": [1, 3],
    "others": ["none", "one alike", "parallel samples"],
}
#: Of programs with something wrong. A worker that dies takes DALI's whole pool along, so there is little else to vary.
FAULTY_COLUMNS: dict[str, Sequence[Any]] = {
    "fault": [fault for fault in FAULTS if fault != "none"],
    "name": [name for name in KINDS if name not in ("samples, uninformed", "array")],
    "way": ["serial", "fork"],
    "depth": COLUMNS["depth"],
    "batch_size": [2, 7],
    "num_outputs": COLUMNS["num_outputs"],
    "data": ["list", "tuple"],
}


def settle(row: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a program that is possible, as close as can be to one that may not be. The kind of source stays."""
    row = dict(row)
    kind = KINDS[row["name"]]
    if row["way"] not in kind.ways:
        row["way"] = "serial"
    if row["way"] == "serial" and "source_depth" in row:
        row["source_depth"] = None
    if not kind.is_iterable or (row["name"] == "generator" and row["cycle"] in (True, "quiet", "raise")):
        row["cycle"] = UNSAID
    if row["name"] == "array":
        row.update(num_outputs=None, data="array")
    cannot_travel = row["data"] == "TensorList" and row["way"] == "spawn" and not kind.is_lazy
    if cannot_travel or (not kind.makes_batches and row["data"] != "ragged"):
        row["data"] = "list"
    if row["name"] == "array" or OTHERS[row["others"]][1] is not None:
        row["uneven"] = False  # the batches of all sources must have the same sizes
    return row


def settle_faulty(row: Mapping[str, Any]) -> dict[str, Any]:
    """As `settle`, for programs with something wrong."""
    row = dict(row)
    kind = KINDS[row["name"]]
    fault = FAULTS[row["fault"]]
    if row["way"] not in kind.ways:
        row["way"] = "serial"
    if (fault.batch is not None and not kind.makes_batches) or (fault.raises and not kind.is_lazy):
        row["fault"] = "samples: None"
    if fault.num_outputs is not None:
        row["num_outputs"] = fault.num_outputs
    if not kind.makes_batches:
        row["data"] = "list"
    return row


def programs() -> list[Program]:
    """As many programs as the environment variable PARITY says: see `test_programs`."""
    extent = os.environ.get("PARITY", "2")
    rows = _full_product() if extent == "full" else rows_with_few_of("way", COLUMNS, int(extent), settle)
    return [Program(**row) for row in rows]


def faulty_programs() -> list[Program]:
    """Programs in which something is wrong in the second iteration."""
    return [Program(**row, epochs=1) for row in rows_with_few_of("way", FAULTY_COLUMNS, 2, settle_faulty)]


def _full_product() -> list[dict[str, Any]]:
    """All values of `FULL_COLUMNS` with each other; the other columns take turns."""
    turns = random.Random(1)
    rows: dict[Any, dict[str, Any]] = {}
    for chosen in itertools.product(*FULL_COLUMNS.values()):
        turn = {name: turns.choice(values) for name, values in COLUMNS.items()}
        settled = settle(turn | dict(zip(FULL_COLUMNS, chosen, strict=True)))
        rows.setdefault(tuple(settled[name] for name in FULL_COLUMNS), settled)
    return list(rows.values())
