"""The engine: computes numbered batches in workers and hands them over through shared memory.

Sub-packages, each importing only from those below it: `backends` (processes, threads, Ray), `pool` (the main process),
`worker` (code that runs in a worker), `memory` (the shared memory and its records). The engine knows sources only through
`dali_like.engine.worker.source.Source`; it knows nothing of pipelines, graphs, loaders or GPUs.
"""
