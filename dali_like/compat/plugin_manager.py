"""Libraries of operators, as in ``nvidia.dali.plugin_manager``: operators are Python functions here."""

from __future__ import annotations

from typing import NoReturn

from dali_like.errors import PluginError

__all__ = ["load_directory", "load_library"]


def load_library(library_path: str, global_symbols: bool = False) -> NoReturn:
    """Raise an error that names the alternative: libraries of DALI's operators need DALI itself.

    Raises:
        PluginError: always.
    """
    raise PluginError(
        f"{library_path} cannot be loaded: a library of operators for DALI consists of C++ classes of DALI. Operators of "
        "dali_like are Python functions of one sample. Write it as one, with the decorator dali_like.operator; see "
        "docs/how-to/operators.md"
    )


def load_directory(plugin_dir_path: str, global_symbols: bool = False) -> NoReturn:
    """Raise an error; see `load_library`.

    Raises:
        PluginError: always.
    """
    load_library(plugin_dir_path, global_symbols)
