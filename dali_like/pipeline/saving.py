"""Saving pipelines as text, and loading them; what the text is, says `dali_like.pipeline.serialization`."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Self

from dali_like.common.checks import list_unknown
from dali_like.errors import ArgumentError, ArgumentTypeError, DefinitionError, PipelineStateError
from dali_like.graph.defining import Definable
from dali_like.graph.pipeline_arguments import Arguments, HasArguments


class Serializable(HasArguments, Definable):
    """The methods that make text of a pipeline, and a pipeline of text."""

    _call: AbstractContextManager[None]

    def _adopt(self, arguments: Arguments) -> None:
        """Be a pipeline with these arguments."""
        raise NotImplementedError

    def build(self) -> None:
        """See `dali_like.Pipeline`."""
        raise NotImplementedError

    def serialize(
        self, define_graph: Callable[[], Any] | None = None, filename: str | os.PathLike[str] | None = None
    ) -> bytes:
        """The pipeline as JSON: arguments, operators and constants, and the names of the sources. Its state is not in it.

        Args:
            define_graph: what to call for the outputs, where there are none; deprecated in DALI.
            filename: a file to write it into, too; it is overwritten.

        Raises:
            ArgumentTypeError: `define_graph` is not callable.
            PipelineStateError: there are outputs already.
        """
        if define_graph is not None:
            self._set_outputs_by(define_graph)
        from dali_like.pipeline.serialization import dumps  # noqa: PLC0415  # with all operators

        with self._call:
            text = dumps(self._arguments, self._make_graph())
        if filename is not None:
            with open(filename, "wb") as file:
                file.write(text)
        return text

    @classmethod
    def deserialize(
        cls,
        serialized_pipeline: str | bytes | None = None,
        filename: str | os.PathLike[str] | None = None,
        **arguments: Any,
    ) -> Self:
        """Make a pipeline of what `serialize` gave, and build it. Nothing in a file is run: it may come from a stranger.

        Args:
            serialized_pipeline: the text; or
            filename: a file with it.
            arguments: those of `Pipeline`, which count instead of the ones in the text, unless they are None.

        Raises:
            SerializationError: it is no serialised pipeline.
            ArgumentError: there is neither a text nor a file, or both; an argument has a value that is not allowed.
            DefinitionError: an argument is unknown.
        """
        if (serialized_pipeline is None) == (filename is None):
            raise ArgumentError("deserialize() takes either a serialized_pipeline or a filename")
        pipe = cls()
        if unknown := sorted(set(arguments) - vars(pipe._arguments).keys()):
            raise DefinitionError(
                f"deserialize() got arguments that Pipeline does not have: {list_unknown(unknown, vars(pipe._arguments))}"
            )
        if filename is not None:
            with open(filename, "rb") as file:
                serialized_pipeline = file.read()
        pipe._load(serialized_pipeline, {name: value for name, value in arguments.items() if value is not None})
        return pipe

    def deserialize_and_build(self, serialized_pipeline: str | bytes) -> None:
        """Let this pipeline be what another one's `serialize` gave, and build it.

        What this one has been given counts; of the other come the arguments that are None here.

        Raises:
            SerializationError: it is no serialised pipeline.
            DefinitionError: the pipeline has been built.
        """
        self._load(serialized_pipeline, {name: value for name, value in vars(self._arguments).items() if value is not None})

    def _load(self, text: str | bytes | None, given: dict[str, Any]) -> None:
        if not isinstance(text, (str, bytes, bytearray)):
            raise ArgumentTypeError(f"a serialised pipeline is bytes or a string, not {text!r}")
        from dali_like.pipeline.serialization import loads  # noqa: PLC0415  # with all operators

        document = loads(text)
        self.set_outputs(*document.outputs)
        for node in document.sinks:
            self.add_sink(node)
        self._adopt(replace(self._arguments, **{**document.arguments, **given}))
        self.build()

    def _set_outputs_by(self, define_graph: Callable[[], Any]) -> None:
        if not callable(define_graph):
            raise ArgumentTypeError(
                f"define_graph must be callable, not {define_graph!r}; a file is given as serialize(filename=...)"
            )
        if self._outputs:
            raise PipelineStateError("Duplicate graph definition: the outputs have been set, so leave define_graph out")
        with self:
            outputs = define_graph()
        self.set_outputs(*(outputs if isinstance(outputs, (list, tuple)) else [outputs]))
