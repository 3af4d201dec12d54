"""Benchmarks of dali_like beside PyTorch's DataLoader and NVIDIA DALI: ``python -m benchmarks``.

Method, doubts and results are in ``docs/benchmarks.md``. The modules, in the order of their imports:

- `workloads`: what is loaded, one function of the sample's index for each workload
- `measurement`: the record of one run
- `processes`: CPU time and memory of a tree of processes, from ``/proc``
- `adapters`: the systems, each behind the same small protocol
- `limit`: the same work without any hand-over, which no loader can beat
- `timing`: receiving batches, timed
- `run_one`: measures one system on one workload, in a process of its own
- `report`: medians, ratios, tables, CSV
- `turns`: runs in turn, each a process of its own
- `__main__`: runs them all, in turn

The package `loader` does the same for DataLoaders.
"""
