"""Batches of one loader or pipeline for several processes: a server lends them, and consumers map its memory.

Layer: above `device` and `engine`. It knows neither loaders nor pipelines: these hand over an iterable of epochs.
"""
