"""States of loaders in checkpoints of Orbax, beside the parameters of a model. Needs orbax-checkpoint.

Each JAX process saves the state of its loader, as one file. Loaders of composed datasets are restored from the files of all
processes, so the number of processes may change::

    import orbax.checkpoint as ocp
    from dali_like.plugin.jax.orbax import LoaderRestore, LoaderSave

    with ocp.CheckpointManager(folder) as manager:
        manager.save(step, args=ocp.args.Composite(model=ocp.args.StandardSave(params), data=LoaderSave(loader)))
        ...
        manager.restore(step, args=ocp.args.Composite(model=ocp.args.StandardRestore(), data=LoaderRestore(loader)))
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dali_like.common.extras import optional
from dali_like.errors import CheckpointError

_orbax: Any = optional("orbax.checkpoint", "dali_like.plugin.jax.orbax", "orbax")

__all__ = ["LoaderHandler", "LoaderRestore", "LoaderSave"]

_PATTERN = "process_*-of-*.json"


class LoaderHandler(_orbax.CheckpointHandler):
    """Saves and restores the states of loaders, and of pipelines: objects with ``state_dict`` and ``load_state_dict``.

    `LoaderSave` and `LoaderRestore` choose it.
    """

    def save(self, directory: Any, args: LoaderSave) -> None:
        """Write the state of this process."""
        import jax  # the plugin needs it anyway

        Path(directory, _name(jax)).write_text(json.dumps(args.loader.state_dict()))

    def restore(self, directory: Any, args: LoaderRestore) -> Any:
        """Load the states of all processes that have saved, and return the loader.

        Raises:
            CheckpointError: a file is missing, or the states do not fit the loader.
        """
        import jax

        found = sorted(Path(directory).glob(_PATTERN))
        count = int(found[0].stem.rpartition("-")[2]) if found else 0
        states = [json.loads(path.read_text()) for path in found]
        if not states or len(states) != count:
            raise CheckpointError(
                f"{directory} has states of {len(states)} of {count or 'all'} processes. Save them in a folder that all of "
                "them can reach"
            )
        if len(states) == 1:
            args.loader.load_state_dict(states[0])
        elif _are_merged(states):
            args.loader.load_state_dict(states)
        elif count == jax.process_count():
            args.loader.load_state_dict(json.loads(Path(directory, _name(jax)).read_text()))
        else:
            raise CheckpointError(
                f"the states are of {count} processes, and there are {jax.process_count()}: only loaders of composed "
                "datasets resume on another number"
            )
        return args.loader

    def close(self) -> None:
        """Nothing stays open."""


def _name(jax: Any) -> str:
    """Return the name of the file of this process."""
    return f"process_{jax.process_index()}-of-{jax.process_count()}.json"


def _are_merged(states: list[Any]) -> bool:
    """Whether the states are of a composed dataset, whose ranks load all of them."""
    return all(isinstance(state, dict) and "num_ranks" in state for state in states)


@_orbax.args.register_with_handler(LoaderHandler, for_save=True)
@dataclass
class LoaderSave(_orbax.args.CheckpointArgs):
    """What Orbax saves.

    Attributes:
        loader: a loader, or a pipeline with ``enable_checkpointing=True``.
    """

    loader: Any


@_orbax.args.register_with_handler(LoaderHandler, for_restore=True)
@dataclass
class LoaderRestore(_orbax.args.CheckpointArgs):
    """What Orbax restores.

    Attributes:
        loader: loads the state.
    """

    loader: Any
