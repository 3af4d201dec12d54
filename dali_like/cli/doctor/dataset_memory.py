"""The check of a dataset: does every worker copy millions of its objects?"""

from __future__ import annotations

from functools import partial

from dali_like.cli.doctor.findings import Check, Finding, ok, warning
from dali_like.cli.factories import object_of
from dali_like.sources.travel.introspection import large_containers

_SUBJECT = "dataset"


def check_of(text: str) -> Check:
    """Return the check of an object that the user has named as ``module:name``.

    Raises:
        ArgumentError: there is no such object.
    """
    found = object_of(text, "dataset", lambda value: value is not None)
    return partial(_examine, getattr(found, "dataset", found), text.rpartition(":")[2])


def _examine(dataset: object, name: str) -> Finding:
    large = large_containers(dataset, name)
    if not large:
        return ok(_SUBJECT, f"{name} has no list or dict of 100,000 objects or more")
    return warning(
        _SUBJECT, "copied by each worker: " + "; ".join(large), "share it: dali_like.data.SharedList(...) or SharedDict(...)"
    )
