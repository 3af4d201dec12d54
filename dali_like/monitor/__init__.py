"""Seeing where the time goes: statistics, the report made of them, and their export; traces."""
