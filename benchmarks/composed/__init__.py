"""Benchmarks of composed datasets beside Grain: ``python -m benchmarks.composed``.

``docs/benchmarks.md`` has the method and its limitations. The modules, in import order:

- `sources`: small arrays and documents in memory, and checks of batches
- `workloads`: sources, a description, and the measured part of a loader's life
- `systems`: dali_like and Grain with the same description
- `run_one`: measures one system on one workload, in a separate process
- `__main__`: runs all of them in turn, with goals and tables
"""
