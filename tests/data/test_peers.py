"""Peers of a mesh that share one loader, with a store in a folder; `tests/parity/test_peers.py` has those of gloo."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dali_like.data import ComposedDataset, DataLoader, IterableDataset, ShardedBatchSampler, peers
from dali_like.data.peer_meeting import LocalBoard, meet
from dali_like.errors import (
    ArgumentClashError,
    ArgumentError,
    ForkedError,
    LoaderTimeoutError,
    PeerError,
    ServerTimeoutError,
)
from tests.conftest import DEADLINE_S, wait_until

COUNT = 24
#: Bytes of a sample, enough to lie in a slot.
SIDE = 128


class FolderBoard:
    """A store in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, name: str, text: str) -> None:
        path = self._folder / name.replace("/", "-")
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").rename(path)

    def find(self, name: str) -> str | None:
        path = self._folder / name.replace("/", "-")
        return path.read_text() if path.exists() else None


def mesh_of(rank: int, dp: int, tp: int) -> Any:
    """A mesh as PyTorch's, seen by one of its processes."""
    ranks = np.arange(dp * tp).reshape(dp, tp)
    place = [int(index[0]) for index in np.nonzero(ranks == rank)]
    return SimpleNamespace(mesh_dim_names=("dp", "tp"), shape=(dp, tp), mesh=ranks, get_coordinate=lambda: place)


class Ranks:
    """The processes of a mesh; each calls a function with its rank, its mesh and a folder.

    Attributes:
        folder: for files.
    """

    def __init__(self, folder: Path, function: Callable[[int, Any, Path], Any], dp: int = 1, tp: int = 2) -> None:
        self.folder = folder
        context = multiprocessing.get_context("fork")
        self.processes = [
            context.Process(target=self._run, args=(rank, mesh_of(rank, dp, tp), function)) for rank in range(dp * tp)
        ]
        for each in self.processes:
            each.start()

    def _run(self, rank: int, mesh: Any, function: Callable[[int, Any, Path], Any]) -> None:
        peers.find_board = lambda _: FolderBoard(self.folder)
        try:
            function(rank, mesh, self.folder)
        except BaseException:
            (self.folder / f"failure-{rank}").write_text(traceback.format_exc())
            raise

    def join(self, *killed: int) -> None:
        """Wait until all have ended, without errors; those `killed` by their signal."""
        for each in self.processes:
            each.join(DEADLINE_S)
        failures = [path.read_text() for path in self.folder.glob("failure-*")]
        assert not failures, failures[0]
        codes = [each.exitcode for each in self.processes]
        assert codes == [-signal.SIGKILL if rank in killed else 0 for rank in range(len(codes))]

    def texts(self, name: str) -> list[Any]:
        """What each rank has left under a name, as JSON."""
        return [
            json.loads(path.read_text()) if (path := self.folder / f"{name}-{rank}").exists() else None
            for rank in range(len(self.processes))
        ]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Ranks]]:
    begun: list[Ranks] = []

    def begin(function: Callable[[int, Any, Path], Any], dp: int = 1, tp: int = 2) -> Ranks:
        folder = tmp_path / str(len(begun))
        folder.mkdir()
        begun.append(Ranks(folder, function, dp, tp))
        return begun[-1]

    yield begin
    for ranks in begun:
        for process in ranks.processes:
            process.kill()
            process.join()
            process.close()


def as_json(value: Any) -> Any:
    """A value as it comes back from a file."""
    return json.loads(json.dumps(value))


def leave(folder: Path, name: str, rank: int, value: Any) -> None:
    """Leave a value for `Ranks.texts`."""
    path = folder / f"{name}-{rank}.new"
    path.write_text(json.dumps(value))
    path.rename(folder / f"{name}-{rank}")


def sample(folder: Path, number: int) -> Any:
    """A sample that fills an array, and notes its process."""
    with (folder / "loaded").open("a") as file:
        file.write(f"{number} {os.getppid()}\n")
    return np.full((SIDE, SIDE), number, np.uint8), number


