"""Watches imports: of ``torch.utils.data``, whose loader it replaces, and of ``nvidia.dali``, which it may replace.

It runs in each Python process of a program, at the start of the interpreter, and so imports builtin modules only. The class
that replaces PyTorch's loader is imported when the program asks for it by name.
"""

from __future__ import annotations

import _thread
import os
import sys
from _frozen_importlib import ModuleSpec

TYPE_CHECKING = False  # as in `typing`, whose import takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

#: The environment variable with the options of ``dali-like run``; see `dali_like.running.run_settings`.
VARIABLE = "DALI_LIKE_RUN"
_DATA = "torch.utils.data"
_DALI = "nvidia.dali"


def install() -> None:
    """Watch imports from now on. PyTorch may be imported already; then its loader is replaced at once."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    sys.meta_path.append(_MissingDALI())
    if _DATA in sys.modules:
        _replace_loader(sys.modules[_DATA])
        # Modules of the program that have imported the class before.
        original = vars(sys.modules[_DATA])["_dali_like_original"]
        for name, module in list(sys.modules.items()):
            if not _is_within(name, "torch") and not _is_within(name, "dali_like"):
                attributes = getattr(module, "__dict__", {})
                for key in [key for key, value in list(attributes.items()) if value is original]:
                    attributes[key] = sys.modules[_DATA].DataLoader


class _Finder:
    """Finds modules like the others, and has some of them changed when they have been executed."""

    def __init__(self) -> None:
        self._is_busy = False

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        if name == _DATA and not self._is_busy:
            return self._found_by_others(name, path, target)
        if name.startswith(_DALI) and _is_within(name, _DALI) and (_is_ours() or _takes_dali()):
            return _spec_of_dali(name)
        return None

    def _found_by_others(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> Any:
        from importlib.util import find_spec  # not in each process

        self._is_busy = True
        try:
            spec = find_spec(name)
        finally:
            self._is_busy = False
        if spec is not None and spec.loader is not None:
            replacement: Any = _Executing(spec.loader)
            spec.loader = replacement
        return spec


class _Executing:
    """A loader of modules that replaces PyTorch's data loader afterwards."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _replace_loader(module)


def _replace_loader(data: ModuleType) -> None:
    """Let the attribute ``DataLoader`` be this library's class, which is imported when the attribute is used."""
    modules = (data, sys.modules["torch.utils.data.dataloader"])
    original = modules[1].DataLoader
    importing: set[int] = set()

    def class_now() -> Any:
        if getattr(getattr(sys.modules["torch"], "__spec__", None), "_initializing", False):
            return original  # for modules of PyTorch itself
        thread = _thread.get_ident()
        if thread in importing:
            return original  # for the base class of this library's
        importing.add(thread)
        replacement: Any = original
        try:
            from importlib import import_module

            from dali_like.common.collector import paused_collector

            with paused_collector():
                from dali_like.running.run_settings import settings

                name = "baseline_loader" if settings().baseline else "run_loader"
                replacement = import_module(f"dali_like.running.{name}").DataLoader
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] != "dali_like":
                raise
            what = f"this version of dali_like is not installed for {sys.executable}, which uses PyTorch's loader"
            print(f"dali-like run: {what}", file=sys.stderr)
        finally:
            importing.discard(thread)

        for module in modules:
            vars(module).setdefault("DataLoader", replacement)
        return replacement

    for module in modules:
        earlier = vars(module).get("__getattr__")

        def get(name: str, module: ModuleType = module, earlier: Any = earlier) -> Any:
            if name == "DataLoader":
                return class_now()
            if earlier is not None:
                return earlier(name)
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        del vars(module)["DataLoader"]
        vars(module)["__getattr__"] = get
        vars(module)["_dali_like_original"] = original


# DALI


class _MissingDALI:
    """Finds ``nvidia.dali`` where no other finder does: it is not installed."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        if name == "nvidia":
            return ModuleSpec(name, None, is_package=True)  # as a folder without __init__.py
        return _spec_of_dali(name) if name == _DALI else None


def _is_ours() -> bool:
    """Return whether ``nvidia.dali`` is this package already. The path of the package has the modules a second time."""
    return getattr(sys.modules.get(_DALI), "__name__", "") == "dali_like"


def _takes_dali() -> bool:
    if VARIABLE not in os.environ:
        return False
    from dali_like.running.run_settings import settings

    return settings().dali


def _spec_of_dali(name: str) -> ModuleSpec | None:
    from importlib.util import find_spec

    ours = "dali_like" + name.removeprefix(_DALI)
    if find_spec(ours) is None:
        return None
    if name == _DALI:
        reason = "--dali" if _takes_dali() else "nvidia.dali is not installed"
        print(f"dali_like: nvidia.dali is dali_like in this process ({reason})", file=sys.stderr)
    loader: Any = _SameModule(ours)
    return ModuleSpec(name, loader, is_package=True)


class _SameModule:
    """A loader whose module is another one, under another name."""

    def __init__(self, ours: str) -> None:
        self._ours = ours
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        from importlib import import_module

        module = import_module(self._ours)
        self._spec = module.__spec__  # the import system is about to replace it
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


def _is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")
