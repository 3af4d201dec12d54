"""Benchmarks of dali_like against PyTorch's DataLoader and NVIDIA DALI: ``python -m benchmarks``.

``docs/benchmarks.md`` has the method and its limitations, ``docs/benchmarks/`` the results. The modules, in import order:

- `workloads`: the samples, one function of the sample's index for each workload
- `measurement`: the record of one run
- `processes`: CPU time and memory of a tree of processes, from ``/proc``
- `adapters`: the systems, each behind the same small protocol
- `limit`: the same work without handing over batches, an upper bound for every loader
- `timing`: timed receipt of batches
- `run_one`: measures one system on one workload, in a separate process
- `report`: medians, ratios, tables, CSV
- `turns`: alternating runs, each in a separate process
- `__main__`: runs all of them in turn

The package `loader` does the same for DataLoaders.
"""
