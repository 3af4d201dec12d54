"""Image decoding on a GPU, for ``fn.decoders.image(device="mixed")``, with the CPU as fallback."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dali_like.device.copier import Copier, DeviceSamples
from dali_like.device.device_array import DeviceArray
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery.description import BoundOperator
from dali_like.types import GRAY, RGB

#: Operators that run on the GPU with ``device="mixed"``.
ON_GPU = ("decoders.image", "experimental.decoders.image")
#: Output types that the GPU supports.
_OUTPUT_TYPES = (RGB, GRAY)


@dataclass(frozen=True)
class MixedImage:
    """Decode images on the GPU; a `dali_like.graph.language.operator_interface.GpuOperator`.

    Attributes:
        on_cpu: the operator that decodes them on the CPU.
    """

    on_cpu: BoundOperator
    seed: int | None = None
    per_sample: bool = False

    @property
    def name(self) -> str:
        return self.on_cpu.name

    @property
    def arguments(self) -> Mapping[str, Any]:
        return {**self.on_cpu.arguments, "device": "mixed"}

    @property
    def layouts(self) -> Sequence[str]:
        return self.on_cpu.layouts

    def stacks(self, num_inputs: int, arguments: Collection[str]) -> bool:
        return False

    def compute(self, call: OperatorCall, inputs: Sequence[Any], arguments: Mapping[str, Any]) -> Sequence[Any]:
        """Decode one image on the CPU; the input is its file."""
        return self.on_cpu.compute(call, inputs, arguments)

    def compute_on_gpu(
        self,
        call: OperatorCall,
        samples: Sequence[Array],
        copier: Copier,
        for_each: Callable[[int, Callable[[int], None]], None],
    ) -> DeviceSamples:
        """Decode a batch; see `dali_like.graph.language.operator_interface.GpuOperator`."""
        images = self._decoded_on_gpu(samples, copier)
        left = [i for i, image in enumerate(images) if image is None]

        def decode(i: int) -> None:
            if images[i] is None:
                (images[i],) = self.compute(call, [samples[i]], {})

        if left:
            for_each(len(samples), decode)
            (sent,) = copier.send([[images[i] for i in left]])
            if len(left) == len(samples):
                return sent
            for place, i in enumerate(left):
                images[i] = (sent.at(place) if isinstance(sent, DeviceArray) else sent[place]).on_gpu
        return copier.take_in(images, is_dense=False, stream=copier.device.stream, copies=True, by_kernel=False)

    def _decoded_on_gpu(self, samples: Sequence[Array], copier: Copier) -> list[Any]:
        """Return the images, with None for each file that the GPU cannot decode."""
        defaults = {name: parameter.default for name, parameter in self.on_cpu.description.parameters.items()}
        values = {**defaults, **self.on_cpu.values}
        output_type, dtype = values["output_type"], values["dtype"]
        if output_type not in _OUTPUT_TYPES or (dtype is not None and dtype != np.uint8):
            return [None] * len(samples)
        is_upright = bool(values["adjust_orientation"])
        files = [bytes(sample) for sample in samples]
        return list(copier.device.decode_images(files, is_gray=output_type is GRAY, is_upright=is_upright))
