"""Datasets, samplers, collation and transforms."""
