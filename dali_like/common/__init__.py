"""Helpers without a subject of their own: argument checks, optional imports, Ctrl-C, warnings, DLPack capsules.

The lowest layer, together with `dali_like.errors` and `dali_like.types`. Imports nothing else of the package.
"""
