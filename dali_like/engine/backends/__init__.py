"""Worker backends: processes started by a forkserver, threads, and Ray actors.

Each implements the `Workers` protocol of `dali_like.engine.pool`. Imports all other engine packages.
"""
