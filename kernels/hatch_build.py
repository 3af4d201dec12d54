"""Compiles the library when a wheel is built. The wheel is for any Python 3 on the platform."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))
from build_library import build


class Library(BuildHookInterface[Any]):
    """Adds the compiled library to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile it before the files of the wheel are collected; called by hatchling."""
        name = "dali_like_kernels/libdali_like_kernels.so"
        build(Path(self.root) / name)
        platform = os.environ.get("DALI_LIKE_KERNELS_PLATFORM") or sysconfig.get_platform().replace("-", "_").replace(
            ".", "_"
        )
        build_data["artifacts"].append(name)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
