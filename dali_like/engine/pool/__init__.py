"""Worker pools, in the main process: batches, dispatch of tasks, recovery, choice of settings.

Imports `dali_like.engine.worker` and `dali_like.engine.memory`; knows backends only through the `Workers` protocol.
"""
