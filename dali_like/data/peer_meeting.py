"""How the peers of a mesh find each other: they leave notes in the store of their process group. Runs in the main process.

PyTorch's process groups and JAX's distributed runtime have such a store, which all ranks reach. So no file and no address
has to be configured.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol

from dali_like.engine.memory.limits import read_file
from dali_like.errors import ArgumentError, ServerTimeoutError

#: Pauses between two looks into the store, which answers over the network.
_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.1


class Board(Protocol):
    """Texts by name, which all ranks of a program share."""

    def put(self, name: str, text: str) -> None:
        """Store a text."""

    def find(self, name: str) -> str | None:
        """Return a text; None if it is not there yet."""


class TorchBoard:
    """The store of PyTorch's default process group."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def put(self, name: str, text: str) -> None:
        self._store.set(name, text)

    def find(self, name: str) -> str | None:
        return self._store.get(name).decode() if self._store.check([name]) else None


class JaxBoard:
    """The store of JAX's distributed runtime."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def put(self, name: str, text: str) -> None:
        self._client.key_value_set(name, text)

    def find(self, name: str) -> str | None:
        try:
            return str(self._client.key_value_try_get(name))
        except Exception as error:  # its class depends on the version of JAX
            if "NOT_FOUND" in str(error):
                return None
            raise


class LocalBoard:
    """The store of a program with one rank."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def put(self, name: str, text: str) -> None:
        self._texts[name] = text

    def find(self, name: str) -> str | None:
        return self._texts.get(name)


def find_board(mesh: Any) -> Board:
    """Return the store of the processes of a mesh; without a mesh, of all processes of the job.

    Raises:
        ArgumentError: they have no process group.
    """
    distributed: Any = sys.modules.get("torch.distributed")
    is_of_torch = distributed is not None and distributed.is_available() and distributed.is_initialized()
    if hasattr(mesh, "axis_names") or (mesh is None and not is_of_torch):
        state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
        client = getattr(state, "client", None)
        return LocalBoard() if client is None else JaxBoard(client)
    if not is_of_torch:
        raise ArgumentError(
            'peers="serve" needs the process group of the mesh: call torch.distributed.init_process_group() first'
        )
    return TorchBoard(distributed.distributed_c10d._get_default_store())


class Peers(NamedTuple):
    """The peers of a rank that share a loader.

    Attributes:
        rank: of this process.
        leader: the rank that loads.
        others: the other ranks on this host, which map its batches.
    """

    rank: int
    leader: int
    others: tuple[int, ...]

    @property
    def is_leading(self) -> bool:
        """Whether this process loads."""
        return self.rank == self.leader


def meet(board: Board, name: str, rank: int, ranks: Collection[int], timeout_s: float) -> Peers:
    """Return the peers that can map the memory of each other: those on this host. All `ranks` must call this.

    Args:
        name: of the meeting.
        rank: of this process.
        ranks: of all processes with the same samples.

    Raises:
        ServerTimeoutError: some ranks do not come.
    """
    board.put(f"{name}/host/{rank}", host_name())
    hosts = await_all(board, {each: f"{name}/host/{each}" for each in ranks}, timeout_s)
    here = sorted(each for each, host in hosts.items() if host == hosts[rank])
    return Peers(rank, here[0], tuple(here[1:]))


#: The error when a peer of a mesh begins no loop.
_NO_LOOP = (
    'peers="serve": {} did not begin a loop over this loader within {:.0f} s. All ranks with the same samples must iterate '
    "over their loaders, in one order"
)


def await_all(board: Board, names: Mapping[int, str], timeout_s: float, absent: str = _NO_LOOP) -> dict[int, str]:
    """Wait for texts of several ranks, and return them by rank.

    Args:
        names: the name of each text.
        absent: the message of the error, with places for the missing ranks, and for the timeout.

    Raises:
        ServerTimeoutError: some are missing.
    """
    found: dict[int, str] = {}
    deadline_s, pause_s = time.monotonic() + timeout_s, _FIRST_PAUSE_S
    while True:
        for rank in names.keys() - found.keys():
            if (text := board.find(names[rank])) is not None:
                found[rank] = text
        missing = sorted(names.keys() - found.keys())
        if not missing:
            return found
        if time.monotonic() >= deadline_s:
            ranks = f"{'ranks' if len(missing) > 1 else 'rank'} {', '.join(map(str, missing))}"
            raise ServerTimeoutError(absent.format(ranks, timeout_s))
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def host_name() -> str:
    """Return a name that is equal for processes of one user that can connect to each other: on one kernel and in one
    namespace of the network, in which the sockets without a file are.
    """
    boot = read_file("/proc/sys/kernel/random/boot_id").strip()
    try:
        network = os.readlink("/proc/self/ns/net")
    except OSError:  # a sandbox
        network = ""
    return f"{boot} {network} {os.geteuid()}"
