"""Code that runs in a worker: take a task, call the source, write rows, report.

The inline pool runs the same code in the main process. Imports `dali_like.engine.memory` only.
"""
