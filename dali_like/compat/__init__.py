"""Compatibility with the names of DALI: its backend, its plugin manager, and its modules of operators.

Programs import `dali_like.backend` or `dali_like.fn.decoders`, which no file defines. Importing a package makes the modules
below it, from the tables in `dali_like` and in `operator_modules`; their members are imported on first access. Type checkers
read stubs, which `tools.stubs` writes from the same tables.
"""
