"""The graph of a pipeline: nodes, the operator contract, the placement of operators, and the executor that runs them.

Everything here belongs to the main process, except for programs (`dali_like.graph.execution.program`), which also run in
workers. Imports tensors, sources, device and engine, but no operators.
"""
