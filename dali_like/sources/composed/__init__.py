"""Composed datasets: a description of sources and stages, evaluated at positions or in logical shards.

`dataset` has the class that users see. `stage` has the contract of stages, the other modules the stages. `positions` is the
arithmetic of shards and ranks, and `stream` evaluates a dataset in one process. Nothing here knows loaders or pipelines.
"""
