"""GPUs: whether there are any, page-locked memory, and copies to them. Imports nothing of the layers above.

Nothing here is imported, and no library for GPUs either, unless a pipeline or a loader asks for a GPU.
"""
