"""Benchmarks of typical training inputs, from image files to normalized batches: ``python -m benchmarks.training``.

``docs/benchmarks.md`` has the method and its limitations, ``docs/benchmarks/`` the results. The modules, in import order:

- `photographs`: the files
- `sources`: the callbacks that read them
- `opencv`: the pipelines' work in OpenCV, for torch and for comparing pixels
- `in_torchvision`: the same with torchvision.v2's transforms
- `workloads`: a pipeline of the examples, its files, and checks of its batches
- `systems`: dali_like, DALI and torch with a workload
- `run_one`: measures one system on one workload, in a separate process
- `report`: goals and tables
- `__main__`: runs all of them in turn

`benchmarks.training.readers` has the inputs that readers of the library read.
"""
