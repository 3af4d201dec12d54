"""Shared helpers: argument checks, suggestions, optional imports, deferred Ctrl-C, warnings, DLPack capsules.

The lowest layer, with `dali_like.errors`; imports nothing else of the package.
"""
