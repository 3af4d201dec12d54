"""Execution of graphs: where operators run, the program of each place, and the batches of threads and GPUs.

Imports `dali_like.graph.language`, and not the other way round.
"""
