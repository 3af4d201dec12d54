"""Draw the diagrams of the documentation from the code: ``python -m tools.diagrams [folder]``.

The layers come from the contracts of import-linter, the states and their transitions from the tables of
`dali_like.engine.pool.recovery`, the parts and sizes of records and slots from `dali_like.engine.memory`. Each step names a
function that must exist. A test draws the diagrams again and compares them.
"""

from __future__ import annotations

import enum
import inspect
import itertools
import pkgutil
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dali_like.engine.memory.protocol import CELL_BYTES, DONE, DTYPE_CODES, HEADER_WORDS, TASK, WORD_BYTES, Status
from dali_like.engine.memory.slot_layout import OutputSchema, SlotLayout
from dali_like.engine.pool import recovery
from dali_like.sources.sharding import Shard
from tools.svg import LINE_HEIGHT, Box, Kind, Picture, text_width

ROOT = Path(__file__).resolve().parents[1]
_WIDTH = 820


class Step(NamedTuple):
    """A step, the function that does it, below `dali_like`, and the column of the process."""

    text: str
    function: str
    column: int = 0


def diagrams() -> dict[str, str]:
    """Return the diagrams by their file names."""
    return {
        "choose.svg": choose(),
        "layers.svg": layers(),
        "way-of-a-sample.svg": way_of_a_sample(),
        "way-of-a-slot.svg": way_of_a_slot(),
        "way-of-a-restart.svg": way_of_a_restart(),
        "positions-of-a-stream.svg": positions_of_a_stream(),
        "ways-to-scale.svg": ways_to_scale(),
    }


def _checked(function: str) -> str:
    """Return the name of a function without its module; raise AttributeError if it does not exist."""
    found: Any = pkgutil.resolve_name(f"dali_like.{function}")
    name = getattr(found, "__qualname__", None) or f"{function.split('.')[-2]}.{function.rsplit('.', maxsplit=1)[-1]}"
    return str(name)


# --- the interface that fits ---


def choose() -> str:
    """Draw which interface fits which data: three questions, their answers, and the kinds of sources of a pipeline."""
    picture = Picture(
        _WIDTH, "Choose a composed dataset, a DataLoader, or a pipeline with a callable, a reader or an iterable"
    )
    questions = (
        (
            ["Several sources, mixed, packed, filtered,", "or resumed exactly on other GPUs?"],
            ["composed dataset", f"`{_checked('data.ComposedDataset.mix')}`"],
        ),
        (
            ["A dataset and samplers,", "as for PyTorch?"],
            ["loader", f"`plugin.pytorch.{_checked('data.loader.DataLoader')}`"],
        ),
        (
            ["Operators on images or audio,", "or the API of DALI?"],
            ["pipeline", f"`{_checked('pipeline.definition.pipeline_def')}`"],
        ),
    )
    previous = None
    for number, (question, answer) in enumerate(questions):
        y = 20 + 84.0 * number
        asked = picture.box(20, y, 340, question)
        found = picture.box(500, y, 300, answer, "soft")
        picture.arrow(asked.right, found.left, label="yes", dx=-12)
        if previous is not None:
            picture.arrow(previous.bottom, asked.top, label="no", dx=8, dy=4)
        previous = asked
    picture.text(20, 300, "The source of a pipeline", "strong")
    function = _checked("fn.external_source")
    sources = (
        (["files that a reader knows", "folders, TFRecord, WebDataset, video"], ["reader", "`fn.readers.file(...)`"]),
        (
            ["samples by their position", "own formats, databases, stores"],
            ["callable", f"`fn.{function}(f)`"],
        ),
        (["a stream, in order", "simulators, queues, generators"], ["iterable", f"`fn.{function}(stream)`"]),
    )
    for number, (data, source) in enumerate(sources):
        x = 20 + 266.0 * number
        above = picture.box(x, 316, 248, data)
        picture.arrow(above.bottom, picture.box(x, 392, 248, source, "soft").top)
    return str(picture)


# --- the layers ---


