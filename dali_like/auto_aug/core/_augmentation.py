"""Augmentations: functions of samples and a parameter, which is computed from a magnitude bin."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from dali_like import types
from dali_like.auto_aug.core._magnitudes import SignedMagnitudeBin, plain_bin, signed_bin
from dali_like.common.notices import warn
from dali_like.errors import ArgumentError, ArgumentTypeError
from dali_like.graph.language.nodes import DataNode

CONVERT_CONDITIONALS = True

MagnitudeRange: TypeAlias = Sequence[float] | NDArray[Any]

_UNCHANGED: Any = object()
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Augmentation:
    """A transformation of samples with a magnitude. Create it with the decorator `augmentation`.

    Attributes:
        op: the decorated function of samples and a parameter.
        mag_range: the lowest and the highest magnitude, or an array with one magnitude for each bin; None: the parameter
            of `op` is None.
        randomly_negate: whether the magnitude is negated for half of the samples, at random.
        mag_to_param: computes the parameter of `op` from a magnitude.
        param_device: where parameters are: "cpu", "gpu", or "auto" for the device of the samples.
        name: of the augmentation, for policies and messages.
    """

    def __init__(
        self,
        op: Callable[..., Any],
        mag_range: MagnitudeRange | None = None,
        randomly_negate: bool | None = None,
        mag_to_param: Callable[[float], Any] | None = None,
        param_device: str | None = None,
        name: str | None = None,
    ) -> None:
        self._options = {
            "mag_range": mag_range,
            "randomly_negate": randomly_negate,
            "mag_to_param": mag_to_param,
            "param_device": param_device,
            "name": name,
        }
        self.op = op
        self.mag_range = mag_range
        self.randomly_negate = bool(randomly_negate)
        self.mag_to_param = mag_to_param or np.array
        self.param_device = param_device or "cpu"
        self.name: str = name or op.__name__
        parameters = inspect.signature(op).parameters.values()
        positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
        if len(positional) < 2:
            raise ArgumentTypeError(
                f"augmentation `{self.name}` has {len(positional)} positional arguments: the function needs two, the "
                "samples and the parameter"
            )
        rest = [parameter for parameter in parameters if parameter not in positional[:2] and parameter.kind in _NAMED]
        self._accepted = {parameter.name: parameter.default is inspect.Parameter.empty for parameter in rest}

    def __repr__(self) -> str:
        options = [f"{name}={value!r}" for name, value in self._options.items() if value is not None]
        return f"Augmentation({', '.join([repr(self.op), *options])})"

    def __call__(
        self,
        data: DataNode,
        *,
        magnitude_bin: int | DataNode | SignedMagnitudeBin | None = None,
        num_magnitude_bins: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Apply the augmentation to samples.

        Args:
            data: the samples.
            magnitude_bin: from 0 to ``num_magnitude_bins - 1``, the same for all samples or one for each sample.
            num_magnitude_bins: the number of bins that `mag_range` is divided into.
            kwargs: arguments of `op`; unknown arguments are ignored.

        Raises:
            ArgumentError: magnitudes or bins are missing or wrong.
            ArgumentTypeError: a required argument of `op` is missing.
        """
        parameter = self._parameter(data, magnitude_bin, num_magnitude_bins)
        missing = [name for name, required in self._accepted.items() if required and name not in kwargs]
        if missing:
            hint = (
                ", for example from fn.peek_image_shape, or use a suite with use_shape=False" if "shape" in missing else ""
            )
            raise ArgumentTypeError(f"augmentation `{self.name}` needs named arguments: pass {', '.join(missing)}{hint}")
        accepted = {name: value for name, value in kwargs.items() if name in self._accepted}
        return self.op(data, parameter, **accepted)

    def augmentation(
        self,
        mag_range: MagnitudeRange | None = _UNCHANGED,
        randomly_negate: bool | None = _UNCHANGED,
        mag_to_param: Callable[[float], Any] | None = _UNCHANGED,
        param_device: str | None = _UNCHANGED,
        name: str | None = _UNCHANGED,
        augmentation_cls: type[Augmentation] | None = None,
    ) -> Augmentation:
        """Return the same augmentation with other options; see the decorator `augmentation`."""
        changes = {
            "mag_range": mag_range,
            "randomly_negate": randomly_negate,
            "mag_to_param": mag_to_param,
            "param_device": param_device,
            "name": name,
        }
        options: dict[str, Any] = self._options | {k: value for k, value in changes.items() if value is not _UNCHANGED}
        return (augmentation_cls or type(self))(self.op, **options)

    def accepts(self, name: str) -> bool:
        """Whether the function has a named argument."""
        return name in self._accepted

    def _parameter(self, data: DataNode, magnitude_bin: Any, num_magnitude_bins: int | None) -> Any:
        """Return the parameter of `op`: a constant, or a node with one parameter for each sample."""
        if self.mag_range is None:
            return None
        magnitudes = self._magnitudes(num_magnitude_bins)
        if magnitude_bin is None:
            raise ArgumentError(f"augmentation `{self.name}` has magnitudes: pass magnitude_bin=")
        index = plain_bin(magnitude_bin)
        if isinstance(index, int) and not 0 <= index < len(magnitudes):
            raise ArgumentError(
                f"augmentation `{self.name}`: magnitude_bin={index} is outside of the bins; pass 0 to {len(magnitudes) - 1}"
            )
        if self.randomly_negate:
            magnitude_bin = self._with_sign(magnitude_bin)
            if isinstance(index, int):
                magnitudes, index = magnitudes[index : index + 1], magnitude_bin.random_sign
            else:
                index = magnitude_bin.signed_magnitude_idx
            magnitudes = np.stack([magnitudes, -magnitudes], axis=1).ravel()
        device = data.device if self.param_device == "auto" else self.param_device
        if isinstance(index, int):
            return types.Constant(self._parameters(magnitudes[index : index + 1])[0], device=device)
        return types.Constant(self._parameters(magnitudes), device=device)[index]

    def _with_sign(self, magnitude_bin: Any) -> SignedMagnitudeBin:
        if isinstance(magnitude_bin, SignedMagnitudeBin):
            return magnitude_bin
        warn(
            f"augmentation `{self.name}` has randomly_negate=True, but the magnitude bin has no sign: the sign is random. "
            "Pass signed_bin(magnitude_bin) to choose the sign once for several augmentations",
            UserWarning,
        )
        return signed_bin(magnitude_bin)

    def _magnitudes(self, num_magnitude_bins: int | None) -> NDArray[Any]:
        """Return the magnitude of each bin."""
        if isinstance(self.mag_range, np.ndarray):
            if num_magnitude_bins not in (None, len(self.mag_range)):
                raise ArgumentError(
                    f"augmentation `{self.name}` has {len(self.mag_range)} magnitudes: pass num_magnitude_bins="
                    f"{len(self.mag_range)}, not {num_magnitude_bins}"
                )
            return self.mag_range
        if num_magnitude_bins is None:
            raise ArgumentError(f"augmentation `{self.name}` has a range of magnitudes: pass num_magnitude_bins=")
        if not isinstance(self.mag_range, Sequence) or len(self.mag_range) != 2:
            raise ArgumentError(
                f"augmentation `{self.name}`: mag_range={self.mag_range!r} must be the lowest and the highest magnitude, or "
                "an array of all magnitudes"
            )
        return np.linspace(self.mag_range[0], self.mag_range[1], num_magnitude_bins, dtype=np.float32)

    def _parameters(self, magnitudes: NDArray[Any]) -> NDArray[Any]:
        parameters = [self._checked(self.mag_to_param(magnitude)) for magnitude in magnitudes]
        for parameter, magnitude in zip(parameters, magnitudes, strict=True):
            if (parameter.shape, parameter.dtype) != (parameters[0].shape, parameters[0].dtype):
                raise ArgumentError(
                    f"augmentation `{self.name}`: mag_to_param returns {parameters[0].dtype} of the shape "
                    f"{parameters[0].shape} for the magnitude {magnitudes[0]}, but {parameter.dtype} of the shape "
                    f"{parameter.shape} for {magnitude}. Return arrays of one dtype and shape"
                )
        return np.array(parameters)

    def _checked(self, parameter: Any) -> NDArray[Any]:
        parts = parameter if isinstance(parameter, (list, tuple)) else [parameter]
        if any(isinstance(part, DataNode) for part in parts):
            raise ArgumentTypeError(
                f"augmentation `{self.name}`: mag_to_param returns a DataNode. Return a number or an array, and use "
                "operators in the augmentation itself"
            )
        return np.array(parameter)


