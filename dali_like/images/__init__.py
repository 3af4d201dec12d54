"""Decoding of image files on the CPU, and image arithmetic on NumPy arrays.

Imports the layers below: `device`, `engine`, `common`.
"""