def is_kept(sample: Any) -> bool:
    return True


def random_access(folder: Path) -> ComposedDataset:
    return ComposedDataset.source(range(COUNT)).map(functools.partial(sample, folder))


def in_shards(folder: Path) -> ComposedDataset:
    return random_access(folder).filter(is_kept).with_options(shards=4)


def shared(mesh: Any, folder: Path, make: Any = random_access, **options: Any) -> Any:
    given = {"batch_size": 3, "num_workers": 1, "shard_rest": "uneven", "mesh": mesh, "peers": "serve", **options}
    return DataLoader(make(folder), **given)


def numbers(batches: Any) -> list[list[int]]:
    """The numbers of batches, whose arrays must be full of them."""
    found = []
    for images, labels in batches:
        assert (images == labels[:, None, None]).all()
        found.append(labels.tolist())
    return found


@pytest.mark.parametrize("make", [random_access, in_shards])
def test_peers_have_the_batches_that_each_would_load_and_one_of_them_loads(
    run: Callable[..., Ranks], make: Callable[[Path], ComposedDataset], tmp_path: Path
) -> None:
    ranks = run(functools.partial(_two_epochs, make), dp=2, tp=2)
    ranks.join()

    for shard in range(2):
        alone = DataLoader(make(tmp_path), batch_size=3, shard_id=shard, num_shards=2, shard_rest="uneven")
        expected = [numbers(alone), numbers(alone)]
        assert ranks.texts("epochs")[2 * shard : 2 * shard + 2] == [expected, expected]
    loaded = [line.split()[0] for line in (ranks.folder / "loaded").read_text().splitlines()]
    assert sorted(map(int, loaded)) == sorted([*range(COUNT)] * 2)


def _two_epochs(make: Any, rank: int, mesh: Any, folder: Path) -> None:
    loader = shared(mesh, folder, make)
    leave(folder, "epochs", rank, [numbers(loader), numbers(loader)])


