"""GPUs: detection, page-locked memory, and copies to them. Runs in the main process; imports no layer above.

A program imports this package, and libraries for GPUs, only when a pipeline or loader asks for a GPU.
"""