def layers() -> str:
    """Draw the layers of the package and of the engine, the highest on top."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    contents = _contents_of_layers()
    picture = Picture(_WIDTH, "The layers of dali_like: each imports only from those below it")
    picture.text(16, 26, "Each layer imports only from the layers below it", "strong")
    y = 40.0
    for container in ("dali_like", "dali_like.engine"):
        (contract,) = (contract for contract in contracts if contract.get("containers") == [container])
        is_engine = container == "dali_like.engine"
        if is_engine:
            picture.text(16, y + 22, "Layers of the engine", "strong")
            y += 32
        for layer in contract["layers"]:
            names = [name.strip() for name in re.split("[|:]", layer)]
            folders = [name for name in names if f"engine/{name}" * is_engine or name in contents]
            y = _layer(picture, y, [f"engine/{name}" if is_engine else name for name in folders], contents)
    return str(picture)


def _layer(picture: Picture, y: float, names: Sequence[str], contents: Mapping[str, str]) -> float:
    for name in names:
        kind: Kind = "soft" if name.startswith("engine") else "box"
        picture.bar(16, y, _WIDTH - 32, LINE_HEIGHT + 6, kind)
        picture.text(26, y + 17, f"{name}/", "code")
        picture.text(170, y + 17, contents[name], "small dim")
        y += LINE_HEIGHT + 8
    return y


def _contents_of_layers() -> dict[str, str]:
    """Return the contents of the layers by their folders, from docs/architecture.md."""
    contents = {}
    for line in (ROOT / "docs" / "architecture.md").read_text("utf-8").splitlines():
        if match := re.match(r"\| (`[\w/`, ]+/`) \| (.*?) \|", line):
            for name in re.findall(r"`([\w/]+)/`", match[1]):
                contents[name] = match[2].replace("`", "").partition(";")[0]
    return contents


# --- the way of a sample ---

_MAIN, _PIPES, _WORKER = range(3)
_SAMPLE = (
    Step("1. take a slot, describe it", "engine.pool.assembler.Assembler.begin", _MAIN),
    Step(f"2. post tasks, {TASK.size} bytes each", "engine.pool.dispatch.Dispatcher.post", _MAIN),
    Step("3. take a task into the cell", "engine.worker.worker.run_worker", _WORKER),
    Step("4. call the source", "engine.worker.runner.TaskRunner.run", _WORKER),
    Step("5. write the row: the only copy", "engine.worker.task.Task.put", _WORKER),
    Step(f"6. report the task, {DONE.size} bytes", "engine.worker.runner.TaskRunner.compute", _WORKER),
    Step("7. read many reports at a time", "engine.pool.dispatch.Dispatcher.read_reports", _MAIN),
    Step("8. arrays, which hold a lease", "engine.pool.batch.assemble", _MAIN),
    Step("9. the last view is dropped", "engine.memory.ring.Lessor.release", _MAIN),
)


def way_of_a_sample() -> str:
    """Draw the steps of the main process and of a worker, and the memory between them."""
    picture = Picture(_WIDTH, "The way of a sample, from the source to the batch")
    x, width = {_MAIN: 16.0, _WORKER: 564.0}, 240.0
    picture.text(x[_MAIN], 28, "Main process", "strong")
    picture.text(x[_WORKER], 28, "Worker processes", "strong")
    picture.text(410, 28, "Kernel and shared memory", "strong", "middle")
    rows = {1: 0.0, 2: 1.0, 3: 1.0, 4: 2.0, 5: 3.0, 6: 4.0, 7: 4.0, 8: 5.0, 9: 6.0}
    boxes: dict[int, Box] = {}
    for number, step in enumerate(_SAMPLE, 1):
        lines = [step.text, f"`{_checked(step.function)}`"]
        boxes[number] = picture.box(x[step.column], 42 + 72 * rows[number], width, lines, _kind_of(number))
    middle = 320.0
    pipe = picture.box(middle, 42 + 72, 180, ["task pipe", "all workers read it"])
    slot = picture.box(middle, 42 + 72 * 2.6, 180, ["slot", "header, rows, regions", "one anonymous file"], "soft")
    done = picture.box(middle, 42 + 72 * 4, 180, ["report pipe", "one poll waits for it"])
    picture.arrow(boxes[1].bottom, boxes[2].top)
    picture.arrow(boxes[2].right, pipe.left)
    picture.arrow(pipe.right, boxes[3].left)
    for first, second in ((3, 4), (4, 5), (5, 6), (7, 8), (8, 9)):
        picture.arrow(boxes[first].bottom, boxes[second].top)
    picture.arrow(boxes[5].left, (slot.right[0], boxes[5].left[1]))
    picture.arrow(boxes[6].left, done.right)
    picture.arrow(done.left, boxes[7].right)
    picture.text(middle, 42 + 72 * 5.2, "Statuses of a report:", "small dim")
    names = [status.name for status in Status]
    picture.text(middle, 42 + 72 * 5.2 + LINE_HEIGHT, ", ".join(names[:4]), "small dim")
    picture.text(middle, 42 + 72 * 5.2 + 2 * LINE_HEIGHT, ", ".join(names[4:]), "small dim")
    picture.text(middle, 42 + 72 * 5.2 + 3 * LINE_HEIGHT, f"A cell: {CELL_BYTES} bytes for each worker", "small dim")
    return str(picture)


def _kind_of(number: int) -> Kind:
    return "soft" if number == 5 else "box"


# --- the way of a slot ---


def way_of_a_slot() -> str:
    """Draw the states of a slot, with the methods that change them, and the parts of its memory."""
    picture = Picture(_WIDTH, "The way of a slot of the ring")
    picture.text(16, 26, "Life of a slot", "strong")
    free = picture.box(16, 60, 150, ["free", "in the ring"])
    filling = picture.box(236, 60, 150, ["filling", "workers write rows"])
    held = picture.box(456, 60, 150, ["delivered", "the user has views"], "soft")
    returned = picture.box(654, 60, 150, ["returned", "in a deque"])
    gone = picture.box(16, 172, 150, ["freed", "pages are given back"])
    arrows = (
        (free.right, filling.left, "engine.memory.ring.Ring.acquire"),
        (filling.right, held.left, "engine.pool.batch.assemble"),
        (held.right, returned.left, "engine.memory.ring.Ring.release"),
    )
    for start, end, function in arrows:
        picture.arrow(start, end)
        picture.text((start[0] + end[0]) / 2, 50, f"{_checked(function)}", "small dim", "middle")
    low = 142.0
    x, _ = returned.bottom
    picture.arrow(returned.bottom, (x, low), (free.bottom[0] + 30, low), (free.bottom[0] + 30, free.bottom[1]))
    picture.text(
        400, low - 6, f"{_checked('engine.memory.ring.Ring._collect')}, when no fence and no hold is left", "small dim"
    )
    picture.arrow((free.bottom[0] - 30, free.bottom[1]), (free.bottom[0] - 30, gone.top[1]))
    texts = (
        f"{_checked('engine.memory.ring.Ring._trim')} frees slots that nobody needed for a while.",
        "A view that the user keeps keeps its slot: the ring grows, up to max_held_bytes.",
        f"A slot whose task hangs is kept by {_checked('engine.memory.ring.Ring.hold')}.",
    )
    for number, text in enumerate(texts):
        picture.text(190, 186 + LINE_HEIGHT * number, text, "small")
    _draw_slot(picture, 250)
    return str(picture)


def _draw_slot(picture: Picture, y: float) -> None:
    shape = (224, 224, 3)
    images = OutputSchema(dtype=DTYPE_CODES[np.dtype(np.uint8)], ndim=len(shape), shape=shape)
    layout = SlotLayout(capacity=64, task_size=16, region_bytes=1 << 23, outputs=(images,))
    header = HEADER_WORDS * WORD_BYTES
    sizes = ", ".join(map(str, shape))
    parts = (
        ("header", f"{header} bytes, and a descriptor for each output", "main process"),
        ("marks, counts", f"{layout.num_tasks(64)} words each: one for each task", "worker of the task"),
        ("descriptors", "one for each sample outside of rows", "worker of the task"),
        (
            "rows",
            f"{layout.sample_bytes * 64:,} bytes: array of shape (64, {sizes})",
            "worker of the task",
        ),
        ("regions", f"{layout.num_tasks(64)} times {layout.region_bytes:,} bytes of address space", "worker of the task"),
    )
    picture.text(16, y, "Memory of a slot: 64 images of 224 x 224 x 3 bytes in tasks of 16", "strong")
    picture.text(690, y, "writer", "small dim")
    for number, (name, content, writer) in enumerate(parts):
        top = y + 10 + 26 * number
        picture.bar(16, top, _WIDTH - 32, 24, "soft" if name == "rows" else "box")
        picture.text(26, top + 17, name, "strong")
        picture.text(150, top + 17, content, "small")
        picture.text(690, top + 17, writer, "small dim")


# --- the way of a restart ---

_RESTART = (
    Step("1. learn that a worker ended", "engine.backends.forkserver.serve"),
    Step("2. read its last reports", "engine.pool.dispatch.Dispatcher.read_reports"),
    Step("3. read the task in its cell", "engine.pool.dispatch.Dispatcher.taken_by"),
    Step("4. post this task again", "engine.pool.dispatch.Dispatcher.post_again"),
    Step("5. start a replacement", "engine.pool.recovery.RestartPolicy.take"),
)
#: Places of states, in columns and rows.
_WORKER_PLACES = {
    "NOT_STARTED": (0.0, 1.5),
    "RUNNING": (1.2, 1.5),
    "HUNG": (2.4, 0.0),
    "HUNG_AT_START": (3.1, 2.25),
    "STOPPED": (2.4, 3.0),
    "ABANDONED": (4.4, 1.5),
}
_PHASE_PLACES = {
    "NORMAL": (0.0, 0.0),
    "DRAINING": (2.0, 0.0),
    "RETIRING": (2.0, 2.0),
    "ISOLATED": (0.0, 2.0),
    "RESTING": (3.6, 1.0),
}


def way_of_a_restart() -> str:
    """Draw the steps after the death of a worker, the states of a worker, and the phases of the pool."""
    picture = Picture(_WIDTH, "What happens after the death of a worker")
    picture.text(16, 26, "After the death of a worker", "strong")
    y = 40.0
    boxes = []
    for number, step in enumerate(_RESTART):
        row, column = divmod(number, 3)
        lines = [step.text, f"`{_checked(step.function)}`"]
        boxes.append(picture.box(16 + 268 * column, y + 72 * row, 252, lines))
    for first, second in itertools.pairwise(boxes):
        if first.y == second.y:
            picture.arrow(first.right, second.left)
        else:
            gap = first.y + first.height + 11
            picture.arrow(first.bottom, (first.bottom[0], gap), (second.top[0], gap), second.top)
    limits = (
        f"{recovery._DEATHS_TO_SUSPECT} deaths with one sample: it runs alone.",
        f"{recovery._DEATHS_TO_GIVE_UP} deaths: its batch raises WorkerDiedError.",
        f"Restarts count for {recovery._RESTART_PERIOD_S:g} seconds.",
    )
    for number, text in enumerate(limits):
        picture.text(566, y + 88 + LINE_HEIGHT * number, text, "small")
    y = _states(picture, y + 170, "States of a worker", recovery.TRANSITIONS, _WORKER_PLACES, (148, 62))
    _states(picture, y + 30, "Phases of the pool", recovery.PHASES, _PHASE_PLACES, (170, 60))
    return str(picture)


def _states(
    picture: Picture,
    y: float,
    title: str,
    transitions: Mapping[Any, frozenset[Any]],
    places: Mapping[str, tuple[float, float]],
    grid: tuple[int, int],
) -> float:
    """Draw a machine of states from its table; return the lower edge."""
    picture.text(16, y, title, "strong")
    width = max(text_width(name) for name in places) + 24
    kind = type(next(iter(transitions)))
    centers = {
        state: (16 + width / 2 + places[state.name][0] * grid[0], y + 34 + places[state.name][1] * grid[1])
        for state in transitions
    }
    for state, following in transitions.items():
        for other in filter(following.__contains__, transitions):
            if other is state:
                cx, cy = centers[state]
                points = [(cx + 24, cy - 16), (cx + 24, cy - 34), (cx - 24, cy - 34), (cx - 24, cy - 16)]
                picture.arrow(*points)
            else:
                ends = (_edge(centers[state], centers[other], width), _edge(centers[other], centers[state], width))
                picture.arrow(*ends)
    for cx, cy in centers.values():
        name = next(state.name for state, center in centers.items() if center == (cx, cy))
        picture.box(cx - width / 2, cy - 16, width, [name], "soft" if name in ("RUNNING", "NORMAL") else "box")
    bottom = max(cy for _, cy in centers.values()) + 36
    for name, meaning in _meanings(kind):
        picture.text(16, bottom, name, "small")
        picture.text(150, bottom, meaning, "small dim")
        bottom += LINE_HEIGHT
    return bottom


def _edge(center: tuple[float, float], other: tuple[float, float], width: float) -> tuple[float, float]:
    """Return the place where the line from a center to another leaves the box around the center."""
    dx, dy = other[0] - center[0], other[1] - center[1]
    share = min(width / 2 / abs(dx) if dx else np.inf, 16 / abs(dy) if dy else np.inf)
    return round(center[0] + share * dx, 1), round(center[1] + share * dy, 1)


def _meanings(kind: type[enum.Enum]) -> Iterator[tuple[str, str]]:
    """Yield the members of an enumeration, and the comments behind them."""
    for match in re.finditer(r"(\w+) = enum\.auto\(\)  #: (.+)", inspect.getsource(kind)):
        yield match[1], match[2].replace("`", "")


def write(folder: Path) -> None:
    """Write all diagrams to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in diagrams().items():
        (folder / name).write_text(text, encoding="utf-8")


