"""Benchmarks of training inputs that library readers read: ``python -m benchmarks.training.readers``.

The other benchmarks of `benchmarks.training` read files in a source that the program wrote. ``docs/benchmarks.md`` has the
method. The modules, in import order:

- `stored`: the photographs as class folders, TFRecords and tar shards
- `chunked`: LitData and MosaicML, which have formats of their own
- `systems`: these, dali_like, DALI, torch, SPDL and webdataset with such a dataset
- `run_one`: measures one system on one dataset, in a separate process
- `__main__`: runs all of them in turn, with goals and tables
"""
