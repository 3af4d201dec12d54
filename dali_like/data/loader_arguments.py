"""The constructor of loaders: the only list of their arguments, for this library's loader and the subclass of PyTorch's.

The annotations of those that PyTorch's loader does not have are their checks; see `dali_like.common.arguments`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeVar

from dali_like.common.arguments import Argument, specified_by
from dali_like.common.checks import auto_or_flag, error_policy, not_negative, positive, unchecked
from dali_like.common.suggestions import suggest_arguments
from dali_like.data.datasets import Samples
from dali_like.data.options import check_origins, check_place, check_reads, check_window
from dali_like.errors import ArgumentClashError, ArgumentError

__all__ = ["LoaderArguments", "own_arguments"]

_T = TypeVar("_T")
T_co = TypeVar("T_co", covariant=True)

#: An argument that PyTorch's loader does not have.
Own = Annotated[_T, "own"]


def _worker_seeding(name: str, value: Any) -> str:
    if value not in ("tasks", "torch"):
        raise ArgumentError(
            f'{name} must be "tasks" (random numbers depend on the samples) or "torch" (they depend on the worker), '
            f"not {value!r}"
        )
    return str(value)


def _peers(name: str, value: Any) -> str | None:
    if value not in (None, "serve"):
        raise ArgumentError(f'{name} must be "serve" (one rank on each host loads for the others) or None, not {value!r}')
    return None if value is None else str(value)


if TYPE_CHECKING:

    class _Of(Generic[T_co]): ...

else:

    class _Of:
        """Generic for type checkers, and a plain class otherwise: libraries replace the class of a loader by one with more
        bases, and Python allows that only if the first bases derive from object alone.
        """

        def __class_getitem__(cls, item: Any) -> Any:
            generic = getattr(super(), "__class_getitem__", None)
            return cls if generic is None else generic(item)


class LoaderArguments(_Of[T_co]):
    """A loader with its arguments.

    To add an argument, add it to the constructor, as `Own`, and describe it in `dali_like.data.DataLoader`. It becomes an
    attribute that cannot be set later, and has its value in ``LoaderOptions.own``.
    """

    #: The arguments that PyTorch's loader does not have, by name.
    _dali_like_own_arguments: ClassVar[Mapping[str, Argument]] = {}
    #: Arguments that other loaders have; with the values, these loaders.
    _dali_like_elsewhere: ClassVar[Mapping[str, str]] = {
        "device": "the DataLoader of dali_like.plugin.pytorch",
        "sharding": "the DataLoader of dali_like.plugin.jax",
    }
    #: Values of own arguments whose names a subclass of the program has for attributes of its own.
    _dali_like_aside: Mapping[str, Any] = {}
    #: In the dictionaries of this library's classes.
    _dali_like_is_library: ClassVar[bool] = True
    #: Whether the program does not know of own arguments, so that it means its own attributes; see `dali_like.running`.
    _dali_like_is_unknown: ClassVar[bool] = False
    #: Checks the arguments, and makes the attributes. It gets the own arguments in a dict, and PyTorch's by name.
    _dali_like_construct: Callable[..., None]

    @suggest_arguments
    def __init__(
        self,
        dataset: Samples[T_co],
        batch_size: int | Sequence[tuple[int, int]] | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int | str = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool | str = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        generator: Any = None,
        *,
        prefetch_factor: int | str | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        worker_seeding: Own[Annotated[str, _worker_seeding]] = "tasks",
        on_error: Own[Annotated[str | Callable[[Any, Exception], Any], error_policy]] = "raise",
        worker_restarts: Own[Annotated[int, not_negative] | None] = 3,
        prefetch_epochs: Own[bool] = False,
        max_held_bytes: Own[Annotated[int, positive] | None] = None,
        worker_threads: Own[Annotated[int, positive] | None] = 1,
        import_main: Own[bool | None] = None,
        share_batches: Own[Annotated[bool | str, auto_or_flag]] = "auto",
        reorder_window: Own[Annotated[int, positive] | None] = None,
        shard_id: Own[Annotated[int | None, unchecked]] = None,
        num_shards: Own[Annotated[int | None, unchecked]] = None,
        shard_rest: Own[Annotated[str | None, unchecked]] = None,
        balance: Own[Annotated[str | None, unchecked]] = None,
        costs: Own[Annotated[Any, unchecked]] = None,
        balance_window: Own[Annotated[int | None, unchecked]] = None,
        weights_file: Own[Annotated[str | os.PathLike[str] | None, unchecked]] = None,
        concurrency: Own[Annotated[int, positive] | None] = None,
        read_threads: Own[Annotated[int, positive] | None] = None,
        max_read_bytes: Own[Annotated[int, positive] | None] = None,
        mesh: Own[Annotated[Any, unchecked]] = None,
        mesh_dims: Own[Annotated[str | int | Sequence[str | int] | None, unchecked]] = None,
        peers: Own[Annotated[str | None, _peers]] = None,
        device: Own[Annotated[Any, unchecked]] = None,
        prefetch_to_device: Own[Annotated[int, not_negative]] = 2,
        static_buffers: Own[bool] = False,
        sharding: Own[Annotated[Any, unchecked]] = None,
        origins: Own[bool] = False,
    ) -> None:
        given = dict(locals())  # before any other local variable: the signature is the list of arguments
        del given["self"]
        own = {name: given.pop(name) for name in self._dali_like_own_arguments}
        self._dali_like_construct(own, **given)

    def _dali_like_set_own(self, own: Mapping[str, Any], dataset: Any, *, in_order: Any, is_composed: bool) -> None:
        """Check the arguments that PyTorch's loader does not have, and make them attributes.

        Raises:
            ArgumentError, ArgumentTypeError: an argument has a wrong value, or a wrong type.
            ArgumentClashError: two of them exclude each other.
        """
        checked = {name: argument.convert(own[name]) for name, argument in self._dali_like_own_arguments.items()}
        check_window(checked["reorder_window"], in_order=in_order, is_composed=is_composed)
        check_place(checked, self._dali_like_elsewhere, in_order=in_order)
        check_reads(checked, dataset)
        check_origins(checked, dataset)
        if checked["peers"] is not None and checked["weights_file"] is not None:
            raise ArgumentClashError("peers that share a loader cannot read weights_file together: call set_weights instead")
        if checked["peers"] is not None and checked["mesh"] is None:
            raise ArgumentClashError("peers share a loader by their places in a mesh: pass mesh=, or leave peers out")
        taken = self._dali_like_names_of_subclass()
        for name, value in checked.items():
            if name in taken:
                self._dali_like_set_aside(name, value)
            else:
                setattr(self, name, value)

    def _dali_like_names_of_subclass(self) -> set[str]:
        """Return names of own arguments that the program uses for attributes of its own, in a subclass."""
        if "_dali_like_is_library" in vars(type(self)):
            return set()
        names = set(vars(self))
        for kind in type(self).__mro__:
            if "_dali_like_is_library" in vars(kind):
                break
            names.update(vars(kind))
        return names & self._dali_like_own_arguments.keys()

    def _dali_like_set_aside(self, name: str, value: Any) -> None:
        """Keep the value of an own argument elsewhere, because its name belongs to the program."""
        vars(self)["_dali_like_aside"] = {**self._dali_like_aside, name: value}

    def _dali_like_value(self, name: str) -> Any:
        """Return the value of an own argument."""
        aside = self._dali_like_aside
        return aside[name] if name in aside else getattr(self, name)

    def _dali_like_check_set(self, name: str) -> None:
        """Check that an attribute may be set. Own arguments are fixed, unless their names belong to the program.

        Raises:
            ArgumentError: it may not.
        """
        if name not in self._dali_like_own_arguments or name in self._dali_like_aside:
            return
        if not self._dali_like_is_unknown:
            raise ArgumentError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        self._dali_like_set_aside(name, getattr(self, name))


def own_arguments() -> dict[str, Argument]:
    """Return the arguments that PyTorch's loader does not have, by name."""
    return specified_by(inspect.unwrap(LoaderArguments.__init__), "Own")


LoaderArguments._dali_like_own_arguments = own_arguments()
for _name, _argument in LoaderArguments._dali_like_own_arguments.items():
    setattr(LoaderArguments, _name, _argument.default)  # constructors of subclasses may leave out this one
