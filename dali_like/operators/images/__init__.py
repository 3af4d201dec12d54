"""Operators that decode images and videos."""

from __future__ import annotations

from dali_like.operators.images import decoding, experimental_decoding, video_decoding

__all__ = ["decoding", "experimental_decoding", "video_decoding"]
