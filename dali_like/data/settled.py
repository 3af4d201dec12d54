"""The common parts of the iterators of a loader, as long as its options and the methods of its dataset stay the same.

The arguments of a loader are attributes, and most of those that PyTorch's loader has may change between epochs. So each
iterator reads them again, in one call. All that follows from them is settled once, and kept until one of them is another
object than before.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

from dali_like.common.user_objects import method_of
from dali_like.data.fetcher import Fetcher
from dali_like.data.generators import randomness_of
from dali_like.data.options import LoaderOptions, read_attributes
from dali_like.data.plans import LoaderPlan, plan_for
from dali_like.sources.composed import is_composed


class Settled:
    """The common parts of the iterators of a loader.

    Args:
        loader: the loader.

    Attributes:
        options: of the loader.
        plan_type: the class of plans.
        fetcher: computes the batches of iterators without workers; None: each of them has its own.
        goes_to_device: whether batches go to a device.
        is_composed: whether the dataset is a composed one.
        randomness: draws from the loader's generator; None without one.
    """

    def __init__(self, loader: Any) -> None:
        self._kind = type(loader)
        self._attributes = read_attributes(loader)
        self.options = options = LoaderOptions.from_attributes(loader, self._attributes)
        self.plan_type: type[LoaderPlan] = plan_for(options)
        self.goes_to_device = options.goes_to_device
        self.randomness = None if options.generator is None else randomness_of(options.generator)
        self.is_composed = is_composed(options.dataset)
        self._methods = _methods_of(options.dataset)
        self._collations = dict(options.array_backend.collations)

    def fits(self, loader: Any) -> bool:
        """Return whether the options of a loader and the methods of its dataset are the same as before."""
        options = self.options
        size = options.samples_per_batch
        return (
            type(loader) is self._kind
            and all(map(operator.is_, self._attributes, read_attributes(loader)))
            and (size is None or getattr(loader.batch_sampler, "batch_size", size) == size)
            and self._methods == _methods_of(options.dataset)
            and self._collations == options.array_backend.collations
        )

    @functools.cached_property
    def fetcher(self) -> Fetcher | None:  # see the class
        options = self.options
        # That of a composed dataset has an iterator's elements, and a new one divides a dataset among ranks.
        return None if self.is_composed or options.array_backend.divides(options.dataset) else Fetcher.of(options)


def _methods_of(dataset: Any) -> list[Any]:
    """Return the functions that decide how a dataset, and the datasets inside it, are asked for samples."""
    found: list[Any] = []
    while dataset is not None:
        getitems = method_of(dataset, "__getitems__")
        found += type(dataset), getattr(type(dataset), "__getitem__", None), getattr(getitems, "__func__", getitems)
        dataset = vars(dataset).get("dataset") if hasattr(dataset, "__dict__") else None
    return found
