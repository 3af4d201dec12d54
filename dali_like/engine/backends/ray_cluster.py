"""The cluster of Ray that workers are to be on: the one that the program is connected to, or a local one.

A program that wants a cluster connects to it by ``ray.init(address=...)``, or is started by ``ray job submit``, which says
where it is in the environment. Otherwise the first pipeline starts a cluster on this machine, large enough for its workers,
and the last one ends it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

from dali_like.common.extras import optional
from dali_like.common.notices import warn
from dali_like.errors import ArgumentError, WorkerStartError

#: This part of the node's object store may be taken by results on their way; Ray would spill to disk what does not fit.
_STORE_SHARE = 4
_SOME_BYTES = 1 << 26

#: Options of actors that would get between this library and Ray.
_OURS = ("max_restarts", "max_task_retries", "max_concurrency", "concurrency_groups", "num_returns", "lifetime", "name")

_lock = threading.RLock()
#: How many pools are on the cluster that the first of them has started.
_num_guests = 0


class Cluster:
    """A cluster that a pool is on.

    Args:
        num_workers: how many workers there are to be.
        resources: what each needs: options of Ray's actors.

    Attributes:
        ray: the module.
        most_bytes: how much results on their way to this node may take before no actor gets a second task.

    Raises:
        MissingExtraError: Ray is not installed.
        ArgumentError: an option is not one of actors', or not the user's to set.
        WorkerStartError: Ray cannot be started, or cannot be reached.
    """

    def __init__(self, num_workers: int, resources: Mapping[str, Any]) -> None:
        self.ray: Any = optional("ray", "py_start_method='ray'", "ray")
        for name in resources:
            if name in _OURS:
                raise ArgumentError(
                    f"py_worker_options: {name!r} is the pipeline's to set; how often workers are replaced is said by "
                    "py_worker_restarts"
                )
        self._is_guest = self._enter(num_workers, resources)
        try:
            self.most_bytes = self._store_bytes() // _STORE_SHARE
            self._warn_of_missing(num_workers, resources)
        except BaseException:  # warnings may be errors
            self.leave()
            raise

    def actor_class(self, kind: type, resources: Mapping[str, Any]) -> Any:
        """A class whose instances are actors that are lost with their process: no call is made twice.

        Raises:
            ArgumentError: Ray does not take the options.
        """
        try:
            return self.ray.remote(kind).options(**{"num_cpus": 1, **resources, "max_restarts": 0, "max_task_retries": 0})
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"py_worker_options={dict(resources)!r}: Ray's actors do not take that: {error}") from error

    def is_task_error(self, error: BaseException) -> bool:
        """Whether a call has raised, and not failed for want of somebody to answer it."""
        return isinstance(error, self.ray.exceptions.RayTaskError)

    def cause_of(self, error: BaseException) -> Exception:
        """What a call has raised."""
        cause = getattr(error, "cause", None)
        return cause if isinstance(cause, Exception) else RuntimeError(str(error))

    def leave(self) -> None:
        """The pool is not on it any more."""
        global _num_guests  # noqa: PLW0603  # Ray is one for the process
        with _lock:
            if not self._is_guest:
                return
            self._is_guest = False
            _num_guests -= 1
            if not _num_guests and self.ray.is_initialized():
                self.ray.shutdown()

    def _enter(self, num_workers: int, resources: Mapping[str, Any]) -> bool:
        """Connect to a cluster, unless that has been done; whether it is ours to end."""
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
                    num_cpus=max(len(os.sched_getaffinity(0)), round(num_workers * resources.get("num_cpus", 1))),
                    resources={name: amount * num_workers for name, amount in resources.get("resources", {}).items()},
                    include_dashboard=False,
                )
            except Exception as error:  # whatever Ray raises
                raise WorkerStartError(f"Ray could not be started, or reached: {error}") from error
            _num_guests = 1
            return True

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
                f"Ray's cluster has not enough for {num_workers} workers ({', '.join(missing)}); those that find no place "
                "wait until it grows",
                UserWarning,
            )
