"""Worker pools as the main process sees them: batches, dispatch of tasks, recovery, choice of settings.

Imports `dali_like.engine.worker` and `dali_like.engine.memory`; knows backends only through the `Workers` protocol.
"""
