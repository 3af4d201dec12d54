"""Sample caches: `cache_options` are their options, `element_cache` finds and stores elements, `cached_elements` is their
form, `cache_files` the disk tier, and `cached_callback` the cache of a source.

The memory belongs to the engine (`dali_like.engine.memory.sample_cache`). Stages of composed datasets, sources and operators
of pipelines use the same caches.
"""
