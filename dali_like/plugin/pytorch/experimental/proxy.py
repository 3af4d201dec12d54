"""A pipeline as a transform of PyTorch's datasets, as in ``nvidia.dali.plugin.pytorch.experimental.proxy``.

DALI's server runs the pipeline in the main process. Here the workers of the loader run its operators, sample by sample, so
there is no server: `DALIServer` only keeps the operators.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch

from dali_like.errors import ArgumentTypeError, DefinitionError
from dali_like.graph.execution.placement import sample_program
from dali_like.graph.execution.program import Program
from dali_like.pipeline.pipeline import Pipeline
from dali_like.plugin.pytorch import torch_loader
from dali_like.types import SampleInfo

__all__ = ["DALIServer", "DataLoader"]


class Proxy:
    """Computes one sample: a callable for ``transform=``. Takes the inputs of the pipeline, by name if there are several.

    Returns a tensor, or a tuple for several outputs. Random operators take their numbers from PyTorch's global generator.
    """

    def __init__(self, program: Program, names: tuple[str, ...]) -> None:
        self._program = program
        self._names = names

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if len(inputs) == len(self._names) == 1 and not named:
            values = list(inputs)
        elif inputs or set(named) != set(self._names):
            raise ArgumentTypeError(f"the proxy takes the inputs of the pipeline by name: {', '.join(self._names)}")
        else:
            values = [named[name] for name in self._names]
        number = int(torch.randint(1 << 62, ()))
        outputs = self._program.run([np.asarray(value) for value in values], SampleInfo(number, 0, 0, 0))
        tensors = tuple([torch.from_numpy(np.array(output)) for output in outputs])
        return tensors[0] if len(tensors) == 1 else tensors


class DALIServer:
    """A pipeline whose operators the workers of a loader run. Outputs are on the CPU.

    Args:
        pipeline: its inputs are ``fn.external_source(name=...)`` without a source. It is not run itself.
        deterministic: without effect: results do not depend on the schedule.

    Attributes:
        proxy: the transform.

    Raises:
        ArgumentTypeError: `pipeline` is not a pipeline.
        DefinitionError: the pipeline has no inputs, a source, or an operator on batches.
    """

    def __init__(self, pipeline: Pipeline, deterministic: bool = False) -> None:
        if not isinstance(pipeline, Pipeline):
            raise ArgumentTypeError(f"Expected a pipeline, got: {pipeline}")
        program, names = sample_program(pipeline._make_graph(), pipeline._entropy)
        if not names:
            raise DefinitionError("The provided pipeline doesn't have any inputs: use fn.external_source(name=...)")
        self.proxy = Proxy(program, names)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is no server to stop."""

    def start_thread(self) -> None:
        """Do nothing: there is no server."""

    def stop_thread(self) -> None:
        """Do nothing: there is no server."""

    def produce_data(self, data: Any) -> Any:
        """Return the data itself: the workers have computed it."""
        return data


class DataLoader(torch_loader.DataLoader[Any]):
    """The loader of `dali_like.plugin.pytorch`, with a `DALIServer` as first argument.

    Args:
        dali_server: the server; its proxy is the transform of the dataset.
        args, options: arguments of the loader.
    """

    def __init__(self, dali_server: DALIServer, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.dali_server = dali_server
