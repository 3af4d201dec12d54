"""Readers: sources that the library has, by name in ``fn.readers``. Each file describes one format, or a few related ones.

`reader` has the base class, and `reader_order` the order of samples. `stored_files` is the only module that lists, opens and
reads files. Readers enter the engine as every source does, by `dali_like.sources.kinds`.
"""
