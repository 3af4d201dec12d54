"""Shared helpers: argument checks, pickling by value, optional imports, deferred Ctrl-C, warnings, DLPack capsules.

The lowest layer, with `dali_like.errors` and `dali_like.types`; imports nothing else of the package.
"""
