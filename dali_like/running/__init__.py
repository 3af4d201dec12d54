"""Unchanged programs run with this library: its classes take the places of PyTorch's and DALI's when they are imported.

``dali-like run`` lets each Python process of a program execute ``startup/sitecustomize.py`` at its start. `hook` watches
imports, `run_loader` is the class that programs get, `recording` writes a record of its loaders, and `summary` shows it. A
program that imports neither PyTorch nor DALI only gets `hook`, which imports builtin modules.
"""