# --- the positions of a stream ---

_CELL_WIDTH = 40


def positions_of_a_stream() -> str:
    """Draw which ranks and logical shards have the first positions of a stream."""
    picture = Picture(_WIDTH, "The positions of a stream on two and on four ranks, and in four logical shards")
    _cells(picture, 16, ["position", ""], [str(position) for position in range(16)])
    for y, num_ranks, batch_size in ((74, 2, 4), (132, 4, 2)):
        owners = _owners(num_ranks, batch_size, 16)
        _cells(picture, y, [f"{num_ranks} ranks,", f"batch size {batch_size}"], [f"rank {rank}" for rank in owners], owners)
    shards = [position % 4 for position in range(16)]
    texts = [f"{shard}: {position // 4}" for position, shard in enumerate(shards)]
    _cells(picture, 190, ["4 logical shards", "shard: output"], texts, shards)
    for step in (0, 1):
        x = 166 + 8 * _CELL_WIDTH * step
        picture.line((x, 250), (x + 8 * _CELL_WIDTH - 4, 250))
        picture.text(x + 4 * _CELL_WIDTH, 268, f"step {step} of all ranks together", "small dim", "middle")
    return str(picture)


def _owners(num_ranks: int, batch_size: int, count: int) -> list[int]:
    """Return the rank of each position, from the positions of the batches of each rank."""
    owners = [-1] * count
    for rank in range(num_ranks):
        stripe = Shard(rank, num_ranks)
        for begin in range(0, count, batch_size * num_ranks):
            for position in stripe.stripe(begin, batch_size):
                owners[position] = rank
    return owners


