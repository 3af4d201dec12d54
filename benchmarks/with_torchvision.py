"""Import torchvision beside a torch for CPUs.

The package of torchvision on PyPI is compiled for CUDA. Its library does not load then, which its transforms and datasets do
not need. But the import wants two operators of the library to be declared.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

#: Where `make` installs it: apart from packages that import it if they can, and would fail.
_APART = Path(sys.prefix) / "apart"
_declared: list[Any] = []


def has_torchvision() -> bool:
    """Whether `import_torchvision` finds it."""
    return find_spec("torchvision") is not None or (_APART / "torchvision").exists()


def import_torchvision(module: str = "torchvision") -> Any:
    """Return torchvision, or a module of it."""
    import torch  # most benchmarks do without

    if torch.version.cuda is None and not _declared:
        _declared.append(torch.library.Library("torchvision", "FRAGMENT"))  # the declarations end with it
        for name in ("nms", "qnms"):
            _declared[0].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    if find_spec("torchvision") is None:
        sys.path.append(str(_APART))
    return importlib.import_module(module)