@pytest.mark.parametrize("make", [random_access, in_shards])
def test_each_peer_saves_the_state_behind_its_batch_and_all_resume_from_it(run: Callable[..., Ranks], make: Any) -> None:
    saving = run(functools.partial(_save, make), dp=2, tp=2)
    saving.join()
    states = saving.texts("states")
    assert states[0] == states[1]
    assert states[2] == states[3]
    assert [state["position"] for state in states[1]] == [0, 6, 12, 18, 24, 0]
    assert [state["epoch"] for state in states[1]] == [0, 0, 0, 0, 0, 1]

    saved = [states[1][2], states[3][2]]  # of the ranks that load nothing
    for dp, tp in ((1, 2), (2, 1)):
        resumed = run(functools.partial(_resume, make, saved), dp=dp, tp=tp)
        resumed.join()
        rest = resumed.texts("rest")
        assert rest == [numbers_of_shard(rank // tp, dp) for rank in range(dp * tp)]


def numbers_of_shard(shard: int, num_shards: int) -> list[int]:
    return list(range(12 + shard, COUNT, num_shards))


def _save(make: Any, rank: int, mesh: Any, folder: Path) -> None:
    loader = shared(mesh, folder, make)
    batches = iter(loader)
    states = [loader.state_dict()]
    for _ in batches:
        states.append(loader.state_dict())
    states.append(loader.state_dict())
    leave(folder, "states", rank, as_json(states))


def _resume(make: Any, states: Any, rank: int, mesh: Any, folder: Path) -> None:
    loader = shared(mesh, folder, make, batch_size=2)
    loader.load_state_dict(states)
    before = loader.state_dict()
    leave(folder, "rest", rank, [number for batch in numbers(loader) for number in batch])
    assert before["position"] == 12
    assert loader.state_dict()["epoch"] == 1


def test_an_epoch_can_be_set_on_all_peers(run: Callable[..., Ranks]) -> None:
    ranks = run(_set_epochs)
    ranks.join()

    first, second = ranks.texts("orders")
    assert first == second
    assert first[0] == first[2] != first[1]


def _shuffled(folder: Path) -> ComposedDataset:
    return ComposedDataset.source(range(COUNT)).shuffle(seed=3).map(functools.partial(sample, folder))


def _set_epochs(rank: int, mesh: Any, folder: Path) -> None:
    loader, orders = shared(mesh, folder, _shuffled), []
    for epoch in (4, 7, 4):
        loader.set_epoch(epoch)
        assert loader.state_dict()["epoch"] == epoch
        orders.append(numbers(loader))
    leave(folder, "orders", rank, orders)


def test_batches_of_a_follower_are_its_own_and_stay(run: Callable[..., Ranks]) -> None:
    run(_write).join()


def _write(rank: int, mesh: Any, folder: Path) -> None:
    loader = shared(mesh, folder)
    kept = []
    for images, labels in loader:
        assert images[0, 0, 0] == labels[0]
        images[:] = 100 + rank
        kept.append(images)
    assert all((images == 100 + rank).all() for images in kept)


class Numbers:
    """A map-style dataset."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return sample(self.folder, index)


def test_a_map_style_dataset_is_shared_and_resumed(run: Callable[..., Ranks]) -> None:
    ranks = run(_map_style, dp=2, tp=2)
    ranks.join()

    first, second, third, fourth = ranks.texts("epochs")
    assert first == second
    assert third == fourth
    assert sorted(number for batch in [*first[0], *third[0]] for number in batch) == list(range(COUNT))
    assert first[1] == first[0][2:]
    assert len((ranks.folder / "loaded").read_text().splitlines()) <= 3 * COUNT


def _map_style(rank: int, mesh: Any, folder: Path) -> None:
    dataset = Numbers(folder)

    def loader() -> Any:
        sampler = ShardedBatchSampler(dataset, 2, seed=5, mesh=mesh)
        return DataLoader(dataset, batch_sampler=sampler, num_workers=1, mesh=mesh, peers="serve")

    first, resumed, states = loader(), loader(), []
    whole = numbers(_noting(first, states))
    resumed.load_state_dict(states[1])
    leave(folder, "epochs", rank, [whole, numbers(resumed)])


def _noting(loader: Any, states: list[Any]) -> Iterator[Any]:
    for batch in loader:
        states.append(as_json(loader.state_dict()))
        yield batch


class Counting(IterableDataset[Any]):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __iter__(self) -> Iterator[Any]:
        return (sample(self.folder, number) for number in range(COUNT))


def test_an_iterable_dataset_is_shared(run: Callable[..., Ranks]) -> None:
    ranks = run(_iterable)
    ranks.join()

    first, second = ranks.texts("batches")
    assert first == second == [list(range(begin, begin + 4)) for begin in range(0, COUNT, 4)]
    assert len((ranks.folder / "loaded").read_text().splitlines()) == COUNT


def _iterable(rank: int, mesh: Any, folder: Path) -> None:
    leave(folder, "batches", rank, numbers(shared(mesh, folder, Counting, batch_size=4, shard_rest=None)))


# Failures


def test_peers_get_an_error_with_the_rank_of_a_loading_one_that_is_killed(run: Callable[..., Ranks]) -> None:
    ranks = run(_lose_leader, dp=1, tp=3)
    wait_until(lambda: None not in ranks.texts("ready"), "three ranks in the loop")
    os.kill(ranks.processes[0].pid or 0, signal.SIGKILL)
    ranks.join(0)

    for rank in (1, 2):
        found = ranks.texts("error")[rank]
        assert found[0] == 0
        assert f"rank 0, which loads for rank {rank}, gives no more batches" in found[1]


def _lose_leader(rank: int, mesh: Any, folder: Path) -> None:
    loader = shared(mesh, folder)
    batches = iter(loader)
    next(batches)
    leave(folder, "ready", rank, True)
    if rank == 0:
        time.sleep(DEADLINE_S)
    with pytest.raises(PeerError) as raised:
        list(batches)
    leave(folder, "error", rank, (raised.value.rank, str(raised.value)))
    assert loader.state_dict()["position"] >= 3  # it can still save its state


def test_the_loading_peer_goes_on_without_a_killed_one(run: Callable[..., Ranks]) -> None:
    ranks = run(_lose_follower, dp=1, tp=3)
    wait_until(lambda: ranks.texts("ready")[1], "a batch of rank 1")
    os.kill(ranks.processes[1].pid or 0, signal.SIGKILL)
    ranks.join(1)

    first, _, third = ranks.texts("rest")
    assert first == third == [list(range(begin, begin + 3)) for begin in range(0, COUNT, 3)]


def _lose_follower(rank: int, mesh: Any, folder: Path) -> None:
    batches = iter(shared(mesh, folder))
    taken = [next(batches)]
    leave(folder, "ready", rank, True)
    if rank == 1:
        time.sleep(DEADLINE_S)
    leave(folder, "rest", rank, numbers([*taken, *batches]))


def test_a_worker_that_is_killed_is_replaced_for_all(run: Callable[..., Ranks]) -> None:
    ranks = run(_lose_worker)
    ranks.join()
    assert ranks.texts("batches")[0] == ranks.texts("batches")[1]


def _dies_once(folder: Path, number: int) -> Any:
    if number == 11 and not (folder / "died").exists():
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return sample(folder, number)


def _lose_worker(rank: int, mesh: Any, folder: Path) -> None:
    loader = shared(mesh, folder, lambda _: ComposedDataset.source(range(COUNT)).map(functools.partial(_dies_once, folder)))
    leave(folder, "batches", rank, numbers(loader))


def test_an_exception_reaches_all_peers_at_its_turn(run: Callable[..., Ranks]) -> None:
    ranks = run(_meet_exception)
    ranks.join()
    first, second = ranks.texts("seen")
    assert first == second == [[0, 1, 2], "seven is missing", [9, 10, 11]]


def _without_seven(folder: Path, number: int) -> Any:
    if number == 7:
        raise LookupError("seven is missing")
    return sample(folder, number)


def _meet_exception(rank: int, mesh: Any, folder: Path) -> None:
    stream = ComposedDataset.source(range(COUNT)).map(functools.partial(_without_seven, folder))
    loader = shared(mesh, folder, lambda _: stream)
    batches, seen = iter(loader), []
    seen += numbers([next(batches)])
    numbers([next(batches)])
    with pytest.raises(LookupError) as raised:
        next(batches)
    seen += [str(raised.value), *numbers([next(batches)])]
    leave(folder, "seen", rank, seen)


def test_peers_of_a_loading_one_that_leaves_its_loop_get_an_error_and_the_next_loop(run: Callable[..., Ranks]) -> None:
    run(_leader_leaves).join()


def _leader_leaves(rank: int, mesh: Any, folder: Path) -> None:
    loader = shared(mesh, folder)
    batches = iter(loader)
    next(batches)
    if rank == 0:
        del batches
    else:
        with pytest.raises(PeerError, match=r"rank 0, .* has left its loop before the end"):
            list(batches)
    assert len(numbers(loader)) == COUNT // 3


def test_a_peer_that_leaves_its_loop_does_not_stop_the_others(run: Callable[..., Ranks]) -> None:
    ranks = run(_follower_leaves)
    ranks.join()
    assert ranks.texts("count") == [200, 200]


def _follower_leaves(rank: int, mesh: Any, folder: Path) -> None:
    loader = DataLoader(ComposedDataset.source(range(200)), batch_size=1, mesh=mesh, peers="serve")
    if rank:
        next(iter(loader))
        leave(folder, "left", rank, True)
    else:
        batches = iter(loader)
        next(batches)
        wait_until((folder / "left-1").exists, "rank 1 out of its loop")
        assert len(list(batches)) == 199  # more than may wait for a peer
    leave(folder, "count", rank, len(list(loader)))


def test_peers_that_begin_other_loops_get_an_error(run: Callable[..., Ranks]) -> None:
    run(_differ).join()


def _differ(rank: int, mesh: Any, folder: Path) -> None:
    makers: list[Callable[[], Any]] = [
        lambda: shared(mesh, folder, batch_size=3 + rank),
        lambda: shared(mesh, folder, _shuffled if rank else random_access),
        lambda: _loaded(shared(mesh, folder), 3 * rank),
    ]
    for make in makers:
        loader = make()
        if rank:
            with pytest.raises(PeerError, match="it has another loader, or has loaded another state"):
                iter(loader)
        else:
            iter(loader)


def _loaded(loader: Any, position: int) -> Any:
    loader.load_state_dict({**loader.state_dict(), "position": position})
    return loader


def test_a_peer_that_drops_its_loader_says_so(run: Callable[..., Ranks]) -> None:
    run(_drop_loader).join()


def _drop_loader(rank: int, mesh: Any, folder: Path) -> None:
    loader = shared(mesh, folder)
    numbers(loader)
    if rank == 0:
        del loader
        leave(folder, "dropped", rank, True)
        wait_until((folder / "seen-1").exists, "the error of rank 1")
    else:
        wait_until((folder / "dropped-0").exists, "rank 0 without its loader")
        with pytest.raises(PeerError, match="it has dropped its loader"):
            iter(loader)
        leave(folder, "seen", rank, True)


def test_timeout_counts_for_the_batches_of_another_rank(run: Callable[..., Ranks]) -> None:
    run(_time_out).join()


def _time_out(rank: int, mesh: Any, folder: Path) -> None:
    batches = iter(shared(mesh, folder, timeout=0.2))
    next(batches)
    if rank:
        with pytest.raises(LoaderTimeoutError, match="rank 0, which loads for rank 1, has taken no batch"):
            list(batches)
        leave(folder, "seen", rank, True)
    else:
        wait_until((folder / "seen-1").exists, "the time-out of rank 1")


def test_a_peer_that_does_not_come_is_named() -> None:
    with pytest.raises(ServerTimeoutError, match=r"ranks 2, 5 did not begin a loop over this loader"):
        meet(LocalBoard(), "name", 1, [1, 2, 5], timeout_s=0.01)


def test_peers_on_other_hosts_load_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    board = LocalBoard()
    for rank, host in ((0, "a"), (1, "b"), (2, "b"), (3, "a")):
        board.put(f"name/host/{rank}", host)
    monkeypatch.setattr("dali_like.data.peer_meeting.host_name", lambda: "b")

    assert meet(board, "name", 2, range(4), 1.0) == (2, 1, (2,))
    assert meet(board, "name", 1, range(4), 1.0) == (1, 1, (2,))


def test_a_rank_without_peers_loads_for_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peers, "find_board", lambda _: LocalBoard())
    loader = shared(mesh_of(0, 1, 1), tmp_path, num_workers=0)

    assert numbers(loader) == [list(range(begin, begin + 3)) for begin in range(0, COUNT, 3)]
    assert loader.state_dict()["epoch"] == 1


def test_a_loader_with_peers_is_of_one_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peers, "find_board", lambda _: LocalBoard())
    loader = shared(mesh_of(0, 1, 1), tmp_path, num_workers=0)
    iter(loader)
    if not (child := os.fork()):
        try:
            iter(loader)
        except ForkedError:
            os._exit(7)
        os._exit(1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_peers_need_a_mesh(tmp_path: Path) -> None:
    with pytest.raises(ArgumentClashError, match="pass mesh="):
        DataLoader(range(4), peers="serve")
    with pytest.raises(ArgumentError, match='peers must be "serve"'):
        DataLoader(range(4), peers="share", mesh=mesh_of(0, 1, 1))
    with pytest.raises(ArgumentClashError, match="mesh is for composed datasets"):
        DataLoader(range(4), mesh=mesh_of(0, 1, 1))
    with pytest.raises(ArgumentError, match="init_process_group"):
        iter(DataLoader(range(4), peers="serve", mesh=mesh_of(0, 1, 1)))
