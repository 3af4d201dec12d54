"""Comparisons with the real DALI and the real PyTorch."""
