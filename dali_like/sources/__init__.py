"""Sources: user callables, iterables and generators, turned into the one contract that the engine knows.

Also sharding and ranks, pickling by value, source states for checkpoints, and remote files. Imports the layers below:
`images`, `device`, `engine`, `common`.
"""
