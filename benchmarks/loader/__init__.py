"""Benchmarks of DataLoaders against PyTorch's: ``python -m benchmarks.loader``.

``docs/benchmarks.md`` has the method and its limitations, ``docs/benchmarks/`` the results. The modules, in import order:

- `datasets`: the datasets
- `workloads`: a dataset, the loader's arguments, and the measured part of a loader's life
- `run_one`: measures one loader on one workload, in a separate process
- `report`: goals and tables
- `__main__`: runs all of them in turn
"""
