"""Benchmarks of what image models are trained on, from files to normalized batches: ``python -m benchmarks.training``.

Method, doubts and results are in ``docs/benchmarks.md``. The modules, in the order of their imports:

- `photographs`: the files
- `sources`: the callbacks that read them
- `opencv`: the same work as the pipelines' in OpenCV, for torch, and to compare pixels with
- `workloads`: a pipeline of the examples, its files, and what its batches are to be like
- `systems`: dali_like, DALI and torch with a workload
- `run_one`: measures one system on one workload, in a process of its own
- `report`: the figures to reach, tables
- `__main__`: runs them all, in turn
"""