@overload
def augmentation(function: Callable[..., Any]) -> Augmentation: ...
@overload
def augmentation(
    *,
    mag_range: MagnitudeRange | None = None,
    randomly_negate: bool | None = None,
    mag_to_param: Callable[[float], Any] | None = None,
    param_device: str | None = None,
    name: str | None = None,
    augmentation_cls: type[Augmentation] | None = None,
) -> Callable[[Callable[..., Any]], Augmentation]: ...
def augmentation(
    function: Callable[..., Any] | None = None,
    *,
    mag_range: MagnitudeRange | None = None,
    randomly_negate: bool | None = None,
    mag_to_param: Callable[[float], Any] | None = None,
    param_device: str | None = None,
    name: str | None = None,
    augmentation_cls: type[Augmentation] | None = None,
) -> Any:
    """Make an augmentation from a function of samples and a parameter. A decorator.

    The augmentation is called with a magnitude bin instead of the parameter. The parameter is
    ``mag_to_param(magnitudes[magnitude_bin])``, where the magnitudes are
    ``numpy.linspace(*mag_range, num_magnitude_bins)``.

    Args:
        function: uses operators, and returns the transformed samples. Arguments after the first two are named arguments.
        mag_range: the lowest and the highest magnitude, or an array with one magnitude for each bin; None: the function
            has no parameter, and gets None.
        randomly_negate: whether to negate the magnitude for half of the samples, at random.
        mag_to_param: computes the parameter from a magnitude: a number or an array, of one dtype and shape for all
            magnitudes. By default, the magnitude itself. Is called when the pipeline is defined.
        param_device: where the parameters are: "cpu" (the default), "gpu", or "auto" for the device of the samples.
        name: for policies and messages; by default that of the function.
        augmentation_cls: a subclass of `Augmentation` to return.

    Raises:
        ArgumentTypeError: the function is not callable, is an augmentation already, or has too few arguments.

    Follows ``nvidia.dali.auto_aug.core.augmentation`` 1.53.

    >>> from dali_like import fn
    >>> @augmentation(mag_range=(0, 45), randomly_negate=True)
    ... def turned(data, angle, fill_value=0):
    ...     return fn.rotate(data, angle=angle, fill_value=fill_value, keep_size=True)
    >>> turned.augmentation(mag_range=(0, 90)).mag_range
    (0, 90)
    """

    def decorate(function: Callable[..., Any]) -> Augmentation:
        make = augmentation_cls or Augmentation
        return make(
            function,
            mag_range=mag_range,
            randomly_negate=randomly_negate,
            mag_to_param=mag_to_param,
            param_device=param_device,
            name=name,
        )

    if function is None:
        return decorate
    if isinstance(function, Augmentation):
        raise ArgumentTypeError(
            f"`{function.name}` is an augmentation already: change its options with {function.name}.augmentation(...)"
        )
    if not callable(function):
        raise ArgumentTypeError(f"@augmentation decorates functions, not {function!r}")
    return decorate(function)


def forbid_unused(augmentations: Collection[Augmentation], kwargs: Mapping[str, Any], caller: str) -> None:
    """Raise ArgumentTypeError if no augmentation has one of the named arguments."""
    unused = [name for name in kwargs if not any(each.accepts(name) for each in augmentations)]
    if unused:
        raise ArgumentTypeError(f"{caller}: no augmentation has the arguments {', '.join(unused)}: omit them")
