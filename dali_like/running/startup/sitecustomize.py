"""Python imports this module at its start, because ``dali-like run`` has put its folder on PYTHONPATH.

It imports nothing but builtin modules, because each Python process of the program waits for it. It takes its folder off the
path again, and executes the ``sitecustomize`` that it has hidden, if there is one.
"""

import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != _FOLDER]


def _begin() -> None:
    """Watch imports. The package itself is imported when the program imports PyTorch's loader."""
    if "DALI_LIKE_RUN" not in os.environ:  # a worker of this library
        return
    from _frozen_importlib import ModuleSpec, module_from_spec
    from _frozen_importlib_external import SourceFileLoader

    name = "dali_like.running.hook"
    loader = SourceFileLoader(name, os.path.join(os.path.dirname(_FOLDER), "hook.py"))
    spec = ModuleSpec(name, loader, origin=loader.path)
    spec.has_location = True
    module = sys.modules[name] = module_from_spec(spec)
    loader.exec_module(module)
    module.install()


def _execute_hidden() -> None:
    from _frozen_importlib_external import PathFinder

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        from _frozen_importlib import module_from_spec

        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


_begin()
_execute_hidden()
