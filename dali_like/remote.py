"""`RemoteFiles` and `is_transient`; see `dali_like.sources.remote_files`."""

from dali_like.sources.remote_files import RemoteFiles, is_transient

__all__ = ["RemoteFiles", "is_transient"]
