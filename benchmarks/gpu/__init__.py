"""What only a machine with a GPU can show: ``python -m benchmarks.gpu``, see its ``__main__``."""
