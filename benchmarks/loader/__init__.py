"""Benchmarks of DataLoaders beside PyTorch's: ``python -m benchmarks.loader``.

Method, doubts and results are in ``docs/benchmarks.md``. The modules, in the order of their imports:

- `datasets`: what is loaded
- `workloads`: a dataset, the loader's arguments, and which part of a loader's life is measured
- `run_one`: measures one loader on one workload, in a process of its own
- `report`: the figures to reach, tables
- `__main__`: runs them all, in turn
"""
