"""The Ray cluster for workers: the program's own, or a local one. Runs in the main process.

A program connects to a cluster with ``ray.init(address=...)``, or runs under ``ray job submit``, which sets RAY_ADDRESS.
Otherwise the first pool starts a cluster on this machine, large enough for its workers, and the last pool shuts it down.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

from dali_like.common.extras import optional
from dali_like.common.notices import warn
from dali_like.engine.memory.limits import allowed_cpus
from dali_like.errors import ArgumentError, WorkerStartError

#: Results on their way may take 1/4 of the node's object store. Ray spills to disk when the store is full.
_STORE_SHARE = 4
_SOME_BYTES = 1 << 26

#: Options of actors that this library sets itself.
_OURS = ("max_restarts", "max_task_retries", "max_concurrency", "concurrency_groups", "num_returns", "lifetime", "name")

_lock = threading.RLock()
#: Pools on the local cluster, which the first of them has started.
_num_guests = 0


class Cluster:
    """The use of a cluster by one pool.

    Args:
        num_workers: the number of workers.
        resources: Ray's options for each actor.

    Attributes:
        ray: the module.
        most_bytes: limit of the results on their way to this node. Above it, no actor gets a second call.

    Raises:
        MissingExtraError: Ray is not installed.
        ArgumentError: Ray's actors do not have an option, or this library sets it itself.
        WorkerStartError: Ray cannot be started or reached.
    """

    def __init__(self, num_workers: int, resources: Mapping[str, Any]) -> None:
        self.ray: Any = optional("ray", "py_start_method='ray'", "ray")
        for name in resources:
            if name in _OURS:
                raise ArgumentError(
                    f"py_worker_options: the pipeline sets {name!r} itself; remove it. To limit restarts, use "
                    "py_worker_restarts"
                )
        self._is_guest = self._enter(num_workers, resources)
        self._connection = self._connection_id()
        try:
            self.most_bytes = self._store_bytes() // _STORE_SHARE
            self._warn_of_missing(num_workers, resources)
        except BaseException:  # a warning filter may raise
            self.leave()
            raise

    @property
    def is_connected(self) -> bool:
        """Whether the program is still connected to this cluster. If not, Ray's functions connect to another one."""
        return self.ray.is_initialized() and self._connection_id() == self._connection

    def check(self) -> None:
        """Check that the program is still connected to this cluster.

        Raises:
            WorkerStartError: it is not.
        """
        if not self.is_connected:
            raise WorkerStartError(
                "the program has left the cluster of its workers, by ray.shutdown() or ray.init(); build the pipeline again"
            )

    def actor_class(self, kind: type, resources: Mapping[str, Any]) -> Any:
        """Return the actor class. Ray neither restarts its actors nor repeats their calls.

        Raises:
            ArgumentError: Ray rejects the options.
        """
        try:
            return self.ray.remote(kind).options(**{"num_cpus": 1, **resources, "max_restarts": 0, "max_task_retries": 0})
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"py_worker_options={dict(resources)!r}: Ray rejects these options of actors: {error}"
            ) from error

    def is_task_error(self, error: BaseException) -> bool:
        """Return whether the called method raised, and not Ray, which raises for lost actors."""
        return isinstance(error, self.ray.exceptions.RayTaskError)

    def cause_of(self, error: BaseException) -> Exception:
        """Return the exception of the called method."""
        cause = getattr(error, "cause", None)
        return cause if isinstance(cause, Exception) else RuntimeError(str(error))

    def leave(self) -> None:
        """End the use. The last pool shuts a local cluster down."""
        global _num_guests  # noqa: PLW0603  # there is one Ray connection for the process
        with _lock:
            if not self._is_guest:
                return
            self._is_guest = False
            _num_guests -= 1
            if not _num_guests and self.is_connected:
                self.ray.shutdown()

    def _enter(self, num_workers: int, resources: Mapping[str, Any]) -> bool:
        """Connect to a cluster, unless the program is connected. Return whether this library has started the cluster."""
        global _num_guests  # noqa: PLW0603
        with _lock:
            if self.ray.is_initialized():
                _num_guests += bool(_num_guests)
                return bool(_num_guests)
            _num_guests = 0
            try:
                if "RAY_ADDRESS" in os.environ:
                    self.ray.init()
                    return False
                self.ray.init(
                    "local",
                    num_cpus=max(allowed_cpus(), round(num_workers * resources.get("num_cpus", 1))),
                    resources={name: amount * num_workers for name, amount in resources.get("resources", {}).items()},
                    include_dashboard=False,
                )
            except Exception as error:  # Ray raises many types
                raise WorkerStartError(f"Ray could not be started or reached: {error}") from error
            _num_guests = 1
            return True

    def _connection_id(self) -> str:
        """Return the name of the program's connection, which is another one after each ``ray.init``."""
        return str(self.ray.get_runtime_context().get_worker_id())

    def _store_bytes(self) -> int:
        here = self.ray.get_runtime_context().get_node_id()
        for node in self.ray.nodes():
            if node["NodeID"] == here:
                return int(node["Resources"].get("object_store_memory", _SOME_BYTES))
        return _SOME_BYTES

    def _warn_of_missing(self, num_workers: int, resources: Mapping[str, Any]) -> None:
        there = self.ray.cluster_resources()
        wanted = {"CPU": resources.get("num_cpus", 1), "GPU": resources.get("num_gpus", 0), **resources.get("resources", {})}
        missing = [
            f"{name}: {there.get(name, 0):g} of {wanted[name] * num_workers:g}"
            for name in wanted
            if there.get(name, 0) < wanted[name] * num_workers
        ]
        if missing:
            warn(
                f"Ray's cluster is too small for {num_workers} workers ({', '.join(missing)}); the other workers start when "
                "it grows",
                UserWarning,
            )
