"""Checkpoints of dynamic mode: readers and generators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dali_like.experimental.dynamic as ndd
from dali_like import errors
from dali_like.experimental.dynamic.checkpoint import Checkpoint, current


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for i in range(6):
        np.save(folder / f"{i}.npy", np.full(2, i, np.int32))
    return folder


def reader_of(files: Path) -> Any:
    return ndd.readers.Numpy(batch_size=2, file_root=str(files), random_shuffle=True, seed=3, enable_checkpointing=True)


def epoch_of(reader: Any) -> list[Any]:
    return [np.asarray(batch).tolist() for (batch,) in reader.next_epoch()]


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_reader_and_generator_continue_from_a_file(files: Path, tmp_path: Path, steps: int) -> None:
    reader, rng = reader_of(files), ndd.random.RNG(seed=4)
    saved = Checkpoint()
    assert (saved.register(reader, "reader"), saved.register(rng)) == ("reader", "__op_1")
    epoch = reader.next_epoch()
    for _ in range(steps):
        next(epoch)
    rng()
    saved.collect()
    path = saved.save(str(tmp_path / "states" / "state_{seq:03d}.json"))
    assert path == str(tmp_path / "states" / "state_000.json")
    expected = [np.asarray(reader(2)).tolist() for _ in range(5)], [rng() for _ in range(3)]
    reader.close()

    again, other = reader_of(files), ndd.random.RNG()
    loaded = Checkpoint()
    assert loaded.load(str(tmp_path / "states" / "state_{seq:03d}.json")) == path
    assert (loaded.is_loaded, loaded.is_complete) == (True, False)
    loaded.register(again, "reader")
    loaded.register(other)
    assert ([np.asarray(again(2)).tolist() for _ in range(5)], [other() for _ in range(3)]) == expected
    again.close()


def test_files_are_numbered_and_the_last_one_is_loaded(tmp_path: Path) -> None:
    rng, saved = ndd.random.RNG(seed=1), Checkpoint()
    saved.register(rng, "rng")
    pattern = str(tmp_path / "[state] {seq}.json")
    paths, numbers = [], []
    for _ in range(11):
        saved.collect()
        paths.append(saved.save(pattern))
        numbers.append(rng())
    assert paths == [str(tmp_path / f"[state] {i}.json") for i in range(11)]
    assert {path.suffix for path in tmp_path.iterdir()} == {".json"}

    loaded, other = Checkpoint(), ndd.random.RNG()
    assert loaded.load(pattern) == paths[-1]
    loaded.register(other, "rng")
    assert other() == numbers[-1]
    loaded.collect()
    assert loaded.save(pattern) == str(tmp_path / "[state] 11.json")


def test_restore_applies_states_set_by_hand() -> None:
    rng, source = ndd.random.RNG(seed=1), ndd.random.RNG(seed=2)
    checkpoint = Checkpoint()
    checkpoint.register(rng, "rng")
    checkpoint.set_state("rng", source.get_state(), op_type=ndd.random.RNG)
    checkpoint.restore()
    assert rng() == source()
    assert checkpoint.get_state("rng")
    assert ("rng" in checkpoint, "other" in checkpoint, len(checkpoint), checkpoint.names) == (True, False, 1, ("rng",))


def test_wrong_use_is_an_error(tmp_path: Path) -> None:
    rng, checkpoint = ndd.random.RNG(seed=1), Checkpoint()
    with pytest.raises(RuntimeError, match="empty"):
        checkpoint.serialize()
    checkpoint.register(rng, "rng")
    assert checkpoint.register(rng) == "rng"
    with pytest.raises(RuntimeError, match="second name"):
        checkpoint.register(rng, "other")
    for name in ("", "__op_7"):
        with pytest.raises(ValueError, match="must not"):
            checkpoint.register(ndd.random.RNG(), name)
    with pytest.raises(KeyError, match="no object has the name 'other'"):
        checkpoint.get_state("other")
    with pytest.raises(TypeError, match="op_type"):
        checkpoint.set_state("rng", "", op_type=3)
    checkpoint.collect()
    with pytest.raises(RuntimeError, match="clear"):
        checkpoint.register(ndd.random.RNG(), "other")
    with pytest.raises(KeyError):
        checkpoint.set_state("other", "")

    loaded = Checkpoint()
    loaded.deserialize(checkpoint.serialize())
    with pytest.raises(KeyError, match="no state of 'other'"):
        loaded.register(ndd.random.RNG(), "other")
    with pytest.raises(TypeError, match="of a RNG"):
        loaded.register(_Stateful(), "rng")
    with pytest.raises(RuntimeError, match="no such objects"):
        Checkpoint.collect(_with_state("lost"))
    for text in ("", "[]", '{"states": {"a": {}}}', '{"version": 9, "states": {}}'):
        with pytest.raises(errors.CheckpointError):
            Checkpoint().deserialize(text)
    with pytest.raises(FileNotFoundError, match="No checkpoint file"):
        loaded.load(str(tmp_path / "{seq}.json"))
    for name in ("state.json", "{seq}{seq}", "{name}"):
        with pytest.raises(ValueError, match="one place for a number"):
            checkpoint.save(str(tmp_path / name))
    with pytest.raises(errors.CheckpointError, match="random generator"):
        ndd.random.RNG(state="3:xyz")


def test_each_context_has_a_checkpoint() -> None:
    outer = current()
    with ndd.EvalContext(num_threads=1) as context:
        assert current() is context.checkpoint
        assert current() is not outer
    assert current() is outer


def test_generator_leaves_numbers_out() -> None:
    one, other = ndd.random.RNG(seed=5), ndd.random.RNG(seed=5)
    for _ in range(5000):
        one()
    other.advance(5000)
    assert one() == other()
    assert ndd.random.RNG(state=one.state)() == one()
    with pytest.raises(ValueError, match="negative"):
        one.advance(-1)
    with pytest.raises(errors.ArgumentClashError):
        ndd.random.RNG(seed=1, state=one.state)


class _Stateful:
    def get_state(self) -> str:
        return ""

    def set_state(self, state: str) -> None:
        raise AssertionError


def _with_state(name: str) -> Checkpoint:
    checkpoint = Checkpoint()
    checkpoint.set_state(name, "")
    return checkpoint