def _cells(
    picture: Picture, y: float, name: Sequence[str], texts: Sequence[str], colors: Sequence[int] | None = None
) -> None:
    """Draw a row of cells. Cells of the same owner have the same color."""
    kinds: tuple[Kind, ...] = ("soft", "warn", "box", "quiet")
    for number, line in enumerate(name):
        picture.text(16, y + 18 + LINE_HEIGHT * number, line, "small dim" if number else "strong")
    for number, text in enumerate(texts):
        x = 164 + number * _CELL_WIDTH
        picture.bar(x, y, _CELL_WIDTH - 3, 40, "box" if colors is None else kinds[colors[number]])
        picture.text(x + _CELL_WIDTH / 2 - 1, y + 24, text, "small", "middle")


# --- ways to scale ---


def ways_to_scale() -> str:
    """Draw the four ways to use more than one core, with the parts of the library."""
    picture = Picture(_WIDTH, "One machine, several GPUs, several machines, and a cluster for callbacks")
    ways = (
        ("one machine", ["worker", "worker", "worker"], ["one program", "a ring of batches"], "shared memory"),
        ("several GPUs", ["rank 0 + workers", "rank 1 + workers"], ["torchrun", "no positions twice"], "one budget of CPUs"),
        (
            "several machines",
            ["host 0: ranks 0, 1", "host 1: ranks 2, 3"],
            ["the same program", "on each host"],
            "exact resume",
        ),
        (
            "a cluster",
            ["Ray actor, 8 CPUs", "Ray actor, 8 CPUs"],
            ["one program", "callbacks elsewhere"],
            "samples by network",
        ),
    )
    for number, (title, parts, main, between) in enumerate(ways):
        x = 16 + number * 201.0
        picture.text(x + 92, 26, title, "strong", "middle")
        top = picture.box(x + 17, 40, 150, main, "soft")
        picture.text(x + 98, 110, between, "small dim")
        y = 128.0
        first = picture.box(x + 17, y, 150, parts[:1])
        picture.arrow(first.top, top.bottom)
        for part in parts[1:]:
            y += LINE_HEIGHT + 20
            picture.box(x + 17, y, 150, [part])
    return str(picture)


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs" / "pictures"))
